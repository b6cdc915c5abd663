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
        return engine.pid in (self.header.pid, self.facts.get("parent_pid"))


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
        return DeviceRing(path, file.header, facts, _spans(spans), skipped, told, found.lost, found.torn)
    finally:
        file.close()


def _spans(slots: NDArray[Any]) -> tuple[DeviceSpan, ...]:
    ordinals = slots["schedule_ns"].astype(np.int64) | slots["update_ns"].astype(np.int64) << 32
    columns = (ordinals, *(slots[name] for name in ("submit_ns", "output_ns", "context_tokens", "wait_ns")))
    rows = zip(*(column.tolist() for column in (*columns, slots["query_tokens"], slots["requests"])), strict=True)
    return tuple(
        DeviceSpan(ordinal, start / 1e9, end / 1e9, device / 1e9, None if gap == UNKNOWN else gap / 1e9, tokens, asked)
        for ordinal, start, end, device, gap, tokens, asked in rows
    )


def join_device(table: StepTable, spans: Sequence[DeviceSpan], from_first_step: bool = False) -> StepTable:
    """The table with ``device_s``, known where exactly one step of the engine fits a span of this worker.

    The n-th pass of a worker is the n-th step of its engine, but where the two began to count is not taken on trust:
    a span fits a step only if both have the same tokens and requests and the worker's calls lie between the step's
    submit and its output. The distance between the countings that fits most spans of a stretch without a gap holds
    for that stretch; where none or several do, the steps stay unknown. ``from_first_step`` says that the table begins
    with the engine's first step, which decides between several. For a further worker, join the result again: the
    longest time counts, and a step is known only where it is known of every worker.
    """
    rows = np.flatnonzero(table["kind"] != StepKind.DUMMY)
    step_of = _steps_of(table.take(rows), spans, from_first_step)
    device_s, known = np.zeros(len(table)), np.zeros(len(table), dtype=bool)
    claims = Counter(step_of.values())
    for at, step in step_of.items():
        if claims[step] == 1:
            device_s[rows[step]], known[rows[step]] = spans[at].device_s, True
    if "device_s" in table.columns:
        device_s, known = np.maximum(device_s, table["device_s"]), known & table.where("device_s")
    return StepTable({**table.columns, "device_s": device_s}, {**table.known, "device_s": known})


def _steps_of(steps: StepTable, spans: Sequence[DeviceSpan], from_first_step: bool) -> dict[int, int]:
    """The row of ``steps`` for each place in ``spans`` where it is clear."""
    stretches = list(_stretches(_candidates(steps, spans)))
    votes: Counter[Fit] = Counter()
    for first, last, fits in stretches:
        if len(fits) == 1:
            votes[next(iter(fits))] += last - first
    holds: dict[int, int] = {0: -1} if from_first_step and not votes[0, -1] else {}
    for (gap, distance), count in votes.items():
        rivals = [other for (where, far), other in votes.items() if where == gap and far != distance]
        if all(count > other for other in rivals):
            holds[gap] = distance
    found = {}
    for first, last, fits in stretches:
        clear = [distance for gap, distance in fits if holds.get(gap) == distance]
        if len(clear) == 1:
            found |= {at: spans[at].ordinal + clear[0] for at in range(first, last)}
    return found


def _stretches(candidates: Iterable[set[Fit]]) -> Iterator[tuple[int, int, set[Fit]]]:
    """(first span, one past the last, all that fits every one of them), as long as something does."""
    fits: set[Fit] = set()
    first = 0
    for at, found in enumerate([*candidates, set()]):
        both = fits & found
        if not both:
            if fits:
                yield first, at, fits
            first, both = at, found
        fits = both


def _candidates(steps: StepTable, spans: Sequence[DeviceSpan]) -> Iterator[set[Fit]]:
    """For each span where it fits."""
    submit, output = steps["submit_monotonic_s"], steps["output_monotonic_s"]
    tokens, requests = steps["query_tokens"].tolist(), steps["requests"].tolist()
    # A step whose beginning is not known stands after a gap, and a gap may have swallowed steps.
    gaps = np.cumsum(~steps.known.get("observed_s", np.ones(len(steps), dtype=bool))).tolist()
    starts = np.array([span.start_monotonic_s for span in spans]) + CLOCK_STEP_S
    ends = np.array([span.end_monotonic_s for span in spans]) - CLOCK_STEP_S
    lows = np.searchsorted(output, ends, side="left").tolist()
    highs = np.searchsorted(submit, starts, side="right").tolist()
    for span, low, high in zip(spans, lows, highs, strict=True):
        yield {
            (gaps[row], row - span.ordinal)
            for row in range(low, min(high, low + MOST_IN_FLIGHT))
            if tokens[row] == span.query_tokens and requests[row] == span.requests
        }
