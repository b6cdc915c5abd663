"""Takes bodies in from HTTP threads and hands them to the one that reads; bounded in engines, steps and bytes."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rooflens.adapters.push.body import RefusedError, body_of, decoded
from rooflens.adapters.push.sender import DIED_S, Handed, Sender

MOST_SENDERS = 64
KEPT_S = 600.0  # a run that is over is remembered for so long: a late retry is not a new one
MOST_WAITING_STEPS = 65_536
MOST_WAITING_BYTES = 64 << 20
SAID_S = 60.0  # a fault of a body stays in sight for so long
RETRY_S = 2
FULL = "more is waiting than is read: keep the body and send it again later"
CROWDED = f"{MOST_SENDERS} engines push here already: end some, or run another sidecar"


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP status with its object; ``retry_after_s`` where the same body may be sent again."""

    status: int
    content: Mapping[str, Any]
    retry_after_s: int | None = None


class Receiver:
    """All senders of one sidecar. ``failures`` counts bodies, steps and events that were not taken."""

    def __init__(self) -> None:
        self.failures = 0
        self.last_unix_s: float | None = None
        self._senders: dict[str, Sender] = {}
        self._turn = threading.Lock()  # one body after the other; the reader never takes it
        self._handed: deque[Handed] = deque()
        self._waiting = threading.Lock()  # held for moments only
        self._steps = self._bytes = 0
        self._fault: tuple[float, str] | None = None

    def take(self, raw: bytes, media_type: str, received_s: float, here: bool) -> Answer:
        """Check one body and hand on what it brings; ``received_s`` is when it began to come, monotonic.

        Never raises; may block while another body is checked, never on the reader.
        """
        try:
            body = body_of(decoded(raw, media_type))
            with self._turn:
                if self._full():
                    return Answer(503, {"error": FULL}, RETRY_S)
                sender = self._sender(body.instance, received_s)
                handed, answer = sender.take(body, received_s, here)
                self._senders[body.instance] = sender
                if answer["refused"]:
                    self._note(f"of {body.instance}: {answer['refused'][0]}", len(answer["refused"]))
                if handed is not None:
                    self._hand(handed)
            return Answer(200, answer)
        except RefusedError as error:
            retry_s = RETRY_S if error.status == 503 else None
            if error.status != 415:
                self._note(str(error), 1)
            return Answer(error.status, {"error": str(error)}, retry_s)
        except Exception as error:
            self._note(f"a body failed here ({type(error).__name__}): please report it", 1)
            return Answer(422, {"error": f"the body could not be taken ({type(error).__name__}): see docs/push.md"})

    def taken(self) -> list[Handed]:
        """What was handed on since the last call, in order; never waits for a body."""
        with self._waiting:
            handed, self._handed = list(self._handed), deque()
            self._steps = self._bytes = 0
        return handed

    @property
    def problem(self) -> str | None:
        """What was last refused, for a while."""
        fault = self._fault
        return fault[1] if fault is not None and time.monotonic() - fault[0] < SAID_S else None

    def _full(self) -> bool:
        with self._waiting:
            return self._steps >= MOST_WAITING_STEPS or self._bytes >= MOST_WAITING_BYTES

    def _hand(self, handed: Handed) -> None:
        self.last_unix_s = time.time()
        with self._waiting:
            self._handed.append(handed)
            self._steps += len(handed.slots) + 1
            self._bytes += handed.weight_bytes

    def _note(self, line: str, count: int) -> None:
        self.failures += count
        self._fault = (time.monotonic(), line)

    def _sender(self, instance: str, now_s: float) -> Sender:
        """The sender of that run, a new one where there is room; RefusedError (503) where there is none."""
        if (known := self._senders.get(instance)) is not None:
            return known
        for name in [n for n, each in self._senders.items() if now_s - each.received_s > KEPT_S]:
            del self._senders[name]
        if len(self._senders) >= MOST_SENDERS:
            over = [s for s in self._senders.values() if s.ended or now_s - s.received_s > DIED_S]
            if not over:
                raise RefusedError(503, CROWDED)
            del self._senders[min(over, key=lambda sender: sender.received_s).instance]
        return Sender(instance, time.time())
