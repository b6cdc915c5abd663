"""Files of a trace that hold the same steps: copies, and those that overlap in the sequences of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rooflens.collector.trace.file import Footer, RunRange
from rooflens.records import RooflensError


@dataclass(frozen=True, slots=True)
class Overlaps:
    """``copies`` hold nothing that another file does not; ``earlier`` are files that may share steps, by the later one.

    ``repeating`` are files that may hold a step twice.
    """

    copies: frozenset[str] = frozenset()
    earlier: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    repeating: frozenset[str] = frozenset()

    def lines(self) -> Iterator[str]:
        """What a reader should know of it."""
        if self.copies:
            yield f"{_files(len(self.copies), 'holds', 'hold')} only what others hold too: left out"
        if self.earlier:
            yield f"{_files(len(self.earlier), 'shares', 'share')} steps with earlier ones: each step is read once"
        if self.repeating:
            yield f"{_files(len(self.repeating), 'repeats', 'repeat')} steps: each step is read once"


def overlaps_of(files: Sequence[tuple[str, Footer]], metadata_of: Callable[[str], Any]) -> Overlaps:
    """What some files share, given in the order in which they are read; ``metadata_of`` reads Parquet's own of one."""
    place = {url: at for at, (url, _) in enumerate(files)}
    footers = dict(files)
    pairs = sorted({(place[a], place[b]) for a, b in _overlapping(files)})
    copies: set[str] = set()
    earlier: dict[str, list[str]] = {}
    for first, second in pairs:
        a, b = files[first][0], files[second][0]
        if a in copies or b in copies:
            continue
        if _covers(footers[a], footers[b]) or _same(a, b, footers, metadata_of):
            copies.add(b)
        elif _covers(footers[b], footers[a]):
            copies.add(a)
    for first, second in pairs:
        a, b = files[first][0], files[second][0]
        if a not in copies and b not in copies:
            earlier.setdefault(b, []).append(a)
    repeating = frozenset(url for url, footer in files if url not in copies and _repeats(footer))
    return Overlaps(frozenset(copies), {url: tuple(found) for url, found in earlier.items()}, repeating)


def _overlapping(files: Sequence[tuple[str, Footer]]) -> Iterator[tuple[str, str]]:
    """Pairs of files with a run whose ranges of sequences touch, each pair in the order of the files."""
    by_run: dict[str, list[tuple[int, int, int]]] = {}
    for at, (_, footer) in enumerate(files):
        for run, found in footer.runs.items():
            by_run.setdefault(run, []).append((found.first, found.last, at))
    for ranges in by_run.values():
        ranges.sort()
        open_ones: list[tuple[int, int]] = []
        for first, last, at in ranges:
            open_ones = [(end, other) for end, other in open_ones if end >= first]
            for _, other in open_ones:
                yield files[min(at, other)][0], files[max(at, other)][0]
            open_ones.append((last, at))


def _whole(found: RunRange) -> bool:
    """Whether no sequence of the range is missing."""
    return found.rows == found.last - found.first + 1


def _covers(one: Footer, other: Footer) -> bool:
    """Whether every step of ``other`` is in ``one``, as far as footers tell."""
    rows = sum(found.rows for found in other.runs.values())
    return rows == other.rows and all(
        run in one.runs
        and _whole(one.runs[run])
        and one.runs[run].first <= found.first
        and found.last <= one.runs[run].last
        for run, found in other.runs.items()
    )


def _same(a: str, b: str, footers: Mapping[str, Footer], metadata_of: Callable[[str], Any]) -> bool:
    """Whether two files are copies: Parquet's own metadata, with offsets and statistics of each column, are equal."""
    if footers[a].rows != footers[b].rows or footers[a].runs != footers[b].runs:
        return False
    try:
        return bool(metadata_of(a).equals(metadata_of(b)))
    except RooflensError:
        return False


def _repeats(footer: Footer) -> bool:
    return any(found.rows > found.last - found.first + 1 for found in footer.runs.values())


def _files(count: int, one: str, several: str) -> str:
    return f"1 file {one}" if count == 1 else f"{count} files {several}"
