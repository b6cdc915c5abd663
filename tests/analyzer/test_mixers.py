"""Mixers from the fields of configs: what they hold is what their reference implementations hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from counted_mixers import COUNTED, counted_name, fields_of, hidden_size, mixer_of

from rooflens.analyzer.architecture.latent import compressed, compressor_columns, latent
from rooflens.analyzer.architecture.state import state
from rooflens.arch_records import Attention, CompressedAttention, Indexer, LatentAttention, Mixer, StateMixer


def held(mixer: Mixer, hidden: int) -> int:
    """Elements of the mixer's matrices as the records' own words describe them."""
    if isinstance(mixer, StateMixer):
        return hidden * (mixer.in_columns + mixer.out_rows) + mixer.other_elements
    if isinstance(mixer, Attention):
        query = mixer.heads * mixer.head_dim * (2 if mixer.output_gate else 1)
        value = 0 if mixer.keys_are_values else mixer.kv_heads * mixer.value_head_dim
        output = mixer.heads * mixer.value_head_dim
        return hidden * (query + mixer.kv_heads * mixer.head_dim + value + output)
    return _latent(mixer, hidden) if isinstance(mixer, LatentAttention) else _compressed(mixer, hidden)


def _latent(mixer: LatentAttention, hidden: int) -> int:
    query = mixer.heads * (mixer.nope_dim + mixer.rope_dim)
    elements = hidden * mixer.q_rank + mixer.q_rank * query if mixer.q_rank else hidden * query
    elements += hidden * (mixer.kv_rank + mixer.rope_dim)
    elements += mixer.kv_rank * mixer.heads * (mixer.nope_dim + mixer.value_dim)
    elements += mixer.heads * mixer.value_dim * hidden
    if mixer.indexer is None or mixer.indexer.shared:
        return elements
    assert mixer.q_rank is not None
    one = mixer.indexer
    return elements + mixer.q_rank * one.heads * one.head_dim + hidden * (one.head_dim + one.heads)


def _compressed(mixer: CompressedAttention, hidden: int) -> int:
    wide = mixer.heads * mixer.head_dim
    elements = hidden * mixer.q_rank + mixer.q_rank * wide + hidden * mixer.head_dim
    elements += wide * mixer.output_rank + mixer.output_groups * mixer.output_rank * hidden
    elements += hidden * compressor_columns(mixer.ratio, mixer.head_dim)
    if mixer.indexer is None:
        return elements
    one = mixer.indexer
    elements += mixer.q_rank * one.heads * one.head_dim + hidden * one.heads
    return elements + hidden * compressor_columns(mixer.ratio, one.head_dim)


@pytest.mark.parametrize("row", COUNTED, ids=counted_name)
def test_a_mixer_holds_what_its_reference_implementation_holds(row: Mapping[str, Any]) -> None:
    mixer = mixer_of(row["fields"], row["kind"], row["layer"])
    assert held(mixer, hidden_size(row)) == row["parameters"] - row["left_out"]
    # Norms, sinks, biases, positions and gates of one number a head: never what a step waits for.
    assert row["left_out"] <= 0.004 * row["parameters"]


QWEN_27B = "Qwen/Qwen3.5-27B"
GLM_52 = "zai-org/GLM-5.2"
V4_PRO = "deepseek-ai/DeepSeek-V4-Pro"


def test_a_delta_rule_keeps_a_matrix_for_each_value_head() -> None:
    """Qwen3.5-27B: 48 heads x 128 x 128; with 48 such layers at 4 bytes 150,994,944 bytes a sequence, as listed."""
    mixer = state(fields_of(QWEN_27B), "gated_delta")
    assert mixer.state_elements == 48 * 128 * 128
    assert 48 * mixer.state_elements * 4 == 150_994_944
    # q and k of 16 x 128 each and v of 48 x 128 go through a convolution over 4 tokens, of which 3 are kept.
    assert mixer.conv_state_elements == (2 * 16 * 128 + 48 * 128) * 3
    # Three products of the state, 2 flops each: what it holds for the key, the update, the query; and the convolution.
    assert mixer.token_flops == 6 * 48 * 128 * 128 + 2 * (2 * 16 * 128 + 48 * 128) * 4
    assert (mixer.heads, mixer.state_format) == (48, "fp32")


def test_a_mamba_2_state_is_channels_times_state_size() -> None:
    """Nemotron-H 56B: 256 heads x 64 channels x 256; 54 such layers at 4 bytes are 905,969,664 bytes, as listed."""
    mixer = state(fields_of("nvidia/Nemotron-H-56B-Base-8K"), "mamba2")
    assert 54 * mixer.state_elements * 4 == 905_969_664
    assert mixer.conv_state_elements == (256 * 64 + 2 * 8 * 256) * 3  # channels, B and C of 8 groups
    assert mixer.state_format == "fp32"  # no field says so: what engines take for this family
    # Outer product in and product with C out; the decay folds into both.
    assert mixer.token_flops == 4 * 256 * 64 * 256 + 2 * (256 * 64 + 2 * 8 * 256) * 4


def test_a_mamba_1_state_is_channels_times_state_size() -> None:
    """Jamba: 2 x 4096 channels x 16; 28 such layers at 4 bytes are 14,680,064 bytes, as listed."""
    fields = {k: v for k, v in fields_of("Jamba-v0.1 defaults").items() if k not in ("dtype", "torch_dtype")}
    mixer = state(fields, "mamba1")
    assert 28 * mixer.state_elements * 4 == 14_680_064
    assert mixer.state_format == "bf16"
    # The step and B and C of each token come out of the channels by two matrices of their own.
    inner = 8192 * (256 + 2 * 16) + 256 * 8192
    assert mixer.token_flops == 6 * 8192 * 16 + 2 * inner + 2 * 8192 * 4


def test_a_short_convolution_keeps_nothing_but_its_last_inputs() -> None:
    mixer = state(fields_of("lfm2 defaults"), "short_conv")
    assert (mixer.state_elements, mixer.conv_state_elements) == (0, 2560 * 2)


def test_lightning_attention_keeps_a_matrix_a_head_and_has_a_gate() -> None:
    mixer = state(fields_of("MiniMax-Text-01"), "lightning")
    assert (mixer.state_elements, mixer.conv_state_elements) == (64 * 128 * 128, 0)
    assert mixer.in_columns == 4 * 64 * 128
    assert mixer.token_flops == 4 * 64 * 128 * 128


def test_kimi_linear_is_read_as_its_authors_and_as_transformers_write_it() -> None:
    written = {
        "hidden_size": 2304,
        "linear_attn_config": {"num_heads": 32, "head_dim": 128, "short_conv_kernel_size": 4},
    }
    assert state(written, "kda") == state(fields_of("Kimi-Linear defaults"), "kda")
    mixer = state(written, "gated_delta")
    assert mixer.state_format == "fp32"
    # 32 heads x 128; q, k and v each go through a convolution over 4 inputs, of which 3 are kept. Decay and gate
    # are widened from 128 to all heads by a matrix each.
    width = 32 * 128
    assert (mixer.heads, mixer.state_elements, mixer.conv_state_elements) == (32, width * 128, 3 * width * 3)
    assert mixer.token_flops == 6 * width * 128 + 2 * (2 * 128 * width) + 2 * 3 * width * 4


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, "bf16"),
        ({"torch_dtype": "float16"}, "fp16"),
        ({"torch_dtype": "bfloat16", "mamba_ssm_dtype": "float32"}, "fp32"),
        ({"dtype": "float32", "mamba_ssm_cache_dtype": "bfloat16"}, "bf16"),
    ],
)
def test_the_states_format(fields: dict[str, Any], expected: str) -> None:
    assert state({**fields_of("lfm2 defaults"), "dtype": None, **fields}, "short_conv").state_format == expected


def test_which_layers_of_glm_5_2_choose_for_themselves() -> None:
    """78 layers: 0, 1, 2 and every fourth from 6 on choose, 21 in all; the rest read what the last one chose."""
    fields = fields_of(GLM_52)
    choosing = [i for i in range(78) if latent(fields, i).indexer == Indexer(32, 128, 2048)]
    assert choosing == [0, 1, *range(2, 78, 4)]
    by_period = {k: v for k, v in fields.items() if k != "indexer_types"}
    assert [latent(by_period, i) for i in range(78)] == [latent(fields, i) for i in range(78)]
    by_letters = {**by_period, "index_topk_pattern": "".join("F" if i in choosing else "S" for i in range(78))}
    assert [latent(by_letters, i) for i in range(78)] == [latent(fields, i) for i in range(78)]
    # A layer of multi-token prediction stands behind the list and chooses for itself.
    assert latent(fields, 78).indexer == Indexer(32, 128, 2048)


@pytest.mark.parametrize(
    ("offset", "choosing"), [(0, [3, 7, 11]), (1, [0, 4, 8]), (2, [0, 1, 5, 9]), (None, [0, 1, 5, 9]), (12, range(12))]
)
def test_from_which_layer_on_only_some_choose(offset: int | None, choosing: Sequence[int]) -> None:
    """One of four chooses, counted from the offset, which is 2 where it is not said; all before it choose."""
    fields = {**fields_of(GLM_52), "indexer_types": None, "index_topk_freq": 4, "index_skip_topk_offset": offset}
    assert [i for i in range(12) if latent(fields, i).indexer == Indexer(32, 128, 2048)] == list(choosing)
    every = {**fields, "index_topk_freq": 0}
    assert all(latent(every, i).indexer == Indexer(32, 128, 2048) for i in range(12))


@pytest.mark.parametrize("rank", [None, 0])
def test_queries_without_a_rank_are_projected_at_once(rank: int | None) -> None:
    fields = {**fields_of("deepseek v2 lite"), "q_lora_rank": rank}
    assert latent(fields, 0) == LatentAttention(16, None, 512, 128, 64, 128)


def test_the_layers_of_deepseek_v4() -> None:
    """Pro begins with two layers of 128 to 1, then 4 and 128 in turn; Flash begins with two that are windows alone."""
    pro, flash = fields_of(V4_PRO), fields_of("deepseek-ai/DeepSeek-V4-Flash")
    assert [compressed(pro, i).ratio for i in (0, 1, 2, 3, 60, 61)] == [128, 128, 4, 128, 4, 0]
    assert [compressed(flash, i).ratio for i in range(4)] == [0, 0, 4, 128]
    assert compressed(pro, 2).indexer == Indexer(64, 128, 1024)
    assert compressed(pro, 0).indexer is None
    assert compressed(flash, 0).indexer is None
    named = {**pro, "compress_ratios": None, "layer_types": ["sliding_attention", "compressed_sparse_attention"]}
    assert [compressed(named, i).ratio for i in range(2)] == [0, 4]


def test_a_compressor_projects_a_value_and_a_gate_and_twice_where_windows_overlap() -> None:
    assert [compressor_columns(ratio, 512) for ratio in (0, 4, 128)] == [0, 2048, 1024]
