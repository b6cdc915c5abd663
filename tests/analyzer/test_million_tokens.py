"""DeepSeek V4 beside V3.2 at a million tokens: the ratios of its model card, each counted in three ways."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rooflens.analyzer.arch import arch_from_config
from rooflens.analyzer.counting import kv_bytes
from rooflens.analyzer.operators import works
from rooflens.analyzer.point import UniformBatch, point_features
from rooflens.analyzer.precision import Precision
from rooflens.analyzer.work import dot
from rooflens.arch_records import CompressedAttention, LatentAttention, ModelArch

ROOT = Path(__file__).parents[2]
DATA = json.loads((ROOT / "tests" / "data" / "million_tokens.json").read_text())
ARCHS = {name: arch_from_config(config, name) for name, config in DATA["configs"].items()}
BEFORE = ARCHS["DeepSeek-V3.2"]
BF16 = Precision("bf16", "bf16", "bf16", "bf16")
MILLION = 1_000_000
NEWER = ("DeepSeek-V4-Pro", "DeepSeek-V4-Flash")


def token_flops(arch: ModelArch, index_rate: float = 1.0, wide_rate: float = 1.0) -> float:
    """Flops of one decoded token after a million; weighted where some of them run at another rate than fp8.

    ``wide_rate`` weighs what runs in 16 bit: attention over the entries and the head. ``index_rate`` weighs the
    indexer's scores.
    """
    rates = {"attention": wide_rate, "head": wide_rate}
    total, step = 0.0, UniformBatch(sequences=1, cached_tokens=MILLION)
    for row in works(arch, BF16):
        rate = index_rate if row.operator == "index_scores" else rates.get(row.group, 1.0)
        total += rate * dot(row.flops, point_features(step, row.flops))
    return total


def engine_bytes(arch: ModelArch, context: int = MILLION) -> float:
    """Bytes of the cache in the layouts of DeepSeek's kernels (vllm 0.32, attention/backends/mla/flashmla_sparse.py).

    V3.2: 512 fp8 elements, 4 scales of 4 bytes, 64 elements of 2 bytes, and an index key of 128 bytes with its scale.
    V4: 448 fp8 elements, 64 of 2 bytes, 8 bytes of scales, and an index key of 128 fp4 elements with 4 bytes of scales.
    """
    total = 0.0
    for layer in arch.layers:
        mixer = layer.mixer
        if isinstance(mixer, LatentAttention):
            total += layer.count * context * (656 + 132)
        elif isinstance(mixer, CompressedAttention):
            entry = 584 + (68 if mixer.indexer else 0)
            total += layer.count * mixer.window_tokens * 584
            total += layer.count * context / mixer.ratio * entry if mixer.ratio else 0.0
    return total


def ratios(name: str) -> dict[str, float]:
    """Every count of one of the newer models over that of V3.2."""
    arch = ARCHS[name]
    return {
        "plain flops": token_flops(arch) / token_flops(BEFORE),
        "fp8 flops": token_flops(arch, index_rate=0.5, wide_rate=2.0) / token_flops(BEFORE, wide_rate=2.0),
        "cache at 2 bytes": kv_bytes(arch, BF16, MILLION) / kv_bytes(BEFORE, BF16, MILLION),
        "cache as stored": engine_bytes(arch) / engine_bytes(BEFORE),
    }


@pytest.mark.parametrize("name", NEWER)
def test_flops_are_those_of_the_model_card_where_each_is_weighed_by_its_rate(name: str) -> None:
    """Weighed as fp8 work: 16-bit attention and head twice, V4's fp4 index scores half, all else once."""
    assert round(ratios(name)["fp8 flops"], 2) == DATA["published"][name]["flops"]


@pytest.mark.parametrize("name", NEWER)
def test_the_cache_is_that_of_the_model_card_where_each_is_in_its_layout(name: str) -> None:
    ours, published = ratios(name)["cache as stored"], DATA["published"][name]
    assert round(ours, 2) == published["cache"]
    assert round(1 / ours, 1) == published["smaller"]


def test_plain_flops_by_hand() -> None:
    """V3.2: 61 index scores of 64 heads x 128 x 2 flops for a million keys are 90 % of its 1.11 TFLOP a token.

    V4-Pro: 30 layers score a quarter as many keys, 30 read 1,024 entries and 31 read 7,812.5, with 128 heads of 512.
    """
    scores = 61 * 2 * 64 * 128 * (MILLION + 1)
    assert scores == pytest.approx(0.901 * token_flops(BEFORE), rel=1e-3)
    after = 30 * 2 * 64 * 128 * (MILLION + 1) / 4
    entries = 4 * 128 * 512 * (30 * 1024 + 31 * (MILLION + 1) / 128 + 61 * 128)
    active = 2 * 48.7e9  # what a token uses beside the embedding
    assert token_flops(ARCHS["DeepSeek-V4-Pro"]) == pytest.approx(after + entries + active, rel=0.01)


@pytest.mark.parametrize("name", NEWER)
def test_the_page_says_what_is_counted(name: str) -> None:
    """docs/long-context.md gives each ratio in percent, to a tenth."""
    line = next(
        line for line in (ROOT / "docs" / "long-context.md").read_text().splitlines() if line.startswith(f"| {name} |")
    )
    assert [cell.strip() for cell in line.strip("|").split("|")][1:] == [
        f"{100 * value:.1f} %" for value in ratios(name).values()
    ]
