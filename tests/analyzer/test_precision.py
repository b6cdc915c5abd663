"""The formats of groups: which modules a rule names, the shares that come of it, and what overrides it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from counted_calls import calls_of
from hypothesis import given, settings
from hypothesis import strategies as st

from rooflens.analyzer.arch import arch_from_config, find_model
from rooflens.analyzer.ggml_types import GGML_TYPES
from rooflens.analyzer.group_formats import placed_modules
from rooflens.analyzer.number_formats import KV_FORMATS, WEIGHT_FORMATS, indexer_key_bytes, latent_bytes, normalise
from rooflens.analyzer.operators import works
from rooflens.analyzer.precision import GROUPS, Precision, choose_precision, precision_of
from rooflens.analyzer.work import resident_bytes, stored_bytes
from rooflens.records import EngineInfo, RooflensError

CONFIGS = (Path(__file__).parent.parent / "data" / "configs").glob("*_config.json")
MODELS = sorted(path for path in CONFIGS if not path.name.endswith("_hf_quant_config.json"))
LLAMA = {
    "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 10, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256, "hidden_act": "silu",
    "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip
MOE = {
    "model_type": "qwen3_moe", "hidden_size": 2048, "num_hidden_layers": 10, "num_attention_heads": 32, "head_dim": 128,
    "num_key_value_heads": 4, "intermediate_size": 6144, "moe_intermediate_size": 768, "num_experts": 128,
    "num_experts_per_tok": 8, "vocab_size": 151936, "hidden_act": "silu", "tie_word_embeddings": False,
    "torch_dtype": "bfloat16", "decoder_sparse_step": 1, "mlp_only_layers": [],
}  # fmt: skip
DEEPSEEK = {
    "model_type": "deepseek_v3", "hidden_size": 7168, "num_hidden_layers": 61, "num_attention_heads": 128,
    "num_key_value_heads": 128, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64, "v_head_dim": 128, "intermediate_size": 18432, "moe_intermediate_size": 2048,
    "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 3,
    "n_group": 8, "topk_group": 4, "vocab_size": 129280, "hidden_act": "silu", "tie_word_embeddings": False,
    "torch_dtype": "bfloat16", "moe_layer_freq": 1, "num_nextn_predict_layers": 1,
}  # fmt: skip
QWEN_NEXT = {
    "model_type": "qwen3_next", "hidden_size": 2048, "num_hidden_layers": 8, "num_attention_heads": 16,
    "num_key_value_heads": 2, "head_dim": 256, "intermediate_size": 5120, "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512, "num_experts": 512, "num_experts_per_tok": 10, "vocab_size": 151936,
    "full_attention_interval": 4, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_num_key_heads": 16,
    "linear_num_value_heads": 32, "linear_value_head_dim": 128, "hidden_act": "silu", "tie_word_embeddings": False,
    "torch_dtype": "bfloat16", "decoder_sparse_step": 1, "mlp_only_layers": [],
}  # fmt: skip
BF16 = [(1.0, "bf16")]


def chosen(config: dict[str, Any], quantization: dict[str, Any]) -> Precision:
    return choose_precision(arch_from_config({**config, "quantization_config": quantization}))


def shares(precision: Precision, group: str) -> list[tuple[float, str]]:
    return [(pytest.approx(part.share, abs=1e-4), part.name) for part in precision.parts(group)]


def int4(ignore: list[str]) -> dict[str, Any]:
    """The words in which Kimi-K2.5's experts are described: W4A16 in groups of 32."""
    weights = {"num_bits": 4, "type": "int", "group_size": 32, "strategy": "group", "symmetric": True}
    groups = {"group_0": {"targets": ["Linear"], "weights": weights, "input_activations": None}}
    return {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": groups, "ignore": ignore}


def test_gpt_oss_keeps_everything_but_experts_at_16_bit() -> None:
    words = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]
    found = chosen(MOE, {"quant_method": "mxfp4", "modules_to_not_convert": words})
    assert shares(found, "experts") == [(1, "mxfp4")]
    assert all(shares(found, group) == BF16 for group in ("attention", "router", "embedding", "head"))
    # Bytes of it all: 10 x 128 x 3 x 2048 x 768 = 6,039,797,760 at 17 / 32, and at two bytes 10 layers of attention,
    # 2048 x (4096 + 2 x 512) + 4096 x 2048 = 18,874,368, a router of 2048 x 128, and 2 x 151936 x 2048 around them.
    arch = arch_from_config({**MOE, "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": words}})
    plain = 2 * (10 * (18_874_368 + 262_144) + 2 * 151_936 * 2048)
    small = resident_bytes(
        row for row in works(arch, choose_precision(arch, "bf16")) if row.operator == "other_weights"
    )
    assert resident_bytes(works(arch, found)) == pytest.approx(6_039_797_760 * 17 / 32 + plain + small, rel=2e-5)


