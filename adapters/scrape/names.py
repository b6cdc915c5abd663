"""The tables of names: which series of a page is which quantity, read from one file for each engine."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

KINDS = ("counter", "gauge", "histogram", "info", "created", "process")
# In the order in which an engine is looked for: of a page that also has a frontend's metrics the engine's are read.
ENGINES = ("vllm", "sglang", "tensorrt-llm", "llama.cpp", "tgi", "dynamo")
PAGE = "page"  # the entry of a table that is no quantity
# More than an engine can mean. Counted ever since it began: thirty million a second for a year, and a float still
# counts them one by one. Requests at one moment: each holds a connection. A pool's share: counted twice over.
MOST_COUNTED = 1e15
MOST_BY_UNIT: Mapping[str, float] = {"requests": 1e7, "ratio": 2.0}


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a series stands for. ``preference`` 0 is the newest name of the quantity.

    ``part`` is "sum" or "count" of a histogram, else empty. ``where`` are labels that a series must have, ``any_of``
    such with several values that do, ``has`` labels of any value; ``add_over`` those over which series are added up.
    """

    quantity: str
    kind: str
    preference: int
    part: str = ""
    where: Mapping[str, str] | None = None
    add_over: tuple[str, ...] = ()
    any_of: Mapping[str, tuple[str, ...]] | None = None
    has: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The name of the value in a Reading."""
        return f"{self.quantity}_{self.part}" if self.part else self.quantity

    def is_of(self, labels: Mapping[str, str]) -> bool:
        """Whether a series with these labels is meant."""
        if self.where and any(labels.get(name) != value for name, value in self.where.items()):
            return False
        if self.any_of and any(labels.get(name) not in values for name, values in self.any_of.items()):
            return False
        return all(name in labels for name in self.has)


@dataclass(frozen=True, slots=True)
class Names:
    """Every spelling of every name with its meanings; ``counters`` are the keys that may only rise.

    ``most`` is, by key, the largest value that can be meant. ``model`` and ``rank`` are the labels that tell engines
    apart, the first that a series has; of series that differ in ``alike`` alone, ranks that say the same, the lowest is
    taken; ``role`` is the label that says what part an engine does. ``one_process`` is whether one process counts
    everything on the page, ``by_process`` whether a gauge may carry the number of its process. ``products`` are by key
    (mean, its count): their product, which the digits of the mean make fall at times, so that it is no counter.
    ``late_s`` is for how long a gauge may stay as it was at the last step, in seconds. ``steps`` is False for a page
    that tells of requests to several engines, of which nobody makes these steps.
    """

    engine: str
    meanings: Mapping[str, tuple[Meaning, ...]]
    counters: frozenset[str]
    most: Mapping[str, float]
    model: tuple[str, ...] = ("model_name",)
    rank: tuple[str, ...] = ("engine",)
    alike: tuple[str, ...] = ()
    role: str | None = None
    one_process: bool = False
    by_process: bool = False
    products: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    late_s: float = 0.0
    steps: bool = True


@cache
def names_of(engine: str) -> Names:
    """The table of an engine by name; FileNotFoundError for one that has none."""
    file = Path(__file__).with_name(f"{engine.replace('.', '_').replace('-', '_')}.toml")
    return names_from(tomllib.loads(file.read_text(encoding="utf-8")))


@cache
def wanted_names() -> Mapping[str, tuple[str, ...]]:
    """Every series of every table, with the engines that it may be of."""
    found: dict[str, tuple[str, ...]] = {}
    for engine in ENGINES:
        for name in names_of(engine).meanings:
            found[name] = (*found.get(name, ()), engine)
    return found


def names_from(data: Mapping[str, Any]) -> Names:
    """The table in ``data``: quantity -> kind, names, where, add_over."""
    meanings: dict[str, tuple[Meaning, ...]] = {}
    counters: set[str] = set()
    most: dict[str, float] = {}
    products: dict[str, tuple[str, str]] = {}
    for quantity, entry in data.items():
        if not isinstance(entry, Mapping) or quantity == PAGE:
            continue
        kind = entry["kind"]
        if kind not in KINDS:
            raise ValueError(f"{quantity} has no kind of {KINDS}: {kind}")
        if "counted_by" in entry:
            products[f"{quantity}_sum"] = (quantity, entry["counted_by"])
        for preference, name in enumerate(entry["names"]):
            for series, part in _series(name, kind):
                meaning = _meaning(quantity, entry, preference, part)
                if kind in ("counter", "histogram"):
                    counters.add(meaning.key)
                most[meaning.key] = MOST_COUNTED if kind != "gauge" else MOST_BY_UNIT.get(entry["unit"], MOST_COUNTED)
                for spelling in {series, series.replace(":", "_")}:
                    meanings[spelling] = (*meanings.get(spelling, ()), meaning)
    page = data.get(PAGE, {})
    return Names(
        str(data["engine"]),
        meanings,
        frozenset(counters),
        most,
        model=tuple(page.get("model", ("model_name",))),
        rank=tuple(page.get("rank", ("engine",))),
        alike=tuple(page.get("alike", ())),
        role=page.get("role"),
        one_process=bool(page.get("one_process", False)),
        by_process=bool(page.get("by_process", False)),
        products=products,
        late_s=float(page.get("late_s", 0.0)),
        steps=bool(page.get("steps", True)),
    )


def _meaning(quantity: str, entry: Mapping[str, Any], preference: int, part: str) -> Meaning:
    any_of = {name: tuple(values) for name, values in entry.get("any_of", {}).items()}
    return Meaning(
        quantity,
        entry["kind"],
        preference,
        part,
        entry.get("where"),
        tuple(entry.get("add_over", ())),
        any_of or None,
        tuple(entry.get("has", ())),
    )


def _series(name: str, kind: str) -> tuple[tuple[str, str], ...]:
    """The series by which a metric appears on the page, with the part of it that each one is."""
    if kind == "counter":
        return ((name, ""), (f"{name}_total", ""))
    if kind == "histogram":
        return ((f"{name}_sum", "sum"), (f"{name}_count", "count"))
    return ((f"{name}_created" if kind == "created" else name, ""),)
