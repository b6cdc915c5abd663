"""Bytes of keys and values that a sequence keeps and a step reads, against figures counted by others."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from rooflens.analyzer.arch import arch_from_config, find_model
from rooflens.analyzer.counting import kv_bytes
from rooflens.analyzer.operators import works
from rooflens.analyzer.point import UniformBatch, point_features
from rooflens.analyzer.precision import Precision
from rooflens.analyzer.work import dot
from rooflens.arch_records import ModelArch, StateMixer

DATA = Path(__file__).parents[1] / "data"
ROWS = json.loads((DATA / "kv_bytes.json").read_text())["rows"]
BF16 = Precision("bf16", "bf16", "bf16", "bf16")
GIB = 2**30


@cache
def arch_of(model: str) -> ModelArch:
    """A shipped model, or DeepSeek-V3.2 from the fields of its config."""
    if model == "deepseek-v3.2":
        return arch_from_config(json.loads((DATA / "million_tokens.json").read_text())["configs"]["DeepSeek-V3.2"])
    return find_model(model)


def stored(arch: ModelArch, context_tokens: int, precision: Precision = BF16) -> float:
    """What one sequence keeps beside the states, which do not grow."""
    return kv_bytes(arch, precision, context_tokens) - kv_bytes(arch, precision, 0)


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
    arch, expected = arch_of(row["model"]), row.get("counted", row["listed"])
    ours = {
        "read_at_4k": read_bytes(arch, 4096),
        "read_at_128k": read_bytes(arch, 131_072),
        "stored_at_1m": stored(arch, 1_048_576),
    }
    assert {name: ours[name] for name in expected} == expected


@pytest.mark.parametrize("row", [row for row in ROWS if "state_fp32" in row], ids=lambda row: row["model"])
def test_states_are_those_listed(row: Mapping[str, Any]) -> None:
    """At 4 bytes an element; the last inputs of convolutions come on top and are not in the listed figures."""
    layers = [(layer.count, layer.mixer) for layer in arch_of(row["model"]).layers]
    mixers = [(count, mixer) for count, mixer in layers if isinstance(mixer, StateMixer)]
    assert 4 * sum(count * mixer.state_elements for count, mixer in mixers) == row["state_fp32"]


def test_figures_that_describe_another_layout_are_few_and_say_why() -> None:
    odd = {row["model"]: row["why"] for row in ROWS if "counted" in row}
    assert set(odd) == {"glm-5.2", "mimo-v2-flash", "deepseek-v4-pro", "gemma-3n-e4b", "minimax-m3"}
    assert all(odd.values())


def test_a_million_tokens_of_deepseek_v3_2() -> None:
    """61 layers x (latent 512 + rope 64 + index key 128) x 2 bytes x 2^20 = 83.875 GiB."""
    kept = stored(arch_of("deepseek-v3.2"), 1 << 20)
    assert kept == 61 * (512 + 64 + 128) * 2 * (1 << 20)
    assert kept / GIB == 83.875


def test_a_million_tokens_of_deepseek_v4_pro() -> None:
    """30 layers keep 2^20 / 4 entries of 512 with an index key of 128 each, 31 keep 2^20 / 128 entries of 512.

    That is 9.617 GiB at 2 bytes. All 61 keep a window of 128 entries of 512 beside them: 8 MB more, 9.625 GiB.
    """
    entries = 30 * (1 << 18) * (512 + 128) * 2 + 31 * (1 << 13) * 512 * 2
    windows = 61 * 128 * 512 * 2
    assert round(entries / GIB, 3) == 9.617
    assert named("deepseek-v4-pro")["listed"]["stored_at_1m"] == entries
    assert stored(arch_of("deepseek-v4-pro"), 1 << 20) == entries + windows
    assert round((entries + windows) / GIB, 3) == 9.625


def test_what_deepseek_v4_pro_reads_is_what_its_indexers_leave() -> None:
    """At 2^17 tokens, for each layer a window of 128 entries of 512, then

    where an indexer chooses: 1,024 of the 2^15 entries and all 2^15 index keys of 128; else all 2^10 entries.
    """
    chosen = 30 * ((128 + 1024) * 512 + (1 << 15) * 128) * 2
    everything = 31 * (128 + 1024) * 512 * 2
    assert read_bytes(arch_of("deepseek-v4-pro"), 1 << 17) == chosen + everything


def test_glm_5_2_keeps_index_keys_only_where_a_layer_chooses() -> None:
    """78 latents of 576 and 21 index keys of 128 a token; a key in each layer would be 15 % more."""
    assert stored(arch_of("glm-5.2"), 1 << 20) == (78 * 576 + 21 * 128) * 2 * (1 << 20)
    assert named("glm-5.2")["listed"]["stored_at_1m"] == 78 * (576 + 128) * 2 * (1 << 20)


def test_index_keys_may_have_a_format_of_their_own() -> None:
    """Engines keep DeepSeek V3.2's index keys in fp8 whatever the latents are in: 128 bytes and a scale of 4."""
    arch = arch_of("deepseek-v3.2")
    narrow = replace(BF16, indexer_keys="fp8")
    assert kv_bytes(arch, narrow, 1000) == 61 * (576 * 2 + 132) * 1000


