"""The load on the embedded engine: phases of requests, each kept at a constant number outstanding."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rooflens.adapters.embedded.engine import Engine
from rooflens.adapters.embedded.scheduler import Request
from rooflens.records import RooflensError

LONGEST_PHASE_S = 3600.0
REPORT_S = 0.5


@dataclass(frozen=True, slots=True)
class Phase:
    """``seconds`` of ``concurrency`` requests outstanding; lengths in tokens, drawn evenly from first to last.

    With ``long_prompt_tokens`` above zero, a request with a prompt of that length comes every ``long_every_s``.
    """

    name: str
    seconds: float
    concurrency: int
    prompt_tokens: tuple[int, int]
    output_tokens: tuple[int, int]
    long_prompt_tokens: int = 0
    long_every_s: float = 1.0

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Phase:
        """From a JSON object with these fields; RooflensError for a phase that cannot be."""
        ranges = {name: (int(data[name][0]), int(data[name][1])) for name in ("prompt_tokens", "output_tokens")}
        phase = cls(**{**data, **ranges})
        if not 0 < phase.seconds <= LONGEST_PHASE_S or phase.concurrency < 1:
            raise RooflensError(f"load phase {phase.name}: seconds and concurrency must be positive")
        if any(not 1 <= first <= last for first, last in ranges.values()):
            raise RooflensError(f"load phase {phase.name}: lengths are at least one token, the shorter first")
        return phase

    @property
    def longest_tokens(self) -> int:
        """The longest sequence that this phase can bring about."""
        return max(self.prompt_tokens[1], self.long_prompt_tokens) + self.output_tokens[1]


class Load:
    """Drives an engine through phases; the same seed draws the same lengths."""

    def __init__(self, engine: Engine, seed: int = 0, clock: Callable[[], float] = time.monotonic) -> None:
        self._engine = engine
        self._random = random.Random(seed)
        self._clock = clock

    def _request(self, phase: Phase, prompt_tokens: int | None = None) -> Request:
        draw, vocabulary = self._random, self._engine.model.shape.vocab_size
        length = prompt_tokens or draw.randint(*phase.prompt_tokens)
        return Request([draw.randrange(vocabulary) for _ in range(length)], draw.randint(*phase.output_tokens))

    def run(self, phase: Phase, report: Callable[[float], None]) -> None:
        """Keep the phase's requests outstanding until its time is over; ``report`` gets the seconds gone by."""
        engine, started_s = self._engine, self._clock()
        reported_s = next_long_s = 0.0
        while (now_s := self._clock() - started_s) < phase.seconds:
            outstanding = len(engine.scheduler.running) + len(engine.scheduler.waiting)
            for _ in range(phase.concurrency - outstanding):
                engine.add(self._request(phase))
            if phase.long_prompt_tokens and now_s >= next_long_s:
                engine.add(self._request(phase, phase.long_prompt_tokens))
                next_long_s = now_s + phase.long_every_s
            engine.step()
            if now_s - reported_s >= REPORT_S:
                reported_s = now_s
                report(now_s)

    def drain(self, seconds: float) -> bool:
        """Run what is outstanding to its end; False where that takes longer than ``seconds``."""
        started_s = self._clock()
        while self._engine.busy:
            if self._clock() - started_s > seconds:
                return False
            self._engine.step()
        return True