def test_kimi_leaves_all_but_routed_experts_alone_by_regular_expressions() -> None:
    words = ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*", r"re:.*mlp\.(gate|up|gate_up|down)_proj.*"]
    found = chosen(DEEPSEEK, int4(words))
    assert shares(found, "experts") == [(1, "int4-g32")]
    assert all(shares(found, group) == BF16 for group in ("attention", "mlp", "shared_experts", "head"))
    assert found.parts("experts")[0].bytes_per_element == 0.5625
    assert found.parts("experts")[0].compute == ("bf16", "fp16")  # weight-only: the products are 16-bit ones


def test_first_and_last_layers_left_alone_are_shares() -> None:
    # Llama 3.1 405B's fbgemm file: attention everywhere, and the MLPs of the first and the last layer.
    mlp = [f"model.layers.{n}.mlp.{m}_proj" for n in (0, 9) for m in ("gate", "up", "down")]
    attention = [f"model.layers.{n}.self_attn.{m}_proj" for n in range(10) for m in "qkvo"]
    found = chosen(LLAMA, {"quant_method": "fbgemm_fp8", "modules_to_not_convert": [*mlp, *attention, "lm_head"]})
    assert shares(found, "mlp") == [(0.8, "fp8"), (0.2, "bf16")]
    assert shares(found, "attention") == BF16
    # A scale of 4 bytes for each output row, which has 4096 elements in gate and up and 14336 in down.
    assert found.parts("mlp")[0].bytes_per_element == pytest.approx(1 + 4 * (2 / 4096 + 1 / 14336) / 3)


@pytest.mark.parametrize(
    ("pattern", "named"),
    [
        ("self_attn", {"attention"}),
        ("model.layers.3.self_attn", {"attention"}),
        ("model.language_model.layers.3.self_attn*", {"attention"}),
        ("language_model.model.layers.3.*", {"attention", "experts", "router"}),
        ("model.layers.3*", {"attention", "experts", "router"}),
        (r"re:model\.layers\.3\.self_attn\..*", {"attention"}),
        (r"re:^language_model\.model\.layers\.(3|4)\.mlp\.experts.*", {"experts"}),
        ("re:.*mlp.gate$", {"router"}),
        ("gate", {"router"}),  # and not gate_proj
        ("*mlp.gate.*", {"router"}),
        ("*.experts.*", {"experts"}),
        ("model.layers.3.mlp.experts.17.down_proj", {"experts"}),  # one expert stands for all of them
        ("block_sparse_moe.experts", {"experts"}),
        ("Qwen3MoeAttention", {"attention"}),
        ("lm_head", {"head"}),
        ("re:.*lm_head", {"head"}),
        ("model.embed_tokens", {"embedding"}),
        ("*", {"attention", "experts", "router", "embedding", "head"}),
        ("visual", set()),
        ("model.visual.blocks.3.attn.qkv", set()),
        ("re:vision_tower.*layers.3.self_attn.*", set()),
        ("mtp.layers.3.self_attn", set()),
        ("model.layers.13.self_attn", set()),
        ("model.layers.3.input_layernorm", set()),
        ("nothing.of.this.kind", set()),
    ],
)  # fmt: skip
def test_which_groups_a_pattern_names(pattern: str, named: set[str]) -> None:
    scheme = {"targets": [pattern], "weights": {"num_bits": 8, "type": "int"}, "input_activations": None}
    found = chosen(MOE, {"quant_method": "compressed-tensors", "config_groups": {"g": scheme}})
    groups = ("attention", "experts", "router", "embedding", "head")
    assert {g for g in groups if any(part.name != "bf16" for part in found.parts(g))} == named


