"""Collectives: the points of the tables, what lies between and beyond them, and relations that hold on any link."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rooflens.analyzer.collectives import (
    all_reduce_curve,
    all_reduce_seconds,
    link_curve,
    ring_share,
    seconds_at,
    send_curve,
)
from rooflens.analyzer.efficiency import efficiency_of
from rooflens.analyzer.hardware import find_hardware, known_hardware
from rooflens.model_records import Efficiency

KIB, MIB = 2**10, 2**20


def of(name: str) -> Efficiency:
    found = efficiency_of(find_hardware(name))
    assert found is not None
    return found


def microseconds(name: str, devices: int, size: float, eager: bool = False) -> float:
    return 1e6 * all_reduce_seconds(of(name), find_hardware(name), devices, size, eager)


@pytest.mark.parametrize(
    ("name", "devices", "size", "published_us"),
    [
        ("h100-sxm5-80", 8, 2 * KIB, 4.6),
        ("h100-sxm5-80", 8, 128 * KIB, 7.9),
        ("h100-sxm5-80", 8, 256 * KIB, 10.8),
        ("h100-sxm5-80", 8, MIB, 15.0),
        ("h100-sxm5-80", 8, 16 * MIB, 92.4),
        ("h100-sxm5-80", 8, 256 * MIB, 1091),
        ("h100-sxm5-80", 2, 2 * MIB, 12.4),
        ("a100-sxm4-80", 8, 2 * MIB, 27.9),
        ("b200-sxm", 8, 2 * KIB, 7.5),  # a higher base than the H100
        ("b200-sxm", 8, MIB, 17.2),  # and not the 25.8 us of a quarter of it, where the algorithm changes too late
        ("b200-sxm", 8, 256 * MIB, 715),
        ("l40s", 8, 2 * MIB, 2080),  # over PCIe
    ],
)
def test_points_of_the_tables(name: str, devices: int, size: int, published_us: float) -> None:
    assert microseconds(name, devices, size) == pytest.approx(published_us, rel=0.06)


def test_an_eager_all_reduce_pays_for_its_launch() -> None:
    assert microseconds("h100-sxm5-80", 2, 2 * KIB, eager=True) == pytest.approx(20.8, rel=0.06)


def test_a_layer_of_llama_70b_over_eight_h100() -> None:
    # 64 sequences x 8192 x 2 B = 1 MiB; two all-reduces in each of 80 layers: 160 x 15 us = 2.4 ms a step.
    assert 160 * microseconds("h100-sxm5-80", 8, 64 * 8192 * 2) == pytest.approx(2400, rel=0.02)


def test_between_and_beyond_the_points() -> None:
    points = ((1024.0, 1e-5), (4096.0, 4e-5))
    assert seconds_at(points, 2048) == pytest.approx(2e-5)  # a straight line of slope 1 in the log-log plot
    assert seconds_at(points, 1) == 1e-5
    assert seconds_at(points, 0) == 0
    assert seconds_at(points, 40960) == pytest.approx(4e-4)  # on at 102.4 MB/s
    assert seconds_at(((1024.0, 1e-5), (4096.0, 2e-5)), 8192) == pytest.approx(4e-5)  # the last point's bandwidth
    curve = all_reduce_curve(of("h100-sxm5-80"), 8)
    assert curve is not None
    last = of("h100-sxm5-80").all_reduce_s[8][-1]
    assert seconds_at(curve, 10 * last[0]) == pytest.approx(10 * last[1])


def test_a_number_of_devices_that_is_not_in_the_table() -> None:
    # Six lie between four and eight, at log(6/4) / log(8/4) = 0.585 of the way; the ring shares are 1.5, 1.667, 1.75.
    four, eight = microseconds("h100-sxm5-80", 4, MIB), microseconds("h100-sxm5-80", 8, MIB)
    part = math.log(1.5) / math.log(2)
    expected = 5 / 3 * (four / 1.5) ** (1 - part) * (eight / 1.75) ** part
    assert microseconds("h100-sxm5-80", 6, MIB) == pytest.approx(expected)
    # Sixteen: beyond the table only the ring share grows, 1.875 / 1.75.
    assert microseconds("h100-sxm5-80", 16, MIB) == pytest.approx(eight * 1.875 / 1.75)


def test_one_device_and_no_link_cost_nothing() -> None:
    assert microseconds("h100-sxm5-80", 1, MIB) == 0
    assert microseconds("apple-m4", 4, MIB) == 0
    assert all_reduce_curve(of("apple-m4"), 4) is None
    assert send_curve(find_hardware("apple-m4")) is None


def test_a_link_without_a_table_has_latency_and_bandwidth() -> None:
    # 10 us and 1.75 x 64 MiB at 0.88 x 450 GB/s = 296.6 us.
    curve = link_curve(find_hardware("h100-sxm5-80"), 8)
    assert curve is not None
    assert seconds_at(curve, 64 * MIB) == pytest.approx(10e-6 + 1.75 * 64 * MIB / (0.88 * 4.5e11), rel=1e-6)
    assert link_curve(find_hardware("h100-sxm5-80"), 1) is None


def test_mi300x_joins_two_devices_by_one_link_of_seven() -> None:
    # Bus bandwidth 47.7 GB/s of two, 312.9 GB/s of eight: 64 MiB take 1.42 ms and 0.39 ms.
    assert microseconds("mi300x", 2, 64 * MIB) == pytest.approx(10 + 64 * MIB / 47.7e9 * 1e6, rel=0.03)
    assert microseconds("mi300x", 8, 64 * MIB) == pytest.approx(10 + 1.75 * 64 * MIB / 312.9e9 * 1e6, rel=0.03)


LINKED = [spec.id for spec in known_hardware().values() if spec.link_bandwidth_bytes_per_s]


@given(
    st.sampled_from(LINKED),
    st.integers(2, 64),
    st.floats(1, 1e10),
    st.floats(1, 100),
    st.booleans(),
)
def test_a_larger_message_never_takes_less(name: str, devices: int, size: float, more: float, eager: bool) -> None:
    assert microseconds(name, devices, size * more, eager) >= microseconds(name, devices, size, eager) * (1 - 1e-12)
    assert ring_share(devices) < ring_share(devices + 1) < 2
