"""The series of devices: sums that only rise, from samples each of which counts once, and gauges of the newest one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

from rooflens import device_metrics as metrics
from rooflens.analyzer.hardware import all_names, known_hardware
from rooflens.device_records import DeviceFacts, DeviceSample, DeviceView
from rooflens.metric_records import Metric, Sample
from rooflens.pipeline.counters import Sum

NOT_KNOWN = "unknown"  # a label cannot be left out, and an empty one is left out by Prometheus
WHOLE = "none"
RATES: tuple[tuple[Metric, str, str], ...] = tuple(
    (metric, direction, f"{link}_{direction}_bytes_per_s")
    for metric, link in ((metrics.PCIE_BYTES, "pcie"), (metrics.NVLINK_BYTES, "nvlink"), (metrics.C2C_BYTES, "c2c"))
    for direction in metrics.DIRECTIONS
)
NOW: tuple[tuple[Metric, str], ...] = (
    (metrics.DRAM_RATIO, "dram_ratio"),
    (metrics.TENSOR_RATIO, "tensor_ratio"),
    (metrics.SM_RATIO, "sm_ratio"),
    (metrics.OCCUPANCY_RATIO, "sm_occupancy_ratio"),
    (metrics.GRAPHICS_RATIO, "graphics_ratio"),
    (metrics.SM_CLOCK, "sm_clock_hz"),
    (metrics.MEMORY_CLOCK, "memory_clock_hz"),
    (metrics.POWER, "power_w"),
    (metrics.TEMPERATURE, "temperature_celsius"),
    (metrics.MEMORY_USED, "memory_used_bytes"),
)
FIXED: tuple[tuple[Metric, str], ...] = (
    (metrics.SM_CLOCK_MAX, "sm_clock_max_hz"),
    (metrics.MEMORY_CLOCK_MAX, "memory_clock_max_hz"),
    (metrics.BANDWIDTH, "memory_bandwidth_bytes_per_s"),
    (metrics.POWER_LIMIT, "power_limit_w"),
    (metrics.MEMORY, "memory_bytes"),
)


class DeviceTotals:
    """The sums of every device; ``datasheet_bytes_per_s`` stands in for a bandwidth that a device does not tell."""

    def __init__(self, datasheet_bytes_per_s: float | None) -> None:
        self._datasheet = datasheet_bytes_per_s
        self._sums: dict[tuple[str, ...], Sum] = {}
        self._counted_s: dict[str, float] = {}  # by uuid: up to there its time is counted, by whatever source

    def add(self, sample: DeviceSample, facts: DeviceFacts | None, now_unix_s: float) -> None:
        """Count one sample, or the part of it that comes after what was counted of its device."""
        from_s = max(sample.start_monotonic_s, self._counted_s.get(sample.uuid, sample.start_monotonic_s))
        span_s = sample.end_monotonic_s - from_s
        if span_s <= 0:
            return
        self._counted_s[sample.uuid] = sample.end_monotonic_s
        key, part = (sample.uuid, str(sample.source)), span_s / sample.span_s
        bandwidth = self._bandwidth(facts)
        if sample.dram_ratio is not None and bandwidth is not None:
            self._grow(metrics.DRAM_BYTES, key, sample.dram_ratio * bandwidth * span_s, now_unix_s)
        for metric, direction, name in RATES:
            rate = getattr(sample, name)
            if rate is not None:
                self._grow(metric, (*key, direction), rate * span_s, now_unix_s)
        if sample.energy_j is not None:
            self._grow(metrics.ENERGY, key, sample.energy_j * part, now_unix_s)
        for reason, seconds in sample.throttled_s.items():
            self._grow(metrics.THROTTLED, (*key, str(reason)), seconds * part, now_unix_s)

    def _bandwidth(self, facts: DeviceFacts | None) -> float | None:
        """What a share of the bandwidth is taken to be one of, in bytes/s: of that at the highest memory clock, as the
        metric says; of a MIG slice that is documented nowhere.
        """
        if facts is not None and facts.parent_uuid is not None:
            return None
        return (facts.memory_bandwidth_bytes_per_s if facts else None) or self._datasheet

    def samples(self, views: Iterable[DeviceView]) -> Iterator[Sample]:
        """Every series of these devices; a gauge that is not known now is left out."""
        shown = set()
        for view in views:
            shown.add(view.facts.uuid)
            key = (view.facts.uuid, str(view.source))
            yield Sample(metrics.DEVICE_INFO, (*key, *_described(view.facts)), 1.0)
            yield Sample(metrics.DEVICE_UP, key, float(view.sample is not None))
            if view.sample is not None:
                known = [(metric, getattr(view.sample, name)) for metric, name in NOW]
                known += [(metric, getattr(view.facts, name)) for metric, name in FIXED]
                yield from (Sample(metric, key, float(value)) for metric, value in known if value is not None)
        yield from (entry.sample() for entry in self._sums.values() if entry.labels[0] in shown)

    def _grow(self, metric: Metric, labels: tuple[str, ...], amount: float, now_unix_s: float) -> None:
        place = (metric.name, *labels)
        found = self._sums.get(place)
        if found is None:
            found = self._sums[place] = Sum(metric, labels, now_unix_s)
        found.grow(amount)


def _described(facts: DeviceFacts) -> tuple[str, str, str, str]:
    """hardware, device_name, driver_version and mig_profile as labels."""
    hardware = _hardware_id(facts.name) if facts.name else NOT_KNOWN
    return hardware, facts.name or NOT_KNOWN, facts.driver_version or NOT_KNOWN, facts.mig_profile or WHOLE


@lru_cache(maxsize=64)
def _hardware_id(name: str) -> str:
    """The id of the device that a driver calls by this name."""
    wanted = name.strip().casefold()
    for spec in known_hardware().values():
        if wanted in (each.casefold() for each in all_names(spec)):
            return spec.id
    return NOT_KNOWN
