"""Probes for tests: they bring what they are given, fail or hang when told, and never time anything."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from rooflens.device_records import CounterSource, DeviceFacts, DeviceSample
from rooflens.pipeline.probes import Sampled
from rooflens.protocols import Probed

ASK_S = 0.05  # made probes are asked as often as a probe may be


def wait_for(holds: Callable[[], Any], what: str, limit_s: float = 20.0) -> Any:
    """The first true answer; AssertionError with ``what`` where none comes."""
    deadline_s = time.monotonic() + limit_s
    while time.monotonic() < deadline_s:
        if answer := holds():
            return answer
        time.sleep(0.01)
    raise AssertionError(f"not seen: {what}")


class MadeProbe:
    """Answers with ``devices`` and, once each, with what was ``put``; ``raises`` and ``gate`` make it fail or hang."""

    def __init__(self, *devices: DeviceFacts, problems: tuple[str, ...] = ()) -> None:
        self.devices, self.problems = devices, problems
        self.lacks: tuple[tuple[str, str], ...] = ()
        self.raises: Exception | None = None
        self.gate = threading.Event()
        self.gate.set()
        self.asked = 0
        self.closed = False
        self.watched: list[frozenset[Any]] = []
        self._waiting: list[Probed] = []
        self._lock = threading.Lock()

    def put(self, *samples: DeviceSample, **more: Any) -> None:
        """Have the next answer bring these."""
        with self._lock:
            self._waiting.append(Probed(samples=samples, **more))

    def sample(self) -> Probed:
        self.asked += 1
        self.gate.wait()
        if self.raises is not None:
            raise self.raises
        with self._lock:
            found, self._waiting = self._waiting, []
        return Probed(
            self.devices,
            tuple(s for each in found for s in each.samples),
            tuple(p for each in found for p in each.processes),
            self.problems + tuple(p for each in found for p in each.problems),
            self.lacks,
        )

    def watch(self, wanted: frozenset[Any]) -> None:
        self.watched.append(wanted)

    def close(self) -> None:
        self.closed = True

    def settled(self) -> None:
        """Wait until what was put before this call has been asked for and handed over."""
        with self._lock:
            had = self.asked
        wait_for(lambda: self.asked > had + 1, "two more answers")


def sampled(
    probe: MadeProbe, source: str = "nvml", name: str = "NVML", period_s: float = 1.0, asked_for: bool = False
) -> Sampled:
    """The probe as a Watch takes it."""
    return Sampled(name, source, probe, period_s, asked_for, ask_s=ASK_S)


def facts(uuid: str = "GPU-1", source: CounterSource = CounterSource.NVML, **more: Any) -> DeviceFacts:
    """A device with a bandwidth of 1 TB/s."""
    usual = {"memory_bandwidth_bytes_per_s": 1e12, "sm_clock_max_hz": 2e9, "memory_clock_max_hz": 3e9}
    return DeviceFacts(uuid, source, **{**usual, **more})


def sample(
    start_s: float, end_s: float, uuid: str = "GPU-1", source: CounterSource = CounterSource.NVML, **more: Any
) -> DeviceSample:
    """A sample that used half of the DRAM bandwidth."""
    return DeviceSample(uuid, source, start_s, end_s, **{"dram_ratio": 0.5, **more})
