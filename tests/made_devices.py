"""A made device whose traffic follows from the steps of an engine, and counters cut from it as a driver cuts them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rooflens.device_records import CounterSource, DeviceFacts, DeviceSample
from rooflens.records import StepTable

Floats = NDArray[np.float64]
BANDWIDTH = 3e12  # bytes/s at 100 %
REFRESH_S = 0.1  # how often the driver refreshes its counters


@dataclass(frozen=True)
class Engine:
    """Steps that moved ``ratio`` x the model's bytes, each evenly in its busy time; times from 0 on."""

    begin_s: Floats
    end_s: Floats
    model: Floats
    ratio: float = 1.0

    def table(self, rows: NDArray[Any]) -> StepTable:
        busy = self.end_s - self.begin_s
        return StepTable(
            {
                "sequence": np.flatnonzero(rows) + 1,
                "submit_monotonic_s": self.begin_s[rows],
                "output_monotonic_s": self.end_s[rows],
                "observed_s": busy[rows],
                "resolution_steps": np.ones(int(rows.sum()), dtype=np.int64),
            }
        )

    def until(self, at_s: float, weights: Floats) -> float:
        """The exact integral from 0 of amounts that the steps spread evenly over their busy time."""
        done = np.clip((at_s - self.begin_s) / (self.end_s - self.begin_s), 0.0, 1.0)
        return float((done * weights).sum())


def engine(busy_s: Any, gap_s: Any, used: Any, ratio: float = 1.0) -> Engine:
    """Steps one after the other, each after a gap; ``used`` is the share of the bandwidth that each takes."""
    busy, gap, share = np.broadcast_arrays(*(np.asarray(v, dtype=np.float64) for v in (busy_s, gap_s, used)))
    end = np.cumsum(gap + busy)
    return Engine(end - busy, end, share * busy * BANDWIDTH / ratio, ratio)


def device_samples(
    made: Engine, times_s: list[float], uuid: str = "GPU-0", devices: int = 1, refresh_s: float = REFRESH_S, **more: Any
) -> list[DeviceSample]:
    """The samples that reads at these times bring: each sees what the driver had at its last refresh."""
    seen = [math.floor(at / refresh_s + 1e-9) * refresh_s if refresh_s else at for at in times_s]
    moved = [made.until(at, made.model * made.ratio / devices) for at in seen]
    busy = [made.until(at, made.end_s - made.begin_s) for at in seen]
    return [
        DeviceSample(
            uuid, CounterSource.NVML, times_s[i], times_s[i + 1], refresh_s,
            dram_ratio=(moved[i + 1] - moved[i]) / (seen[i + 1] - seen[i]) / BANDWIDTH,
            graphics_ratio=min((busy[i + 1] - busy[i]) / (seen[i + 1] - seen[i]), 1.0),
            **more,
        )
        for i in range(len(times_s) - 1)
    ]  # fmt: skip


def facts(*uuids: str, **more: Any) -> dict[str, DeviceFacts]:
    return {
        uuid: DeviceFacts(uuid, CounterSource.NVML, memory_bandwidth_bytes_per_s=BANDWIDTH, **more) for uuid in uuids
    }


def reads(phase_s: float, period_s: float, until_s: float) -> list[float]:
    """When a sampler looks."""
    return [phase_s + period_s * i for i in range(int((until_s - phase_s) / period_s) + 1)]
