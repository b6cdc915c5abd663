"""GPM, by which a device from Hopper on measures its own bandwidth: the means between two samples of its counters."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from rooflens.collector.nvml.failures import GPM, IMPOSSIBLE, INVALID_ARGUMENT
from rooflens.collector.nvml.library import Library

REFRESH_S = 0.1  # how often the driver refreshes what it samples (nvml.h, nvmlGpmSampleGet)
MIB = float(1 << 20)
ROUNDING = 1.02  # above this a share of all there is cannot be one

# By number, as older bindings lack the newer names; nvml.h, nvmlGpmMetricId_t. Percent, then MiB/s.
GRAPHICS, SM, OCCUPANCY, TENSOR, DRAM = 1, 2, 3, 5, 10
PCIE_TX, PCIE_RX, NVLINK_RX, NVLINK_TX, C2C_TX, C2C_RX = 20, 21, 60, 61, 100, 101
# Since the machine started, on drivers of 2026 and newer: cycles, and bytes over PCIe.
CYCLES, SM_CYCLES, TENSOR_CYCLES, PCIE_TX_TOTAL, PCIE_RX_TOTAL = 248, 249, 250, 255, 256
IDS = (
    *(GRAPHICS, SM, OCCUPANCY, TENSOR, DRAM, PCIE_TX, PCIE_RX, NVLINK_RX, NVLINK_TX),
    *(C2C_TX, C2C_RX),
    *(CYCLES, SM_CYCLES, TENSOR_CYCLES, PCIE_TX_TOTAL, PCIE_RX_TOTAL),
)
RATES = frozenset({PCIE_TX, PCIE_RX, NVLINK_RX, NVLINK_TX, C2C_TX, C2C_RX})
TOTALS = frozenset({CYCLES, SM_CYCLES, TENSOR_CYCLES, PCIE_TX_TOTAL, PCIE_RX_TOTAL})
# How many of them to ask for: a library that refuses an id that it does not know is asked for fewer.
COUNTS = (16, 11, 9)
REFUSED = frozenset({INVALID_ARGUMENT})


@dataclass(frozen=True, slots=True)
class Activity:
    """The means of one window, as in DeviceSample."""

    dram_ratio: float | None = None
    tensor_ratio: float | None = None
    sm_ratio: float | None = None
    sm_occupancy_ratio: float | None = None
    graphics_ratio: float | None = None
    pcie_tx_bytes_per_s: float | None = None
    pcie_rx_bytes_per_s: float | None = None
    nvlink_tx_bytes_per_s: float | None = None
    nvlink_rx_bytes_per_s: float | None = None
    c2c_tx_bytes_per_s: float | None = None
    c2c_rx_bytes_per_s: float | None = None


NOTHING = Activity()


class GpmRequest:
    """What is asked of every window; one for all devices. Its array is as long as nvidia-ml-py says: it grows."""

    def __init__(self, library: Library) -> None:
        nvml: Any = library.nvml
        self.struct = nvml.c_nvmlGpmMetricsGet_t()
        self.struct.version = nvml.NVML_GPM_METRICS_GET_VERSION
        self._metrics = [self.struct.metrics[place] for place in range(len(IDS))]
        for metric, number in zip(self._metrics, IDS, strict=True):
            metric.metricId = number

    def answers(self) -> dict[int, float]:
        """By id; without what is not supported, not a number, or negative."""
        asked = self._metrics[: self.struct.numMetrics]
        found = [(metric.metricId, metric.value) for metric in asked if metric.nvmlReturn == 0]
        return {number: value for number, value in found if math.isfinite(value) and value >= 0}


class GpmWindow:
    """The two samples of one device, or of one GPU instance of it, and which of them begins the window.

    ``close`` takes a sample and gives the means since the last one; its samples belong to one opening of NVML.
    """

    def __init__(
        self,
        library: Library,
        request: GpmRequest,
        owner: str,
        handle: Any,
        instance: int | None,
        clock: Callable[[], float],
    ) -> None:
        self._library = library
        self._clock = clock
        self._taken_s = 0.0  # when the newest sample was
        self._request = request
        self._owner = owner
        self._take = "nvmlGpmSampleGet" if instance is None else "nvmlGpmMigSampleGet"
        self._target = (handle,) if instance is None else (handle, instance)
        self._samples: list[Any] = []
        self._begun = False
        self._size = 0  # an index of COUNTS
        self._totals: dict[int, float] = {}

    def begin(self) -> None:
        """Take the sample that the next window starts from."""
        self._begun = False
        self._totals = {}
        self._begun = self._sample()

    def close(self, means: bool) -> Activity:
        """The means of the window that ends now, which begins the next; nothing where a call failed.

        Without ``means`` only what was counted since the machine started is told, which is exact over any time.
        """
        had_begun, self._begun = self._begun, False
        began_s = self._taken_s
        if not self._sample():
            return NOTHING
        self._begun = True
        if not had_begun:
            return NOTHING
        struct = self._request.struct
        struct.sample2, struct.sample1 = self._samples
        if not self._answered(struct):
            self._totals = {}
            return NOTHING
        found = self._request.answers()
        before, self._totals = self._totals, {number: found[number] for number in TOTALS if number in found}
        more = {number: found[number] - before[number] for number in before if number in found}
        activity = self._activity(found if means else {}, more, self._taken_s - began_s)
        rates = (activity.pcie_tx_bytes_per_s, activity.pcie_rx_bytes_per_s)
        return activity if means else replace(NOTHING, pcie_tx_bytes_per_s=rates[0], pcie_rx_bytes_per_s=rates[1])

    def free(self) -> None:
        """Give the samples back, while NVML is open."""
        for sample in self._samples:
            self._library.give_back("nvmlGpmSampleFree", sample)
        self._samples, self._begun = [], False

    def _sample(self) -> bool:
        """Fill the older of the two samples, which then is the newer, first of the list."""
        while len(self._samples) < 2:
            sample = self._library.read(self._owner, GPM, ("nvmlGpmSampleAlloc", ()))
            if sample is None:
                return False
            self._samples.append(sample)
        self._samples.reverse()
        began_s = self._clock()
        taken = self._library.read(self._owner, GPM, (self._take, (*self._target, self._samples[0]))) is not None
        self._taken_s = (began_s + self._clock()) / 2
        return taken

    def _answered(self, struct: Any) -> bool:
        """Whether the request was; a library that refuses it is asked for less, and from then on at once."""
        failures = self._library.failures
        for _ in COUNTS:
            struct.numMetrics = COUNTS[self._size]
            if self._library.read(self._owner, GPM, ("nvmlGpmMetricsGet", (struct,)), expected=REFUSED) is not None:
                return True
            if failures.code(self._owner, GPM) is not None:
                return False
            self._size = (self._size + 1) % len(COUNTS)
        failures.missing(self._owner, GPM, INVALID_ARGUMENT, "invalid argument")
        return False

    def _activity(self, found: dict[int, float], more: dict[int, float], span_s: float) -> Activity:
        """The figures; where a mean is not told, it comes from what was counted since the machine started."""
        cycles = more.get(CYCLES, 0.0)
        for mean, counted in ((SM, SM_CYCLES), (TENSOR, TENSOR_CYCLES)):
            if mean not in found and cycles > 0 and more.get(counted, -1.0) >= 0:
                found[mean] = 100.0 * more[counted] / cycles
        for rate, counted in ((PCIE_TX, PCIE_TX_TOTAL), (PCIE_RX, PCIE_RX_TOTAL)):
            if rate not in found and span_s > 0 and more.get(counted, -1.0) >= 0:
                found[rate] = more[counted] / span_s / MIB
        rates = {number: found[number] * MIB for number in RATES if number in found}
        return Activity(
            dram_ratio=self._ratio("DRAM bandwidth", found.get(DRAM)),
            tensor_ratio=self._ratio("tensor activity", found.get(TENSOR)),
            sm_ratio=self._ratio("SM activity", found.get(SM)),
            sm_occupancy_ratio=self._ratio("SM occupancy", found.get(OCCUPANCY)),
            graphics_ratio=self._ratio("graphics activity", found.get(GRAPHICS)),
            pcie_tx_bytes_per_s=rates.get(PCIE_TX),
            pcie_rx_bytes_per_s=rates.get(PCIE_RX),
            nvlink_tx_bytes_per_s=rates.get(NVLINK_TX),
            nvlink_rx_bytes_per_s=rates.get(NVLINK_RX),
            c2c_tx_bytes_per_s=rates.get(C2C_TX),
            c2c_rx_bytes_per_s=rates.get(C2C_RX),
        )

    def _ratio(self, what: str, percent: float | None) -> float | None:
        """A share of all there is. More than that is told of slices of unequal size (NVIDIA/DCGM issue 152)."""
        if percent is not None and percent > 100.0 * ROUNDING:
            self._library.failures.missing(self._owner, what, IMPOSSIBLE)
            return None
        self._library.failures.known(self._owner, what)
        return None if percent is None else min(percent / 100.0, 1.0)
