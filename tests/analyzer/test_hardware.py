"""Devices: facts with a source, exact names, and one clear line for what is not known."""

from __future__ import annotations

from pathlib import Path

import pytest

from rooflens.analyzer.hardware import fastest, find_hardware, known_hardware
from rooflens.model_records import HardwareSpec
from rooflens.records import RooflensError


@pytest.mark.parametrize("spec", known_hardware().values(), ids=lambda spec: spec.id)
def test_every_device_is_complete(spec: HardwareSpec) -> None:
    assert spec.source
    assert find_hardware(spec.id) is spec
    assert all(find_hardware(name) is spec for name in spec.nvml_names)
    assert set(spec.ceiling_flops_per_s) == set(spec.peak_flops_per_s)
    assert all(spec.ceiling_flops_per_s[f] >= rate for f, rate in spec.peak_flops_per_s.items())
    assert 1e11 < spec.memory_bandwidth_bytes_per_s < 1e14
    # Dense peaks: a table that lists sparse ones by mistake doubles every utilisation.
    assert spec.peak_flops_per_s["bf16"] / spec.memory_bandwidth_bytes_per_s < 500


def test_h100_keeps_datasheet_and_ceiling_apart() -> None:
    h100 = find_hardware("h100-sxm5-80")
    assert h100.peak_flops_per_s["bf16"] == 989.4e12
    assert h100.ceiling_flops_per_s["bf16"] == pytest.approx(132 * 4096 * 1.98e9)  # 1070.5 TFLOP/s at 1980 MHz
    assert h100.ceiling_flops_per_s["fp8"] == pytest.approx(2 * 132 * 4096 * 1.98e9)


def test_rubin_keeps_dense_and_announced_apart() -> None:
    rubin = find_hardware("rubin-vr200")
    assert rubin.peak_flops_per_s["nvfp4"] == 35e15
    assert rubin.announced_flops_per_s == {"nvfp4": 50e15}
    assert rubin.ceiling_flops_per_s["nvfp4"] == 50e15  # a strict floor allows for the higher claim


def test_nvml_names_match_whole() -> None:
    assert find_hardware("nvidia h100 80gb hbm3").id == "h100-sxm5-80"
    for other in ("NVIDIA H200 NVL", "NVIDIA H100 80GB HBM3 MIG 3g.40gb", "NVIDIA H100", "H200", ""):
        with pytest.raises(RooflensError, match=r"unknown hardware.*h200-sxm-141.*TOML"):
            find_hardware(other)


def test_fastest_format() -> None:
    a100, h100 = find_hardware("a100-sxm4-80"), find_hardware("h100-sxm5-80")
    assert fastest(h100, ("fp8", "bf16")) == "fp8"
    assert fastest(a100, ("fp8", "bf16")) == "bf16"  # no fp8 units: the weights are widened
    assert fastest(a100, ("nvfp4",)) is None


@pytest.mark.parametrize(
    ("name", "meant"),
    [("h200", "h200-sxm-141"), ("H100", "h100-sxm5-80"), ("a100", "a100-sxm4-80"), ("h100-smx5-80", "h100-sxm5-80"),
     ("NVIDIA H20", "h200-sxm-141"), ("this_cpu", "this-cpu")],
)  # fmt: skip
def test_a_near_name_is_suggested_and_never_taken(name: str, meant: str) -> None:
    with pytest.raises(RooflensError, match=rf"did you mean [^)]*{meant}.*write a TOML with id, name, vendor"):
        find_hardware(name)


def test_nothing_like_it_is_no_suggestion() -> None:
    with pytest.raises(RooflensError) as caught:
        find_hardware("abacus")
    assert "did you mean" not in str(caught.value)


GOOD = """
id = "mine"
name = "My card"
vendor = "Me"
memory_bytes = 8000000000
memory_bandwidth_bytes_per_s = 1e12
[peak_flops_per_s]
bf16 = 1e14
[source]
title = "its manual"
"""


def test_a_users_own_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(GOOD)
    spec = find_hardware(str(file))
    assert (spec.id, spec.ceiling_flops_per_s["bf16"], spec.link_bandwidth_bytes_per_s) == ("mine", 1e14, None)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('id = "mine"', "", "'id' is missing"),
        ("1e12", "-1e12", "memory_bandwidth_bytes_per_s must be a positive number"),
        ("1e12", "inf", "must be a positive number"),
        ("1e14", '"fast"', "peak_flops_per_s.bf16 must be a positive number"),
        ("[source]", "[sources]", "'source' is missing"),
        ("[peak_flops_per_s]", "[peak", "cannot be read as a hardware TOML"),
        ("bf16 = 1e14", "bf16 = 1e14\n[link]\nkind = 1\nbandwidth_per_direction_bytes_per_s = 0", "link bandwidth"),
        ('title = "its manual"', "title = 3", "source.title must be text"),
    ],
)
def test_a_bad_file_is_one_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(GOOD.replace(old, new))
    with pytest.raises(RooflensError, match=message) as caught:
        find_hardware(str(file))
    assert "\n" not in str(caught.value)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(RooflensError, match="cannot be read"):
        find_hardware(str(tmp_path / "none.toml"))
