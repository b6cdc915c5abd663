"""The files of a trace that a question needs: found by name, pruned by time and engine, with what their footers say."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rooflens.collector.trace.file import Footer, footer_of
from rooflens.collector.trace.listing import HOUR_S, SUFFIX, Listed, is_local, is_trace, listed, opened, reason
from rooflens.collector.trace.overlaps import Overlaps, overlaps_of
from rooflens.collector.trace.plausible import fault_of, with_times
from rooflens.collector.trace.whole import checked
from rooflens.records import RooflensError
from rooflens.trace_records import TraceFacts, TraceFilter, TraceTable

Columns = tuple[tuple[str, str], ...]  # names and types
Progress = Callable[[str, float], None]  # what is done now, and the ratio that is over
__all__ = ["TraceFile", "TraceFiles", "find_trace", "is_trace"]  # is_trace stands where nothing needs PyArrow
READERS, LOCAL_READERS = 16, 2  # footers at a time: an object store answers slowly, a disk at once
SLACK_S = HOUR_S  # a clock may have jumped within a file; footers tell exactly, names only save opening them
SHOWN = 6  # names in one line
OTHER_TABLES = {"class": TraceTable.EVENTS, "uuid": TraceTable.COUNTERS}  # columns that steps do not have


@dataclass(frozen=True, slots=True)
class TraceFile:
    """One file of steps: ``url`` is its path, or its URL where it is not local; ``columns`` their names and types.

    ``earlier`` are the files with smaller URLs that may hold some of its steps too: those count as theirs. ``repeats``
    is whether it may hold a step twice. ``clock_offsets_s`` are how far wall times lie from the host's clock, as the
    statistics of columns tell: all about the same where the clock was not set; none where not every step tells both.
    """

    url: str
    footer: Footer
    columns: Columns
    earlier: tuple[str, ...] = ()
    repeats: bool = False
    clock_offsets_s: tuple[float, ...] = ()

    @property
    def first_unix_s(self) -> float:
        """The time of its first step; 0 where it does not say."""
        return self.footer.first_unix_s or 0.0


@dataclass(frozen=True, slots=True)
class TraceFiles:
    """The files of one question, in the order of their first step; ``facts`` by digest are those of chosen engines.

    ``places`` are where it was asked for, ``problems`` are one line each.
    """

    places: tuple[str, ...]
    files: tuple[TraceFile, ...]
    facts: Mapping[str, TraceFacts] = field(default_factory=dict)
    problems: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        """Rows of all files, those that a filter will leave out included."""
        return sum(file.footer.rows for file in self.files)

    @property
    def first_unix_s(self) -> float | None:
        """The time of the first step; None where no file says."""
        return min((f.footer.first_unix_s for f in self.files if f.footer.first_unix_s is not None), default=None)

    @property
    def last_unix_s(self) -> float | None:
        """The time of the last step; None where no file says."""
        return max((f.footer.last_unix_s for f in self.files if f.footer.last_unix_s is not None), default=None)

    @property
    def labels(self) -> tuple[str, ...]:
        """The chosen engines, sorted."""
        return tuple(sorted({facts.label for facts in self.facts.values()}))


def find_trace(
    places: Sequence[str], chosen: TraceFilter, progress: Progress | None = None, for_rows: bool = True
) -> TraceFiles:
    """The files at ``places`` that can hold steps of ``chosen``.

    What cannot be read, is newer than this rooflens or is no trace is left out and said in ``problems``. RooflensError
    in one line, with what there is, where nothing is left. ``for_rows`` False is for whoever will not read the rows:
    then no checksum is looked at, which reads every byte of the files.
    """
    problems: list[str] = []
    entries = _entries(places, TraceTable.STEPS, problems)
    if not entries:
        raise RooflensError(f"{', '.join(places[:SHOWN])}: no {SUFFIX} files here: is it the folder of a trace?")
    named = [entry for entry in entries if _hour_within(entry, chosen)]
    files, faults = _footers(named, progress)
    problems += faults
    kept = _kept(files, chosen)
    if for_rows:
        kept = _whole(kept, problems, progress)
    if not kept:
        raise RooflensError(_nothing(entries, named, files, chosen, problems))
    kept.sort(key=lambda file: (file.first_unix_s, file.url))
    marked, lines = _marked(kept)
    facts = {digest: each for file in marked for digest, each in file.footer.facts.items() if is_meant(each, chosen)}
    return TraceFiles(tuple(places), tuple(marked), facts, (*problems, *lines))


def is_meant(facts: TraceFacts, chosen: TraceFilter) -> bool:
    """Whether the engine is one of those asked for: a pattern may name its label, the engine or the run."""
    names = (facts.label, f"{facts.model_name}/{facts.engine}", facts.engine, facts.run)
    return not chosen.engines or any(fnmatchcase(name, pattern) for name in names for pattern in chosen.engines)


def beside_urls(places: Sequence[str], table: TraceTable, chosen: TraceFilter) -> list[str]:
    """The files of events or counters that stand beside the steps at ``places``, those of other hours left out."""
    problems: list[str] = []
    return [entry.url for entry in _entries(places, table, problems) if _hour_within(entry, chosen)]


def time_of(unix_s: float) -> str:
    """UTC to the second, for a line of text."""
    return f"{datetime.fromtimestamp(unix_s, UTC):%Y-%m-%d %H:%M:%SZ}"


def _entries(places: Sequence[str], table: TraceTable, problems: list[str]) -> list[Listed]:
    found: dict[str, Listed] = {}
    for place in places:
        for entry in listed(place, table, problems):
            found.setdefault(entry.url, entry)
    return list(found.values())


def _hour_within(entry: Listed, chosen: TraceFilter) -> bool:
    hour = entry.hour_unix_s()
    if hour is None:
        return True
    after = chosen.to_unix_s is not None and hour - SLACK_S >= chosen.to_unix_s
    return not after and (chosen.from_unix_s is None or hour + HOUR_S + SLACK_S > chosen.from_unix_s)


def _footers(entries: Sequence[Listed], progress: Progress | None) -> tuple[list[TraceFile], list[str]]:
    """The readable files, and one line for each that is not."""
    files, problems = [], []
    known: dict[str, TraceFacts] = {}
    schemas: dict[Columns, Columns] = {}
    remote = any("://" in entry.url for entry in entries)
    with ThreadPoolExecutor(READERS if remote else LOCAL_READERS) as pool:
        for number, found in enumerate(pool.map(lambda entry: _footer(entry, known), entries), 1):
            if isinstance(found, str):
                problems.append(found)
            elif found.footer.rows:
                files.append(replace(found, columns=schemas.setdefault(found.columns, found.columns)))
            if progress is not None:
                progress(f"reading the footers of {len(entries)} files", number / len(entries))
    return files, problems


def _footer(entry: Listed, known: dict[str, TraceFacts]) -> TraceFile | str:
    try:
        metadata = metadata_of_file(entry.url)
        schema = metadata.schema.to_arrow_schema()
        columns = tuple((name, str(kind)) for name, kind in zip(schema.names, schema.types, strict=True))
        footer = with_times(footer_of(entry.url, metadata, known))
    except RooflensError as error:
        return str(error)
    except (pa.ArrowException, ValueError):
        return f"{entry.url}: damaged: its columns cannot be read"
    if (other := next((table for name, table in OTHER_TABLES.items() if name in schema.names), None)) is not None:
        return f"{entry.url}: {other} of a trace, no steps: name the trace's own folder, which holds 'steps' too"
    if fault := fault_of(schema):
        return f"{entry.url}: {fault}"
    return TraceFile(entry.url, footer, columns, clock_offsets_s=_clock_offsets(metadata))


def _clock_offsets(metadata: Any) -> tuple[float, ...]:
    """The least and the largest wall time less the host's own, over groups of rows."""
    names = metadata.schema.names
    if "output_monotonic_s" not in names:
        return ()
    places = names.index("unix_s"), names.index("output_monotonic_s")
    found: list[float] = []
    for at in range(metadata.num_row_groups):
        group = metadata.row_group(at)
        wall, own = (group.column(place).statistics for place in places)
        if not all(each is not None and each.has_min_max and each.null_count == 0 for each in (wall, own)):
            return ()
        found += [wall.min - own.min, wall.max - own.max]
    return (min(found), max(found)) if found else ()


