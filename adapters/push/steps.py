"""Pushed steps and events as the slots of a ring: the recorder's own checks, its encoder, its fields."""

from __future__ import annotations

import json
from collections.abc import Mapping
from operator import index
from typing import Any

from rooflens.adapters.facts import LARGEST
from rooflens.adapters.frames import Payload
from rooflens.adapters.push.body import RefusedError, seconds
from rooflens.adapters.recorder import LONGEST_NAME
from rooflens.adapters.recorder.encode import Encoder, Rows, rows_of
from rooflens.adapters.recorder.slot import FACTS, check_facts, cold_of, extras_of, nanoseconds
from rooflens.ring import COLD_FIELDS, EVENT, HOT, JSON, REPEAT, U32, UNKNOWN
from rooflens.ring_writer import pack_cold

MOST_ROWS = 1 << 16  # sequences of one step
MOST_COUNTS = 16  # of one event
LENGTHS = ("contexts", "queries", "prefill", "drafts", "rejected")
OWN = frozenset(("submit_s", "output_s", "generated_tokens", "update_s", *LENGTHS))
MOST_GAP = 1 << 32  # of the sequence; a stranger's numbers must not use it up
NO_CRC = b"\0\0\0\0"  # nothing was written to be read later


class Writer:
    """The slots of one sender, in order; ``slots`` and ``payloads`` are taken away by taken()."""

    def __init__(self) -> None:
        self.sequence = 0
        self._slots: list[bytes] = []
        self._payloads: list[bytes] = []
        self._encoder = Encoder()

    def taken(self) -> tuple[list[bytes], list[bytes]]:
        """What was written since the last call: slots, and payloads by place."""
        slots, self._slots = self._slots, []
        payloads, self._payloads = self._payloads, []
        return slots, payloads

    def skip(self, steps: int) -> None:
        """Steps that never came: a gap in the sequence, and nothing to go on from."""
        self.sequence += min(steps, MOST_GAP)
        self._encoder.forget()

    def forget(self) -> None:
        """Whoever reads the slots may not have read those before: the next step is written whole."""
        self._encoder.forget()

    def step(self, given: Any, sent_s: float, before_s: float) -> float:
        """Write one step; when its output was there, in the sender's seconds.

        ValueError, TypeError, OverflowError or RefusedError for one that cannot be, of which nothing is left behind.
        ``before_s`` is the output of the step before.
        """
        if not isinstance(given, dict):
            raise TypeError("it is no object")
        submit_s, output_s = seconds(given.get("submit_s"), "submit_s"), seconds(given.get("output_s"), "output_s")
        if not submit_s <= output_s:
            raise ValueError("its output_s lies before its submit_s")
        if output_s > sent_s:
            raise ValueError("its output_s lies after sent_s: take both from the clock that never goes back")
        if output_s < before_s:
            raise ValueError("its output_s lies before that of the step before it: send steps in order")
        rows, facts = _rows(given), _facts(given)
        generated = given.get("generated_tokens")
        check_facts(facts)
        rows.reject(given.get("rejected"))
        # All that may be refused is tried before the encoder goes on from this step.
        cold_of(rows, facts, generated, (REPEAT, 0, 0))
        hot = (
            nanoseconds(facts, "schedule_s", UNKNOWN), _update(given), nanoseconds(facts, "executor_s", UNKNOWN),
            nanoseconds(facts, "wait_s", UNKNOWN), UNKNOWN, int(facts.get("kv_blocks_used", UNKNOWN)),
        )  # fmt: skip
        extras = extras_of(facts)
        output_ns = round(output_s * 1e9)
        payload = Payload()
        try:
            frame, base = self._encoder.encode(rows, payload, output_ns) if rows.contexts else (REPEAT, 0)
        except Exception:
            self._encoder.forget()
            raise
        if extras:
            payload.extras(extras)
        cold = cold_of(rows, facts, generated, (frame, base, payload.sections))
        self._put(round(submit_s * 1e9), output_ns, sum(rows.contexts), hot, cold, payload.tobytes())
        return output_s

    def event(self, name: str, counts: Mapping[str, int | float], at_s: float) -> None:
        """Write one event, checked by event_of."""
        if name == "step_failed":
            self._encoder.forget()
        text = json.dumps({"event": name, **counts}, separators=(",", ":")).encode()
        given = {"frame": EVENT, "sections": JSON}
        cold = pack_cold(*(given.get(field, 0) for field, _ in COLD_FIELDS))
        at_ns = round(at_s * 1e9)
        self._put(at_ns, at_ns, 0, (UNKNOWN,) * 6, cold, U32.pack(len(text)) + text)

    def _put(self, submit_ns: int, output_ns: int, contexts: int, hot: Any, cold: bytes, payload: bytes) -> None:
        self.sequence += 1
        offset = len(self._payloads)
        if payload:
            self._payloads.append(payload)
        packed = HOT.pack(
            self.sequence, offset, submit_ns, output_ns, contexts, len(payload), *(min(each, UNKNOWN) for each in hot)
        )
        self._slots.append(packed + cold + NO_CRC)


