"""The same mixer under every name that a family writes its fields with, and what a family says in its own way."""

from __future__ import annotations

from typing import Any

import pytest
from counted_mixers import fields_of

from rooflens.analyzer.architecture.attention import softmax
from rooflens.analyzer.architecture.latent import latent
from rooflens.analyzer.architecture.state import state
from rooflens.arch_records import Attention

LLAMA = {"hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 160}


def renamed(fields: dict[str, Any], old: str, new: str) -> dict[str, Any]:
    return {new if name == old else name: value for name, value in fields.items()}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        *(("num_attention_heads", new) for new in ("n_head", "n_heads", "num_heads", "attention_heads")),
        ("num_attention_heads", "decoder_attention_heads"),
        *(("num_key_value_heads", new) for new in ("num_kv_heads", "n_head_kv", "num_attention_groups")),
        *(("head_dim", new) for new in ("attention_head_dim", "kv_channels", "d_kv", "head_size")),
    ],
)
def test_names_of_heads_and_widths(old: str, new: str) -> None:
    assert softmax(renamed(LLAMA, old, new), "full") == Attention(32, 8, 160, 160)


@pytest.mark.parametrize("name", ["hidden_size", "n_embd", "d_model"])
def test_a_head_is_an_equal_part_of_the_width_where_nothing_is_said(name: str) -> None:
    assert softmax({name: 4096, "num_attention_heads": 32}, "full") == Attention(32, 32, 128, 128)


@pytest.mark.parametrize(
    "name", ["sliding_window", "sliding_window_size", "attention_window_size", "window_size", "local_attention_window"]
)
def test_names_of_the_window(name: str) -> None:
    assert softmax({**LLAMA, name: 512}, "window") == Attention(32, 8, 160, 160, window_tokens=512)
    assert softmax({**LLAMA, name: 512}, "full").window_tokens is None


@pytest.mark.parametrize("name", ["attention_chunk_size", "attn_chunk_size"])
def test_names_of_the_chunk(name: str) -> None:
    assert softmax({**LLAMA, name: 8192}, "chunk") == Attention(32, 8, 160, 160, chunk_tokens=8192)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"multi_query": True}, 1),  # GPT-BigCode, Falcon 7B, whatever the number of KV heads says
        ({"multi_query": True, "new_decoder_architecture": True}, 8),  # Falcon 40B
        ({"multi_query": False}, 8),
        ({"multi_query_attention": True, "multi_query_group_num": 2}, 2),  # ChatGLM
        ({"multi_query_attention": True}, 1),
        ({"multi_query_attention": False, "multi_query_group_num": 2}, 8),
        ({"attn_config": {"kv_n_heads": 4}}, 4),  # DBRX, MPT
        ({"attn_config": {"attn_type": "multiquery_attention"}}, 1),
        ({"attn_config": {"attn_type": "multihead_attention", "kv_n_heads": None}}, 8),
        ({"num_key_value_heads": None}, 32),
    ],
)
def test_kv_heads(change: dict[str, Any], expected: int) -> None:
    assert softmax({**LLAMA, **change}, "full").kv_heads == expected


def test_a_window_in_an_attn_config() -> None:
    """MPT's is -1 where there is none."""
    assert softmax({**LLAMA, "attn_config": {"sliding_window_size": 256}}, "window").window_tokens == 256
    plain = {**LLAMA, "sliding_window": 64, "attn_config": {"sliding_window_size": -1}}
    assert softmax(plain, "window").window_tokens == 64


