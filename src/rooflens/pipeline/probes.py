"""Probes in threads of their own: what they bring is taken in at each turn, and a hung driver delays none."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rooflens.protocols import Probe, Probed

MOST_WAITING = 64  # answers between two turns; at the fastest period that is 16 seconds of a loop that stands still
SHORTEST_PAUSE_S = 0.05  # after an answer that took longer than the period: a slow driver is not asked without a rest
LEAST_PATIENCE_S = 10.0  # a driver that loads takes seconds for its first answer
PATIENCE_PERIODS = 3.0
SAME_PERIOD = 0.9  # of a period: two complaints nearer than that are one
CLOSING_S = 1.0  # an answer under way is left to its driver


@dataclass(frozen=True, slots=True)
class Sampled:
    """One probe: ``name`` stands before what is said of it, ``source`` is its label among device_metrics.PROBES.

    Its samples come every ``period_s`` seconds; it is asked as often, or every ``ask_s`` where it paces itself.
    ``asked_for`` is whether the user named it, so that its absence is a problem wherever it runs.
    """

    name: str
    source: str
    probe: Probe
    period_s: float
    asked_for: bool = False
    ask_s: float | None = None


class ProbeThread:
    """Asks one probe again and again; ``failures`` counts answers that did not come, came late, or were lost."""

    def __init__(self, sampled: Sampled, clock: Callable[[], float] = time.monotonic) -> None:
        self.sampled = sampled
        self.failures = 0
        self.spent_s = 0.0  # processor time of its thread
        self.answered = threading.Event()
        self.fault: str | None = None  # what the last call raised
        self._clock = clock
        self._waiting: deque[Probed] = deque(maxlen=MOST_WAITING)
        self._lost = 0
        self._asked_s: float | None = None  # of the call that is under way
        self._was_late = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"probe {sampled.name}", daemon=True)

    def start(self) -> None:
        """Begin to ask."""
        self._thread.start()

    def drain(self) -> list[Probed]:
        """The answers since the last call, oldest first; never waits."""
        found = []
        while self._waiting:
            found.append(self._waiting.popleft())
        lost, self._lost = self._lost, 0
        late = self.late
        self.failures += lost + (late and not self._was_late)
        self._was_late = late
        return found

    @property
    def late(self) -> bool:
        """Whether a call has been under way for so long that nothing may come of it."""
        asked_s = self._asked_s
        patience_s = max(LEAST_PATIENCE_S, PATIENCE_PERIODS * self.sampled.period_s)
        return asked_s is not None and self._clock() - asked_s > patience_s

    @property
    def problem(self) -> str | None:
        """What is wrong with asking itself, in one line."""
        if self.late:
            patience_s = max(LEAST_PATIENCE_S, PATIENCE_PERIODS * self.sampled.period_s)
            return (
                f"{self.sampled.name} has not answered for more than {patience_s:g} s: its driver or server hangs; "
                "counters are missing until it answers"
            )
        return self.fault

    def close(self) -> None:
        """Stop asking; a call under way is left alone, the probe is closed by its own thread."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(CLOSING_S)

    def _run(self) -> None:
        while not self._stop.is_set():
            began_s = self._asked_s = self._clock()
            self._ask()
            self._asked_s = None
            self.spent_s = time.thread_time()
            self.answered.set()
            every_s = self.sampled.period_s if self.sampled.ask_s is None else self.sampled.ask_s
            self._stop.wait(max(every_s - (self._clock() - began_s), SHORTEST_PAUSE_S))
        close: Any = getattr(self.sampled.probe, "close", None)
        if close is not None:
            close()

    def _ask(self) -> None:
        """One call; what it raises is a line, for it must not end the thread that would ask again."""
        try:
            probed = self.sampled.probe.sample()
        except Exception as error:
            self.failures += 1
            why = " ".join(f"{type(error).__name__}: {error}".split())
            self.fault = f"{self.sampled.name} failed ({why}): please report it"
            return
        self.fault = None
        self._lost += len(self._waiting) == MOST_WAITING
        self._waiting.append(probed)


class Probes:
    """All probes of a sidecar. Their problems are said only where they matter: see ``problems``."""

    def __init__(self, sampled: Sequence[Sampled], clock: Callable[[], float] = time.monotonic) -> None:
        self._threads = [ProbeThread(each, clock) for each in sampled]
        self._said: dict[int, tuple[str, ...]] = {}  # by place: what the newest answer complained of
        self._lacks: dict[int, dict[str, str]] = {}  # by place: those of its lines that are no failure, with their uuid
        self._tell: set[int] = set()  # places that have brought something once
        self._failed_s: dict[int, float] = {}  # when a place last complained and was counted
        self._clock = clock
        for thread in self._threads:
            thread.start()

    def drain(self) -> Iterator[tuple[int, Sampled, Probed]]:
        """What came since the last call with the place of its probe, which is its rank among those of one source."""
        for place, thread in enumerate(self._threads):
            for probed in thread.drain():
                self._said[place] = probed.problems
                self._lacks[place] = {line: uuid for uuid, line in probed.lacks}
                if probed.devices or probed.samples or probed.processes:
                    self._tell.add(place)
                failed = not self._lacks[place].keys() >= set(probed.problems)
                if failed and (place in self._tell or thread.sampled.asked_for):
                    self._count(place, thread)
                yield place, thread.sampled, probed

    def _count(self, place: int, thread: ProbeThread) -> None:
        """One failure for each period: a probe that paces itself says the same again between two reads."""
        now_s = self._clock()
        if now_s - self._failed_s.get(place, -thread.sampled.period_s) >= SAME_PERIOD * thread.sampled.period_s:
            self._failed_s[place] = now_s
            thread.failures += 1

    def problems(self, wanted: bool, elsewhere: Callable[[int, str], bool] = lambda place, uuid: False) -> list[str]:
        """One line each. What a device does not have is not said where its counters come from ``elsewhere``: from
        another probe than the one of this place. A library that never told of a device is none's loss on a host
        without engines on devices: its problems are said only where counters are ``wanted`` and no other probe of this
        host tells of any device.
        """
        told = any(
            place in self._tell and thread.sampled.source != "host" for place, thread in enumerate(self._threads)
        )
        lines: list[str] = []
        for place, thread in enumerate(self._threads):
            heard = place in self._tell or thread.sampled.asked_for
            own = thread.problem
            if heard or (wanted and not told):
                lacks = self._lacks.get(place, {})
                said = self._said.get(place, ())
                lines += [line for line in said if line not in lacks or not elsewhere(place, lacks[line])]
            if own is not None and (heard or wanted):
                lines.append(own)
        return lines

    def failures(self) -> dict[str, int]:
        """Failed answers by source, for every source that is asked."""
        found: dict[str, int] = {}
        for thread in self._threads:
            source = thread.sampled.source
            found[source] = found.get(source, 0) + thread.failures
        return found

    @property
    def spent_s(self) -> float:
        """Processor time of all threads."""
        return sum(thread.spent_s for thread in self._threads)

    def wait(self, patience_s: float) -> None:
        """Until every probe has answered once, but no longer than ``patience_s``."""
        deadline_s = time.monotonic() + patience_s
        for thread in self._threads:
            thread.answered.wait(max(0.0, deadline_s - time.monotonic()))

    def answered(self) -> list[tuple[Sampled, bool]]:
        """Which probes have answered."""
        return [(thread.sampled, thread.answered.is_set()) for thread in self._threads]

    def close(self) -> None:
        """Stop asking."""
        for thread in self._threads:
            thread.close()