def metadata_of_file(url: str) -> Any:
    """What Parquet says of a local or remote file; RooflensError in one line where it cannot be read."""
    try:
        filesystem, path = opened(url)
        if is_local(filesystem):
            return pq.read_metadata(path)
        with filesystem.open(path, "rb") as stream:
            return pq.read_metadata(stream)
    except RooflensError:
        raise
    except pa.ArrowException:
        raise RooflensError(f"{url}: cut off or damaged: no Parquet footer can be read") from None
    except Exception as error:  # each store has its own errors
        raise RooflensError(f"{url}: {reason(error)}") from None


def _kept(files: Sequence[TraceFile], chosen: TraceFilter) -> list[TraceFile]:
    return [file for file in files if _within(file, chosen) and _has_engine(file, chosen)]


def _whole(files: Sequence[TraceFile], problems: list[str], progress: Progress | None) -> list[TraceFile]:
    """Those whose bytes are what was written; a line in ``problems`` for each of the others."""

    def tell(number: int) -> None:
        if progress is not None:
            progress(f"checking {len(files):,} files", number / len(files))

    kept = []
    for file, line in zip(files, checked([file.url for file in files], tell), strict=True):
        if line is None:
            kept.append(file)
        else:
            problems.append(line)
    return kept


def _within(file: TraceFile, chosen: TraceFilter) -> bool:
    first, last = file.footer.first_unix_s, file.footer.last_unix_s
    if first is None or last is None:
        return True
    after = chosen.to_unix_s is not None and first >= chosen.to_unix_s
    return not after and (chosen.from_unix_s is None or last >= chosen.from_unix_s)


