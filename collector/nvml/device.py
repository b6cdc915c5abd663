"""The counters of one device: a window between two readings, and what is as it is at its end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rooflens.collector.nvml.facts import MEMORY_CLOCK, MHZ, SM_CLOCK, Found, memory_attempts
from rooflens.collector.nvml.failures import INVALID_ARGUMENT
from rooflens.collector.nvml.gpm import NOTHING, REFRESH_S, Activity, GpmRequest, GpmWindow
from rooflens.collector.nvml.library import Library
from rooflens.collector.nvml.throttles import in_force, throttle_fields, throttled_s
from rooflens.device_records import CounterSource, DeviceFacts, DeviceSample, Throttle

SHORTEST_S = 2 * REFRESH_S  # a shorter window may see one refresh of the driver's counters, or none
KIB = 1024.0
CORE_TEMPERATURE = 0  # nvml.h, nvmlTemperatureSensors_t
PCIE_TX, PCIE_RX = 0, 1  # nvml.h, nvmlPcieUtilCounter_t
PCIE_KB = 1e3  # "KB/s", nvmlDeviceGetPcieThroughput

# nvml.h, NVML_FI_DEV_*, and a scope: the GPU itself, or all links together.
POWER, ENERGY, LINK_TX, LINK_RX = 186, 83, 138, 139
ALL_LINKS = 0xFFFFFFFF
FIELDS = [(POWER, 0), (ENERGY, 0), (LINK_TX, ALL_LINKS), (LINK_RX, ALL_LINKS)]
FIELDS_TOGETHER = "accumulated throttle times and link traffic"
_UNION = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")  # nvml.h, nvmlValueType_t, in its order


@dataclass(frozen=True, slots=True)
class Totals:
    """What the driver counts since it was loaded, at one moment; ``at_s`` may be off by ``slack_s``."""

    at_s: float
    slack_s: float
    fields: Mapping[int, float] = field(default_factory=dict)
    energy_mj: float | None = None
    throttles: tuple[Throttle, ...] | None = None


class Device:
    """One device with its window; its handles and samples belong to one opening of NVML."""

    def __init__(self, library: Library, request: GpmRequest, found: Found, clock: Callable[[], float]) -> None:
        self._library = library
        self._request = request
        self._clock = clock
        self._found = found
        self._gpm: GpmWindow | None = None
        self._begun: Totals | None = None
        self._follow()

    @property
    def facts(self) -> DeviceFacts:
        """What it said of itself last."""
        return self._found.facts

    def is_same(self, found: Found) -> bool:
        """Whether what was found now is this device: a slice that was made anew under the old number is another."""
        mine, other = self._found.facts, found.facts
        if (mine.uuid, mine.parent_uuid, self._found.instance) != (other.uuid, other.parent_uuid, found.instance):
            return False
        if mine.parent_uuid is None:
            return True
        known = [(mine.mig_profile, other.mig_profile), (mine.memory_bytes, other.memory_bytes)]
        return all(was == now for was, now in known if was is not None and now is not None)

    def update(self, found: Found) -> None:
        """Take what was found now: its index may have changed, or what it can tell."""
        self._found = found
        self._follow()

    def is_there(self) -> bool:
        """Whether a slice is still the one that was found; a whole device always is."""
        if self._found.facts.parent_uuid is None:
            return True
        call = ("nvmlDeviceGetUUID", (self._found.handle,))
        gone = frozenset({INVALID_ARGUMENT})
        return bool(self._library.read(self.facts.uuid, "its uuid", call, expected=gone) == self.facts.uuid)

    def begin(self) -> None:
        """Begin a window now."""
        started_s = self._clock()
        if self._gpm is not None:
            self._gpm.begin()
        self._begun = self._totals(started_s)

    def rest(self) -> None:
        """Nobody asks for it now: the next window begins when somebody does."""
        self._begun = None

    def free(self) -> None:
        """Give back what it holds of NVML, while that is open."""
        if self._gpm is not None:
            self._gpm.free()
        self._gpm = None

    def sample(self, longest_s: float, pcie_calls: bool) -> DeviceSample | None:
        """The window since the last sample, which begins the next one; None where there is none to tell of.

        One that is too short goes on, one longer than ``longest_s`` is given up for a new one. ``pcie_calls``: calls
        that take 20 ms each may be made where GPM does not tell of PCIe.
        """
        before = self._begun
        started_s = self._clock()
        if before is None or started_s - before.at_s > longest_s:
            self.begin()
            return None
        if started_s - before.at_s < SHORTEST_S:
            return None
        activity = NOTHING if self._gpm is None else self._gpm.close(started_s - before.at_s)
        now = self._begun = self._totals(started_s)
        return self._made(before, now, activity, pcie_calls)

    def _follow(self) -> None:
        found = self._found
        self._throttle_fields = throttle_fields(found.facts.driver_version)
        self._fields = [*FIELDS, *((number, 0) for number in self._throttle_fields)]
        if not found.facts.counters:
            self.free()
        elif self._gpm is None:
            self._gpm = GpmWindow(self._library, self._request, found.facts.uuid, found.whole, found.instance)

    def _read(self, what: str, name: str, *arguments: Any) -> Any:
        return self._library.read(self.facts.uuid, what, (name, (self._found.whole, *arguments)))

    def _totals(self, started_s: float) -> Totals:
        """What is counted now; the sample of GPM was taken between ``started_s`` and this moment."""
        at_s = (started_s + self._clock()) / 2
        slack_s = REFRESH_S + at_s - started_s
        throttles = self._throttles()
        if self.facts.parent_uuid is not None:  # energy, power and links are the whole device's, not the slice's
            return Totals(at_s, slack_s, throttles=throttles)
        values = self._read(FIELDS_TOGETHER, "nvmlDeviceGetFieldValues", self._fields)
        fields = {v.fieldId: float(getattr(v.value, _UNION[v.valueType])) for v in values or () if v.nvmlReturn == 0}
        energy = fields.get(ENERGY)
        if energy is None:
            energy = self._read("energy", "nvmlDeviceGetTotalEnergyConsumption")
        return Totals(at_s, slack_s, fields, energy, throttles)

    def _made(self, before: Totals, now: Totals, activity: Activity, pcie_calls: bool) -> DeviceSample:
        whole = self.facts.parent_uuid is None
        sm = self._read("SM clock", "nvmlDeviceGetClockInfo", SM_CLOCK)
        memory_clock = self._read("memory clock", "nvmlDeviceGetClockInfo", MEMORY_CLOCK)
        pcie_tx, pcie_rx = activity.pcie_tx_bytes_per_s, activity.pcie_rx_bytes_per_s
        if pcie_calls and whole and self._gpm is None:
            pcie_tx, pcie_rx = self._pcie("PCIe sent", PCIE_TX), self._pcie("PCIe received", PCIE_RX)
        link_tx, link_rx = activity.nvlink_tx_bytes_per_s, activity.nvlink_rx_bytes_per_s
        return DeviceSample(
            uuid=self.facts.uuid,
            source=CounterSource.NVML,
            start_monotonic_s=before.at_s,
            end_monotonic_s=now.at_s,
            slack_s=max(before.slack_s, now.slack_s),
            dram_ratio=activity.dram_ratio,
            tensor_ratio=activity.tensor_ratio,
            sm_ratio=activity.sm_ratio,
            sm_occupancy_ratio=activity.sm_occupancy_ratio,
            graphics_ratio=activity.graphics_ratio,
            pcie_tx_bytes_per_s=pcie_tx,
            pcie_rx_bytes_per_s=pcie_rx,
            nvlink_tx_bytes_per_s=_rate(before, now, LINK_TX) if link_tx is None else link_tx,
            nvlink_rx_bytes_per_s=_rate(before, now, LINK_RX) if link_rx is None else link_rx,
            c2c_tx_bytes_per_s=activity.c2c_tx_bytes_per_s,
            c2c_rx_bytes_per_s=activity.c2c_rx_bytes_per_s,
            sm_clock_hz=None if sm is None else sm * MHZ,
            memory_clock_hz=None if memory_clock is None else memory_clock * MHZ,
            power_w=self._power(now) if whole else None,
            energy_j=_difference(before.energy_mj, now.energy_mj, 1e3),
            temperature_celsius=self._temperature(),
            memory_used_bytes=self._memory(),
            throttles=now.throttles,
            throttled_s=self._throttled_s(before, now),
            kernel_ratio=self._kernel_ratio(),
        )

    def _pcie(self, what: str, direction: int) -> float | None:
        rate = self._read(what, "nvmlDeviceGetPcieThroughput", direction)
        return None if rate is None else rate * PCIE_KB

    def _power(self, now: Totals) -> float | None:
        """At this moment where the device tells, else the last second's mean."""
        milliwatts = now.fields.get(POWER)
        if milliwatts is None:
            milliwatts = self._read("power", "nvmlDeviceGetPowerUsage")
        return None if milliwatts is None else milliwatts / 1e3

    def _temperature(self) -> float | None:
        arguments = (self._found.whole, CORE_TEMPERATURE)
        newer, older = ("nvmlDeviceGetTemperatureV", arguments), ("nvmlDeviceGetTemperature", arguments)
        celsius = self._library.read(self.facts.uuid, "temperature", newer, older)
        return None if celsius is None else float(celsius)

    def _memory(self) -> int | None:
        attempts = memory_attempts(self._library, self._found.handle)
        memory = self._library.read(self.facts.uuid, "memory used", *attempts, ordinary=bool(self.facts.unified_memory))
        return None if memory is None else int(memory.used)

    def _throttles(self) -> tuple[Throttle, ...] | None:
        newer = ("nvmlDeviceGetCurrentClocksEventReasons", (self._found.whole,))
        older = ("nvmlDeviceGetCurrentClocksThrottleReasons", (self._found.whole,))
        bits = self._library.read(self.facts.uuid, "throttle reasons", newer, older)
        return None if bits is None else in_force(bits)

    def _throttled_s(self, before: Totals, now: Totals) -> dict[Throttle, float]:
        counted = {
            reason: _difference(before.fields.get(number), now.fields.get(number), 1e9)
            for number, reason in self._throttle_fields.items()
        }
        all_the_time = set(before.throttles or ()) & set(now.throttles or ())
        return throttled_s(counted, now.at_s - before.at_s, before.slack_s + now.slack_s, all_the_time)

    def _kernel_ratio(self) -> float | None:
        """GPU-Util; no slice had it before drivers of 2024."""
        call = ("nvmlDeviceGetUtilizationRates", (self._found.handle,))
        rates = self._library.read(self.facts.uuid, "GPU-Util", call, ordinary=self.facts.parent_uuid is not None)
        return None if rates is None else min(1.0, rates.gpu / 100.0)


def _difference(before: float | None, now: float | None, per_unit: float) -> float | None:
    """What was counted in between; None where the count began anew (a reset, a reloaded driver)."""
    return None if before is None or now is None or now < before else (now - before) / per_unit


def _rate(before: Totals, now: Totals, number: int) -> float | None:
    counted = _difference(before.fields.get(number), now.fields.get(number), 1 / KIB)
    return None if counted is None else counted / (now.at_s - before.at_s)