def test_windows_with_heads_of_their_own() -> None:
    mimo = {**LLAMA, "sliding_window": 128, "v_head_dim": 96, "swa_num_attention_heads": 64}
    mimo |= {"swa_num_key_value_heads": 16, "swa_head_dim": 192, "swa_v_head_dim": 128}
    assert softmax(mimo, "window") == Attention(64, 16, 192, 128, window_tokens=128)
    assert softmax(mimo, "full") == Attention(32, 8, 160, 96)
    step = {**LLAMA, "sliding_window": 512, "attention_other_setting": {"num_attention_heads": 96, "head_dim": 128}}
    step["attention_other_setting"]["num_attention_groups"] = 12
    assert softmax(step, "window") == Attention(96, 12, 128, 128, window_tokens=512)
    assert softmax(step, "full") == Attention(32, 8, 160, 160)
    assert softmax({**LLAMA, "sliding_window": 512, "num_sliding_attention_heads": 16}, "window").heads == 16
    # As transformers writes MiMo V2: twice the KV heads in windows, and no field for it.
    assert softmax({**LLAMA, "sliding_window": 128, "attention_value_scale": 0.7}, "window").kv_heads == 16
    assert softmax({**LLAMA, "sliding_window": 128, "attention_value_scale": 0.7}, "full").kv_heads == 8


def test_full_layers_with_heads_of_their_own() -> None:
    gemma = {**LLAMA, "sliding_window": 1024, "global_head_dim": 512, "num_global_key_value_heads": 2}
    assert softmax(gemma, "full") == Attention(32, 8, 512, 512)  # fewer KV heads only where keys are values
    gemma["attention_k_eq_v"] = True
    assert softmax(gemma, "full") == Attention(32, 2, 512, 512, keys_are_values=True)
    assert softmax(gemma, "window") == Attention(32, 8, 160, 160, window_tokens=1024)
    assert softmax({**LLAMA, "attention_k_eq_v": True}, "full").kv_heads == 8


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, False),
        ({"attn_output_gate": True}, True),
        ({"linear_num_value_heads": 32}, True),  # Qwen3-Next
        ({"linear_num_value_heads": 32, "attn_output_gate": False}, False),
        ({"linear_num_value_heads": 32, "linear_allow_neg_eigval": True}, False),  # OLMo Hybrid
        ({"mup_enabled": True, "route_scale": 2.8}, True),  # AFMoE
        ({"mup_enabled": True}, False),
        ({"route_scale": 2.8}, False),
        ({"gating": True}, False),  # one number a head
        ({"gating": "per-head"}, False),
        ({"gating": "per-element"}, True),
        ({"gating": "per-head", "attn_output_gate": True}, True),
    ],
)
def test_a_gate_on_the_output(fields: dict[str, Any], expected: bool) -> None:
    assert softmax({**LLAMA, **fields}, "full").output_gate is expected


def test_a_rank_of_keys_with_one_width_for_keys_and_values() -> None:
    """MiniCPM3's first files state no v_head_dim; without positions in the keys there is no rope part."""
    fields = {**fields_of("deepseek v2 lite"), "qk_rope_head_dim": 0}
    assert latent(fields, 0).rope_dim == 0
    assert latent({**fields, "qk_rope_head_dim": None}, 0).rope_dim == 0
    assert latent({**fields, "v_head_dim": None, "qk_nope_head_dim": 96}, 0).value_dim == 96


@pytest.mark.parametrize(
    ("old", "new"),
    [
        *(("mamba_num_heads", new) for new in ("mamba_n_heads", "n_mamba_heads", "num_heads")),
        *(("n_groups", new) for new in ("mamba_n_groups", "mamba_ngroups")),
        *(("ssm_state_size", new) for new in ("mamba_d_state", "state_size")),
        *(("conv_kernel", new) for new in ("mamba_d_conv", "conv_kernel_size")),
        *(("use_conv_bias", new) for new in ("mamba_conv_bias",)),
        *(("use_bias", new) for new in ("mamba_proj_bias", "add_bias_linear")),
    ],
)
def test_names_of_a_mamba_2(old: str, new: str) -> None:
    fields = {"hidden_size": 64, "mamba_num_heads": 8, "mamba_head_dim": 16, "n_groups": 2, "ssm_state_size": 32}
    fields |= {"conv_kernel": 4, "use_conv_bias": False, "use_bias": True, "mamba_ssm_dtype": "float32"}
    assert state(renamed(fields, old, new), "mamba2") == state(fields, "mamba2")
    assert state(fields, "mamba2") != state({**fields, "use_conv_bias": True}, "mamba2")
    assert state(fields, "mamba2") != state({**fields, "use_bias": False}, "mamba2")


