"""Fields that no mixer can be made of: one clear line that names the field, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from counted_mixers import COUNTED, mixer_of
from hypothesis import given, settings
from hypothesis import strategies as st

from rooflens.analyzer.architecture.attention import softmax
from rooflens.analyzer.architecture.latent import compressed, latent
from rooflens.analyzer.architecture.state import KINDS, state
from rooflens.records import RooflensError

LLAMA = {"hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8}
MAMBA2 = {
    "hidden_size": 4096, "mamba_num_heads": 128, "mamba_head_dim": 64, "n_groups": 8, "ssm_state_size": 128,
    "conv_kernel": 4,
}  # fmt: skip
MLA = {
    "num_attention_heads": 128, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64, "v_head_dim": 128,
}  # fmt: skip
V4 = {
    "num_attention_heads": 128, "head_dim": 512, "qk_rope_head_dim": 64, "q_lora_rank": 1536, "o_groups": 16,
    "o_lora_rank": 1024, "sliding_window": 128, "compress_ratios": [128, 4, 0], "index_n_heads": 64,
    "index_head_dim": 128, "index_topk": 1024,
}  # fmt: skip


def one_line(error: pytest.ExceptionInfo[RooflensError], *words: str) -> None:
    text = str(error.value)
    assert "\n" not in text
    assert len(text) < 250
    for word in words:
        assert word in text


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        ({"num_attention_heads": None}, "full", ("num_attention_heads", "missing")),
        ({"num_attention_heads": 0}, "full", ("num_attention_heads is 0",)),
        ({"num_attention_heads": -32}, "full", ("num_attention_heads is -32",)),
        ({"num_attention_heads": 32.5}, "full", ("num_attention_heads is 32.5",)),
        ({"num_key_value_heads": 7}, "full", ("32 attention heads", "7 KV heads")),
        ({"num_key_value_heads": True}, "full", ("num_key_value_heads is True",)),
        ({"hidden_size": 4097}, "full", ("head_dim", "4097", "32 heads")),
        ({"hidden_size": None}, "full", ("hidden_size", "missing")),
        ({"head_dim": 10**40}, "full", ("head_dim is a huge number",)),
        ({"v_head_dim": "wide"}, "full", ("v_head_dim is 'wide'",)),
        ({"multi_query": "yes"}, "full", ("multi_query is 'yes'", "neither true nor false")),
        ({"attn_output_gate": 1}, "full", ("attn_output_gate is 1",)),
        ({"gating": "often"}, "full", ("gating is 'often'",)),
        ({"gating": ["per-head"]}, "full", ("gating is a list",)),
        ({"attn_config": [8]}, "full", ("attn_config is a list", "not an object")),
        ({"sliding_window": None}, "window", ("sliding_window", "missing")),
        ({"sliding_window": 0}, "window", ("sliding_window is 0",)),
        ({}, "chunk", ("attention_chunk_size", "missing")),
        ({}, "spiral", ("'spiral'", "full, window, chunk")),
    ],
)
def test_softmax_attention(change: dict[str, Any], kind: str, words: tuple[str, ...]) -> None:
    with pytest.raises(RooflensError) as error:
        softmax({**LLAMA, **change}, kind)
    one_line(error, *words)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kv_lora_rank": None}, ("kv_lora_rank", "missing")),
        ({"q_lora_rank": -1}, ("q_lora_rank is -1",)),
        ({"v_head_dim": 0}, ("v_head_dim is 0",)),
        ({"qk_nope_head_dim": None}, ("qk_nope_head_dim", "missing")),
        ({"index_topk": 2048}, ("index_n_heads", "missing")),
        ({"index_topk": 0, "index_n_heads": 64, "index_head_dim": 128}, ("index_topk is 0",)),
    ],
)
def test_latent_attention(change: dict[str, Any], words: tuple[str, ...]) -> None:
    with pytest.raises(RooflensError) as error:
        latent({**MLA, **change}, 3)
    one_line(error, *words)


@pytest.mark.parametrize(
    ("types", "words"),
    [(["full", "half"], ("indexer_types has 'half'",)), (3, ("indexer_types is 3",)), ("FX", ("has 'X'",))],
)
def test_who_chooses_must_be_said_clearly(types: Any, words: tuple[str, ...]) -> None:
    fields = {**MLA, "index_topk": 2048, "index_n_heads": 64, "index_head_dim": 128, "indexer_types": types}
    with pytest.raises(RooflensError) as error:
        latent(fields, 1)
    one_line(error, *words)


@pytest.mark.parametrize(
    ("change", "index", "words"),
    [
        ({"compress_ratios": 4}, 0, ("compress_ratios is 4", "not a list")),
        ({}, 3, ("compress_ratios has 3 values, none for layer 3",)),
        ({"compress_ratios": [4.0]}, 0, ("compress_ratios has 4.0 for layer 0",)),
        ({"compress_ratios": [-4]}, 0, ("compress_ratios has -4",)),
        ({"compress_ratios": None}, 0, ("compress_ratios is missing",)),
        ({"compress_ratios": None, "layer_types": ["full_attention"]}, 0, ("layer_types says 'full_attention'",)),
        ({"o_groups": 5}, 0, ("o_groups is 5", "128 heads")),
        ({"index_topk": None}, 1, ("index_topk", "missing")),
        ({"sliding_window": None}, 2, ("sliding_window", "missing")),
    ],
)
def test_compressed_attention(change: dict[str, Any], index: int, words: tuple[str, ...]) -> None:
    with pytest.raises(RooflensError) as error:
        compressed({**V4, **change}, index)
    one_line(error, *words)


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        ({"mamba_num_heads": None}, "mamba2", ("mamba_num_heads or mamba_n_heads", "missing")),
        ({"ssm_state_size": None}, "mamba2", ("ssm_state_size", "missing")),
        ({"conv_kernel": 0}, "mamba2", ("conv_kernel is 0",)),
        ({"mamba_ssm_cache_dtype": "posit8"}, "mamba2", ("mamba_ssm_cache_dtype is 'posit8'",)),
        ({"mamba_ssm_dtype": 16}, "mamba2", ("mamba_ssm_dtype is 16",)),
        ({"use_conv_bias": "maybe"}, "mamba2", ("use_conv_bias is 'maybe'",)),
        ({}, "gated_delta", ("linear_num_value_heads", "missing")),
        ({"linear_attn_config": "KDA"}, "gated_delta", ("linear_attn_config is 'KDA'", "not an object")),
        ({}, "lightning", ("num_attention_heads", "missing")),
        ({}, "short_conv", ("conv_L_cache", "missing")),
        ({"time_step_rank": "large", "state_size": 16, "expand": 2}, "mamba1", ("time_step_rank is 'large'",)),
        ({}, "perceptron", ("'perceptron'", "gated_delta")),
    ],
)
def test_states(change: dict[str, Any], kind: str, words: tuple[str, ...]) -> None:
    with pytest.raises(RooflensError) as error:
        state({**MAMBA2, **change}, kind)
    one_line(error, *words)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_whatever_a_field_says_a_mixer_or_one_line_comes_out(data: st.DataObject) -> None:
    row = data.draw(st.sampled_from(COUNTED))
    fields = dict(row["fields"])
    for name in data.draw(st.lists(st.sampled_from(sorted(fields)), min_size=1, max_size=2)):
        fields[name] = data.draw(anything)
    kind = data.draw(st.sampled_from([row["kind"], "full", "window", "latent", "compressed", *KINDS]))
    said = ""
    try:
        mixer_of(fields, kind, row["layer"])
    except RooflensError as error:
        said = str(error)
    assert "\n" not in said
