"""What a rule is told of the engines beside one: how fast they are at which load, and when they compute prompts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rooflens.analyzer.sums import Column, filled, steps_of
from rooflens.group_records import GroupView, MemberFigures
from rooflens.live_records import Window
from rooflens.records import StepKind

Bin = tuple[int, int, int, int]  # kind; logarithms of the batch, of the mean context, of the tokens of a step
LOAD_OCTAVE = 4  # bins an octave of batch and context: within one the KV bytes differ by less than a half
TOKEN_OCTAVE = 2
SECONDS, EXPECTED, REACHABLE = "seconds", "expected", "reachable"


@dataclass(frozen=True, slots=True)
class Speed:
    """Steps of one load together: how many, observed seconds, and what is reachable and expected of them (or None)."""

    steps: float
    observed_s: float
    reachable_s: float | None
    expected_s: float | None

    def base_s(self, basis: str) -> float | None:
        """What to hold the observed time against: by ``basis``, that of equal steps being their number."""
        return {SECONDS: self.steps, EXPECTED: self.expected_s, REACHABLE: self.reachable_s}[basis]


@dataclass(frozen=True, slots=True)
class Speeds:
    """One window of one engine by load. ``kernels`` names whose kernels what is reachable is of: None without."""

    bins: Mapping[Bin, Speed] = field(default_factory=dict)
    kernels: str | None = None
    steps: float = 0.0

    @property
    def bases(self) -> frozenset[str]:
        """What its steps can be held against."""
        found = {SECONDS}
        found |= {EXPECTED} if all(speed.expected_s for speed in self.bins.values()) else set()
        found |= {REACHABLE} if all(speed.reachable_s for speed in self.bins.values()) else set()
        return frozenset(found)


@dataclass(frozen=True, slots=True)
class Peer:
    """Another member: its engine label, its last windows, and what its devices are called where that is known."""

    engine: str
    windows: tuple[Speeds, ...]
    device: str | None = None


@dataclass(frozen=True, slots=True)
class Prompts:
    """When members on this host computed prompts, by its monotonic clock, in the order of their end; shape (steps,).

    ``member`` counts members of the group. It is complete from ``from_s`` to ``until_s``. ``begin_s`` and ``end_s`` of
    ``busy_s`` are the stretches in which any of them did, shape (stretches, 2), apart from each other and in order.
    """

    end_s: Column
    tokens: Column
    member: NDArray[Any]
    busy_s: Column
    from_s: float
    until_s: float

    def overlap_s(self, begin_s: Column, end_s: Column) -> Column:
        """Of each stretch from ``begin_s`` to ``end_s``, shape (steps,): how long any member computed prompts."""
        found: Column = self._until(end_s) - self._until(begin_s)
        return found

    def _until(self, moment_s: Column) -> Column:
        if not len(self.busy_s):
            return np.zeros(len(moment_s))
        begins, ends = self.busy_s[:, 0], self.busy_s[:, 1]
        before = np.concatenate(([0.0], np.cumsum(ends - begins)))
        place = np.searchsorted(begins, moment_s, side="right")
        last = np.maximum(place - 1, 0)
        inside = np.clip(moment_s - begins[last], 0.0, (ends - begins)[last])
        found: Column = np.where(place > 0, before[last] + inside, 0.0)
        return found


@dataclass(frozen=True, slots=True)
class Peers:
    """What is known of the group of the judged engine, as of the turn before; empty for one that stands alone.

    ``engine`` is its own label, ``windows`` are its own last windows, the judged one last. ``others`` are some of the
    other members, at most MOST_PEERS. ``device`` is what its devices are called. ``expected`` is how many members its
    facts speak of.
    """

    view: GroupView | None = None
    engine: str = ""
    windows: tuple[Speeds, ...] = ()
    others: tuple[Peer, ...] = ()
    prompts: Prompts | None = None
    device: str | None = None

    @property
    def own(self) -> MemberFigures | None:
        """The judged engine's own figures in the group."""
        members = self.view.members if self.view is not None else ()
        return next((member for member in members if member.engine == self.engine), None)


MOST_PEERS = 8  # that one is compared with: their median is no better known with more, and 64 ranks cost as they are


def speeds_of(window: Window) -> Speeds:
    """The steps of a window by load; a row of several steps counts by its means. Dummy steps are left out."""
    table, analysis = window.steps, window.analysis
    if not {"kind", "requests", "context_tokens", "observed_s"} <= table.columns.keys():
        return Speeds()
    steps, observed = steps_of(table), filled(table, "observed_s")
    if analysis is not None:
        observed = np.where(analysis.compared, analysis.observed_s, observed)
    rows = table.where("kind") & table.where("observed_s") & table.where("requests") & table.where("context_tokens")
    rows &= (filled(table, "requests") > 0) & (observed > 0) & (filled(table, "kind") != StepKind.DUMMY)
    if analysis is not None and analysis.compared.any():
        rows &= analysis.compared
    if not rows.any():
        return Speeds()
    keys = _keys(table, steps)[rows]
    distinct, place = np.unique(keys, axis=0, return_inverse=True)
    place = place.reshape(-1)

    def sums(values: Column) -> list[float]:
        return np.bincount(place, values[rows], len(distinct)).tolist()  # type: ignore[no-any-return]

    bounds = analysis if analysis is not None and bool(analysis.compared.any()) else None
    many = range(len(distinct))
    reachable = sums(bounds.reachable_s) if bounds is not None and bounds.reachable_s is not None else None
    expected = sums(bounds.expected_s) if bounds is not None else None
    counts, seconds = sums(steps), sums(observed)
    found = [
        Speed(counts[n], seconds[n], reachable[n] if reachable else None, expected[n] if expected else None)
        for n in many
    ]
    efficiency = bounds.efficiency if bounds is not None else None
    kernels = f"{efficiency.hardware} {efficiency.origin} {efficiency.source}" if efficiency is not None else None
    bins = {(int(k[0]), int(k[1]), int(k[2]), int(k[3])): speed for k, speed in zip(distinct, found, strict=True)}
    return Speeds(bins, kernels, float(steps[rows].sum()))


def _keys(table: Any, steps: Column) -> NDArray[np.int64]:
    """The bin of each row, shape (steps, 4)."""
    requests = np.maximum(filled(table, "requests"), 1e-9)

    def octaves(values: Column, parts: int) -> NDArray[np.int64]:
        return np.floor(np.log2(np.maximum(values, 1.0)) * parts + 1e-9).astype(np.int64)

    kind = filled(table, "kind").astype(np.int64)
    tokens = np.where(kind == StepKind.DECODE, 1.0, filled(table, "query_tokens") / steps)
    return np.stack(
        [
            kind,
            octaves(requests / steps, LOAD_OCTAVE),
            octaves(filled(table, "context_tokens") / requests, LOAD_OCTAVE),
            octaves(tokens, TOKEN_OCTAVE),
        ],
        axis=1,
    )
