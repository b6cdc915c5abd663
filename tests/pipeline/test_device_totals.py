"""The sums of devices: each second of a device counts once, whoever tells of it, and nothing unknown becomes zero."""

from __future__ import annotations

import pytest
from pipeline.made_probes import facts, sample

from rooflens import device_metrics as metrics
from rooflens.device_records import CounterSource, DeviceFacts, DeviceSample, DeviceView, Throttle
from rooflens.metric_records import Metric
from rooflens.pipeline.device_totals import DeviceTotals

NVML, _, DCGM = CounterSource
NOW = 1_790_000_000.0
KNOWN = facts()


def told(totals: DeviceTotals, metric: Metric, *views: DeviceView) -> dict[tuple[str, ...], float]:
    shown = views or (DeviceView(facts(), NVML, None),)
    return {s.labels: s.value for s in totals.samples(shown) if s.metric is metric}  # type: ignore[misc]


def counted(*samples: DeviceSample, device: DeviceFacts | None = KNOWN, paper: float | None = None) -> DeviceTotals:
    totals = DeviceTotals(paper)
    for each in samples:
        totals.add(each, device, NOW)
    return totals


def test_bytes_are_the_part_of_the_bandwidth_that_was_used() -> None:
    totals = counted(sample(0.0, 2.0, dram_ratio=0.25), sample(2.0, 3.0, dram_ratio=1.0))
    assert told(totals, metrics.DRAM_BYTES) == {("GPU-1", "nvml"): 1.5e12}


@pytest.mark.parametrize(("device", "paper", "total"), [
    (facts(memory_bandwidth_bytes_per_s=None), 2e12, 1e12), (None, 2e12, 1e12), (None, None, None),
    (facts(memory_bandwidth_bytes_per_s=None, parent_uuid="GPU-0"), 2e12, None),
])  # fmt: skip
def test_the_datasheet_stands_in_where_the_device_tells_no_bandwidth(
    device: DeviceFacts | None, paper: float | None, total: float | None
) -> None:
    found = told(counted(sample(0.0, 1.0), device=device, paper=paper), metrics.DRAM_BYTES)
    assert found == ({} if total is None else {("GPU-1", "nvml"): total})


def test_what_two_sources_tell_of_the_same_time_counts_once() -> None:
    both = {"energy_j": 300.0, "pcie_tx_bytes_per_s": 10.0, "throttled_s": {Throttle.THERMAL: 3.0}}
    totals = counted(sample(0.0, 30.0, source=DCGM, **both), sample(28.0, 31.0, **both), sample(29.0, 30.5, **both))
    assert told(totals, metrics.ENERGY) == {("GPU-1", "dcgm"): 300.0, ("GPU-1", "nvml"): pytest.approx(100.0)}
    assert told(totals, metrics.PCIE_BYTES) == {("GPU-1", "dcgm", "tx"): 300.0, ("GPU-1", "nvml", "tx"): 10.0}
    assert told(totals, metrics.THROTTLED)[("GPU-1", "nvml", "thermal")] == pytest.approx(1.0)


def test_what_is_not_told_is_absent_and_a_throttle_that_held_nothing_is_zero() -> None:
    totals = counted(sample(0.0, 1.0, dram_ratio=None, throttled_s={Throttle.POWER_CAP: 0.0}))
    for metric in (metrics.DRAM_BYTES, metrics.ENERGY, metrics.PCIE_BYTES, metrics.NVLINK_BYTES, metrics.C2C_BYTES):
        assert told(totals, metric) == {}
    assert told(totals, metrics.THROTTLED) == {("GPU-1", "nvml", "power_cap"): 0.0}


def test_gauges_are_of_the_newest_sample_and_absent_without_one() -> None:
    now = sample(0.0, 1.0, sm_clock_hz=1.5e9, power_w=300.0, kernel_ratio=1.0)
    up, down = DeviceView(facts(), NVML, now), DeviceView(facts(), NVML, None, "not read")
    totals = counted()
    assert told(totals, metrics.SM_CLOCK, up) == {("GPU-1", "nvml"): 1.5e9}
    assert told(totals, metrics.SM_CLOCK_MAX, up) == {("GPU-1", "nvml"): 2e9}
    assert told(totals, metrics.TEMPERATURE, up) == {}
    assert told(totals, metrics.DEVICE_UP, up) == {("GPU-1", "nvml"): 1.0}
    assert [s.metric for s in totals.samples([down])] == [metrics.DEVICE_INFO, metrics.DEVICE_UP]
    assert told(totals, metrics.DEVICE_UP, down) == {("GPU-1", "nvml"): 0.0}


def test_devices_that_no_engine_runs_on_are_not_shown() -> None:
    totals = counted(sample(0.0, 1.0), sample(0.0, 1.0, uuid="GPU-2"))
    assert {labels[0] for labels in told(totals, metrics.DRAM_BYTES)} == {"GPU-1"}


def test_facts_of_a_device_are_labels() -> None:
    view = DeviceView(facts(name="nvidia h100 80gb hbm3", driver_version="580.82", mig_profile="1g.10gb"), NVML, None)
    assert list(told(counted(), metrics.DEVICE_INFO, view)) == [
        ("GPU-1", "nvml", "h100-sxm5-80", "nvidia h100 80gb hbm3", "580.82", "1g.10gb")
    ]
    assert list(told(counted(), metrics.DEVICE_INFO)) == [("GPU-1", "nvml", "unknown", "unknown", "unknown", "none")]