def test_channels_of_a_mamba_2() -> None:
    """By the heads' width, as a multiple of the hidden size, or stated whole (Falcon-H1, without a norm by default)."""
    fields = {"hidden_size": 64, "mamba_n_heads": 8, "n_groups": 2, "ssm_state_size": 32, "conv_kernel": 4}
    by_head = state({**fields, "mamba_head_dim": 16}, "mamba2")
    for name in ("mamba_expand", "expand"):
        assert state({**fields, name: 2}, "mamba2") == by_head
    whole = state({**fields, "mamba_d_ssm": 128}, "mamba2")
    assert (whole.out_rows, by_head.other_elements - whole.other_elements) == (128, 128)
    assert state({**fields, "mamba_d_ssm": 128, "mamba_rms_norm": True}, "mamba2") == by_head


@pytest.mark.parametrize("rank", [4, "auto", None])
@pytest.mark.parametrize("name", ["mamba_dt_rank", "time_step_rank"])
def test_the_rank_of_a_mamba_1_step(name: str, rank: int | str | None) -> None:
    """A sixteenth of the width, rounded up, where nothing else is said: 4 of 50."""
    fields = {"hidden_size": 50, "expand": 2, "state_size": 8, "conv_kernel": 4, name: rank}
    # The step and B and C out of 100 channels, and the step back into them; 2 flops each.
    inner = 100 * (4 + 2 * 8) + 4 * 100
    assert state(fields, "mamba1").token_flops == 6 * 100 * 8 + 2 * inner + 2 * 100 * 4
    assert state({**fields, name: 5}, "mamba1").token_flops > state(fields, "mamba1").token_flops


def test_channels_of_a_mamba_1() -> None:
    """Falcon-Mamba's intermediate_size is what counts, not its expand; Jamba's intermediate_size is its MLP's."""
    falcon = {"hidden_size": 64, "expand": 16, "intermediate_size": 128, "state_size": 8, "conv_kernel": 4}
    assert state(falcon, "mamba1").out_rows == 128
    assert state({k: v for k, v in falcon.items() if k != "expand"}, "mamba1").out_rows == 128
    without = state({**falcon, "use_conv_bias": False}, "mamba1")
    assert state(falcon, "mamba1").other_elements - without.other_elements == 128
    assert without.conv_state_elements == 128 * 3
    jamba = {"hidden_size": 64, "mamba_expand": 2, "intermediate_size": 999, "mamba_d_state": 8, "mamba_d_conv": 4}
    assert state(jamba, "mamba1").out_rows == 128
    # Jamba norms step, B and C; a bias of both projections, and of the convolution, where it is said.
    biased = {**jamba, "mamba_proj_bias": True}
    assert state(biased, "mamba1").other_elements - state(jamba, "mamba1").other_elements == 2 * 128 + 64
    bare = {**jamba, "mamba_conv_bias": False}
    assert state(jamba, "mamba1").other_elements - state(bare, "mamba1").other_elements == 128


def test_biases_of_a_short_convolution() -> None:
    plain = {"hidden_size": 64, "conv_L_cache": 3}
    assert state({**plain, "conv_bias": True}, "short_conv").other_elements == 64 * 3 + 5 * 64
    assert state(plain, "short_conv").token_flops == 2 * 64 * 3 + 2 * 64


def test_a_gated_linear_recurrence() -> None:
    """Griffin: one number a channel, two gates made block by block, a convolution over four inputs."""
    fields = {"hidden_size": 64, "num_attention_heads": 4, "lru_width": 128, "conv1d_width": 4}
    mixer = state(fields, "recurrent")
    assert (mixer.state_elements, mixer.conv_state_elements, mixer.in_columns) == (128, 128 * 3, 256)
    assert mixer.token_flops == 2 * 2 * 128 * 32 + 2 * 128 * 4 + 4 * 128
    assert mixer.state_format == "fp32"
    assert state({**fields, "lru_width": None}, "recurrent").state_elements == 64


def test_lightning_heads_are_parts_of_the_width_where_nothing_is_said() -> None:
    assert state({"hidden_size": 64, "num_attention_heads": 4}, "lightning").state_elements == 4 * 16 * 16
