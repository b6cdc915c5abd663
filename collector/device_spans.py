"""The device times that workers recorded, and which step of the engine each of them belongs to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rooflens.collector.payload import parse
from rooflens.collector.ring_file import RingFile
from rooflens.records import DeviceSpan, RooflensError, StepKind, StepTable
from rooflens.ring import DEVICE_SPAN, EVENT, UNKNOWN, RingHeader

KIND = "device"
MOST_IN_FLIGHT = 16  # steps an engine keeps between handing over and output; deeper than any pipeline
CLOCK_STEP_S = 1e-6  # floats of seconds; the clock itself is the same on both sides
Fit = tuple[int, int]  # gaps in the recording before the step, and its row less the ordinal of the span


@dataclass(frozen=True, slots=True)
class DeviceRing:
    """One worker's recording: its spans in order, and how many passes were not timed, by reason, as last told.

    ``facts`` is what the ring says of its worker: rank, replica, device, device_uuids, parent_pid and more.
    """

    path: Path
    header: RingHeader
    facts: Mapping[str, Any]
    spans: tuple[DeviceSpan, ...]
    skipped: int
    skipped_by_reason: Mapping[str, int]
    lost_spans: int
    torn_spans: int

    def belongs_to(self, engine: RingHeader) -> bool:
        """Whether the worker ran in the engine's own process or in one that the engine started.

        Not known, and so False, for workers that something else starts, such as Ray.
        """
        return started_by(engine, self.header, self.facts)


def started_by(engine: RingHeader, worker: RingHeader, facts: Mapping[str, Any]) -> bool:
    """Whether a worker with these facts ran in the engine's own process or in one that the engine started."""
    return engine.pid in (worker.pid, facts.get("parent_pid"))


def read_device_ring(path: Path) -> DeviceRing:
    """Everything in a worker's ring; RooflensError in one line if it is no such ring."""
    file = RingFile(path)
    try:
        facts = file.facts()
        if facts is None or facts.get("kind") != KIND:
            raise RooflensError(f"{path} is no ring of device times: those end in .device")
        found = file.slots(0)
        slots = found.slots[found.slots["frame"] == EVENT]
        timed = (slots["flags"] & DEVICE_SPAN).astype(bool)
        told: dict[str, int] = {}
        for slot in slots[~timed]:
            payload = file.payload(int(slot["arena_offset"]), int(slot["arena_bytes"]))
            sections = parse(payload, int(slot["sections"]), 0, file.header.extras) if payload is not None else None
            detail = dict(sections.detail or {}) if sections is not None else {}
            if detail.pop("event", None) == "device_spans_skipped":
                told = {str(name): count for name, count in detail.items() if isinstance(count, int)}
        spans = slots[timed]
        skipped = max([sum(told.values()), *spans["preempted"][-1:].tolist()])
        return DeviceRing(path, file.header, facts, spans_of(spans), skipped, told, found.lost, found.torn)
    finally:
        file.close()


def spans_of(slots: NDArray[Any]) -> tuple[DeviceSpan, ...]:
    """The spans in slots that hold some."""
    ordinals = slots["schedule_ns"].astype(np.int64) | slots["update_ns"].astype(np.int64) << 32
    columns = (ordinals, *(slots[name] for name in ("submit_ns", "output_ns", "context_tokens", "wait_ns")))
    rows = zip(*(column.tolist() for column in (*columns, slots["query_tokens"], slots["requests"])), strict=True)
    return tuple(
        DeviceSpan(ordinal, start / 1e9, end / 1e9, device / 1e9, None if gap == UNKNOWN else gap / 1e9, tokens, asked)
        for ordinal, start, end, device, gap, tokens, asked in rows
    )