def test_an_ignored_gate_is_not_the_gate_projection() -> None:
    # MiniMax-M2: a substring would leave all of gate_proj unquantised.
    found = chosen(
        MOE, {"quant_method": "fp8", "modules_to_not_convert": ["gate", "e_score_correction_bias", "lm_head"]}
    )
    assert shares(found, "experts") == [(1, "fp8")]
    assert shares(found, "router") == BF16


def test_linear_attention_is_told_from_self_attention() -> None:
    found = chosen(QWEN_NEXT, {"quant_method": "fp8", "modules_to_not_convert": ["re:.*self_attn.*"]})
    assert shares(found, "attention") == BF16
    assert shares(found, "state") == [(1, "fp8")]
    found = chosen(QWEN_NEXT, {"quant_method": "fp8", "modules_to_not_convert": ["linear_attn"]})
    assert shares(found, "state") == BF16
    assert shares(found, "attention") == [(1, "fp8")]


@pytest.mark.parametrize("pattern", ["model.layers.61*", "model.layers.61", "mtp.*", "mtp.0.*", "mtp"])
def test_layers_of_prediction_have_two_kinds_of_names(pattern: str) -> None:
    found = chosen(DEEPSEEK, {"quant_algo": "NVFP4", "exclude_modules": [pattern]})
    assert shares(found, "mtp") == BF16
    assert shares(found, "experts") == [(1, "nvfp4")]


def test_several_schemes_in_one_file() -> None:
    eight = {"targets": ["re:.*self_attn.*"], "weights": {"num_bits": 8, "type": "float"},
             "input_activations": {"num_bits": 8, "type": "float"}}  # fmt: skip
    four = {"targets": ["re:.*mlp.*"], "weights": {"num_bits": 4, "type": "float", "group_size": 16},
            "input_activations": {"num_bits": 4, "type": "float"}}  # fmt: skip
    found = chosen(LLAMA, {"quant_method": "compressed-tensors", "config_groups": {"a": eight, "b": four}})
    assert (shares(found, "attention"), shares(found, "mlp")) == ([(1, "fp8")], [(1, "nvfp4")])


def test_mixed_precision_lists_each_layer() -> None:
    # modelopt's MIXED_PRECISION: experts one by one, what is not listed stays at 16 bit.
    listed = {f"model.layers.{n}.mlp.experts.{e}.{m}_proj": {"quant_algo": "NVFP4", "group_size": 16}
              for n in range(8) for e in range(128) for m in ("gate", "up", "down")}  # fmt: skip
    listed |= {f"model.layers.{n}.self_attn.o_proj": {"quant_algo": "FP8"} for n in range(10)}
    found = chosen(MOE, {"quant_algo": "MIXED_PRECISION", "quantized_layers": listed})
    assert shares(found, "experts") == [(0.8, "nvfp4"), (0.2, "bf16")]
    # o_proj has 4096 x 2048 of the 18,874,368 elements of a layer's attention.
    assert shares(found, "attention") == [(1 - 8_388_608 / 18_874_368, "bf16"), (8_388_608 / 18_874_368, "fp8")]


def test_gptq_models_dynamic_rules() -> None:
    rules = {r"-:.*\.self_attn\..*": {}, r"+:.*\.down_proj": {"bits": 8, "group_size": 32}}
    found = chosen(LLAMA, {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True, "dynamic": rules})
    assert shares(found, "attention") == BF16
    assert shares(found, "mlp") == [(2 / 3, "int4"), (1 / 3, "int8-weights")]


def test_deepseek_v4s_experts_are_fp4_where_its_config_says_so() -> None:
    for dtype, name, size in (("fp4", "mxfp4", 17 / 32), ("mxfp4", "mxfp4", 17 / 32), ("nvfp4", "nvfp4", 9 / 16)):
        found = chosen({**DEEPSEEK, "expert_dtype": dtype}, {"quant_method": "fp8", "weight_block_size": [128, 128]})
        assert (shares(found, "experts"), shares(found, "attention")) == ([(1, name)], [(1, "fp8")])
        assert found.parts("experts")[0].bytes_per_element == size


