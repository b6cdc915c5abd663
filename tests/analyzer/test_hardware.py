"""Devices: facts with a source, exact names, and one clear line for what is not known."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rooflens.analyzer.hardware import all_names, fastest, find_hardware, known_hardware
from rooflens.model_records import HardwareSpec
from rooflens.records import RooflensError


@pytest.mark.parametrize("spec", known_hardware().values(), ids=lambda spec: spec.id)
def test_every_device_is_complete(spec: HardwareSpec) -> None:
    assert spec.source
    assert find_hardware(spec.id) is spec
    assert all(find_hardware(name.upper()) is spec for name in all_names(spec))
    assert set(spec.ceiling_flops_per_s) == set(spec.peak_flops_per_s)
    peak = spec.peak_flops_per_s
    assert all(spec.ceiling_flops_per_s[f] >= rate for f, rate in peak.items())
    assert 6e10 < spec.memory_bandwidth_bytes_per_s < 3e13
    assert 1e10 < spec.memory_bytes < 1e13
    widest = max(peak.get("bf16", 0.0), peak.get("fp16", 0.0))  # V100, T4 and Apple have no bf16 units
    # Flops for each byte read at which arithmetic begins to be the limit: a sparse peak would double it.
    assert 20 < widest / spec.memory_bandwidth_bytes_per_s < (1000 if spec.id == "jetson-agx-thor" else 600)
    # A narrower format is never slower than 16 bit: but for INT8 on a B300 and its kin, which dropped those units.
    narrow = {"fp8", "nvfp4", "mxfp4", "fp6"} | (
        {"int8"} if spec.id not in ("b300-sxm", "gb300", "rubin-vr200") else set()
    )
    assert all(peak[f] >= 0.99 * widest for f in narrow & set(peak))
    assert peak.get("tf32", 0.0) <= widest
    assert all(rate >= peak[f] for f, rate in spec.announced_flops_per_s.items())


def test_all_names_are_of_one_device_each() -> None:
    owners: dict[str, set[str]] = {}
    for spec in known_hardware().values():
        for name in all_names(spec):
            owners.setdefault(name.casefold(), set()).add(spec.id)
    assert {name: ids for name, ids in owners.items() if len(ids) > 1} == {}
    assert len(known_hardware()) >= 74


# Dense 16-bit rate in TFLOP/s and bandwidth in GB/s: what each trap would have made of it stands beside.
@pytest.mark.parametrize(
    ("name", "tera", "giga"),
    [
        ("NVIDIA H20", 148, 4000),  # not an H200 of 989 and 4800
        ("NVIDIA H200", 989.4, 4800),
        ("NVIDIA H200 NVL", 835.5, 4800),
        ("NVIDIA A10", 125, 600),  # not an A100 of 312 and 2039
        ("NVIDIA A10G", 70, 600),  # not an A10
        ("NVIDIA L4", 121, 300),  # 242 is sparse
        ("NVIDIA L40", 181.05, 864),  # not an L40S of 362
        ("NVIDIA B200", 2250, 8000),  # 4500 is sparse; 4.1 TB/s and 90 GB are one die's
        ("NVIDIA H100 80GB HBM3", 989.4, 3350),  # 1979 is sparse
        ("NVIDIA H100 PCIe", 756.5, 2039),
        ("AMD Instinct MI300X", 1307.4, 5300),  # 10.3 TB/s is wrong
        ("AMD_Instinct_MI300X_OAM", 1307.4, 5300),
        ("AMD Instinct MI325X", 1307.4, 6000),
        ("AMD Instinct MI355X", 2516.6, 8000),  # 5033 is fp8, 10066 sparse fp8
        ("NVIDIA RTX A6000", 154.8, 768),  # 309.7 is sparse
        ("NVIDIA GeForce RTX 4090", 165.2, 1008),  # 82.6 is the CUDA cores', 330.3 adds up in FP16
        ("NVIDIA GeForce RTX 5090", 209.5, 1792),
        ("NVIDIA GB10", 125, 273),
        ("HL-325L", 1677, 3700),  # 1835 is at another clock
        ("TPU v6e", 918, 1638),
    ],
)
def test_no_trap_of_the_tables(name: str, tera: float, giga: float) -> None:
    spec = find_hardware(name)
    assert (spec.peak_flops_per_s["bf16"], spec.memory_bandwidth_bytes_per_s) == (tera * 1e12, giga * 1e9)


@pytest.mark.parametrize("spec", known_hardware().values(), ids=lambda spec: spec.id)
def test_rates_of_the_formats_follow_from_each_other(spec: HardwareSpec) -> None:
    peak, wide = spec.peak_flops_per_s, max(spec.peak_flops_per_s.get(f, 0.0) for f in ("bf16", "fp16"))
    same = {"gaudi3", "tpu-v6e", "inferentia2"}  # fp8 runs at the bf16 rate
    odd = {"rubin-vr200"}  # 4, 17.5 and 35 PFLOP/s
    if "fp8" in peak and spec.id not in same | odd:
        assert peak["fp8"] == pytest.approx(2 * wide, rel=0.03)
    if spec.id in same:
        assert peak["fp8"] == pytest.approx(wide)
    if spec.vendor == "NVIDIA" and "nvfp4" in peak and spec.id not in odd | {"b300-sxm", "gb300", "rtx-5090"}:
        assert peak["nvfp4"] == pytest.approx(2 * peak["fp8"], rel=0.01)
    if "fp6" in peak:  # of AMD's CDNA 4 as fast as FP4, elsewhere as FP8
        assert peak["fp6"] == peak["mxfp4" if spec.id in ("mi350x", "mi355x") else "fp8"]


def test_int8_of_a_b300_is_no_faster_than_its_fp32() -> None:
    # 307 TOPS sparse: 153.5 dense, against 4500 of a B200.
    assert find_hardware("b300-sxm").peak_flops_per_s["int8"] == 153.5e12
    assert find_hardware("b200-sxm").peak_flops_per_s["int8"] == 4500e12


def test_geforce_floors_allow_for_fp16_accumulation() -> None:
    # FP32 accumulation runs at half rate: 82 SM x 512 x 1695 MHz = 71.2 TF; a kernel that adds up in FP16 gets 142.3.
    card = find_hardware("rtx-3090")
    assert card.peak_flops_per_s["fp16"] == 71.2e12
    assert card.ceiling_flops_per_s["fp16"] == pytest.approx(142.3e12, rel=1e-3)
    assert card.ceiling_flops_per_s["bf16"] == pytest.approx(71.2e12, rel=1e-3)


def test_gaudi_keeps_the_rate_that_parts_run_at_and_the_printed_one() -> None:
    gaudi = find_hardware("gaudi3")
    assert (gaudi.peak_flops_per_s["bf16"], gaudi.ceiling_flops_per_s["bf16"]) == (1677e12, 1835e12)


def test_a_part_without_bf16_has_a_ceiling_too() -> None:
    v100 = find_hardware("Tesla V100-SXM2-16GB")
    assert "bf16" not in v100.ceiling_flops_per_s
    assert v100.ceiling_flops_per_s["fp16"] == pytest.approx(80 * 1024 * 1.53e9)  # 125.3 TFLOP/s


@given(st.sampled_from(sorted(known_hardware())), st.sampled_from("x0 -v."), st.booleans())
def test_no_name_with_more_or_less_of_it_is_taken(device: str, more: str, front: bool) -> None:
    for name in all_names(known_hardware()[device]):
        other = f"{more}1{name}" if front else f"{name}{more}1"
        try:
            found = find_hardware(other)
        except RooflensError:
            continue
        assert other.casefold() in (n.casefold() for n in all_names(found))


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
    for other in ("NVIDIA H200 NV", "NVIDIA H100", "H200", "NVIDIA A1", "Instinct MI300X", ""):
        with pytest.raises(RooflensError, match=r"unknown hardware.*predict --list.*TOML"):
            find_hardware(other)


def test_fastest_format() -> None:
    a100, h100 = find_hardware("a100-sxm4-80"), find_hardware("h100-sxm5-80")
    assert fastest(h100, ("fp8", "bf16")) == "fp8"
    assert fastest(a100, ("fp8", "bf16")) == "bf16"  # no fp8 units: the weights are widened
    assert fastest(a100, ("nvfp4",)) is None
    # By the rate, not by the name or the place in the list.
    b300 = find_hardware("b300-sxm")
    assert fastest(b300, ("int8", "bf16")) == fastest(b300, ("bf16", "int8")) == "bf16"
    assert fastest(b300, ("tf32", "nvfp4", "fp8")) == "nvfp4"


@pytest.mark.parametrize(
    ("name", "meant"),
    [("h200", "h200-sxm-141"), ("H100", "h100-sxm5-80"), ("a100", "a100-sxm4-40"), ("h100-smx5-80", "h100-sxm5-80"),
     ("NVIDIA H2O", "h20"), ("this_cpu", "this-cpu")],
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


FULL = (
    GOOD.replace(
        "[peak",
        'cache_bytes = 1000\nnvml_names = ["NVIDIA Mine"]\nother_names = ["mine-too"]\nflags = ["odd"]\n[peak',
        1,
    )
    + """