def join_device(table: StepTable, spans: Sequence[DeviceSpan], from_first_step: bool = False) -> StepTable:
    """The table with ``device_s``, known where it is clear which span of this worker is the step's own.

    The n-th pass of a worker is the n-th step of its engine, but where the two began to count is not taken on trust:
    a span fits a step only if both have the same tokens and requests and the worker's calls lie between the step's
    submit and its output. What distance between the two countings holds is decided, for each stretch without a gap,
    by the spans whose step must be in the table; where they leave several, the steps stay unknown unless
    ``from_first_step`` says that the table begins with the engine's first step. For a further worker, join the
    result again: the longest time counts, and a step is known only where it is known of every worker.
    """
    # A step whose beginning is not known stands after a gap, and a gap may have swallowed steps.
    gaps = np.cumsum(~table.known.get("observed_s", np.ones(len(table), dtype=bool)), dtype=np.int64)
    rows = np.flatnonzero(table["kind"] != StepKind.DUMMY)
    found = _steps_of(table.take(rows), gaps[rows], spans, from_first_step)
    device_s, known = np.zeros(len(table)), np.zeros(len(table), dtype=bool)
    claims = Counter(found.values())
    for at, step in found.items():
        if claims[step] == 1:
            device_s[rows[step]], known[rows[step]] = spans[at].device_s, True
    if "device_s" in table.columns:
        device_s, known = np.maximum(device_s, table["device_s"]), known & table.where("device_s")
    return StepTable({**table.columns, "device_s": device_s}, {**table.known, "device_s": known})


def _steps_of(
    steps: StepTable, gaps: NDArray[np.int64], spans: Sequence[DeviceSpan], from_first_step: bool
) -> dict[int, int]:
    """The row of ``steps`` for each place in ``spans`` where it is clear."""
    if not len(steps) or not spans:
        return {}
    starts = np.array([span.start_monotonic_s for span in spans]) + CLOCK_STEP_S
    ends = np.array([span.end_monotonic_s for span in spans]) - CLOCK_STEP_S
    candidates = list(_candidates(steps, gaps, spans, starts, ends))
    outside = _may_be_outside(steps, gaps, starts, ends, from_first_step)
    votes: Counter[Fit] = Counter()
    for size, fits in _stretches(candidates[at] for at in np.flatnonzero(~outside).tolist()):
        if len(fits) == 1:
            votes[next(iter(fits))] += size
    holds: dict[int, int] = {0: -1} if from_first_step and not any(gap == 0 for gap, _ in votes) else {}
    for (gap, distance), count in votes.items():
        if all(count > other for (where, far), other in votes.items() if where == gap and far != distance):
            holds[gap] = distance
    found = {}
    for at, fits in enumerate(candidates):
        clear = [distance for gap, distance in fits if holds.get(gap) == distance]
        if len(clear) == 1:
            found[at] = spans[at].ordinal + clear[0]
    return found


def _candidates(
    steps: StepTable,
    gaps: NDArray[np.int64],
    spans: Sequence[DeviceSpan],
    starts: NDArray[np.float64],
    ends: NDArray[np.float64],
) -> Iterator[set[Fit]]:
    """For each span where it fits."""
    tokens, requests, gap_of = steps["query_tokens"].tolist(), steps["requests"].tolist(), gaps.tolist()
    lows = np.searchsorted(steps["output_monotonic_s"], ends, side="left").tolist()
    highs = np.searchsorted(steps["submit_monotonic_s"], starts, side="right").tolist()
    for span, low, high in zip(spans, lows, highs, strict=True):
        yield {
            (gap_of[row], row - span.ordinal)
            for row in range(low, min(high, low + MOST_IN_FLIGHT))
            if tokens[row] == span.query_tokens and requests[row] == span.requests
        }


def _may_be_outside(
    steps: StepTable,
    gaps: NDArray[np.int64],
    starts: NDArray[np.float64],
    ends: NDArray[np.float64],
    from_first_step: bool,
) -> NDArray[np.bool_]:
    """Which spans may belong to a step that the table lacks: before its first, after its last, or in a gap."""
    submit, output = steps["submit_monotonic_s"], steps["output_monotonic_s"]
    outside: NDArray[np.bool_] = starts >= submit[-1]
    if not (from_first_step and gaps[0] == 0):
        outside |= ends <= output[0]
    for after in (np.flatnonzero(np.diff(gaps)) + 1).tolist():
        outside |= (starts >= submit[after - 1]) & (ends <= output[after])
    return outside


def _stretches(candidates: Iterable[set[Fit]]) -> Iterator[tuple[int, set[Fit]]]:
    """Spans in a row that have something that fits them all: how many, and all that does."""
    fits: set[Fit] = set()
    size = 0
    for found in candidates:
        both = fits & found
        if not both:
            if fits:
                yield size, fits
            size, both = 0, found
        fits, size = both, size + 1
    if fits:
        yield size, fits
