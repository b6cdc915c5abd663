"""How engines and files spell formats and methods, and which units multiply each format."""

from __future__ import annotations

from typing import Any

import pytest

from rooflens.analyzer.hardware import fastest, find_hardware, known_hardware
from rooflens.analyzer.number_formats import KV_FORMATS, WEIGHT_FORMATS, indexer_key_bytes, latent_bytes, normalise
from rooflens.analyzer.quantization import quantization_of
from rooflens.arch_records import StoredFormat
from rooflens.records import RooflensError

SPELLED = {
    "fp32": "float32 float f32",
    "bf16": "bfloat16 torch.bfloat16 BFloat16",
    "fp16": "float16 half f16 torch.float16",
    "fp8": (
        "fp8_e4m3 fp8_e5m2 fp8_inc float8_e4m3fn float8_e5m2 torch.float8_e4m3fn fp8_per_tensor fp8_per_block "
        "deepseek_v4_fp8 w8a8_fp8 fbgemm_fp8 ptpc_fp8"
    ),
    "fp8-head": "fp8_per_token_head",
    "int8": "w8a8_int8",
    "int8-head": "int8_per_token_head",
    "int8-weights": "int8_per_channel_weight_only tpu_int8 eetq",
    "nvfp4": "modelopt_fp4 fp4_e2m1",
    "nvfp4-weights": "petit_nvfp4",
    "mxfp4": "gpt_oss_mxfp4",
    "mxfp8": "modelopt_mxfp8",
    "int4-fp8": "w4afp8",
    "int4-int8": "qqq",
}


@pytest.mark.parametrize(("name", "words"), SPELLED.items())
def test_spellings_of_engines(name: str, words: str) -> None:
    assert {normalise(word) for word in words.split()} == {name}
    assert normalise(f"  {name.upper()} ") == name
    assert name in WEIGHT_FORMATS or name in KV_FORMATS


# What multiplies: a format's own units, else the next wider ones that it fits into.
OWN_UNITS = {
    "fp32": ("fp32", "tf32"), "bf16": ("bf16",), "fp16": ("fp16",), "fp8": ("fp8", "bf16"), "int8": ("int8", "bf16"),
    "nvfp4": ("nvfp4", "fp8", "bf16"), "mxfp4": ("mxfp4", "fp8", "bf16"), "mxfp6": ("fp6", "fp8", "bf16"),
    "mxfp8": ("mxfp8", "fp8", "bf16"), "int4-fp8": ("fp8", "bf16"), "nvfp4-fp8": ("fp8", "bf16"),
    "mxfp4-fp8": ("fp8", "bf16"), "int4-int8": ("int8", "bf16"), "q4_k_m": ("int8", "fp16", "bf16"),
    "q8_0": ("int8", "fp16", "bf16"),
}  # fmt: skip


@pytest.mark.parametrize(("name", "units"), OWN_UNITS.items())
def test_units_of_a_format(name: str, units: tuple[str, ...]) -> None:
    assert WEIGHT_FORMATS[name].compute == units
    if name in KV_FORMATS:
        assert KV_FORMATS[name].compute == units


def test_units_are_those_that_devices_state() -> None:
    stated = {unit for device in known_hardware().values() for unit in device.ceiling_flops_per_s}
    named = {unit for kind in (*WEIGHT_FORMATS.values(), *KV_FORMATS.values()) for unit in kind.compute}
    assert named - stated == {"mxfp8"}  # runs on the units of fp8, which it names next
    # AMD's CDNA 4 multiplies 6-bit floats as fast as 4-bit ones, twice as fast as 8-bit ones.
    assert fastest(find_hardware("mi355x"), WEIGHT_FORMATS["mxfp6"].compute) == "fp6"


def test_a_cache_adds_scales_to_a_head_only_where_each_token_has_its_own() -> None:
    assert {name: kind.head_bytes for name, kind in KV_FORMATS.items() if kind.head_bytes} == {
        "fp8-head": 4.0,
        "int8-head": 4.0,
    }
    assert not any(kind.head_bytes for kind in WEIGHT_FORMATS.values())
    # A latent is one head: 512 + 64 bytes and a scale.
    assert latent_bytes("int8-head", 512, 64) == 580
    assert [KV_FORMATS[name].compute for name in ("fp8-head", "fp8_ds_mla", "int8-head")] == [
        ("fp8", "bf16"),
        ("fp8", "bf16"),
        ("int8", "bf16"),
    ]


@pytest.mark.parametrize(
    ("rank", "rope", "size"),
    # A rank of 128s has 4 bytes for each; any other one byte for 64, all of them in steps of 8.
    [(128, 64, 128 + 4 + 128), (1024, 32, 1024 + 32 + 64), (64, 64, 64 + 8 + 128), (448, 0, 456),
     (576, 64, 576 + 16 + 128)],
)  # fmt: skip
def test_records_of_sparse_latents(rank: int, rope: int, size: int) -> None:
    assert latent_bytes("fp8_ds_mla", rank, rope) == size


