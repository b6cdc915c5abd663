"""The parser: what fields mean, what is refused, and that nothing but a ModelArch or one clear line comes out."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rooflens.analyzer.arch import arch_from_config, find_model, known_models
from rooflens.analyzer.config_fields import SIZES
from rooflens.analyzer.hardware import find_hardware
from rooflens.analyzer.operators import works
from rooflens.analyzer.precision import choose_precision, precision_of
from rooflens.analyzer.work import resident_bytes
from rooflens.arch_records import Attention, DenseMLP, Layer, ModelArch
from rooflens.records import EngineInfo, RooflensError

LLAMA = {
    "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256, "hidden_act": "silu",
    "tie_word_embeddings": False, "torch_dtype": "bfloat16", "max_position_embeddings": 131072,
}  # fmt: skip
OPT = {
    "model_type": "opt", "hidden_size": 5120, "num_hidden_layers": 40, "num_attention_heads": 40,
    "ffn_dim": 20480, "vocab_size": 50272, "activation_function": "relu", "torch_dtype": "float16",
    "max_position_embeddings": 2048, "word_embed_proj_dim": 5120,
}  # fmt: skip
GPT2 = {
    "n_embd": 768,
    "n_layer": 12,
    "n_head": 12,
    "n_inner": None,
    "vocab_size": 50257,
    "activation_function": "gelu_new",
}
FALCON = {
    "hidden_size": 4544, "num_hidden_layers": 32, "num_attention_heads": 71, "num_kv_heads": 71, "multi_query": True,
    "new_decoder_architecture": False, "parallel_attn": True, "vocab_size": 65024, "torch_dtype": "bfloat16",
}  # fmt: skip


def parameters(arch: ModelArch) -> float:
    """Elements of all modelled matrices: at two bytes each, half of the resident bytes."""
    return resident_bytes(works(arch, choose_precision(arch, "bf16"))) / 2


def test_llama() -> None:
    arch = arch_from_config(LLAMA, "llama")
    assert arch.layers == (Layer(32, Attention(32, 8, 128, 128), DenseMLP(14336, gated=True), other_elements=2 * 4096),)
    assert (arch.tied_head, arch.activation_format, arch.max_context_tokens) == (False, "bf16", 131072)
    # Untied 2 x 128256 x 4096, and a layer of 4096 x (4096 + 2 x 1024) + 4096 x 4096 + 3 x 4096 x 14336, and 65 norms
    # of 4096: what the model's card says to the last one.
    assert parameters(arch) == 8_030_261_248


def test_plain_mlp_has_two_matrices_and_the_head_is_tied_by_default() -> None:
    arch = arch_from_config(OPT, "opt-13b")
    (layer,) = arch.layers
    assert (layer.count, layer.mixer, layer.mlp) == (40, Attention(40, 40, 128, 128), DenseMLP(20480, gated=False))
    assert (arch.tied_head, arch.activation_format) == (True, "fp16")
    assert parameters(arch) == pytest.approx(12.853e9, rel=1e-4)  # with 2050 learned positions and all biases


def test_gpt2_names_and_defaults() -> None:
    (layer,) = arch_from_config(GPT2).layers
    assert (layer.count, layer.mixer, layer.mlp) == (12, Attention(12, 12, 64, 64), DenseMLP(3072, gated=False))


def test_multi_query_overrides_falcons_meaningless_kv_heads() -> None:
    (layer,) = arch_from_config(FALCON).layers
    assert (layer.count, layer.mixer, layer.mlp) == (32, Attention(71, 1, 64, 64), DenseMLP(18176, gated=False))


def test_falcons_new_decoder_uses_its_kv_heads() -> None:
    config = {
        **FALCON,
        "hidden_size": 14848,
        "num_attention_heads": 232,
        "num_kv_heads": 8,
        "new_decoder_architecture": True,
    }
    assert arch_from_config(config).layers[0].mixer.kv_heads == 8


def test_explicit_head_dim_wins_over_hidden_by_heads() -> None:
    config = {
        **LLAMA,
        "hidden_size": 5120,
        "num_attention_heads": 32,
        "head_dim": 128,
    }  # Mistral Small: 32 x 128 = 4096
    assert arch_from_config(config).layers[0].mixer.head_dim == 128


def test_nested_language_model() -> None:
    text = {k: v for k, v in LLAMA.items() if k != "tie_word_embeddings"}
    config = {"model_type": "some_vl", "tie_word_embeddings": True, "text_config": text, "vision_config": {"depth": 24}}
    arch = arch_from_config(config)
    assert arch.tied_head
    assert arch.layers == arch_from_config(LLAMA).layers


def test_a_window_that_never_acts_is_full_attention() -> None:
    off = {**LLAMA, "sliding_window": 4096, "use_sliding_window": False, "max_window_layers": 28}
    wide = {**LLAMA, "sliding_window": 131072}
    assert arch_from_config(off).layers == arch_from_config(wide).layers == arch_from_config(LLAMA).layers
    assert arch_from_config({**LLAMA, "layer_types": ["full_attention"] * 32}).layers == arch_from_config(LLAMA).layers


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_local_experts": 8}, "8 experts and no num_experts_per_tok"),
        ({"num_local_experts": 8, "num_experts_per_tok": 9}, "a token cannot use 9"),
        ({"num_experts": 6, "num_experts_per_tok": 2, "n_group": 4, "topk_group": 2}, "6 experts in 4 groups"),
        ({"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 64}, "2 values for 32 layers"),
        ({"layer_types": ["sliding_attention"] * 31 + [7], "sliding_window": 64}, "has 7, not the name"),
        ({"hybrid_override_pattern": "M-M*"}, "4 letters for 32 layers"),
        ({"hybrid_override_pattern": "X" * 32}, "'X': not mamba, attention, mlp or moe"),
        ({"block_configs": [{"ffn": {}}] * 32}, "without its attention and ffn"),
        ({"num_kv_shared_layers": 32}, "none keeps its own"),
        ({"attn_layer_period": 4, "attn_layer_offset": 4, "mamba_d_state": 16}, "outside its period"),
        ({"attn_type_list": [2] * 32}, "attn_type_list has 2"),
        ({"tie_word_embeddings": 3}, "neither true nor false"),
        ({"model_type": []}, "not a name"),
        ({"num_experts": 8, "num_experts_per_tok": 2, "mlp_only_layers": [99]}, "names layer 99 of 32"),
    ],
)
def test_what_contradicts_itself_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(RooflensError, match=message):
        arch_from_config({**LLAMA, **changes})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_foo_experts": 8}, "config field 'num_foo_experts' is not understood and not counted"),
        ({"layer_types": ["warp_attention"] * 32}, "kind 'warp_attention' are not understood"),
        ({"word_embed_proj_dim": 512}, "the embedding is 512 wide and the layers 4096"),
        ({"audio_config": {"hidden_size": 1280}}, "audio_config says a tower"),
        ({"talking_config": {"hidden_size": 1280}}, "talking_config describes a part that is not counted"),
    ],
)
def test_what_is_not_understood_is_named(changes: dict[str, Any], words: str) -> None:
    arch = arch_from_config({**LLAMA, **changes})
    assert any(words in line for line in arch.unknown), arch.unknown
    assert arch_from_config(LLAMA).unknown == ()


@pytest.mark.parametrize(
    "field", ["hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size"]
)
@pytest.mark.parametrize("value", [None, 0, -1, 2.5, True, "4096", [], 10**30, float("nan")])
def test_missing_and_absurd_sizes_are_named(field: str, value: Any) -> None:
    with pytest.raises(RooflensError, match=field) as caught:
        arch_from_config({**LLAMA, field: value})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_key_value_heads": 5}, "not a multiple of its 5 KV heads"),
        ({"num_attention_heads": 24, "num_key_value_heads": 8}, "no head_dim and hidden_size 4096"),
        ({"hidden_act": "gelu", "model_type": "new"}, "mlp_gated"),
        ({"hidden_act": None, "model_type": None}, "mlp_gated"),
        ({"tie_word_embeddings": "no"}, "neither true nor false"),
        ({"torch_dtype": "int7"}, "torch_dtype"),
        ({"text_config": [1]}, "text_config is a list"),
        ({"quantization_config": []}, "quantization_config"),
        ({"quantization_config": {"quant_method": "aqlm"}}, "'aqlm' is not understood"),
    ],
)
def test_contradictions_are_one_line(change: dict[str, Any], message: str) -> None:
    with pytest.raises(RooflensError, match=message):
        arch_from_config({**LLAMA, **change})


@pytest.mark.parametrize("config", [None, [], "text", 7, float("nan"), [LLAMA], {}])
def test_not_a_config(config: Any) -> None:
    with pytest.raises(RooflensError):
        arch_from_config(config)


@pytest.mark.parametrize(
    "text", ["", "{", "[1, 2", "\x00", "NaN", "[" * 100_000, '{"hidden_size": ' + "9" * 5000 + "}"]
)
def test_not_json(tmp_path: Path, text: str) -> None:
    file = tmp_path / "config.json"
    file.write_text(text)
    with pytest.raises(RooflensError) as caught:
        find_model(str(file))
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_undecodable_and_missing_files(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    with pytest.raises(RooflensError, match="no such file"):
        find_model(str(file))
    file.write_bytes(b"\xff\xfe{}")
    with pytest.raises(RooflensError, match="cannot be read"):
        find_model(str(tmp_path))
    with pytest.raises(RooflensError, match=r"unknown model 'nobody/knows'"):
        find_model("nobody/knows")


def test_what_never_ends_or_is_far_too_long_is_not_read(tmp_path: Path) -> None:
    nobody_writes, huge = tmp_path / "pipe.json", tmp_path / "huge.json"
    os.mkfifo(nobody_writes)
    with huge.open("wb") as file:
        file.truncate(1 << 34)
    for path, why in (
        ("/dev/zero", "not a regular file"),
        (nobody_writes, "not a regular file"),
        (huge, "longer than"),
    ):
        with pytest.raises(RooflensError, match=rf"^[^\n]+: cannot be read as JSON: {why}[^\n]*$"):
            find_model(str(path))
    device = tmp_path / "device.toml"
    device.symlink_to("/dev/zero")
    with pytest.raises(RooflensError, match=r"cannot be read as a hardware TOML: not a regular file"):
        find_hardware(str(device))


SCALARS = st.none() | st.booleans() | st.integers(-(10**40), 10**40) | st.floats() | st.text(max_size=8)
VALUES = st.recursive(SCALARS, lambda v: st.lists(v, max_size=3) | st.dictionaries(st.text(max_size=8), v, max_size=3))
NAMES = st.sampled_from(
    [n for names, _ in SIZES.values() for n in names]
    + ["hidden_act", "model_type", "text_config", "quantization_config", "layer_types", "torch_dtype", "multi_query",
       "tie_word_embeddings", "sliding_window", "num_experts", "mlp_gated", "v_head_dim", "config_groups", "weights"]
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(VALUES | st.dictionaries(NAMES, VALUES))
def test_any_json_is_a_model_or_one_line(config: Any) -> None:
    model_or_one_line(config)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(NAMES, VALUES, max_size=3), st.dictionaries(NAMES, VALUES, max_size=3))
def test_any_change_of_a_good_config_is_a_model_or_one_line(
    change: dict[str, Any], quantization: dict[str, Any]
) -> None:
    model_or_one_line({**LLAMA, **change})
    model_or_one_line({**LLAMA, "quantization_config": quantization})


def model_or_one_line(config: Any) -> None:
    fault = ""
    try:
        choose_precision(arch_from_config(config))
    except RooflensError as error:
        fault = str(error)
    assert len(fault.splitlines()) <= 1
    assert len(fault) < 400


@pytest.mark.parametrize(
    ("quantization", "weights", "kv"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8", "bf16"),
        # compressed-tensors says W8A8 fp8 or W4A16 only in its groups: the method's name fixes nothing.
        ({"quant_method": "compressed-tensors", "ignore": ["lm_head"],
          "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "float"},
                                        "input_activations": {"num_bits": 8, "type": "float"}}}}, "fp8", "bf16"),
        ({"quant_method": "compressed-tensors", "kv_cache_scheme": {"num_bits": 8, "type": "float"},
          "config_groups": {"g": {"weights": {"num_bits": 4, "type": "int", "group_size": 32}}}}, "int4-g32", "fp8"),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, "int4", "bf16"),
        ({"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head", "model.embed_tokens"]}, "mxfp4", "bf16"),
        ({"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}, "nvfp4", "fp8"),
    ],
)  # fmt: skip
def test_quantisation_is_read_from_bits_and_groups(quantization: dict[str, Any], weights: str, kv: str) -> None:
    precision = choose_precision(arch_from_config({**LLAMA, "quantization_config": quantization}))
    assert (precision.weights, precision.kv, precision.head) == (weights, kv, "bf16")


def test_hf_quant_config_beside_the_config(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    (tmp_path / "hf_quant_config.json").write_text(json.dumps({"quantization": {"quant_algo": "FP8"}}))
    assert choose_precision(find_model(str(tmp_path))).weights == "fp8"
    assert choose_precision(find_model(str(tmp_path), read_quantization=False), "nvfp4").weights == "nvfp4"


def test_precision_of_an_engine() -> None:
    arch = arch_from_config(LLAMA)
    info = EngineInfo("i", "vllm", weight_dtype="bfloat16", quantization="fp8", kv_dtype="fp8_e4m3")
    assert (precision_of(info, arch).weights, precision_of(info, arch).kv) == ("fp8", "fp8")
    plain = EngineInfo("i", "numpy", weight_dtype="float32", kv_dtype="auto")
    assert (precision_of(plain, arch).weights, precision_of(plain, arch).kv) == ("fp32", "fp32")
    with pytest.raises(RooflensError, match="does not fix the size"):
        precision_of(EngineInfo("i", "vllm", quantization="compressed-tensors"), arch)


@pytest.mark.parametrize("row", known_models(), ids=lambda row: row["id"])
def test_every_shipped_model_parses_by_both_names(row: Any) -> None:
    assert row["source"]
    assert find_model(row["hf_id"]) == find_model(row["id"])


# Parameters as published, in units of 1e9; Falcon-7B's published 7.22 counts its tied head twice.
@pytest.mark.parametrize(
    ("model", "published"),
    [
        ("meta-llama-3-70b", 70.6), ("meta-llama-3.1-8b", 8.03), ("meta-llama-3.1-405b", 405.9), ("qwen3-8b", 8.2),
        ("qwen3-32b", 32.8), ("llama-2-7b-hf", 6.74), ("llama-3.2-1b", 1.24), ("opt-175b", 174.6), ("gpt3-175b", 175.0),
        ("falcon-7b", 6.92), ("falcon-180b", 179.5), ("palm-540b", 540.35), ("c4ai-command-r-v01", 34.98),
    ],
)  # fmt: skip
def test_published_sizes(model: str, published: float) -> None:
    assert parameters(find_model(model)) / 1e9 == pytest.approx(published, rel=0.01)
