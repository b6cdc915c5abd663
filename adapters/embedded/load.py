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
MOST_TIMES_LONGER = 2.5  # than asked for, where steps are too slow for their least number
REPORT_S = 0.5


@dataclass(frozen=True, slots=True)
class Phase:
    """``seconds`` of ``concurrency`` requests outstanding; lengths in tokens, drawn evenly from first to last.

    With ``long_prompt_tokens`` above zero, a request with a prompt of that length and ``long_output_tokens`` comes
    every ``long_every_steps`` steps, but not before the one before it has its first token: the slower the machine,
    the fewer. The phase lasts longer, up to MOST_TIMES_LONGER, where it has not made ``least_steps`` steps by then.
    """

    name: str
    seconds: float
    concurrency: int
    prompt_tokens: tuple[int, int]
    output_tokens: tuple[int, int]
    long_prompt_tokens: int = 0
    long_every_steps: int = 8
    long_output_tokens: int = 8
    least_steps: int = 0

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
        long = self.long_prompt_tokens + self.long_output_tokens if self.long_prompt_tokens else 0
        return max(self.prompt_tokens[1] + self.output_tokens[1], long)

    def over(self, gone_s: float, steps: int) -> bool:
        """Whether the phase is over after so many seconds and steps."""
        return gone_s >= self.seconds and (steps >= self.least_steps or gone_s >= MOST_TIMES_LONGER * self.seconds)


class Load:
    """Drives an engine through phases; the same seed draws the same lengths."""

    def __init__(
        self,
        engine: Engine,
        seed: int = 0,
        clock: Callable[[], float] = time.monotonic,
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        """``stopped`` says before every step whether whoever runs this has had enough."""
        self._engine = engine
        self._random = random.Random(seed)
        self._clock = clock
        self._stopped = stopped

    def _request(self, prompt_tokens: int, output_tokens: int) -> Request:
        draw, vocabulary = self._random, self._engine.model.shape.vocab_size
        return Request([draw.randrange(vocabulary) for _ in range(prompt_tokens)], output_tokens)

    def run(self, phase: Phase, report: Callable[[float], None]) -> None:
        """Keep the phase's requests outstanding until it is over or stopped; ``report`` gets the seconds gone by."""
        engine, started_s, first_step = self._engine, self._clock(), self._engine.steps
        draw, reported_s, long, long_step = self._random, 0.0, None, 0
        while not phase.over(now_s := self._clock() - started_s, engine.steps - first_step) and not self._stopped():
            outstanding = len(engine.scheduler.running) + len(engine.scheduler.waiting)
            for _ in range(phase.concurrency - outstanding):
                engine.add(self._request(draw.randint(*phase.prompt_tokens), draw.randint(*phase.output_tokens)))
            due = long is None or (long.generated and engine.steps - long_step >= phase.long_every_steps)
            if phase.long_prompt_tokens and due:
                long, long_step = self._request(phase.long_prompt_tokens, phase.long_output_tokens), engine.steps
                engine.add(long)
            engine.step()
            if now_s - reported_s >= REPORT_S:
                reported_s = now_s
                report(now_s)

    def drain(self, seconds: float) -> bool:
        """Run what is outstanding to its end, unless stopped; False where that takes longer than ``seconds``."""
        started_s = self._clock()
        while self._engine.busy and not self._stopped():
            if self._clock() - started_s > seconds:
                return False
            self._engine.step()
        return True
