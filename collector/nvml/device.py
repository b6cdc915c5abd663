"""The counters of one device: a window between two readings, and what is as it is at its end."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rooflens.collector.nvml.facts import MEMORY_CLOCK, MHZ, SM_CLOCK, Found, memory_attempts
from rooflens.collector.nvml.failures import IMPOSSIBLE, INVALID_ARGUMENT, UNREADABLE
from rooflens.collector.nvml.gpm import NOTHING, REFRESH_S, Activity, GpmRequest, GpmWindow
from rooflens.collector.nvml.library import Library
from rooflens.collector.nvml.throttles import in_force, throttle_fields, throttled_s
from rooflens.collector.plausible import plausible
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
ALL_ONES = 2**64 - 1
VALUE_TYPES = "a counter by field"
# nvml.h, nvmlValueType_t in its order: members of the union, and a driver's way to say nothing, all bits set.
_UNION = (
    *(("dVal", None), ("uiVal", 2**32 - 1), ("ulVal", ALL_ONES), ("ullVal", ALL_ONES), ("sllVal", -1)),
    *(("siVal", -1), ("usVal", 2**16 - 1)),
)
_TYPES = len(_UNION)
SLOW_S = REFRESH_S  # a call that takes longer dates its answers worse than the driver itself does
MOST_UNDATED_RATIO = 0.1  # of a window; a rate over a window whose ends are known less well is not told


@dataclass(frozen=True, slots=True)
class Totals:
    """What the driver counts since it was loaded, at one moment.

    ``at_s`` is the middle of the calls that read it and may be off by ``slack_s``: half of what they took, and the
    driver's refresh. The driver's own time of a field is no better: it is of the wall clock, which may be set, and
    nowhere is it said whether it comes before the value or after it.
    """

    at_s: float
    slack_s: float
    fields: Mapping[int, float | None] = field(default_factory=dict)
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
        self._is_slow = False
        self._beyond: tuple[str, ...] = ()
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
        self._begun, _ = self._totals(lambda gpm: gpm.begin())

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

        One that is too short goes on. Of one longer than ``longest_s`` no means are told, nor what is only so at its
        end, but what was counted in it is. ``pcie_calls``: calls that take 20 ms each may be made where GPM does not
        tell of PCIe.
        """
        before = self._begun
        if before is None:
            self.begin()
            return None
        since_s = self._clock() - before.at_s
        if since_s < SHORTEST_S:
            return None
        means = since_s <= longest_s
        now, activity = self._totals(lambda gpm: gpm.close(means))
        self._begun = now
        made = self._counted(before, now, activity)
        return self._believed(self._with_now(made, now, activity, pcie_calls) if means else made)

    def _follow(self) -> None:
        found = self._found
        self._throttle_fields = throttle_fields(found.facts.driver_version)
        self._fields = [*FIELDS, *((number, 0) for number in self._throttle_fields)]
        if not found.facts.counters:
            self.free()
        elif self._gpm is None:
            self._gpm = GpmWindow(
                self._library, self._request, found.facts.uuid, found.whole, found.instance, self._clock
            )

    def _read(self, what: str, name: str, *arguments: Any) -> Any:
        return self._library.read(self.facts.uuid, what, (name, (self._found.whole, *arguments)))

    def _totals(self, of_gpm: Callable[[GpmWindow], Activity | None]) -> tuple[Totals, Activity]:
        """What is counted now, beside the sample of GPM that ``of_gpm`` takes.

        Where the driver was slow to answer it is asked once more, unless it was slow the last time as well: of an
        answer that took seconds nobody knows when it held.
        """
        started_s = self._clock()
        fields, energy = self._read_counted()
        was_slow, self._is_slow = self._is_slow, self._clock() - started_s > SLOW_S
        if self._is_slow and not was_slow:
            started_s = self._clock()
            fields, energy = self._read_counted()
            self._is_slow = self._clock() - started_s > SLOW_S
        activity = None if self._gpm is None else of_gpm(self._gpm)
        throttles = self._throttles()
        half_s = (self._clock() - started_s) / 2
        return Totals(started_s + half_s, REFRESH_S + half_s, fields, energy, throttles), activity or NOTHING

    def _read_counted(self) -> tuple[dict[int, float | None], float | None]:
        """By number the values of fields, and the energy in mJ; a slice has neither of its own."""
        if self.facts.parent_uuid is not None:
            return {}, None
        values = self._read(FIELDS_TOGETHER, "nvmlDeviceGetFieldValues", self._fields)
        told = [value for value in values or () if value.nvmlReturn == 0]
        fields = {value.fieldId: _number(value) for value in told if value.valueType < _TYPES}
        failures = self._library.failures
        if len(fields) < len(told):
            failures.missing(self.facts.uuid, VALUE_TYPES, UNREADABLE)
        else:
            failures.known(self.facts.uuid, VALUE_TYPES)
        energy = fields.get(ENERGY)
        if energy is None:
            energy = self._read("energy", "nvmlDeviceGetTotalEnergyConsumption")
        return fields, None if energy == ALL_ONES else energy

    def _counted(self, before: Totals, now: Totals, activity: Activity) -> DeviceSample:
        """What was counted between two readings."""
        link_tx, link_rx = activity.nvlink_tx_bytes_per_s, activity.nvlink_rx_bytes_per_s
        return DeviceSample(
            uuid=self.facts.uuid,
            source=CounterSource.NVML,
            start_monotonic_s=before.at_s,
            end_monotonic_s=now.at_s,
            slack_s=max(before.slack_s, now.slack_s),
            pcie_tx_bytes_per_s=activity.pcie_tx_bytes_per_s,
            pcie_rx_bytes_per_s=activity.pcie_rx_bytes_per_s,
            nvlink_tx_bytes_per_s=_rate(before, now, LINK_TX) if link_tx is None else link_tx,
            nvlink_rx_bytes_per_s=_rate(before, now, LINK_RX) if link_rx is None else link_rx,
            energy_j=_difference(before.energy_mj, now.energy_mj, 1e3),
            throttled_s=self._throttled_s(before, now),
        )

    def _with_now(self, made: DeviceSample, now: Totals, activity: Activity, pcie_calls: bool) -> DeviceSample:
        """With the means of GPM, and with what is as it is at the end."""
        whole = self.facts.parent_uuid is None
        sm = self._read("SM clock", "nvmlDeviceGetClockInfo", SM_CLOCK)
        memory_clock = self._read("memory clock", "nvmlDeviceGetClockInfo", MEMORY_CLOCK)
        pcie_tx, pcie_rx = made.pcie_tx_bytes_per_s, made.pcie_rx_bytes_per_s
        if pcie_calls and whole and self._gpm is None:
            pcie_tx, pcie_rx = self._pcie("PCIe sent", PCIE_TX), self._pcie("PCIe received", PCIE_RX)
        return replace(
            made,
            dram_ratio=activity.dram_ratio,
            tensor_ratio=activity.tensor_ratio,
            sm_ratio=activity.sm_ratio,
            sm_occupancy_ratio=activity.sm_occupancy_ratio,
            graphics_ratio=activity.graphics_ratio,
            pcie_tx_bytes_per_s=pcie_tx,
            pcie_rx_bytes_per_s=pcie_rx,
            c2c_tx_bytes_per_s=activity.c2c_tx_bytes_per_s,
            c2c_rx_bytes_per_s=activity.c2c_rx_bytes_per_s,
            sm_clock_hz=None if sm is None else sm * MHZ,
            memory_clock_hz=None if memory_clock is None else memory_clock * MHZ,
            power_w=self._power(now) if whole else None,
            temperature_celsius=self._temperature(),
            memory_used_bytes=self._memory(),
            throttles=now.throttles,
            kernel_ratio=self._kernel_ratio(),
        )

    def _believed(self, made: DeviceSample) -> DeviceSample:
        """Without what cannot be, which is said for as long as it is told."""
        sample, beyond = plausible(made, self.facts)
        for words in self._beyond:
            self._library.failures.known(self.facts.uuid, words)
        for words in beyond:
            self._library.failures.missing(self.facts.uuid, words, IMPOSSIBLE)
        self._beyond = beyond
        return sample

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
    span_s, undated_s = now.at_s - before.at_s, before.slack_s + now.slack_s - 2 * REFRESH_S
    return None if counted is None or undated_s > MOST_UNDATED_RATIO * span_s else counted / span_s


def _number(value: Any) -> float | None:
    """The value of a field; None where it says nothing."""
    name, nothing = _UNION[value.valueType]
    number = getattr(value.value, name)
    return None if number == nothing or not math.isfinite(number) else float(number)