def test_an_override_is_the_format_of_every_linear_layer() -> None:
    arch = arch_from_config({**MOE, "quantization_config": {"quant_method": "fp8"}})
    found = choose_precision(arch, "nvfp4", "fp8")
    assert (found.weights, found.kv, found.groups) == ("nvfp4", "fp8", {})
    assert (shares(found, "experts"), shares(found, "router")) == ([(1, "nvfp4")], BF16)
    with pytest.raises(RooflensError, match="unknown weight format 'int1'"):
        choose_precision(arch, "int1")
    with pytest.raises(RooflensError, match="unknown KV format"):
        choose_precision(arch, None, "int1")


@pytest.mark.parametrize("name", ["q4_k_m", "q8_0", "iq4_xs"])
def test_a_gguf_format_by_name_is_that_of_embedding_and_head_too(name: str) -> None:
    arch = arch_from_config(MOE)
    found, stated = choose_precision(arch, name), precision_of(EngineInfo("i", "llama.cpp", quantization=name), arch)
    assert found == stated
    assert (found.weights, found.head, found.activations) == (name, name, "bf16")
    assert shares(found, "head") == shares(found, "embedding") == [(1, name)]
    assert shares(found, "router") == BF16
    assert [f"they are taken at {name}" in note for note in found.notes] == [True]
    # The head of 16 bit would be the largest part that a strict floor may not count.
    assert found.parts("head")[0].bytes_per_element == WEIGHT_FORMATS[name].bytes_per_element < 2
    for other in ("fp8", "int4", "mxfp4", "nvfp4"):
        wide = choose_precision(arch, other)
        assert (wide.head, wide.notes) == ("bf16", ())


@pytest.mark.parametrize(
    ("method", "experts", "attention"),
    [
        ("fp8", "fp8", "fp8"), ("mxfp4", "mxfp4", "bf16"), ("experts_int8", "int8-weights", "bf16"),
        ("modelopt_fp4", "nvfp4", "nvfp4"), ("ptpc_fp8", "fp8", "fp8"), ("q4_k_m", "q4_k_m", "q4_k_m"),
        ("w8a8_int8", "int8", "int8"), ("gpt_oss_mxfp4", "mxfp4", "bf16"),
    ],
)  # fmt: skip
def test_an_engines_method_where_the_files_state_none(method: str, experts: str, attention: str) -> None:
    found = precision_of(EngineInfo("i", "vllm", quantization=method, weight_dtype="bfloat16"), arch_from_config(MOE))
    assert (shares(found, "experts"), shares(found, "attention")) == ([(1, experts)], [(1, attention)])


def test_an_engine_says_the_format_of_its_states() -> None:
    """Qwen3-Next's config names none, so bf16; a CPU's vLLM keeps them in fp32: two bytes more for each element."""
    arch = find_model("qwen3-next-80b-a3b-instruct")
    kept = {}
    for said in (None, "bfloat16", "float32", "nonsense"):
        found = precision_of(EngineInfo("i", "vllm", weight_dtype="bfloat16", state_dtype=said), arch)
        kept[said] = stored_bytes([row for row in works(arch, found) if row.operator == "state"], {"requests": 1.0})
    elements = sum(layer.count * getattr(layer.mixer, "state_elements", 0) for layer in arch.layers)
    assert elements == 36 * 32 * 128 * 128
    assert kept["float32"] - kept["bfloat16"] == 2 * elements
    assert kept[None] == kept["nonsense"] == kept["bfloat16"]


def test_the_files_win_over_an_engines_method() -> None:
    arch = arch_from_config({**MOE, "quantization_config": {"quant_method": "mxfp4"}})
    found = precision_of(EngineInfo("i", "vllm", quantization="compressed-tensors", kv_dtype="fp8_e4m3"), arch)
    assert (shares(found, "experts"), found.kv) == ([(1, "mxfp4")], "fp8")


