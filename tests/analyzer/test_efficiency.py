"""What kernels reach: figures from published tables, and whose they are where a device has none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rooflens.analyzer.efficiency import efficiency_of, kin, published
from rooflens.analyzer.hardware import find_hardware, known_hardware
from rooflens.model_records import Efficiency, HardwareSpec


def of(name: str) -> Efficiency:
    found = efficiency_of(find_hardware(name))
    assert found is not None
    return found


def weight_us(name: str, rows: int, columns: int) -> float:
    """Microseconds to stream a bf16 matrix."""
    spec, reached = find_hardware(name), of(name)
    return 1e6 * (
        reached.weight_latency_s + 2 * rows * columns / (reached.weight_ratio * spec.memory_bandwidth_bytes_per_s)
    )


@pytest.mark.parametrize("spec", known_hardware().values(), ids=lambda spec: spec.id)
def test_every_device_has_figures_that_make_sense(spec: HardwareSpec) -> None:
    found = of(spec.id)
    assert found.hardware == spec.id
    assert found.source
    assert (found.origin == "published") == (spec.id in published() and spec.id != "mi300x")
    assert 1e-6 < found.weight_latency_s < found.kv_latency_s < 1e-4
    assert found.launch_s < found.eager_launch_s < 1e-4
    pairs = [(found.weight_ratio, "weight"), (found.kv_ratio, "kv"), (found.gemm_ratio["other"], "gemm")]
    pairs.append((found.attention_ratio, "attention"))
    assert all(0.3 < ratio <= found.best[name] <= 1 for ratio, name in pairs)
    assert all(0 < ratio <= 1 for ratio in found.gemm_ratio.values())
    assert all(0 < wait < 1e-4 and 0.1 < ratio <= 1 for wait, ratio in found.weight_reads.values())
    for table in (found.all_reduce_s, found.eager_all_reduce_s):
        for row in table.values():
            assert [size for size, _ in row] == sorted({size for size, _ in row})
            assert [seconds for _, seconds in row] == sorted(seconds for _, seconds in row)


@pytest.mark.parametrize("name", sorted(published()))
def test_formats_without_a_table_reach_what_their_kin_do(name: str) -> None:
    found = of(name).gemm_ratio
    assert found["fp16"] == found["other"] == found["bf16"]
    wide = found.get("fp8", found["bf16"])
    assert (found["int8"], found["fp6"]) == (wide, wide)
    assert found["mxfp4"] == found.get("nvfp4", wide)


def test_a_device_without_a_table_says_whose_figures_stand_in() -> None:
    assert of("h100-sxm5-80").origin == "published"
    assert "aiconfigurator-core 0.12.0" in of("h100-sxm5-80").source
    card = of("rtx-3090")
    assert card.origin == "assumed"
    assert "the fractions of l40s stand in for rtx-3090" in card.source
    assert "not known" not in card.source
    assert card.weight_ratio == of("l40s").weight_ratio
    slice_ = of("h100-sxm5-80-mig-3g.40gb")
    assert (slice_.origin, slice_.hardware) == ("assumed", "h100-sxm5-80-mig-3g.40gb")
    assert "h100-sxm5-80 stand in" in slice_.source
    own = efficiency_of(replace(find_hardware("l40s"), id="mine"))
    assert own is not None
    assert "its kin is not known" in own.source


def test_every_device_is_published_or_has_a_published_kin() -> None:
    assert set(known_hardware()) == set(published()) | set(kin())
    assert set(kin().values()) <= set(published())
    assert not set(published()) & set(kin())


def test_a_measured_roof_needs_none() -> None:
    assert efficiency_of(replace(find_hardware("h100-sxm5-80"), origin="measured")) is None


# Medians over M of 1 to 64 of the same kernel tables; the fit is over 5008 points of many shapes.
@pytest.mark.parametrize(
    ("name", "rows", "columns", "published_us"),
    [
        ("h100-sxm5-80", 65536, 8192, 366.8),
        ("h100-sxm5-80", 8192, 8192, 46.7),
        ("h100-sxm5-80", 4096, 4096, 15.5),
        ("h100-sxm5-80", 7168, 2048, 12.9),
        ("b200-sxm", 65536, 8192, 170.8),
        ("b200-sxm", 8192, 8192, 23.1),
        ("b200-sxm", 4096, 4096, 9.7),
    ],
)
def test_weights_stream_as_in_the_tables(name: str, rows: int, columns: int, published_us: float) -> None:
    assert weight_us(name, rows, columns) == pytest.approx(published_us, rel=0.12)


def test_small_matrices_do_not_reach_the_bandwidth() -> None:
    # H100: 134 MB in 3.7 + 45.7 us is 81 % of the data sheet, 8.4 MB in 3.7 + 2.9 us 38 %: halving is no halving.
    large, small = weight_us("h100-sxm5-80", 8192, 8192), weight_us("h100-sxm5-80", 2048, 2048)
    assert 8192 * 8192 * 2 / large / 3.35e6 == pytest.approx(0.81, abs=0.01)
    assert 2048 * 2048 * 2 / small / 3.35e6 == pytest.approx(0.38, abs=0.01)


def test_fp8_kv_is_no_twice_as_fast() -> None:
    # 1 GiB at bf16 against 0.5 GiB at fp8. On an H100: 13.7 + 374.9 us against 16.9 + 214.2 us, 1.68 times.
    for name, gain in (("h100-sxm5-80", 1.68), ("h200-sxm-141", 1.36), ("b200-sxm", 1.83)):
        bandwidth, reads = find_hardware(name).memory_bandwidth_bytes_per_s, of(name).kv_reads
        times = [
            wait + size / (ratio * bandwidth) for size, (wait, ratio) in ((2**30, reads["bf16"]), (2**29, reads["fp8"]))
        ]
        assert times[0] / times[1] == pytest.approx(gain, abs=0.02)


def test_a_slower_link_makes_the_borrowed_all_reduce_slower() -> None:
    # H800: 200 GB/s where the H100 of the table has 450: what a message takes beyond the smallest is 2.25 times.
    h100, h800 = of("h100-sxm5-80").all_reduce_s[8], of("h800-sxm").all_reduce_s[8]
    assert h800[0] == h100[0]
    assert h800[-1][1] - h800[0][1] == pytest.approx(2.25 * (h100[-1][1] - h100[0][1]))
    assert of("apple-m4").all_reduce_s == {}  # no link
