"""What files state of formats: every published config, group by group, and every method's own words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rooflens.analyzer.arch import arch_from_config, find_model
from rooflens.analyzer.number_formats import WEIGHT_FORMATS
from rooflens.analyzer.precision import GROUPS, Precision, choose_precision
from rooflens.analyzer.quantization import quantization_of
from rooflens.arch_records import Quantization, StoredFormat
from rooflens.records import RooflensError

CONFIGS = Path(__file__).parent.parent / "data" / "configs"
BLOCK = 1 + 4 / (128 * 128)  # fp8 with an fp32 scale for 128 x 128: 1.000244
BLOCK_E8M0 = 1 + 1 / (128 * 128)  # with a one-byte scale: 1.000061
NVFP4, MXFP4 = 0.5 + 1 / 16, 0.5 + 1 / 32
# Its file names 22,422 modules one by one, 3 MB; the shipped table says the same of it in patterns.
IN_THE_TABLE = "nvidia--MiniMax-M3-NVFP4"


def of_file(name: str) -> Precision:
    """The formats of a published config, with the hf_quant_config.json that stood beside it."""
    if name == IN_THE_TABLE:
        return choose_precision(find_model(name.replace("--", "/")))
    config = json.loads((CONFIGS / f"{name}_config.json").read_text())
    beside = CONFIGS / f"{name}_hf_quant_config.json"
    if "quantization_config" not in config and beside.exists():
        config["quantization_config"] = json.loads(beside.read_text())["quantization"]
    return choose_precision(arch_from_config(config, name))


ALL = sorted(path.name.removesuffix("_config.json") for path in CONFIGS.glob("*_config.json"))
ALL = [*(name for name in ALL if not name.endswith("_hf_quant")), IN_THE_TABLE]
FP8 = {"attention": [(1, "fp8", BLOCK)], "experts": [(1, "fp8", BLOCK)], "router": [(1, "bf16", 2)]}
V3 = {**FP8, "mlp": [(1, "fp8", BLOCK)], "shared_experts": [(1, "fp8", BLOCK)], "head": [(1, "bf16", 2)]}
GLM = {**V3, "indexer": [(0.979, "fp8", BLOCK), (0.021, "bf16", 2)]}  # 32 of 1536 weighing columns: weights_proj
V4 = {
    "attention": [(0.9648, "fp8", BLOCK_E8M0), (0.0352, "bf16", 2)],  # the compressor stays above 8 bit
    "experts": [(1, "mxfp4", MXFP4)], "shared_experts": [(1, "fp8", BLOCK_E8M0)], "head": [(1, "bf16", 2)],
}  # fmt: skip
EXPERTS_ALONE = {"attention": [(1, "bf16", 2)], "experts": [(1, "nvfp4", NVFP4)], "shared_experts": [(1, "bf16", 2)]}
# What each published file leaves each group at: (share of elements, format, bytes an element).
GOLDEN: dict[str, dict[str, list[tuple[float, str, float]]]] = {
    "MiniMaxAI--MiniMax-M2.5": FP8,
    "MiniMaxAI--MiniMax-M2.7": FP8,
    "XiaomiMiMo--MiMo-V2-Flash": {**FP8, "mlp": [(1, "fp8", BLOCK)]},
    "deepseek-ai--DeepSeek-R1": V3,
    "deepseek-ai--DeepSeek-V3": V3,
    "deepseek-ai--DeepSeek-V4-Pro": V4,
    "deepseek-ai--DeepSeek-V4-Flash": {group: parts for group, parts in V4.items() if group != "attention"},
    # The output projection alone is quantised in attention: 7168 x 16384 of 187.1 million elements.
    "nvidia--DeepSeek-V3.2-NVFP4": {
        "attention": [(0.6277, "nvfp4", NVFP4), (0.3723, "bf16", 2)], "indexer": [(1, "bf16", 2)],
        "mlp": [(1, "nvfp4", NVFP4)], "experts": [(1, "nvfp4", NVFP4)], "shared_experts": [(1, "nvfp4", NVFP4)],
        "mtp": [(1, "bf16", 2)], "head": [(1, "bf16", 2)],
    },
    # Experts quantised once more: what modelopt ignores stays fp8, as DeepSeek left it, and MTP's experts stay mxfp4.
    "nvidia--DeepSeek-V4-Pro-NVFP4": {**V4, "experts": [(1, "nvfp4", NVFP4)]},
    "nvidia--DeepSeek-V4-Flash-NVFP4": {"experts": [(1, "nvfp4", NVFP4)], "shared_experts": V4["shared_experts"]},
    "nvidia--GLM-5.2-NVFP4": {
        "attention": [(1, "bf16", 2)], "indexer": [(1, "bf16", 2)], "mlp": [(1, "bf16", 2)],
        "experts": [(1, "nvfp4", NVFP4)], "shared_experts": [(1, "bf16", 2)], "mtp": [(1, "bf16", 2)],
    },
    "nvidia--Gemma-4-31B-IT-NVFP4": {"attention": [(1, "bf16", 2)], "mlp": [(1, "nvfp4", NVFP4)]},
    "nvidia--Kimi-K2.5-NVFP4": {
        "attention": [(1, "bf16", 2)], "mlp": [(1, "nvfp4", NVFP4)], "experts": [(1, "nvfp4", NVFP4)],
        "shared_experts": [(1, "nvfp4", NVFP4)],
    },
    "nvidia--Kimi-K2.6-NVFP4": {
        "attention": [(1, "bf16", 2)], "mlp": [(1, "bf16", 2)], "experts": [(1, "nvfp4", NVFP4)],
        "shared_experts": [(1, "bf16", 2)],
    },
    "nvidia--Llama-3.1-70B-Instruct-FP8": {"attention": [(1, "fp8", 1)], "mlp": [(1, "fp8", 1)]},
    "nvidia--MiniMax-M2.5-NVFP4": {"attention": [(1, "bf16", 2)], "experts": [(1, "nvfp4", NVFP4)]},
    # Of 23 Mamba layers the six before attention keep 16 bit: 6 / 23 = 0.2609.
    "nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4": {
        "state": [(17 / 23, "nvfp4", NVFP4), (6 / 23, "bf16", 2)], "attention": [(1, "bf16", 2)],
        "experts": [(1, "nvfp4", NVFP4)], "shared_experts": [(1, "nvfp4", NVFP4)], "router": [(1, "bf16", 2)],
    },
    "nvidia--NVIDIA-Nemotron-3-Super-120B-A12B-FP8": {"state": [(1, "fp8", 1)], "experts": [(1, "fp8", 1)]},
    "nvidia--NVIDIA-Nemotron-3-Ultra-550B-A55B-NVFP4": {"state": [(1, "nvfp4", NVFP4)], "head": [(1, "bf16", 2)]},
    "sgl-project--DeepSeek-V4-Pro-FP8": {**V4, "experts": [(1, "fp8", BLOCK_E8M0)]},
    "stepfun-ai--Step-3.7-Flash-FP8": V3,
    "zai-org--GLM-5-FP8": GLM,
    "zai-org--GLM-5.1-FP8": GLM,
    "zai-org--GLM-5.2-FP8": GLM,
    "zai-org--GLM-5.3-FP8": GLM,
    "Qwen--Qwen3-235B-A22B-FP8": FP8,
    "Qwen--Qwen3-30B-A3B-FP8": FP8,
    "Qwen--Qwen3-32B-FP8": {"attention": [(1, "fp8", BLOCK)], "mlp": [(1, "fp8", BLOCK)], "head": [(1, "bf16", 2)]},
    "Qwen--Qwen3-32B-FP8-Static-PerTensor": {"attention": [(1, "fp8", 1)], "mlp": [(1, "fp8", 1)]},
    # Of the indexer 64 weighing columns of 7168 stay: 64 x 7168 of 8192 x 1536 + 192 x 7168 = 0.0329.
    "deepseek-ai--DeepSeek-V3.2": {
        "attention": [(1, "fp8", BLOCK_E8M0)], "indexer": [(0.9671, "fp8", BLOCK_E8M0), (0.0329, "bf16", 2)],
        "experts": [(1, "fp8", BLOCK_E8M0)], "head": [(1, "bf16", 2)],
    },
    "moonshotai--Kimi-K2-Instruct": V3,
    "moonshotai--Kimi-K2.5": {
        "attention": [(1, "bf16", 2)], "mlp": [(1, "bf16", 2)], "experts": [(1, "int4-g32", 0.5 + 2 / 32)],
        "shared_experts": [(1, "bf16", 2)],
    },
    # The projections into and out of the narrower space of the experts are in no list of exceptions.
    "moonshotai--Kimi-K3": {
        "attention": [(1, "bf16", 2)], "state": [(1, "bf16", 2)], "mlp": [(1, "bf16", 2)],
        "experts": [(1, "mxfp4-weights", MXFP4)], "shared_experts": [(1, "bf16", 2)],
    },
    "nvidia--DeepSeek-V3.1-NVFP4": {
        "attention": [(0.6277, "nvfp4", NVFP4), (0.3723, "bf16", 2)], "mlp": [(1, "nvfp4", NVFP4)],
        "experts": [(1, "nvfp4", NVFP4)], "mtp": [(1, "bf16", 2)],
    },
    "nvidia--GLM-5-NVFP4": {
        "attention": [(1, "bf16", 2)], "indexer": [(1, "bf16", 2)], "mlp": [(1, "nvfp4", NVFP4)],
        "experts": [(1, "nvfp4", NVFP4)], "shared_experts": [(1, "nvfp4", NVFP4)], "mtp": [(1, "bf16", 2)],
    },
    "nvidia--GLM-5.1-NVFP4": EXPERTS_ALONE,
    "nvidia--GLM-5.3-NVFP4": EXPERTS_ALONE,
    # Its experts stand beside the mlp of a layer and not in it: "layers.0.mlp*" does not name them.
    "nvidia--Gemma-4-26B-A4B-NVFP4": {
        "attention": [(1, "bf16", 2)], "mlp": [(1, "bf16", 2)], "experts": [(1, "nvfp4", NVFP4)],
    },
    "nvidia--Kimi-K2.7-Code-NVFP4": EXPERTS_ALONE,
    "nvidia--MiniMax-M2.7-NVFP4": {"attention": [(1, "bf16", 2)], "experts": [(1, "nvfp4", NVFP4)]},
    "nvidia--MiniMax-M3-NVFP4": {
        "attention": [(1, "mxfp8", 1 + 1 / 32)], "indexer": [(1, "mxfp8", 1 + 1 / 32)],
        "mlp": [(1, "mxfp8", 1 + 1 / 32)], "experts": [(1, "nvfp4", NVFP4)],
        "shared_experts": [(1, "mxfp8", 1 + 1 / 32)],
    },
    "nvidia--NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4": {
        "state": [(1, "nvfp4", NVFP4)], "attention": [(1, "nvfp4", NVFP4)], "experts": [(1, "nvfp4", NVFP4)],
    },
    "nvidia--NVIDIA-Nemotron-3-Ultra-550B-A55B-FP8": {"state": [(1, "fp8", 1)], "experts": [(1, "fp8", 1)]},
    "nvidia--NVIDIA-Nemotron-3.5-Lightning-30B-A3B-NVFP4": {
        "state": [(1, "fp8", 1)], "attention": [(1, "bf16", 2)], "experts": [(1, "nvfp4-weights", NVFP4)],
        "shared_experts": [(1, "nvfp4-weights", NVFP4)], "head": [(1, "nvfp4-weights", NVFP4)],
    },
    "nvidia--Qwen3-235B-A22B-NVFP4": {"attention": [(1, "nvfp4", NVFP4)], "experts": [(1, "nvfp4", NVFP4)]},
    # "mtp.layers.0*" names the layer of prediction and not the model's first.
    "nvidia--Qwen3.5-122B-A10B-NVFP4": EXPERTS_ALONE,
    "nvidia--Qwen3.5-397B-A17B-NVFP4": EXPERTS_ALONE,
    "nvidia--Qwen3.6-27B-NVFP4": {
        "state": [(1, "fp8", 1)], "attention": [(1, "fp8", 1)], "mlp": [(1, "nvfp4-weights", NVFP4)],
        "head": [(1, "nvfp4-weights", NVFP4)], "mtp": [(1, "bf16", 2)],
    },
    "nvidia--Qwen3.6-35B-A3B-NVFP4": {
        "state": [(1, "fp8", 1)], "attention": [(1, "fp8", 1)], "experts": [(1, "nvfp4-weights", NVFP4)],
        "shared_experts": [(1, "nvfp4-weights", NVFP4)], "mtp": [(1, "bf16", 2)],
    },
    "openai--gpt-oss-120b": {"attention": [(1, "bf16", 2)], "experts": [(1, "mxfp4", MXFP4)]},
    "openai--gpt-oss-20b": {"attention": [(1, "bf16", 2)], "experts": [(1, "mxfp4", MXFP4)]},
    # The file says fp8 and no expert_dtype: experts are in 8 bit too.
    "sgl-project--DeepSeek-V4-Flash-FP8": {
        "attention": [(0.9465, "fp8", BLOCK_E8M0), (0.0535, "bf16", 2)], "experts": [(1, "fp8", BLOCK_E8M0)],
    },
}  # fmt: skip
# Qwen3.6-35B-A3B-NVFP4 says it in hf_quant_config.json alone, which engines do not read beside a config that says
# how the weights are stored.
FP16_CACHES = ("MiniMax-M3-NVFP4", "Qwen3.6-35B-A3B-NVFP4", "V4-Flash-NVFP4", "V4-Pro-NVFP4")
FP8_CACHES = ("Static-PerTensor", "70B-Instruct-FP8", "A12B-FP8", "A55B-FP8")


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_published_configs_group_by_group(name: str) -> None:
    groups = of_file(name).groups
    for group, parts in GOLDEN[name].items():
        found = [(part.share, part.name, part.bytes_per_element) for part in groups[group]]
        assert len(found) == len(parts), (group, found)
        for (share, form, size), (want, wanted, bytes_wanted) in zip(found, parts, strict=True):
            assert (form, size) == (wanted, pytest.approx(bytes_wanted, rel=1e-6)), group
            assert share == pytest.approx(want, abs=2e-3), group


@pytest.mark.parametrize("name", ALL)
def test_nothing_of_a_published_config_is_unknown(name: str) -> None:
    precision = of_file(name)
    assert (precision.weights != "bf16") == (name in GOLDEN)
    narrow = name.endswith(FP8_CACHES) or (name.startswith("nvidia") and name.endswith("NVFP4"))
    assert precision.kv == ("fp8" if narrow and not name.endswith(FP16_CACHES) else "bf16")
    for group in GROUPS:
        parts = precision.parts(group)
        assert sum(part.share for part in parts) == pytest.approx(1)
        assert all(part.bytes_per_element >= 0.5 and part.compute for part in parts)


def read(stated: dict[str, Any], **fields: Any) -> Quantization:
    return quantization_of(stated, fields)


def compressed(weights: dict[str, Any], activations: dict[str, Any] | None) -> StoredFormat:
    group = {"targets": ["Linear"], "weights": weights, "input_activations": activations}
    found = read({"quant_method": "compressed-tensors", "config_groups": {"group_0": group}}).default
    assert found is not None
    return found


FLOAT8, INT8, FLOAT4 = ({"num_bits": b, "type": t} for b, t in ((8, "float"), (8, "int"), (4, "float")))


@pytest.mark.parametrize(
    ("weights", "activations", "name", "size", "row_bytes", "compute"),
    [
        (FLOAT8 | {"strategy": "tensor"}, FLOAT8, "fp8", 1, 0, "fp8"),
        (FLOAT8 | {"strategy": "channel"}, FLOAT8, "fp8", 1, 2, "fp8"),
        (FLOAT8 | {"strategy": "block", "block_structure": [128, 128]}, FLOAT8, "fp8", BLOCK, 0, "fp8"),
        (FLOAT8 | {"strategy": "channel"}, None, "fp8-weights", 1, 2, "bf16"),  # W8A16: products in 16 bit
        (INT8 | {"strategy": "channel"}, INT8, "int8", 1, 2, "int8"),
        (INT8 | {"strategy": "channel"}, None, "int8-weights", 1, 2, "bf16"),
        (INT8 | {"strategy": "group", "group_size": 128}, None, "int8-weights", 1 + 2 / 128, 0, "bf16"),
        # Kimi-K2.5's experts: groups of 32 with a 16-bit scale, 0.5 + 2 / 32.
        ({"num_bits": 4, "type": "int", "group_size": 32, "strategy": "group"}, None, "int4-g32", 0.5625, 0, "bf16"),
        ({"num_bits": 4, "type": "int", "group_size": 128, "symmetric": False}, None, "int4", 0.5 + 2.5 / 128, 0,
         "bf16"),
        ({"num_bits": 4, "type": "int", "strategy": "channel"}, None, "int4", 0.5, 2, "bf16"),
        ({"num_bits": 4, "type": "int", "group_size": 128}, FLOAT8, "int4-fp8", 0.515625, 0, "fp8"),
        ({"num_bits": 4, "type": "int", "group_size": 128}, INT8, "int4-int8", 0.515625, 0, "int8"),
        (FLOAT4 | {"group_size": 16, "strategy": "tensor_group"}, FLOAT4, "nvfp4", NVFP4, 0, "nvfp4"),
        (FLOAT4 | {"group_size": 16, "strategy": "tensor_group"}, None, "nvfp4-weights", NVFP4, 0, "bf16"),
        (FLOAT4 | {"group_size": 32, "strategy": "group"}, FLOAT4, "mxfp4", MXFP4, 0, "mxfp4"),
        (FLOAT4 | {"group_size": 32}, FLOAT8, "mxfp4-fp8", MXFP4, 0, "fp8"),
    ],
)  # fmt: skip
def test_compressed_tensors_is_its_scheme_and_not_its_name(
    weights: dict[str, Any], activations: dict[str, Any] | None, name: str, size: float, row_bytes: float, compute: str
) -> None:
    found = compressed(weights, activations)
    assert (found.name, found.bytes_per_element, found.row_bytes) == (name, pytest.approx(size), row_bytes)
    assert WEIGHT_FORMATS[name].compute[0] == compute


@pytest.mark.parametrize(
    ("stated", "name", "size", "row_bytes"),
    [
        ({"quant_method": "fp8"}, "fp8", 1, 0),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8", BLOCK, 0),
        ({"quant_method": "fp8", "weight_block_size": [128, 128], "scale_fmt": "ue8m0"}, "fp8", BLOCK_E8M0, 0),
        ({"quant_method": "fbgemm_fp8"}, "fp8", 1, 4),
        ({"quant_method": "ptpc_fp8"}, "fp8", 1, 4),
        # A 16-bit scale and a 4-bit zero point for 128: 0.5 + 2.5 / 128.
        ({"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}, "int4", 0.51953125, 0),
        ({"quant_method": "awq", "w_bit": 4, "q_group_size": 64, "zero_point": False}, "int4-g64", 0.53125, 0),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True}, "int4", 0.515625, 0),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": False}, "int4", 0.51953125, 0),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1, "sym": True}, "int8-weights", 1, 2),
        ({"quant_method": "gptq", "bits": 3, "group_size": 128, "sym": True}, "int3", 0.390625, 0),
        ({"quant_method": "gptq_marlin", "bits": 2, "group_size": 128, "sym": True}, "int2", 0.265625, 0),
        # nf4: fp32 for 64 elements; nested, 8 bit for 64 and fp32 for 256 of those.
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "nf4", 0.5625, 0),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_use_double_quant": True}, "nf4",
         0.5 + 1 / 64 + 4 / 16384, 0),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "int8", 1, 4),
        ({"quant_method": "hqq", "quant_config": {"weight_quant_params": {"nbits": 4, "group_size": 64}}}, "int4-g64",
         0.5625, 0),
        ({"quant_method": "eetq", "weights": "int8"}, "int8-weights", 1, 4),
        ({"quant_method": "quanto", "weights": "float8"}, "fp8-weights", 1, 0),
        ({"quant_method": "auto-round", "bits": 4, "group_size": 128, "sym": True}, "int4", 0.515625, 0),
        ({"quant_method": "torchao", "quant_type": "int4_weight_only", "quant_type_kwargs": {"group_size": 128}},
         "int4", 0.53125, 0),
        ({"quant_method": "torchao", "quant_type": {"default": {"_type": "Float8DynamicActivationFloat8WeightConfig"}}},
         "fp8", 1, 0),
        ({"quant_method": "fp_quant", "forward_dtype": "nvfp4"}, "nvfp4", 0.5 + 1 / 16, 0),
        ({"quant_method": "fp_quant", "forward_dtype": "mxfp4"}, "mxfp4", 0.5 + 1 / 32, 0),
        ({"quant_method": "torchao", "quant_type": "int8_weight_only"}, "int8-weights", 1, 4),
        ({"quant_method": "torchao", "quant_type": "int8_dynamic_activation_int8_weight"}, "int8", 1, 4),
        ({"quant_method": "quark", "global_quant_config": {
            "weight": {"dtype": "fp8_e4m3", "qscheme": "per_tensor"}, "input_tensors": {"dtype": "fp8_e4m3"}}},
         "fp8", 1, 0),
        ({"quant_method": "quark", "global_quant_config": {
            "weight": {"dtype": "fp4", "qscheme": "per_group", "group_size": 32}, "input_tensors": {"dtype": "fp4"}}},
         "mxfp4", MXFP4, 0),
        ({"quant_algo": "FP8"}, "fp8", 1, 0),
        ({"quant_algo": "NVFP4", "group_size": 16}, "nvfp4", NVFP4, 0),
        ({"quant_algo": "W4A8_AWQ", "group_size": 128}, "int4-fp8", 0.515625, 0),
        ({"quant_algo": "W4A16_AWQ", "group_size": 128}, "int4", 0.515625, 0),
        ({"quant_algo": "W4A8_MXFP4_FP8"}, "mxfp4-fp8", MXFP4, 0),
        ({"quant_algo": "W4A16_NVFP4"}, "nvfp4-weights", NVFP4, 0),
        ({"quant_algo": "FP8_PB_WO"}, "fp8-weights", BLOCK, 0),
        ({"quant_algo": "W8A8_SQ_PER_CHANNEL"}, "int8", 1, 4),
        ({"quant_method": "mxfp8"}, "mxfp8", 1.03125, 0),
        ({"bits": 4, "group_size": 128}, "int4", 0.515625, 0),
    ],
)  # fmt: skip
def test_methods(stated: dict[str, Any], name: str, size: float, row_bytes: float) -> None:
    found = read(stated).default
    assert found is not None
    assert (found.name, found.bytes_per_element, found.row_bytes) == (name, pytest.approx(size), row_bytes)


def test_the_order_of_gptq_is_an_index_for_each_input() -> None:
    found = read({"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True, "desc_act": True}).default
    assert found is not None
    assert found.column_bytes == 4


@pytest.mark.parametrize(
    ("stated", "kv"),
    [
        ({"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}, "fp8"),
        ({"quant_algo": "NVFP4", "kv_cache_quant_algo": "NVFP4"}, "nvfp4"),
        ({"quant_algo": "FP8", "kv_cache_quant_algo": "INT8"}, "int8"),
        ({"quant_algo": "FP8", "kv_cache_quant_algo": None}, None),
        ({"quant_algo": None, "kv_cache_quant_algo": "FP8"}, "fp8"),
        ({"quant_method": "fp8", "kv_cache_scheme": {"num_bits": 8, "type": "float", "strategy": "attn_head"}}, "fp8"),
        ({"quant_method": "fp8", "kv_cache_scheme": {"num_bits": 8, "type": "int"}}, "int8"),
        ({"quant_method": "fp8", "kv_cache_scheme": {"num_bits": 4, "type": "float"}}, "nvfp4"),
        ({"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp8_e4m3"}},
          "kv_cache_quant_config": {"*k_proj": {"output_tensors": {"dtype": "fp8_e4m3"}}}}, "fp8"),
    ],
)  # fmt: skip
def test_kv_cache(stated: dict[str, Any], kv: str | None) -> None:
    assert read(stated).kv == kv


@pytest.mark.parametrize("alone", [{"weights": None}, {"input_activations": {"num_bits": 8, "type": "float"}}])
def test_a_group_may_say_that_weights_stay_as_they_are(alone: dict[str, Any]) -> None:
    group = {"targets": ["Linear"], **alone}
    assert read({"quant_method": "compressed-tensors", "config_groups": {"group_0": group}}).default is None


@pytest.mark.parametrize(
    ("stated", "named"),
    [
        ({"quant_method": "aqlm", "nbits_per_codebook": 16}, "'aqlm' is not understood"),
        ({"quant_method": "compressed-tensors"}, "config_groups"),
        ({"quant_method": "compressed-tensors", "config_groups": {"g": {"weights": {"num_bits": 5}}}}, "5"),
        ({"quant_method": "compressed-tensors", "config_groups": {}}, "no group"),
        ({"quant_method": "compressed-tensors", "sparsity_config": {"format": "sparse-24-bitmask"}}, "sparse"),
        ({"quant_method": "fp8", "weight_block_size": [0, 128]}, "weight_block_size"),
        ({"quant_method": "awq", "bits": 7}, "'7'"),
        ({"quant_method": "awq", "bits": "four"}, "bits says 'four'"),
        ({"quant_method": "gptq", "bits": 4.5}, "bits says '4.5'"),
        ({"quant_method": "gptq"}, "bits is missing"),
        ({"quant_method": "hqq", "bits": "four"}, "nbits says 'four'"),
        ({"quant_method": "auto-round", "bits": None}, "bits is missing"),
        ({"quant_method": "x", "config_groups": {"g": {"weights": {"num_bits": "8"}}}}, "num_bits says '8'"),
        ({"quant_method": "x", "config_groups": {"group_7": {}}}, "nothing of the weights of 'group_7'"),
        ({"quant_method": "x", "config_groups": {"group_7": {"targets": ["Linear"]}}}, "of 'group_7'"),
        ({"quant_method": "x", "config_groups": {"a": {"weights": {"num_bits": 4}}, "b": {"format": "dense"}}}, "'b'"),
        ({"quant_method": "bitsandbytes"}, "load_in_4bit"),
        ({"quant_method": "gguf"}, "name the .gguf file"),
        ({"quant_algo": "W1A1"}, "W1A1"),
        ({"quant_method": "modelopt"}, "quant_algo"),
        ({"quant_method": "fp8", "kv_cache_quant_algo": "INT2"}, "kv_cache_quant_algo"),
        ({"quant_method": "fp8", "kv_cache_scheme": {"num_bits": 3}}, "kv_cache_scheme"),
        ({"quant_method": "torchao", "quant_type": "uintx"}, "quant_type"),
        ([], "not an object"),
    ],
)  # fmt: skip
def test_what_is_not_understood_is_named_in_one_line(stated: Any, named: str) -> None:
    with pytest.raises(RooflensError) as caught:
        quantization_of(stated, {})
    assert named in str(caught.value)
    assert "--weights" in str(caught.value) or ".gguf" in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


EIGHT = {"num_bits": 8, "type": "float"}
ONE_GROUP: dict[str, Any] = {
    "quant_method": "compressed-tensors",
    "config_groups": {"g": {"targets": ["Linear"], "weights": EIGHT}},
}


def test_a_kv_cache_is_understood_wherever_it_is_said() -> None:
    said = [
        {"kv_cache_scheme": "fp8"},
        {"kv_cache_scheme": "FP8"},
        {"kv_cache_scheme": EIGHT},
        {"kv_cache_quant_algo": "FP8"},
        {"kv_cache_scheme": EIGHT, "kv_cache_quant_algo": "FP8"},
        {"kv_cache_scheme": "auto", "kv_cache_dtype": "fp8_e4m3"},
        {"kv_cache_scheme": None, "kv_cache_dtype": "fp8"},
    ]
    assert {quantization_of({"quant_method": "fp8", **part}, {}).kv for part in said} == {"fp8"}  # fmt: skip
    assert quantization_of({"quant_method": "fp8", "kv_cache_scheme": "auto"}, {}).kv is None


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        ({"kv_cache_scheme": EIGHT, "kv_cache_quant_algo": "INT8"},
         "kv_cache_scheme says fp8 and kv_cache_quant_algo says int8"),
        ({"kv_cache_quant_algo": "FP8", "kv_cache_dtype": "int8"}, "says fp8 and kv_cache_dtype says int8: say --kv"),
        ({"kv_cache_scheme": 8}, "kv_cache_scheme says '8'"),
        ({"kv_cache_scheme": ["fp8"]}, "kv_cache_scheme says"),
        ({"kv_cache_scheme": "fp9"}, "kv_cache_scheme says 'fp9'"),
        ({"ignored_layers": [1, None]}, "ignored_layers says '1'"),
        ({"ignored_layers": ["lm_head", None]}, "ignored_layers says 'null among its names'"),
        ({"ignored_layers": "lm_head"}, "ignored_layers says 'lm_head'"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 0}, "group_size says '0'"),
        ({"quant_method": "gptq", "bits": 4, "group_size": -7}, "group_size says '-7'"),
        ({"quant_method": "gptq", "bits": 4, "group_size": "128"}, "group_size says '128'"),
        ({"quant_method": "gptq", "bits": 4, "group_size": True}, "group_size says 'True'"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128, "dynamic": {"+:a": {"group_size": 0}}}, "says '0'"),
        ({"quant_method": "awq", "bits": 4, "q_group_size": 0}, "q_group_size says '0'"),
        ({"quant_method": "hqq", "nbits": 4, "group_size": 0}, "group_size says '0'"),
        ({"config_groups": {"g": {"targets": ["Linear"], "weights": {**EIGHT, "group_size": -7}}}}, "says '-7'"),
        ({"config_groups": {"g": {"targets": [], "weights": EIGHT}}}, "config_groups targets of 'g' says"),
        ({"config_groups": {"g": {"targets": ["Linear"], "weights": EIGHT},
                            "h": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int"}}}},
         "two formats for Linear"),
        ({"config_groups": {"g": {"targets": ["re:.*a"], "weights": EIGHT},
                            "h": {"targets": ["re:.*a"], "weights": {"num_bits": 4, "type": "int"}}}},
         "two formats for re:"),
    ],
)  # fmt: skip
def test_what_contradicts_itself_or_means_nothing_is_refused(stated: dict[str, Any], message: str) -> None:
    with pytest.raises(RooflensError, match=message) as caught:
        quantization_of({"quant_method": "fp8", **stated}, {})
    assert "say --" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_says_the_same_twice_or_nothing_is_understood() -> None:
    twice = {**ONE_GROUP["config_groups"], "h": {"targets": ["Linear"], "weights": EIGHT}}
    one = quantization_of(ONE_GROUP, {})
    assert quantization_of({**ONE_GROUP, "config_groups": twice}, {}) == one
    assert quantization_of({**ONE_GROUP, "ignore": []}, {}) == quantization_of({**ONE_GROUP, "ignore": None}, {}) == one
    whole = quantization_of({"quant_method": "gptq", "bits": 4, "group_size": -1}, {}).default
    assert whole == quantization_of({"quant_method": "gptq", "bits": 4}, {}).default
    assert whole is not None
    assert (whole.bytes_per_element, whole.row_bytes) == (0.5, 2)