def test_layers_that_share_keys_and_values_read_them_and_keep_none() -> None:
    """Gemma 3n E4B: 7 of 35 layers are full, the others windows of 512; the last 15, 3 of them full, keep nothing.

    A decode step reads in all 35; the listed figure counts a cache in each, of which 57.1 % are kept.
    """
    arch = arch_of("gemma-3n-e4b")
    token = 2 * 2 * 256 * 2  # keys and values of 2 heads x 256 at 2 bytes
    assert read_bytes(arch, 1 << 20) == (7 * (1 << 20) + 28 * 512) * token
    assert stored(arch, 1 << 20) == (4 * (1 << 20) + 16 * 512) * token


def test_blocks_that_an_indexer_chooses() -> None:
    """MiniMax M3: 4 KV heads read 16 blocks of 128 tokens each; an index key of 128 a token is kept and read whole.

    The first 3 of 60 layers see everything and have no index.
    """
    arch, token = arch_of("minimax-m3"), 2 * 4 * 128 * 2
    assert read_bytes(arch, 1 << 17) == 57 * (16 * 128 * token + (1 << 17) * 128 * 2) + 3 * (1 << 17) * token
    assert stored(arch, 1 << 17) == (1 << 17) * (60 * token + 57 * 128 * 2)


@pytest.mark.parametrize("context", [1, 127, 128, 129, 4096, 4097, 100_000])
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["model"])
def test_a_step_reads_no_more_than_is_kept(row: Mapping[str, Any], context: int) -> None:
    """Layers that share a cache read it once each."""
    arch = arch_of(row["model"])
    own = replace(arch, layers=tuple(layer for layer in arch.layers if not getattr(layer.mixer, "kv_shared", False)))
    assert 0 < read_bytes(own, context) <= kv_bytes(own, BF16, context)


INDEXED = ("deepseek-v3.2", "deepseek-v4-pro", "glm-5.2", "minimax-m3")
WITHOUT_INDEX = [row for row in ROWS if row["model"] not in INDEXED]


@pytest.mark.parametrize("row", WITHOUT_INDEX, ids=lambda row: row["model"])
def test_half_the_bytes_an_element_are_half_the_bytes(row: Mapping[str, Any]) -> None:
    arch, narrow = arch_of(row["model"]), Precision("bf16", "fp8", "bf16", "bf16")
    assert 2 * stored(arch, 5000, narrow) == stored(arch, 5000)
    assert 2 * read_bytes(arch, 5000, narrow) == read_bytes(arch, 5000)