def _has_engine(file: TraceFile, chosen: TraceFilter) -> bool:
    return any(is_meant(facts, chosen) for facts in file.footer.facts.values())


def _marked(files: Sequence[TraceFile]) -> tuple[list[TraceFile], list[str]]:
    """The files with what they share with earlier ones; copies are left out."""
    found: Overlaps = overlaps_of(
        [(file.url, file.footer) for file in sorted(files, key=lambda file: file.url)], metadata_of_file
    )
    kept = [
        replace(file, earlier=found.earlier.get(file.url, ()), repeats=file.url in found.repeating)
        for file in files
        if file.url not in found.copies
    ]
    return kept, list(found.lines())


def _nothing(
    entries: Sequence[Listed],
    named: Sequence[Listed],
    files: Sequence[TraceFile],
    chosen: TraceFilter,
    problems: Sequence[str],
) -> str:
    """Why no file is left, and what there is."""
    if named and (not files or len(problems) >= len(named)):
        rest = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        return (problems[0] + rest) if problems else f"{named[0].url}: no steps in any file"
    within = [file for file in files if _within(file, chosen)]
    if within:
        labels = sorted({facts.label for file in within for facts in file.footer.facts.values()})
        more = f" and {len(labels) - SHOWN} more" if len(labels) > SHOWN else ""
        return f"no engine matches {', '.join(chosen.engines)}: there are {', '.join(labels[:SHOWN])}{more}"
    there = files or _footers(_ends(entries), None)[0]
    first = min((f.footer.first_unix_s for f in there if f.footer.first_unix_s is not None), default=None)
    last = max((f.footer.last_unix_s for f in there if f.footer.last_unix_s is not None), default=None)
    holds = f": the trace holds {time_of(first)} to {time_of(last)}" if first is not None and last is not None else ""
    return f"no steps in the period{_period(chosen)}{holds}"


def _ends(entries: Sequence[Listed]) -> list[Listed]:
    """The files that the folders' names say are first and last."""
    ordered = sorted(entries, key=lambda entry: (entry.hour_unix_s() or 0.0, entry.url))
    return list({entry.url: entry for entry in (*ordered[:SHOWN], *ordered[-SHOWN:])}.values())


def _period(chosen: TraceFilter) -> str:
    start = f" from {time_of(chosen.from_unix_s)}" if chosen.from_unix_s is not None else ""
    return start + (f" to {time_of(chosen.to_unix_s)}" if chosen.to_unix_s is not None else "")
