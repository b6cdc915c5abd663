"""One page into readings: what each engine on it said, one value a quantity, at one moment."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from rooflens.adapters.scrape.address import printable
from rooflens.adapters.scrape.names import Meaning, Names
from rooflens.adapters.scrape.text import Labels, Sample, Samples

MODEL, ENGINE, PID = "model_name", "engine", "pid"
NAMES_NONE = frozenset(("", "undefined", "unknown", "none", "empty"))  # words for a model that an engine does not know
ALL_RANKS = "the page counts {names} for all ranks together: for one of them they are not known"
# An engine that does not number itself is the first one.
FIRST_ENGINE = "0"
LONGEST_NUMBER = 18  # digits of a whole number in a label; Python reads longer ones slowly
# A page with more engines than this is an aggregator's, not a server's.
MOST_ENGINES = 256
TOO_MANY = f"more engines than a server has are on this page: {MOST_ENGINES} are read, those beyond are left out"
MOST_COMPLAINTS = 20
# Facts of the pool beyond these are no engine's: a block of one token takes a kilobyte or so, and memory ends before
# a terabyte of them; the largest block in use has 4,096 tokens.
MOST_IN_CONFIG: Mapping[str, float] = {"num_gpu_blocks": 1e9, "block_size": 1 << 20, "kv_cache_size_tokens": 1e12}

UNRANKED = ""  # until it is known which ranks there are
MOST_NAMED = 4  # quantities in one complaint
ROLES: Mapping[str, str] = {"prefill": "prefill", "decode": "decode"}
SIGNS = (
    "running", "generated_tokens", "decode_passes", "decode_passes_count", "first_token_count", "completed_tokens",
    "generation_rate", "retracted",
)  # fmt: skip

Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Reading:
    """What one engine said: ``values`` by the keys of the table of names, never NaN; a key is absent if not known.

    ``config`` are the labels of the engine's info series. ``unix_s`` and ``monotonic_s`` are when the page came.
    ``counters`` are the keys of ``values`` that may only rise. ``sharing`` is how many engines of this model the
    page has: what it says of the server as a whole holds for all of them together. ``engine_kind`` is the program,
    ``role`` the part that it does where its labels say so, ``one_process`` whether one process counts all of the page,
    ``late_s`` for how long after its last step the gauges may still tell of it, ``steps`` whether it makes any.
    """

    model_name: str
    engine: str
    unix_s: float
    monotonic_s: float
    values: Mapping[str, float]
    config: Mapping[str, str] = field(default_factory=dict)
    counters: frozenset[str] = frozenset()
    sharing: int = 1
    engine_kind: str = "vllm"
    role: str | None = None
    one_process: bool = False
    late_s: float = 0.0
    steps: bool = True

    def get(self, key: str) -> float | None:
        """The value, None if it is not known."""
        return self.values.get(key)


@dataclass(frozen=True, slots=True)
class PageReading:
    """All engines of one page; ``process_started_unix_s`` is the process that answered, None if it does not say."""

    engines: Mapping[Key, Reading]
    complaints: tuple[str, ...] = ()
    process_started_unix_s: float | None = None
    announced: bool = False


class _Cell:
    """The values that were found for one quantity of one engine, before it is decided what they mean."""

    __slots__ = ("place", "preference", "refused", "series")

    def __init__(self) -> None:
        self.preference = math.inf
        self.place: tuple[int, ...] = ()
        self.series: dict[tuple[tuple[str, str], ...], float] = {}
        self.refused: str | None = None

    def add(self, sample: Sample, meaning: Meaning, place: tuple[int, ...], by_process: bool) -> str | None:
        """Take a series in, at the ``place`` of its rank; a complaint if something is wrong with it.

        ``by_process`` is whether a gauge may name the one process that tells it.
        """
        if (meaning.preference, place) > (self.preference, self.place):
            return None
        if (meaning.preference, place) < (self.preference, self.place):
            self.preference, self.place, self.series, self.refused = meaning.preference, place, {}, None
        if not by_process and meaning.kind == "gauge" and any(name == PID for name, _ in sample.labels):
            self.refused = f"{sample.name} is given for each process (label pid): which one holds is not known"
            return self.refused
        before = self.series.get(sample.labels)
        if before is not None:
            same = before == sample.value or (math.isnan(before) and math.isnan(sample.value))
            if not same:
                self.refused = f"{sample.name} is given twice with different values: neither is taken"
            return self.refused or f"{sample.name} is given twice with the same value"
        self.series[sample.labels] = sample.value
        if len(self.series) > 1 and not meaning.add_over:
            self.refused = f"{sample.name} is given for several series of one engine, told apart by unknown labels"
        return self.refused

    def value(self) -> float | None:
        """What they amount to; None for NaN and for what was refused."""
        total = math.nan if self.refused or not self.series else sum(self.series.values())
        return total if math.isfinite(total) else None


def page_reading(found: Samples, names: Names, unix_s: float, monotonic_s: float) -> PageReading:
    """The engines that the samples of one page speak of. Nothing raises: what is wrong is complained about."""
    cells: dict[Key, dict[str, _Cell]] = {}
    configs: list[dict[str, str]] = []
    roles: dict[Key, str] = {}
    complaints = dict.fromkeys(found.complaints)
    process = _Cell()
    for sample in found.samples:
        labels, key, place = _labelled(sample.labels, names.model, names.rank, names.alike)
        for meaning in names.meanings.get(sample.name, ()):
            if not meaning.is_of(labels):
                continue
            if meaning.kind == "info":
                configs.append({**labels})
                continue
            cell = process if meaning.kind == "process" else _cell(cells, key, meaning.key)
            complaint = TOO_MANY if cell is None else cell.add(sample, meaning, place, names.by_process)
            if complaint:
                complaints[complaint] = None
            if names.role is not None and names.role in labels:
                roles[key] = labels[names.role]
    _settle(cells, roles, complaints)
    engines = {key: _reading(key, row, configs, names, unix_s, monotonic_s, complaints) for key, row in cells.items()}
    engines = {key: reading for key, reading in engines.items() if _tells(reading)}
    beside = Counter(model_name for model_name, _ in engines)
    engines = {
        key: replace(reading, sharing=beside[key[0]], role=ROLES.get(roles.get(key, "")))
        for key, reading in engines.items()
    }
    return PageReading(engines, tuple(complaints)[:MOST_COMPLAINTS], process.value(), bool(found.announced))


@lru_cache(maxsize=4096)
def _labelled(
    labels: Labels, model: tuple[str, ...], rank: tuple[str, ...], alike: tuple[str, ...]
) -> tuple[Mapping[str, str], Key, tuple[int, ...]]:
    """Labels by name, the engine that they name, and where its rank stands among those that say the same.

    Kept, because a page has the same few each time; nobody may change them.
    """
    found = dict(labels)
    key = (_first(found, model) or "", _first(found, rank) or UNRANKED)
    return found, key, _place(found, alike)


def _first(labels: Mapping[str, str], wanted: Sequence[str]) -> str | None:
    return next((labels[name] for name in wanted if name in labels), None)


def _place(labels: Mapping[str, str], alike: Sequence[str]) -> tuple[int, ...]:
    """Where a rank stands among those that say the same; no label stands first."""
    return tuple(int(text) if (text := labels.get(name, "")).isdecimal() and len(text) < 7 else -1 for name in alike)


def _settle(cells: dict[Key, dict[str, _Cell]], roles: dict[Key, str], complaints: dict[str, None]) -> None:
    """Give what no rank is named for to the only one there is; of several it is nobody's."""
    for key in [key for key in cells if key[1] == UNRANKED]:
        row, ranks = cells.pop(key), [other for other in cells if other[0] == key[0] and other[1] != UNRANKED]
        if len(ranks) > 1:
            complaints[ALL_RANKS.format(names=", ".join(sorted(row)[:MOST_NAMED]))] = None
            continue
        whose = ranks[0] if ranks else (key[0], FIRST_ENGINE)
        cells[whose] = row | cells.get(whose, {})
        if key in roles:
            roles.setdefault(whose, roles[key])


