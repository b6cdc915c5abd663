"""MIG slices: each a device of its own with its share, and one clear line for a slice that is not listed."""

from __future__ import annotations

import pytest

from rooflens.analyzer.hardware import find_hardware, known_hardware
from rooflens.model_records import HardwareSpec
from rooflens.records import RooflensError

DIVISIBLE = [spec for spec in known_hardware().values() if spec.slices]


def test_a_slice_has_its_share() -> None:
    whole = find_hardware("h100-sxm5-80")
    half = find_hardware("NVIDIA H100 80GB HBM3 MIG 3g.40gb")
    assert half.id == "h100-sxm5-80-mig-3g.40gb"
    # Four of eight memory slices; 60 of 132 SMs, which is more than the three sevenths of the user guide.
    assert half.memory_bytes == 40 * 2**30
    assert half.memory_bandwidth_bytes_per_s == pytest.approx(3.35e12 / 2)
    assert half.peak_flops_per_s["bf16"] == pytest.approx(989.4e12 * 60 / 132)
    assert half.ceiling_flops_per_s["bf16"] == pytest.approx(60 * 4096 * 1.98e9)
    assert half.cache_bytes == 25 * 2**20
    assert half.link_bandwidth_bytes_per_s is None
    assert "60 of" not in whole.flags
    assert "MIG slice of h100-sxm5-80" in half.flags[-1]
    assert whole.link_bandwidth_bytes_per_s is not None
    assert (half.link_kind, half.link_reduces, half.slices) == (None, False, ())
    assert half.name == f"{whole.name}, MIG 3g.40gb"
    assert half.nvml_names == tuple(f"{name} MIG 3g.40gb" for name in whole.nvml_names)
    assert (half.vendor, half.source, half.flags[:-1]) == (whole.vendor, whole.source, whole.flags)


@pytest.mark.parametrize(
    ("name", "gib", "sms"),
    [
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", 10, 16),
        ("NVIDIA H100 80GB HBM3 MIG 1g.20gb", 20, 26),  # a seventh in the guide, 26 of 132 in nvidia-smi mig -lgip
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb+me", 10, 16),
        ("h100-sxm5-80 MIG 7g.80gb", 80, 132),
        ("H100-SXM5-80-mig-2g.20gb", 20, 32),
    ],
)
def test_profiles_of_an_h100(name: str, gib: int, sms: int) -> None:
    found = find_hardware(name)
    assert found.memory_bytes == gib * 2**30
    assert found.ceiling_flops_per_s["bf16"] == pytest.approx(sms * 4096 * 1.98e9)


@pytest.mark.parametrize("spec", DIVISIBLE, ids=lambda spec: spec.id)
def test_every_slice_is_found_and_no_larger_than_the_whole(spec: HardwareSpec) -> None:
    for each in spec.slices:
        names = [f"{name} MIG {each.profile}" for name in (spec.id, *spec.nvml_names)]
        found = find_hardware(names[0])
        assert {find_hardware(name).id for name in (*names, found.id)} == {found.id}
        # The name of a profile is its memory in GB, rounded.
        assert found.memory_bytes / 1e9 == pytest.approx(float(each.profile[3:-2]), rel=0.12)
        assert found.memory_bandwidth_bytes_per_s <= spec.memory_bandwidth_bytes_per_s
        assert found.ceiling_flops_per_s["bf16"] <= spec.ceiling_flops_per_s["bf16"]
        # 16 of 132 SMs are the fewest for a seventh that any listing shows: 0.85 of it.
        assert each.compute_share >= 0.84 * int(each.profile[0]) / int(spec.slices[-1].profile[0])
    assert [s.memory_share for s in spec.slices] == sorted(s.memory_share for s in spec.slices)
    assert spec.slices[-1].memory_share == 1
    assert spec.slices[-1].compute_share >= 98 / 108  # an A100 divided at all gives no more than 98 of its 108 SMs


def test_a_slice_without_counted_units_says_so() -> None:
    # An H100 PCIe has 114 SMs; how many a 3g slice gets is not listed: the larger of 3/7 and 4/8 stands in.
    slice_ = find_hardware("NVIDIA H100 PCIe MIG 3g.40gb")
    assert slice_.peak_flops_per_s["bf16"] == pytest.approx(756.5e12 / 2)
    assert "upper bound" in slice_.flags[-1]
    assert "upper bound" not in find_hardware("NVIDIA H100 80GB HBM3 MIG 3g.40gb").flags[-1]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("NVIDIA H100 80GB HBM3 MIG 5g.50gb", "unknown MIG slice '5g.50gb' of h100-sxm5-80; its slices: 1g.10gb"),
        ("NVIDIA H100 80GB HBM3 MIG 1c.3g.40gb", "a compute instance shares its memory with others"),
        ("NVIDIA L40S MIG 1g.10gb", "unknown MIG slice '1g.10gb' of l40s; its slices: none"),
        ("NVIDIA Odd 1 MIG 1g.10gb", "unknown hardware"),
        ("NVIDIA H100 80GB HBM3 MIG ", "unknown hardware"),
    ],
)
def test_an_unknown_slice_is_one_line(name: str, message: str) -> None:
    with pytest.raises(RooflensError, match=message) as caught:
        find_hardware(name)
    assert "\n" not in str(caught.value)
