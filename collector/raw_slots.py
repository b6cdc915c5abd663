"""A ring's steps in plain Python, for the base install: counts, span and step times, no lengths, no roofline."""

from __future__ import annotations

import struct
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

from rooflens.collector.ring_file import RingFile
from rooflens.records import EngineInfo, StepKind
from rooflens.ring import EVENT, RingHeader

READ_SLOTS = 4096
_CODES = {"u8": "Q", "u4": "I", "u2": "H", "u1": "B"}


@dataclass(frozen=True, slots=True)
class RawSummary:
    """What can be said without NumPy; times in seconds, None where there was no step."""

    info: EngineInfo | None
    live: bool
    closed: bool
    steps: int
    events: int
    lost_steps: int
    torn_steps: int
    hook_failures: int
    steps_by_kind: dict[str, int]
    query_tokens: int
    generated_tokens: int
    span_s: float
    step_p50_s: float | None
    step_p90_s: float | None
    step_max_s: float | None
    state_damaged: bool = False


def read_raw(path: Path) -> RawSummary:
    """The whole slots of the ring at ``path`` in figures; RooflensError if it is no ring that can be read."""
    file = RingFile(path)
    try:
        live, state, info = file.live(), file.state(), file.info()
        first = max(1, state.sequence - file.header.slot_count + 1)
        count = _Count(file.header)
        for start in range(first, state.sequence + 1, READ_SLOTS):
            end = min(start + READ_SLOTS - 1, state.sequence)
            count.add(file.read_raw(start, end), start)
        damaged = not live and count.seen == 0 and first - 1 + count.lost > 0 and bool(found := file.scan())
        if damaged:  # the steps are there, but not where the state says
            count = _Count(file.header)
            first = max(1, found[-1][0] - file.header.slot_count + 1)
            for sequence, slot in found:
                count.step(slot, sequence)
            count.torn = found[-1][0] - first + 1 - len(found)
    finally:
        file.close()
    times_s = sorted(count.times_s)
    return RawSummary(
        info=info,
        live=live,
        closed=state.closed,
        steps=count.steps,
        events=count.events,
        lost_steps=first - 1 + count.lost,
        torn_steps=count.torn,
        hook_failures=state.hook_failures,
        steps_by_kind=dict(count.kinds),
        query_tokens=count.query_tokens,
        generated_tokens=count.generated_tokens,
        span_s=max(0.0, (count.last_output_ns - count.first_submit_ns) / 1e9),
        step_p50_s=_quantile(times_s, 0.5),
        step_p90_s=_quantile(times_s, 0.9),
        step_max_s=times_s[-1] if times_s else None,
        state_damaged=damaged,
    )


def _quantile(ordered: list[float], share: float) -> float | None:
    return ordered[int(share * (len(ordered) - 1))] if ordered else None


class _Count:
    """Adds up slots; a step after a gap has no known beginning, so its time is left out."""

    def __init__(self, header: RingHeader) -> None:
        self._bytes = header.slot_bytes
        self._places = {name: (struct.Struct("<" + _CODES[kind]), at) for name, kind, at in header.slot_layout}
        self.kinds: Counter[str] = Counter()
        self.steps = self.events = self.torn = self.lost = self.query_tokens = self.generated_tokens = 0
        self.first_submit_ns = self.last_output_ns = 0
        self.times_s: list[float] = []
        self._next = 1
        self._gap = False

    @property
    def seen(self) -> int:
        """Whole slots."""
        return self.steps + self.events

    def add(self, raw: bytes, first: int) -> None:
        """The slots from sequence ``first`` on."""
        for index in range(len(raw) // self._bytes):
            slot = raw[index * self._bytes : (index + 1) * self._bytes]
            if crc32(slot[:-4]) != int.from_bytes(slot[-4:], "little"):
                self.torn += 1
            elif self._value(slot, "sequence") != first + index:
                self.lost += 1  # the writer has come round since
            else:
                self.step(slot, first + index)

    def _value(self, slot: bytes, name: str) -> int:
        layout, at = self._places[name]
        return int(layout.unpack_from(slot, at)[0])

    def step(self, slot: bytes, sequence: int) -> None:
        """A whole slot, after all before it."""
        self._gap |= sequence != self._next
        self._next = sequence + 1
        if self._value(slot, "frame") == EVENT:
            self.events += 1
            return
        follows, self._gap = not self._gap, False
        submit_ns, output_ns = self._value(slot, "submit_ns"), self._value(slot, "output_ns")
        if follows:
            self.times_s.append(max(0, output_ns - max(submit_ns, self.last_output_ns)) / 1e9)
        if not self.steps:
            self.first_submit_ns = submit_ns
        self.last_output_ns = output_ns
        self.steps += 1
        kind = self._value(slot, "kind")
        self.kinds[StepKind(kind).name.lower() if kind in list(StepKind) else "other"] += 1
        self.query_tokens += self._value(slot, "query_tokens")
        self.generated_tokens += self._value(slot, "generated_tokens")