[announced_flops_per_s]
bf16 = 3e14
fp8 = 9e14
[link]
kind = "Rope"
bandwidth_per_direction_bytes_per_s = 5e10
reduces_in_network = true
"""
)


def test_all_that_a_file_may_say(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(FULL)
    assert find_hardware(str(file)) == HardwareSpec(
        "mine", "My card", "Me", 8_000_000_000, 1e12, {"bf16": 1e14}, {"bf16": 3e14}, {"bf16": 3e14, "fp8": 9e14}, 1000,
        5e10, "Rope", True, ("NVIDIA Mine",), source="its manual", flags=("odd",), other_names=("mine-too",),
    )  # fmt: skip
    file.write_text(GOOD)
    assert find_hardware(str(file)) == HardwareSpec(
        "mine", "My card", "Me", 8_000_000_000, 1e12, {"bf16": 1e14}, {"bf16": 1e14}, source="its manual"
    )


@pytest.mark.parametrize(
    ("clock", "ceiling"),
    [
        # 100 SMs x 1000 flops x the highest clock over a printed 1e14.
        ("sm_count = 100\nflop_per_clock_per_sm_bf16 = 1000\nmax_clock_hz = 1.5e9", 1.5e14),
        ("sm_count = 100\nflop_per_clock_per_sm_bf16 = 1000\nmax_clock_hz = 0.5e9", 1e14),
    ],
)
def test_a_ceiling_is_the_highest_clock_where_that_is_above_the_peak(
    tmp_path: Path, clock: str, ceiling: float
) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(f"{GOOD}[clock]\n{clock}\n")
    assert find_hardware(str(file)).ceiling_flops_per_s["bf16"] == pytest.approx(ceiling)
    assert find_hardware(str(file)).peak_flops_per_s["bf16"] == 1e14


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('id = "mine"', "", "'id' is missing"),
        ("1e12", "-1e12", "memory_bandwidth_bytes_per_s must be a positive number"),
        ("1e12", "inf", "must be a positive number"),
        ("1e14", '"fast"', "peak_flops_per_s.bf16 must be a positive number"),
        ("[source]", "[sources]", "'source' is missing"),
        ("[peak_flops_per_s]", "[peak", "cannot be read as a hardware TOML"),
        ("bf16 = 1e14", "bf16 = 1e14\n[link]\nkind = 1\nbandwidth_per_direction_bytes_per_s = 0", "link.bandwidth_per"),
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
    with pytest.raises(RooflensError, match="no such file"):
        find_hardware(str(tmp_path / "none.toml"))