def _cell(cells: dict[Key, dict[str, _Cell]], key: Key, name: str) -> _Cell | None:
    if key not in cells and len(cells) >= MOST_ENGINES:
        return None
    return cells.setdefault(key, {}).setdefault(name, _Cell())


def _tells(reading: Reading) -> bool:
    """Whether this is an engine at all, and not a lone series with a label of its own."""
    return any(name in reading.values for name in SIGNS)


def _reading(
    key: Key,
    row: Mapping[str, _Cell],
    configs: Iterable[Mapping[str, str]],
    names: Names,
    unix_s: float,
    monotonic_s: float,
    complaints: dict[str, None],
) -> Reading:
    values = {}
    for name, cell in row.items():
        value = cell.value()
        if value is not None and value < 0 and name not in names.counters:
            complaints[f"{name} is negative: {value:g}"] = None
        elif value is not None and value > names.most[name]:
            complaints[f"{name} is {value:g}, more than an engine can mean: it is not taken"] = None
        elif value is not None:
            values[name] = value
    for name, (mean, count) in names.products.items():
        if mean in values and count in values:
            values[name] = values.pop(mean) * values[count]
    model_name, engine = key
    config = next(
        (c for c in configs if c.get(ENGINE, engine) == engine and c.get(MODEL, model_name) == model_name), {}
    )
    config = _believable(config, complaints)
    return Reading(
        printable(model_name),
        printable(engine),
        unix_s,
        monotonic_s,
        values,
        config,
        names.counters,
        engine_kind=names.engine,
        one_process=names.one_process,
        late_s=names.late_s,
        steps=names.steps,
    )


def _believable(config: Mapping[str, str], complaints: dict[str, None]) -> Mapping[str, str]:
    """The facts without those that cannot be, which are complained about."""
    beyond = [
        name
        for name, most in MOST_IN_CONFIG.items()
        if (told := config.get(name, "")).isdecimal() and (len(told) > LONGEST_NUMBER or int(told) > most)
    ]
    for name in beyond:
        complaints[f"{name} is {printable(config[name])[:32]}, more than an engine can mean: it is not taken"] = None
    return {name: told for name, told in config.items() if name not in beyond} if beyond else config
