"""One engine that pushes: its clock, how far it has counted, its facts; a body into what is handed on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from rooflens.adapters.push.body import Body, RefusedError, plain_line, seconds
from rooflens.adapters.push.clock import SenderClock
from rooflens.adapters.push.steps import Writer, event_of, opened
from rooflens.adapters.recorder.info import checked
from rooflens.records import EngineInfo
from rooflens.ring import INFO_BYTES

SILENT_S = 15.0  # without a body: not reachable
DIED_S = 60.0  # without a body: gone without a word
MOST_LINES = 16  # of an answer
LONGEST_LINE = 240
JUMPED = "the sender's clock jumped: the step after that has no duration"
LEFT_OUT_OF_INFO = frozenset(("instance", "engine", "rank", "schema", "unread"))


@dataclass(frozen=True, slots=True)
class Handed:
    """What one body brought: slots and payloads of a ring, in order, with the sender's clock.

    ``offset_s`` maps that clock to this host's, ``sent_s`` and ``received_s`` are the body's own moments on either,
    ``in_flight`` is (submit on this host's clock, tokens, requests) of a step that was open when it was sent.
    ``lost_steps`` never came or were refused; ``first`` marks the first body of a run.
    """

    info: EngineInfo
    slots: list[bytes]
    payloads: list[bytes]
    offset_s: float
    sent_s: float
    received_s: float
    in_flight: tuple[float, int, int] | None
    lost_steps: int
    jumped: bool
    ended: bool
    here: bool
    complaints: tuple[str, ...]

    @property
    def weight_bytes(self) -> int:
        """What it takes while it waits, about."""
        return 256 * len(self.slots) + sum(map(len, self.payloads))


class Lines:
    """What was refused of a body: at most MOST_LINES lines, one each, and a count."""

    def __init__(self) -> None:
        self.count = 0
        self._lines: list[str] = []

    def add(self, line: str) -> None:
        """Note one."""
        self.count += 1
        if len(self._lines) < MOST_LINES:
            self._lines.append(plain_line(line, LONGEST_LINE))

    def all(self) -> list[str]:
        """The lines, the last of which may say how many more there were."""
        more = self.count - len(self._lines)
        return [*self._lines, f"and {more} more"] if more else list(self._lines)


class Sender:
    """One run of one engine. Not thread-safe: its receiver holds a lock."""

    def __init__(self, instance: str, now_unix_s: float) -> None:
        self.instance = instance
        self.received_s = 0.0
        self.ended = False
        self.facts_wanted = True
        self._info = EngineInfo(instance, "unknown", start_unix_s=now_unix_s)
        self._started_unix_s = now_unix_s
        self._facts_seen = b""
        self._clock = SenderClock()
        self._writer = Writer()
        self._next: int | None = None  # the number of the next item; None before the first
        self._lost_told: int | None = None
        self._output_s = 0.0

    def take(self, body: Body, received_s: float, here: bool) -> tuple[Handed | None, dict[str, Any]]:
        """What is to be handed on of a checked body, None of one that brings nothing new, and the answer to it.

        RefusedError for one that is not taken at all; then nothing has changed.
        """
        items = list(_in_order(body))
        known = self._already(body, len(items))
        if self.ended:
            if known < len(items) or not body.ended:
                raise RefusedError(422, f"the run {self.instance} was ended: choose another instance for the next one")
            return None, self._answer(0, 0, known, 0, Lines())
        open_at = opened(body.in_flight, body.sent_s)
        lines = Lines()
        silent = bool(self.received_s) and received_s - self.received_s > DIED_S
        jumped = self._clock.take(body.sent_s, received_s)
        if silent:
            self._writer.forget()
        if jumped:
            self._output_s = 0.0
        self.received_s = received_s
        self._know(body, here, lines)
        lost = self._lost(body)
        self._writer.skip(lost) if lost else None
        steps, events, refused = self._write(items[known:], body.sent_s, lines)
        if body.first_sequence is not None:
            self._next = max(self._next or 1, body.first_sequence + len(items))
        self.ended = body.ended
        for name in body.odd:
            lines.add(f"the field {name} is not known here: it was left out")
        slots, payloads = self._writer.taken()
        offset_s = self._clock.offset_s or 0.0
        handed = Handed(
            info=self._info,
            slots=slots,
            payloads=payloads,
            offset_s=offset_s,
            sent_s=body.sent_s,
            received_s=received_s,
            in_flight=None if open_at is None else (open_at[0] + offset_s, *open_at[1:]),
            lost_steps=lost + refused,
            jumped=jumped,
            ended=body.ended,
            here=here,
            complaints=((JUMPED,) if jumped else ()) + tuple(lines.all()),
        )
        return handed, self._answer(steps, events, known, lost + refused, lines)

    def _answer(self, steps: int, events: int, known: int, lost: int, lines: Lines) -> dict[str, Any]:
        return {
            "version": 1,
            "steps": steps,
            "events": events,
            "already_taken": known,
            "lost_steps": lost,
            "refused": lines.all(),
            "next_sequence": self._next,
            "facts_wanted": self.facts_wanted,
        }

    def _already(self, body: Body, items: int) -> int:
        """How many of the items were taken before."""
        if body.first_sequence is None or self._next is None:
            return 0
        return max(0, min(items, self._next - body.first_sequence))

    def _lost(self, body: Body) -> int:
        """Steps that never came: a gap in the numbers, and those that the sender itself dropped."""
        gap = 0
        if body.first_sequence is not None and self._next is not None:
            gap = max(0, body.first_sequence - self._next)
        before = self._lost_told if self._lost_told is not None else body.lost_steps if self._next is not None else 0
        self._lost_told = max(before, body.lost_steps)
        return gap + self._lost_told - before

    def _know(self, body: Body, here: bool, lines: Lines) -> None:
        """Take the facts where they are new; what is wrong with some of them is a line."""
        if body.facts is None:
            return
        self.facts_wanted = False
        seen = hashlib.sha256(repr((body.engine, here, body.facts)).encode("utf-8", "replace")).digest()
        if seen == self._facts_seen:
            return
        first, self._facts_seen = not self._facts_seen, seen
        given = {name: value for name, value in body.facts.items() if isinstance(name, str)}
        stated = {name: value for name, value in given.items() if name not in LEFT_OUT_OF_INFO}
        engine = body.engine if body.engine is not None else given.get("engine")
        kept, problems = checked(engine, given.get("rank"), stated)
        for problem in problems:
            lines.add(f"facts: {problem}")
        if stated.get("start_unix_s") is None or "start_unix_s" not in kept:
            kept["start_unix_s"] = self._started_unix_s
        if stated.get("host") is None and not here:
            del kept["host"]
        if len(json.dumps(kept)) > INFO_BYTES:
            lines.add(f"facts: they take more than {INFO_BYTES >> 10} KB: leave out of model_config what is no shape")
            return
        info = EngineInfo.from_json({**kept, "instance": self.instance})
        changed = replace(info, unread=()) != replace(self._info, unread=())
        self._info = info
        if changed and not first:
            self._writer.event("info_changed", {}, body.sent_s)

    def _write(self, items: list[tuple[str, Any]], sent_s: float, lines: Lines) -> tuple[int, int, int]:
        """Write what is new; how many steps and events were taken and how many steps refused."""
        steps = events = refused = 0
        for place, (what, given) in enumerate(items, start=1):
            try:
                if what == "step":
                    self._output_s = self._writer.step(given, sent_s, self._output_s)
                    steps += 1
                else:
                    self._writer.event(*event_of(given, sent_s))
                    events += 1
            except (ValueError, TypeError, OverflowError, RefusedError) as error:
                lines.add(f"{what} {place} of the new ones: {error}")
                if what == "step":
                    refused += 1
                    self._writer.skip(1)
        return steps, events, refused


def _in_order(body: Body) -> Iterator[tuple[str, Any]]:
    """Steps by their output and events by their moment, in the order of time; steps first, and each in its own order.

    An event whose moment is none comes where it stands.
    """
    events = list(body.events)
    for step in body.steps:
        output_s = _moment(step, "output_s")
        while events and _moment(events[0], "at_s") < output_s:
            yield "event", events.pop(0)
        yield "step", step
    yield from (("event", event) for event in events)


def _moment(given: Any, name: str) -> float:
    try:
        return seconds(given.get(name) if isinstance(given, Mapping) else None, name)
    except RefusedError:
        return 0.0