def test_index_keys_beside_any_cache() -> None:
    assert [indexer_key_bytes("fp32", 128), indexer_key_bytes("q8_0", 128)] == [512, 136]
    # One scale of 4 bytes for each 128 begun.
    assert [indexer_key_bytes("int8", size) for size in (64, 128, 129, 256)] == [68, 132, 137, 264]
    assert indexer_key_bytes("nvfp4", 128) == 132


GROUPED = {"bits": 4, "group_size": 64, "sym": True, "zero_point": False}
SAME = {
    "awq": [({**GROUPED, "quant_method": name}) for name in ("awq", "awq_marlin", "AWQ")],
    "gptq": [
        ({**GROUPED, "quant_method": name})
        for name in ("gptq", "gptq_marlin", "auto_gptq", "gptq_bitblas", "moe_wna16")
    ],
    "auto-round": [
        {**GROUPED, "quant_method": name} for name in ("auto-round", "auto_round", "intel/auto-round", "inc")
    ],
    "modelopt": [
        {"quant_method": name, "quant_algo": "FP8"}
        for name in ("modelopt", "modelopt_fp4", "modelopt_fp8", "modelopt_mixed", "")
    ],
    "compressed-tensors": [
        {"quant_method": name, "config_groups": {"g": {"weights": {"num_bits": 8, "type": "float"}}}}
        for name in ("compressed-tensors", "compressed_tensors")
    ],
    "fp8": [{"quant_method": name} for name in ("fp8", "deepseek_v4_fp8")],
    "mxfp4": [{"quant_method": name} for name in ("mxfp4", "gpt_oss_mxfp4")],
    "bitsandbytes": [{"quant_method": name, "load_in_8bit": True} for name in ("bitsandbytes", "bnb")],
}  # fmt: skip


@pytest.mark.parametrize("method", SAME)
def test_methods_of_several_names(method: str) -> None:
    found = [quantization_of(stated, {}) for stated in SAME[method]]
    assert [one.method for one in found] == [method] * len(found)
    assert all(one == found[0] for one in found)


@pytest.mark.parametrize(("dtype", "name", "size"), [("fp4", "mxfp4", 17 / 32), ("MXFP4", "mxfp4", 17 / 32),
                                                     ("nvfp4", "nvfp4", 9 / 16)])  # fmt: skip
def test_experts_of_their_own_format(dtype: str, name: str, size: float) -> None:
    (rule,) = quantization_of({"quant_method": "fp8"}, {"expert_dtype": dtype}).rules
    assert (rule.pattern, rule.stored) == ("experts", StoredFormat(name, size))
    # Any other method says itself what its experts are.
    assert quantization_of({**GROUPED, "quant_method": "awq"}, {"expert_dtype": dtype}).rules == ()
    assert quantization_of({"quant_method": "fp8"}, {"expert_dtype": "fp8"}).rules == ()
    assert quantization_of({"quant_method": "fp8"}, {}).rules == ()


@pytest.mark.parametrize(
    ("stated", "kv"),
    [
        ({"kv_cache_dtype": "fp8_e4m3"}, "fp8"),
        ({"kv_cache_scheme": "FP8"}, "fp8"),
        ({"kv_cache_scheme": {"num_bits": 8}}, "fp8"),
        ({"kv_cache_scheme": {"num_bits": 8, "type": "INT"}}, "int8"),
        *(({"kv_cache_quant_algo": word}, None) for word in ("", "none", "auto", "NO_QUANT")),
        ({"kv_cache_quant_config": {"*v_proj": {"weight": None}, "*k_proj": {"output_tensors": {"dtype": "int8"}}}},
         "int8"),
        ({"kv_cache_quant_config": {"*v_proj": "fp8"}}, None),
        ({"kv_cache_quant_config": ["fp8"]}, None),
    ],
)  # fmt: skip
def test_words_for_the_cache(stated: dict[str, Any], kv: str | None) -> None:
    assert quantization_of({"quant_method": "fp8", **stated}, {}).kv == kv


@pytest.mark.parametrize(
    ("stated", "named"),
    [
        ({"kv_cache_scheme": {"num_bits": 4, "type": "int"}}, "kv_cache_scheme"),
        ({"kv_cache_quant_config": {"k": {"output_tensors": {"dtype": "int3"}}}}, "kv_cache_quant_config"),
        ({"sparsity_config": {"format": "marlin-24"}}, "sparse"),
    ],
)
def test_words_that_are_not_understood(stated: dict[str, Any], named: str) -> None:
    with pytest.raises(RooflensError, match=named):
        quantization_of({"quant_method": "fp8", **stated}, {})
    assert quantization_of({"quant_method": "fp8", "sparsity_config": {"format": "dense"}}, {}).kv is None
    assert quantization_of({"quantization": {"quant_method": "fp8"}}, {}).method == "fp8"