def _rows(given: Mapping[str, Any]) -> Rows:
    for name in LENGTHS:
        value = given.get(name)
        if value is None:
            continue
        if not isinstance(value, list):
            raise TypeError(f"{name} is no list")
        if len(value) > MOST_ROWS:
            raise ValueError(f"{name} has {len(value)} entries, more than {MOST_ROWS}")
        if not all(type(entry) is int for entry in value):
            raise TypeError(f"{name} holds something that is no whole number")
    if "contexts" not in given:
        raise ValueError("it has no contexts: an empty list is a step without sequences")
    try:
        return rows_of(given["contexts"] or (), given.get("queries"), given.get("prefill"), given.get("drafts"))
    except OverflowError:
        raise ValueError("a length is negative or larger than any") from None


def _facts(given: Mapping[str, Any]) -> dict[str, Any]:
    facts = {name: value for name, value in given.items() if name not in OWN and value is not None}
    for name, value in facts.items():
        if name in FACTS and (isinstance(value, bool) or not isinstance(value, int | float) or not value < LARGEST):
            raise ValueError(f"{name} is not a count or a time")
    return facts


def _update(given: Mapping[str, Any]) -> int:
    value = given.get("update_s")
    if value is None:
        return UNKNOWN
    return round(seconds(value, "update_s") * 1e9)


def event_of(given: Any, sent_s: float) -> tuple[str, dict[str, int | float], float]:
    """Name, counts and moment of an event; ValueError, TypeError or RefusedError for one that cannot be."""
    if not isinstance(given, dict):
        raise TypeError("it is no object")
    name, counts = given.get("name"), given.get("counts") or {}
    if not isinstance(name, str) or not name.isidentifier() or len(name) > LONGEST_NAME:
        raise ValueError("its name is no short word")
    if not isinstance(counts, dict) or len(counts) > MOST_COUNTS:
        raise ValueError(f"its counts are no object of at most {MOST_COUNTS} numbers")
    for key, value in counts.items():
        if not isinstance(key, str) or not key.isidentifier() or len(key) > LONGEST_NAME or key == "event":
            raise ValueError("the name of a count is no short word")
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < LARGEST:
            raise ValueError("a count is no finite number")
    at_s = seconds(given.get("at_s"), "at_s")
    if at_s > sent_s:
        raise ValueError("its at_s lies after sent_s")
    return name, dict(counts), at_s


def opened(given: Mapping[str, Any] | None, sent_s: float) -> tuple[float, int, int] | None:
    """When the open step was handed over in the sender's seconds, its tokens, its requests; RefusedError if not so."""
    if given is None:
        return None
    submit_s = seconds(given.get("submit_s"), "in_flight.submit_s")
    if submit_s > sent_s:
        raise RefusedError(422, "in_flight.submit_s lies after sent_s: take both from the clock that never goes back")
    try:
        tokens, requests = index(given.get("tokens", 0)), index(given.get("requests", 0))
    except TypeError:
        raise RefusedError(422, "in_flight.tokens or in_flight.requests is no whole number") from None
    if not 0 <= tokens < UNKNOWN or not 0 <= requests < UNKNOWN:
        raise RefusedError(422, "in_flight.tokens or in_flight.requests is no count")
    return submit_s, tokens, requests
