"""A ring as a Source: slots into a StepTable, live or after the engine's death."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from rooflens.collector.lengths import LengthDecoder, Lengths, sum_names
from rooflens.collector.payload import Sections, parse
from rooflens.collector.ring_file import RingFile, Slots
from rooflens.collector.slot_columns import SlotColumns
from rooflens.protocols import Batch, Keyframe
from rooflens.records import EngineInfo, RingEvent, StepKind, StepTable
from rooflens.ring import EVENT, EXTRA_FIELDS, JSON, UNKNOWN

DEFAULT_BLOCK_TOKENS = 16
MOST_BLOCK_TOKENS = 1 << 20  # no engine has larger blocks; a ring that says so is damaged
UNREADABLE = "unreadable"  # the name of an event whose own name was overwritten or is torn
STATE_DAMAGED = "state_damaged"  # the ring miscounts its steps: those here were found by their own numbers
CLOCK_JUMP_S = 1.0  # wall clocks are slewed by less between two anchors; more is a step or a suspend
KEPT_ANCHORS = 16  # from one read to the next: one comes every second, and a ring may be read for weeks
_COPIED = (
    "sequence", "kind", "requests", "prefill_requests", "query_tokens", "prefill_tokens", "generated_tokens",
    "context_tokens", "deferred", "preempted", "graph_mode",
)  # fmt: skip
_MAYBE = ("kv_blocks_used", "kv_blocks_cached", "padded_tokens", "running", "waiting")
# The largest value of a field: not known, or more than the field can say.
_FULL = {"deferred": 0xFFFF, "prefill_requests": 0xFFFF, "preempted": UNKNOWN, "generated_tokens": UNKNOWN}
_DURATIONS = {
    "schedule_s": "schedule_ns",
    "update_s": "update_ns",
    "executor_s": "executor_ns",
    "wait_s": "wait_ns",
    "hook_s": "hook_ns",
}
_AGES = {"oldest_wait_s": "oldest_wait_us", "summed_wait_s": "summed_wait_us"}


def no_spans(info: EngineInfo) -> tuple[str, ...]:
    """Lengths are summed over whole contexts alone."""
    return ()


def _block_tokens(info: EngineInfo | None) -> int:
    said = info.block_tokens if info else None
    return said if isinstance(said, int) and 1 <= said <= MOST_BLOCK_TOKENS else DEFAULT_BLOCK_TOKENS


class SlotFile(Protocol):
    """What holds slots and payloads as a ring does; ``extras`` names the extra fields of a payload."""

    @property
    def created(self) -> tuple[float, float]:
        """When it was made: monotonic seconds of the clock of its slots, and unix seconds at that moment."""
        ...

    @property
    def extras(self) -> Sequence[str]: ...

    state_damaged: bool

    def info(self) -> EngineInfo | None: ...

    def slots(self, after: int) -> Slots: ...

    def payload(self, offset: int, size: int) -> bytes | None: ...

    def close(self) -> None: ...


class SlotSource:
    """Reads slots from where it left off; see protocols.Source."""

    def __init__(
        self, file: SlotFile, after: int = 0, spans_of: Callable[[EngineInfo], tuple[str, ...]] = no_spans
    ) -> None:
        """Read ``file``; steps up to sequence ``after`` are passed over.

        ``spans_of`` says of an engine over which spans (rooflens.spans) its lengths are to be summed too.
        """
        self._slots = file
        self.info = file.info()
        self._after = after
        self._last_whole = after
        self._last_output_s: float | None = None
        self._gap = after > 0  # the step before the next one was not seen
        self._spans_of = spans_of
        self._decoder = LengthDecoder(_block_tokens(self.info), self._spans())
        self._anchors: list[tuple[float, float]] = [file.created]
        self._keyframe: Keyframe | None = None

    @property
    def doubted_frames(self) -> int:
        """Frames whose lengths did not add up to the sum in their slot; their lengths are not given."""
        return self._decoder.doubted

    @property
    def position(self) -> int:
        """The sequence up to which it has read."""
        return self._after

    def close(self) -> None:
        """Let go of the ring."""
        self._slots.close()

    def read(self, visit: Callable[[int, Lengths], None] | None = None) -> Batch:
        """All steps since the last call, in order; ``visit`` gets every step's own lengths by row of the table."""
        first = self._last_whole + 1
        found = self._slots.slots(self._after)
        slots, self._after = SlotColumns.of(found.slots), found.last
        if len(slots):
            self._last_whole = int(slots["sequence"][-1])
        events, jumps = [], []
        cache: dict[int, Sections | None] = {}
        for at in np.flatnonzero(slots["sections"]).tolist():
            sections = cache[at] = self._sections(slots, at)
            is_event = slots["frame"][at] == EVENT
            if is_event and (sections is None or (slots["sections"][at] & JSON and sections.detail is None)):
                events.append(RingEvent(int(slots["sequence"][at]), float(slots["output_ns"][at]) / 1e9, UNREADABLE))
            if sections is None:
                continue
            if sections.anchor is not None:
                jumps += self._anchor(int(slots["sequence"][at]), sections.anchor)
            if sections.detail is not None and is_event:
                detail = dict(sections.detail)
                name = str(detail.pop("event", "unknown"))
                if name == "info_changed":
                    self.know(self._slots.info() or self.info)
                events.append(RingEvent(int(slots["sequence"][at]), float(slots["output_ns"][at]) / 1e9, name, detail))
        is_step = slots["frame"] != EVENT
        if self._slots.state_damaged and len(slots):
            now_s = float(slots["output_ns"][-1]) / 1e9
            events.append(RingEvent(int(slots["sequence"][-1]), now_s, STATE_DAMAGED))
        rows = np.flatnonzero(is_step)
        steps = slots.take(rows)
        after_gap = self._after_gap(slots["sequence"], first, rows)
        places = dict(zip(np.searchsorted(rows, list(cache)).tolist(), cache.items(), strict=True)) if cache else {}
        by_row = {row: known for row, (at, known) in places.items() if is_step[at]}
        table = self._table(steps, after_gap, by_row, visit)
        events = sorted((*events, *jumps), key=lambda event: event.sequence)
        return Batch(self.info, table, tuple(events), found.lost, found.torn, keyframe=self._keyframe)

    def know(self, info: EngineInfo | None) -> None:
        """The engine's facts have changed: what comes now is summed by them."""
        self.info = info
        self._decoder.spans = self._spans()
        self._decoder.block_tokens = _block_tokens(info)

    def _spans(self) -> tuple[str, ...]:
        return self._spans_of(self.info) if self.info is not None else ()

    def _sections(self, slots: SlotColumns, at: int) -> Sections | None:
        raw = self._slots.payload(int(slots["arena_offset"][at]), int(slots["arena_bytes"][at]))
        if raw is None:
            return None
        return parse(raw, int(slots["sections"][at]), int(slots["requests"][at]), self._slots.extras)

    def _anchor(self, sequence: int, anchor: tuple[int, int]) -> list[RingEvent]:
        unix_s, monotonic_s = anchor[0] / 1e9, anchor[1] / 1e9
        offset, before = unix_s - monotonic_s, self._anchors[-1][1] - self._anchors[-1][0]
        self._anchors.append((monotonic_s, unix_s))
        if abs(offset - before) < CLOCK_JUMP_S:
            return []
        return [RingEvent(sequence, monotonic_s, "clock_jump", {"jump_s": round(offset - before, 6)})]

    def _after_gap(self, sequence: NDArray[Any], first: int, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of the steps at ``rows`` have a gap anywhere between them and the step before, past events too."""
        numbers = sequence.astype(np.int64)
        gaps = np.cumsum(np.diff(numbers, prepend=first - 1) != 1) + int(self._gap)
        seen = np.concatenate(([0], gaps[rows]))
        if len(gaps):
            self._gap = bool(gaps[-1] > seen[-1])
        found: NDArray[np.bool_] = np.diff(seen) > 0
        return found

    def _table(
        self,
        slots: SlotColumns,
        after_gap: NDArray[np.bool_],
        sections: dict[int, Sections | None],
        visit: Callable[[int, Lengths], None] | None,
    ) -> StepTable:
        columns: dict[str, NDArray[Any]] = {name: slots[name].astype(np.int64) for name in _COPIED}
        known: dict[str, NDArray[np.bool_]] = {}
        for name in _MAYBE:
            known[name] = slots[name] != UNKNOWN
            columns[name] = slots[name].astype(np.int64)
        for name, full in _FULL.items():
            known[name] = slots[name] != full
        for name, raw in _DURATIONS.items():
            known[name] = slots[raw] != UNKNOWN
            columns[name] = slots[raw] / 1e9
        self._times(slots, after_gap, columns, known)
        self._extras(slots, sections, columns, known)
        columns["sampled_rows"] = columns["requests"] + slots["drafted_tokens"].astype(np.int64)
        self._lengths(slots, after_gap, sections, columns, known, visit)
        columns["resolution_steps"] = np.ones(len(slots), dtype=np.int64)
        return StepTable(columns, {name: mask for name, mask in known.items() if not mask.all()})

    def _times(
        self,
        slots: SlotColumns,
        after_gap: NDArray[np.bool_],
        columns: dict[str, NDArray[Any]],
        known: dict[str, NDArray[np.bool_]],
    ) -> None:
        submit, output = slots["submit_ns"] / 1e9, slots["output_ns"] / 1e9
        before = [] if not len(output) else [submit[0] if self._last_output_s is None else self._last_output_s]
        previous = np.concatenate((before, output[:-1]))
        columns["submit_monotonic_s"], columns["output_monotonic_s"] = submit, output
        columns["observed_s"] = output - np.maximum(previous, submit)
        # After a gap the step before is not known, and with it when this one could begin.
        known["observed_s"] = ~after_gap
        if len(output):
            self._last_output_s = float(output[-1])
        anchors = np.array(self._anchors)
        order = np.argsort(anchors[:, 0], kind="stable")
        nearest = np.clip(np.searchsorted(anchors[order, 0], output, side="right") - 1, 0, None)
        columns["unix_s"] = output + (anchors[order, 1] - anchors[order, 0])[nearest]
        del self._anchors[:-KEPT_ANCHORS]

    def _extras(
        self,
        slots: SlotColumns,
        sections: dict[int, Sections | None],
        columns: dict[str, NDArray[Any]],
        known: dict[str, NDArray[np.bool_]],
    ) -> None:
        values = {name: np.zeros(len(slots), dtype=np.int64) for name in EXTRA_FIELDS}
        lost = np.zeros(len(slots), dtype=bool)
        aged = np.zeros(len(slots), dtype=bool)
        for at, found in sections.items():
            if found is None:
                lost[at] = True
            elif found.extras:
                aged[at] = True
                for name, column in values.items():
                    column[at] = found.extras.get(name, 0)
        for name, column in values.items():
            if not name.endswith("_us"):
                columns[name] = column
                known[name] = ~lost & (column != UNKNOWN)
        for name, raw in _AGES.items():
            nothing_waits = slots["waiting"] == 0
            columns[name] = np.where(nothing_waits, 0, values[raw]) / 1e6
            known[name] = nothing_waits | (aged & (values[raw] != UNKNOWN))
        invalid = columns["invalid_draft_tokens"]
        columns["drafted_tokens"] = slots["drafted_tokens"] - invalid - columns["unjudged_draft_tokens"]
        columns["rejected_tokens"] = slots["rejected_tokens"] - invalid
        columns["accepted_tokens"] = columns["drafted_tokens"] - columns["rejected_tokens"]

    def _lengths(
        self,
        slots: SlotColumns,
        after_gap: NDArray[np.bool_],
        sections: dict[int, Sections | None],
        columns: dict[str, NDArray[Any]],
        known: dict[str, NDArray[np.bool_]],
        visit: Callable[[int, Lengths], None] | None,
    ) -> None:
        real = np.flatnonzero(slots["kind"] != StepKind.DUMMY)
        fresh = np.zeros(len(slots), dtype=bool)
        # A gap before a dummy step is a gap before the next real one too.
        next_real = np.searchsorted(real, np.flatnonzero(after_gap))
        fresh[real[next_real[next_real < len(real)]]] = True
        seen = (lambda at, lengths: visit(int(real[at]), lengths)) if visit is not None else None
        sums, good = self._decoder.decode(slots.take(real), fresh[real], lambda at: sections.get(int(real[at])), seen)
        if (next_real == len(real)).any():
            self._decoder.forget()
        newest = self._decoder.newest
        self._keyframe = None if newest is None else Keyframe(int(real[newest[0]]), *newest[1:])
        whole = np.ones(len(slots), dtype=bool)
        whole[real] = good
        for index, name in enumerate(sum_names(self._decoder.spans)):
            known[name] = whole
            if len(real) == len(slots):
                columns[name] = sums[index]
            else:
                columns[name] = np.zeros(len(slots), dtype=np.int64)
                columns[name][real] = sums[index]


class RingSource(SlotSource):
    """Reads one ring from where it left off; see protocols.Source."""

    def __init__(
        self, path: Path, after: int = 0, spans_of: Callable[[EngineInfo], tuple[str, ...]] = no_spans
    ) -> None:
        """Open ``path``, the rest as for SlotSource. RooflensError if it is no readable ring."""
        self.file = RingFile(path)
        super().__init__(self.file, after, spans_of)