def test_an_engine_keeps_index_keys_in_fp8_whatever_its_cache_is_in() -> None:
    indexed = arch_from_config({**DEEPSEEK, "index_topk": 2048, "index_n_heads": 64, "index_head_dim": 128})
    for kv, keys in (("auto", "fp8"), ("bfloat16", "fp8"), ("fp8", None)):
        assert precision_of(EngineInfo("i", "vllm", kv_dtype=kv), indexed).indexer_keys == keys
    assert precision_of(EngineInfo("i", "vllm"), arch_from_config(DEEPSEEK)).indexer_keys is None


# Bytes an element, bits / 8 + bytes of scale / group: llama.cpp's block structures, and the usual group sizes.
SIZES = {
    "fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "int8": 1, "fp8-weights": 1, "int8-weights": 1,
    "nvfp4": 0.5 + 1 / 16, "nvfp4-weights": 0.5 + 1 / 16, "nvfp4-fp8": 0.5 + 1 / 16, "mxfp4": 0.5 + 1 / 32,
    "mxfp4-weights": 0.5 + 1 / 32, "mxfp4-fp8": 0.5 + 1 / 32, "mxfp6": 0.75 + 1 / 32, "mxfp8": 1 + 1 / 32,
    "int4": 0.5 + 2 / 128, "int4-g64": 0.5 + 2 / 64, "int4-g32": 0.5 + 2 / 32, "int4-fp8": 0.5 + 2 / 128,
    "int4-int8": 0.5 + 2 / 128, "int2": 0.25 + 2 / 128, "int3": 0.375 + 2 / 128, "int6": 0.75 + 2 / 128,
    "nf4": 0.5 + 4 / 64, "q8_0": 34 / 32, "q4_0": 18 / 32, "q4_k": 144 / 256, "q5_k": 176 / 256, "q6_k": 210 / 256,
    "q2_k": 84 / 256, "iq4_xs": 136 / 256, "iq1_s": 50 / 256, "q4_k_m": 4.83 / 8,
}  # fmt: skip


def test_bytes_of_a_cached_element() -> None:
    found = {name: form.bytes_per_element for name, form in KV_FORMATS.items()}
    one = ("fp8", "int8", "fp8-head", "int8-head", "fp8_ds_mla")
    expected = {"fp32": 4, "bf16": 2, "fp16": 2, "nvfp4": 0.5625, "q8_0": 34 / 32, "q4_0": 18 / 32}
    assert found == {**expected, **dict.fromkeys(one, 1)}


@pytest.mark.parametrize(("name", "size"), SIZES.items())
def test_bytes_of_an_element(name: str, size: float) -> None:
    assert WEIGHT_FORMATS[name].bytes_per_element == pytest.approx(size)


def test_ggml_types_are_those_of_the_gguf_package() -> None:
    constants = pytest.importorskip("gguf.constants")
    theirs = {int(kind): sizes for kind, sizes in constants.GGML_QUANT_SIZES.items()}
    assert {n: (t.block_elements, t.block_bytes) for n, t in GGML_TYPES.items() if n in theirs} == {
        n: sizes for n, sizes in theirs.items() if n in GGML_TYPES
    }
    assert {0, 1, 2, 8, 12, 14, 30, 39} <= set(theirs)


@pytest.mark.parametrize("name", WEIGHT_FORMATS)
def test_what_is_only_narrow_in_memory_multiplies_in_16_bit(name: str) -> None:
    compute = WEIGHT_FORMATS[name].compute
    assert normalise(name.upper()) == name
    if (name.startswith("int") and "-" not in name and name != "int8") or name.endswith("-weights") or name == "nf4":
        assert compute == ("bf16", "fp16")
    assert compute[-1] in ("bf16", "fp16", "tf32")


def test_cached_latents_and_index_keys() -> None:
    assert latent_bytes("bf16", 512, 64) == 1152
    assert latent_bytes("fp8", 512, 64) == 576
    assert latent_bytes("fp8_ds_mla", 512, 64) == 656  # 512 + 4 x 4 of scales + 64 x 2
    assert latent_bytes("fp8_ds_mla", 448, 64) == 584  # DeepSeek V4: 448 + 7 scales in 8 bytes + 128
    assert (indexer_key_bytes("bf16", 128), indexer_key_bytes("fp8", 128)) == (256, 132)


