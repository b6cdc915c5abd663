"""Bytes of keys and values that a sequence keeps and a step reads, against figures counted by others."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from counted_mixers import mixer_of

from rooflens.analyzer.counting import kv_bytes
from rooflens.analyzer.operators import works
from rooflens.analyzer.point import UniformBatch, point_features
from rooflens.analyzer.precision import Precision
from rooflens.analyzer.work import dot
from rooflens.arch_records import Attention, Layer, ModelArch

ROWS = json.loads((Path(__file__).parents[1] / "data" / "kv_bytes.json").read_text())["rows"]
BF16 = Precision("bf16", "bf16", "bf16", "bf16")
GIB = 2**30


def arch_of(row: Mapping[str, Any]) -> ModelArch:
    """The row's layers without MLPs, between an embedding and a head of one word: neither has a cache."""
    layers = tuple(Layer(count, mixer_of(row["fields"], *rest), None) for count, *rest in row["layers"])
    return ModelArch(row["model"], row["fields"].get("hidden_size", 4096), 1, True, layers)


def named(model: str) -> dict[str, Any]:
    row: dict[str, Any] = next(row for row in ROWS if row["model"] == model)
    return row


def read_bytes(arch: ModelArch, context_tokens: int, precision: Precision = BF16) -> float:
    """What one decode step of one sequence reads of its cache."""
    rows = works(arch, precision)
    step = UniformBatch(sequences=1, cached_tokens=context_tokens)
    return sum(dot(row.kv_read_bytes, point_features(step, row.kv_read_bytes)) for row in rows)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["model"])
def test_bytes_are_those_listed(row: Mapping[str, Any]) -> None:
    arch, expected = arch_of(row), row.get("counted", row["listed"])
    ours = {
        "read_at_4k": read_bytes(arch, 4096),
        "read_at_128k": read_bytes(arch, 131_072),
        "stored_at_1m": kv_bytes(arch, BF16, 1_048_576),
    }
    assert {name: ours[name] for name in expected} == expected


def test_figures_that_describe_another_layout_are_few_and_say_why() -> None:
    odd = {row["model"]: row["why"] for row in ROWS if "counted" in row}
    assert set(odd) == {"zai-org/GLM-5.2", "XiaomiMiMo/MiMo-V2-Flash", "deepseek-ai/DeepSeek-V4-Pro"}
    assert all(odd.values())


def test_a_million_tokens_of_deepseek_v3_2() -> None:
    """61 layers x (latent 512 + rope 64 + index key 128) x 2 bytes x 2^20 = 83.875 GiB."""
    stored = kv_bytes(arch_of(named("deepseek-ai/DeepSeek-V3.2")), BF16, 1 << 20)
    assert stored == 61 * (512 + 64 + 128) * 2 * (1 << 20)
    assert stored / GIB == 83.875


def test_a_million_tokens_of_deepseek_v4_pro() -> None:
    """30 layers keep 2^20 / 4 entries of 512 with an index key of 128 each, 31 keep 2^20 / 128 entries of 512.

    That is 9.617 GiB at 2 bytes. All 61 keep a window of 128 entries of 512 beside them: 8 MB more, 9.625 GiB.
    """
    entries = 30 * (1 << 18) * (512 + 128) * 2 + 31 * (1 << 13) * 512 * 2
    windows = 61 * 128 * 512 * 2
    assert round(entries / GIB, 3) == 9.617
    row = named("deepseek-ai/DeepSeek-V4-Pro")
    assert row["listed"]["stored_at_1m"] == entries
    assert kv_bytes(arch_of(row), BF16, 1 << 20) == entries + windows
    assert round((entries + windows) / GIB, 3) == 9.625


def test_what_deepseek_v4_pro_reads_is_what_its_indexers_leave() -> None:
    """At 2^17 tokens, for each layer a window of 128 entries of 512, then

    where an indexer chooses: 1,024 of the 2^15 entries and all 2^15 index keys of 128; else all 2^10 entries.
    """
    chosen = 30 * ((128 + 1024) * 512 + (1 << 15) * 128) * 2
    everything = 31 * (128 + 1024) * 512 * 2
    assert read_bytes(arch_of(named("deepseek-ai/DeepSeek-V4-Pro")), 1 << 17) == chosen + everything


def test_glm_5_2_keeps_index_keys_only_where_a_layer_chooses() -> None:
    """78 latents of 576 and 21 index keys of 128 a token; a key in each layer would be 15 % more."""
    stored = kv_bytes(arch_of(named("zai-org/GLM-5.2")), BF16, 1 << 20)
    assert stored == (78 * 576 + 21 * 128) * 2 * (1 << 20)
    assert named("zai-org/GLM-5.2")["listed"]["stored_at_1m"] == 78 * (576 + 128) * 2 * (1 << 20)


def test_index_keys_may_have_a_format_of_their_own() -> None:
    """Engines keep DeepSeek V3.2's index keys in fp8 whatever the latents are in: 128 bytes and a scale of 4."""
    arch = arch_of(named("deepseek-ai/DeepSeek-V3.2"))
    narrow = replace(BF16, indexer_keys="fp8")
    assert kv_bytes(arch, narrow, 1000) == 61 * (576 * 2 + 132) * 1000


def test_layers_that_share_keys_and_values_read_them_and_keep_none() -> None:
    """Gemma 3n E4B: the last 15 of its 35 layers (every fifth full) read what layers before them keep.

    The listed figure counts a cache in each; the 4 full and 16 windowed layers that have one keep 57.1 % of it.
    """
    row = named("google/gemma-3n-E4B")
    listed, layers = arch_of(row), []
    for layer, own in zip(listed.layers, (16, 4), strict=True):
        assert isinstance(layer.mixer, Attention)
        layers += [replace(layer, count=own)]
        layers += [replace(layer, count=layer.count - own, mixer=replace(layer.mixer, kv_shared=True))]
    shared = replace(listed, layers=tuple(layers))
    assert read_bytes(shared, 131_072) == read_bytes(listed, 131_072)
    token = 2 * 2 * 256 * 2  # keys and values of 2 heads x 256 at 2 bytes
    assert kv_bytes(shared, BF16, 1 << 20) == (4 * (1 << 20) + 16 * 512) * token


@pytest.mark.parametrize("context", [1, 127, 128, 129, 4096, 4097, 100_000])
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["model"])
def test_a_step_reads_no_more_than_is_kept(row: Mapping[str, Any], context: int) -> None:
    arch = arch_of(row)
    assert 0 < read_bytes(arch, context) <= kv_bytes(arch, BF16, context)


WITHOUT_INDEX = [row for row in ROWS if "index_topk" not in row["fields"]]


@pytest.mark.parametrize("row", WITHOUT_INDEX, ids=lambda row: row["model"])
def test_half_the_bytes_an_element_are_half_the_bytes(row: Mapping[str, Any]) -> None:
    arch, narrow = arch_of(row), Precision("bf16", "fp8", "bf16", "bf16")
    assert 2 * kv_bytes(arch, narrow, 5000) == kv_bytes(arch, BF16, 5000)
    assert 2 * read_bytes(arch, 5000, narrow) == read_bytes(arch, 5000)
