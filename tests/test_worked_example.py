"""The sum that docs/roofline.md does by hand, done anew: what it says of one deployment is what predict says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rooflens.analyzer.arch import find_model
from rooflens.analyzer.efficiency import efficiency_of
from rooflens.analyzer.hardware import find_hardware
from rooflens.analyzer.plan import Plan
from rooflens.analyzer.precision import choose_precision
from rooflens.analyzer.predict import Prediction, predict
from rooflens.arch_records import Deployment

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = (ROOT / "docs" / "roofline.md").read_text(encoding="utf-8").split("## A figure by hand\n")[1]
LAYERS, HIDDEN, WIDE, HEAD_ROWS, BATCH, CONTEXT = 80, 8192, 28672 // 8, 128256 // 8, 64, 8192
BYTES = {
    "queries, keys, values": LAYERS * HIDDEN * (8 + 2) * 128 * 2,
    "output": LAYERS * 8 * 128 * HIDDEN * 2,
    "gate and up": LAYERS * HIDDEN * 2 * WIDE * 2,
    "down": LAYERS * WIDE * HIDDEN * 2,
    "norms": (LAYERS * 2 + 1) * HIDDEN * 2 // 8,
    "head": HIDDEN * HEAD_ROWS * 2,
    "rows of the embedding": BATCH * HIDDEN * 2 // 8,
    "cache read": BATCH * CONTEXT * LAYERS * 256 * 2,
    "cache written": BATCH * LAYERS * 256 * 2,
}


@pytest.fixture(scope="module")
def predicted() -> Prediction:
    arch = find_model("meta-llama-3-70b")
    plan = Plan(devices=8, deployment=Deployment(tensor=8), batch=BATCH, context_tokens=CONTEXT)
    return predict(arch, find_hardware("h100-sxm5-80"), choose_precision(arch), plan)


def last_cells(table: str) -> dict[str, str]:
    """First cell of each row -> its last."""
    rows = re.findall(r"^\| ([^|]+?) \|.*\| ([^|]+?) \|$", table, re.MULTILINE)
    return {first: last for first, last in rows if set(last) != {"-"}}


def test_the_bytes_of_the_page_are_those_of_its_shapes() -> None:
    cells = last_cells(EXAMPLE.split("- **Memory.**")[0])
    assert {name: int(cells[name].replace(",", "")) for name in BYTES} == BYTES
    assert int(cells["sum"].replace(",", "")) == sum(BYTES.values())


def test_the_floor_of_the_page_is_the_predicted_one(predicted: Prediction) -> None:
    memory_s = (sum(BYTES.values()) - 52428800) / 3.35e12
    elements = sum(BYTES[name] for name in ("queries, keys, values", "output", "gate and up", "down")) // 2
    flops = 2 * BATCH * (elements + HIDDEN * HEAD_ROWS) + BATCH * (CONTEXT + 1) * LAYERS * 2 * 8 * 256
    assert f"{elements:,} elements" in EXAMPLE
    assert predicted.flops == 8 * flops
    assert predicted.floor_s == pytest.approx(memory_s)
    assert predicted.compute_s == pytest.approx(flops / (132 * 4096 * 1.98e9))
    assert predicted.link_s == pytest.approx(7 / 4 * 160 * 1048576 / 4.5e11)
    for value in (predicted.memory_s, predicted.compute_s, predicted.link_s):
        assert value is not None
        assert f"{1e3 * value:.3f} ms" in EXAMPLE


def test_the_reachable_time_of_the_page_is_the_predicted_one(predicted: Prediction) -> None:
    cells = last_cells(EXAMPLE.split("What is reachable, in microseconds")[1])
    parts = {name: int(cell.replace(",", "")) for name, cell in cells.items() if name != "operator"}
    assert parts.pop("sum") == sum(parts.values()) == pytest.approx(1e6 * (predicted.reachable_s or 0), abs=1)


def test_the_constants_of_the_page_are_those_of_the_table() -> None:
    page = (ROOT / "docs" / "roofline.md").read_text(encoding="utf-8")
    found = efficiency_of(find_hardware("h100-sxm5-80"))
    assert found is not None
    fp8_s, fp8_ratio = found.weight_reads["fp8"]
    for row in (
        f"| weights, bf16 | {found.weight_latency_s * 1e6:g} us | {found.weight_ratio:g} |",
        f"| weights, fp8 | {fp8_s * 1e6:g} us | {fp8_ratio:g} |",
        f"| KV cache in decode, bf16 | {found.kv_latency_s * 1e6:g} us | {found.kv_ratio:g} |",
        f"| matrix products, bf16 | | {found.gemm_ratio['bf16']:g} of the peak |",
        f"| attention of prompts | | {found.attention_ratio:g} of the 16-bit peak |",
        f"| a launch in a graph | {found.launch_s * 1e6:g} us | |",
        f"| a launch outside | {found.eager_launch_s * 1e6:g} us | |",
    ):
        assert row in page