def test_a_scale_for_each_token_and_head_is_four_bytes() -> None:
    # 2 x 8 heads x (128 + 4) bytes in each of 10 layers.
    arch = arch_from_config(LLAMA)
    rows = works(arch, choose_precision(arch, None, "fp8_per_token_head"))
    values = {name: 0.0 for row in rows for name in row.stored_bytes} | {"context_tokens": 1.0}
    assert stored_bytes(rows, values) == 10 * 2 * 8 * 132
    assert KV_FORMATS["fp8"].head_bytes == 0


@pytest.mark.parametrize("pattern", ["re:(a{64}){64}{64}", "re:(?=a)", "re:(", "re:[z-a]"])
def test_patterns_that_are_not_understood_are_refused(pattern: str) -> None:
    with pytest.raises(RooflensError, match="names modules by"):
        chosen(LLAMA, {"quant_method": "fp8", "ignored_layers": [pattern]})


def test_a_long_list_takes_a_moment() -> None:
    words = [f"model.layers.{n}.mlp.experts.{e}.{m}_proj" for n in range(60) for e in range(256) for m in "abc"]
    made = calls_of(lambda: chosen(DEEPSEEK, {"quant_method": "fp8", "ignored_layers": words}))
    assert made < 200 * len(words)  # each is compared with few others


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.name[:-12])
def test_the_modules_that_rules_name_are_the_weights_that_operators_count(path: Path) -> None:
    arch = arch_from_config(json.loads(path.read_text()))
    named = sum(module.elements for module, place in placed_modules(arch) if place.mtp is None)
    tied = arch.vocab_size * arch.hidden_size if arch.tied_head else 0  # one matrix, read as two
    rows = works(arch, choose_precision(arch, "bf16"))
    counted = sum(row.elements for row in rows if row.operator != "vision")
    assert named - tied == pytest.approx(counted, rel=1e-3)


SIMPLE = st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats() | st.text(max_size=12)
WORDS = st.sampled_from(
    ["quant_method", "quant_algo", "config_groups", "weights", "input_activations", "num_bits", "type", "group_size",
     "strategy", "targets", "ignore", "exclude_modules", "quantized_layers", "kv_cache_scheme", "kv_cache_quant_algo",
     "weight_block_size", "bits", "dynamic", "extra_config", "quant_type", "_type", "_data", "module_fqn_to_config",
     "quant_config", "weight_quant_params", "global_quant_config", "weight", "dtype", "quantization", "sparsity_config",
     "kv_cache_quant_config", "output_tensors", "layer_quant_config", "default"]
)  # fmt: skip
TEXTS = st.sampled_from(
    ["fp8", "awq", "gptq", "modelopt", "compressed-tensors", "torchao", "quark", "hqq", "bitsandbytes", "auto-round",
     "mxfp4", "quanto", "MIXED_PRECISION", "NVFP4", "int", "float", "Linear", "re:.*", "re:[", "*", "model.layers.0*",
     "fp8_e4m3", "per_group", "int4_weight_only", "mtp", "layers.99999999999999999999.x", "a.b.c", "."]
)  # fmt: skip
VALUES = st.recursive(
    SIMPLE | TEXTS, lambda v: st.lists(v, max_size=4) | st.dictionaries(WORDS | TEXTS, v, max_size=5), max_leaves=12
)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(WORDS, VALUES, max_size=6), TEXTS)
def test_any_quantisation_is_shares_or_one_line(stated: dict[str, Any], method: str) -> None:
    fault, found = "", choose_precision(arch_from_config(MOE))
    try:
        found = chosen(MOE, {"quant_method": method, **stated})
    except RooflensError as error:
        fault = str(error)
    assert len(fault.splitlines()) <= 1
    assert len(fault) < 400
    for group in GROUPS:
        parts = found.parts(group)
        assert sum(part.share for part in parts) == pytest.approx(1)
        assert all(0 < part.bytes_per_element < 9 and part.compute for part in parts)
