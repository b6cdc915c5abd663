"""Published measurements as this project's own models, formats and deployments: what each row of measured.jsonl says.

A row names a model, a device, formats and a figure; what it leaves out is taken here, in one place: which config has
the model's sizes, what the checkpoint of that format leaves at 16 bit, and how the devices share the work.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from rooflens.analyzer.arch import arch_from_config, find_model, known_models, read_json
from rooflens.analyzer.hardware import find_hardware
from rooflens.analyzer.precision import WEIGHT_FORMATS, Precision, choose_precision
from rooflens.arch_records import Deployment, ModelArch
from rooflens.model_records import HardwareSpec

ROOT = Path(__file__).parents[1]
ROWS = Path(__file__).parent / "data" / "measured.jsonl"
CONFIGS = ROOT / "tests" / "data" / "configs"
FORMATS = {"int4g32": "int4-g32", "int4g128": "int4"}
# Names that are no id of the shipped table: another with the same sizes, or a config of the tests.
MODELS = {
    "Qwen/Qwen3-235B-A22B-FP8": "qwen3-235b-a22b",
    "moonshotai/Kimi-K2.5": str(CONFIGS / "nvidia--Kimi-K2.5-NVFP4_config.json"),
    "deepseek-ai/DeepSeek-V3.2": str(CONFIGS / "nvidia--DeepSeek-V3.2-NVFP4_config.json"),
    "meta-llama/Llama-4-Scout-17B-16E-Instruct": str(ROWS.with_name("llama-4-scout.json")),
}
# Where the checkpoint of that format states which layers it leaves alone. DeepSeek's NVFP4 checkpoints are of one maker
# and recipe, the one of V3.2 stands for those of V3 and R1.
CHECKPOINTS = {
    ("moonshotai/Kimi-K2.5", "nvfp4"): "nvidia--Kimi-K2.5-NVFP4_config.json",
    ("MiniMaxAI/MiniMax-M2.5", "nvfp4"): "nvidia--MiniMax-M2.5-NVFP4_hf_quant_config.json",
    ("deepseek-ai/DeepSeek-V3.2", "nvfp4"): "nvidia--DeepSeek-V3.2-NVFP4_hf_quant_config.json",
    ("deepseek-ai/DeepSeek-V3", "nvfp4"): "nvidia--DeepSeek-V3.2-NVFP4_hf_quant_config.json",
    ("deepseek-ai/DeepSeek-R1", "nvfp4"): "nvidia--DeepSeek-V3.2-NVFP4_hf_quant_config.json",
}
ROUTED_ONLY = {  # Kimi K2.5 as its makers give it: int4 for the routed experts and nothing else
    "quant_method": "compressed-tensors",
    "format": "pack-quantized",
    "ignore": ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*", "re:.*mlp\\.(gate|up|gate_up|down)_proj.*"],
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": True},
        }
    },
}
SAME_ARCHITECTURE = {
    "deepseek-ai/DeepSeek-R1": "deepseek-ai/DeepSeek-V3",
    "meta-llama/Meta-Llama-3-8B": "meta-llama/Meta-Llama-3.1-8B",
    "meta-llama/Meta-Llama-3-70B": "meta-llama/Meta-Llama-3.1-70B",
    "meta-llama/Llama-3.3-70B-Instruct": "meta-llama/Meta-Llama-3.1-70B",
    "Qwen/Qwen3-235B-A22B-FP8": "Qwen/Qwen3-235B-A22B",
}
QUANTISE_THE_HEAD = ("gpt-fast",)  # its own GB/s over its tokens/s say so


@dataclass(frozen=True)
class Row:
    """One published figure: ``data`` as it stands in the file, and what it means in this project's terms."""

    data: Mapping[str, Any]

    def __getattr__(self, name: str) -> Any:
        return self.data.get(name)

    @property
    def flag(self) -> str | None:
        """Why the row is no measurement of single steps of a plain engine; None where it is."""
        if self.expect:
            return "impossible"
        return "speculation" if self.spec else None

    @property
    def family(self) -> str:
        """The architecture, by the name of one model that has it."""
        return SAME_ARCHITECTURE.get(self.model, str(self.model))

    @property
    def maker(self) -> str:
        """The engine without its version."""
        name = str(self.engine).lower().replace("trt-llm", "trtllm")
        return re.split(r"[ /+(]", name)[0]

    @property
    def origin(self) -> str:
        """The source without what tells rows of it apart."""
        return SOURCES.get(str(self.source).split()[0], str(self.source).split()[0])

    @property
    def tensor(self) -> int | None:
        """Tensor parallelism as the source states it; None where it does not."""
        if self.n == 1:
            return 1
        stated = re.search(r"_tp(\d+)", self.source)
        return int(stated[1]) if stated else None

    @property
    def deployment(self) -> Deployment:
        """How the devices share the work: by tensors over all of them where nothing else is stated."""
        experts = re.search(r"_ep(\d+)", self.source)
        return Deployment(tensor=self.tensor or max(1, int(self.n)), expert=bool(experts and int(experts[1]) > 1))

    @property
    def hardware_spec(self) -> HardwareSpec:
        return find_hardware(self.hardware)

    @property
    def arch(self) -> ModelArch:
        return model_of(self.model)

    @property
    def weights(self) -> str:
        return FORMATS.get(self.w_dtype, self.w_dtype)

    @property
    def least(self) -> Precision:
        """The fewest bytes that the row's words allow: everything that multiplies in the weights' format."""
        found = _precision(self.model, self.weights, self.kv_dtype, False)
        narrow = WEIGHT_FORMATS[found.weights].bytes_per_element < WEIGHT_FORMATS[found.head].bytes_per_element
        return replace(found, head=found.weights) if narrow else found

    @property
    def likely(self) -> Precision:
        """The formats of the checkpoint that such a row was run with, layer by layer where that is published."""
        if self.maker in QUANTISE_THE_HEAD and checkpoint(self.model, self.weights) is None:
            return self.least
        return _precision(self.model, self.weights, self.kv_dtype, True)


@cache
def _precision(model: str, weights: str, kv_dtype: str | None, of_checkpoint: bool) -> Precision:
    """Rows of one model share it: to name the formats of all its modules takes a tenth of a second."""
    stated = checkpoint(model, weights) if of_checkpoint else None
    if stated is not None:
        return choose_precision(stated, None, kv_dtype)
    return choose_precision(model_of(model), weights, kv_dtype)


SOURCES = {
    "pypi": "aiconfigurator-core 0.12.0, silicon_sample.csv",
    "NVIDIA/TensorRT-LLM": "TensorRT-LLM performance overview",
    "XiongjieDai/GPU-Benchmarks-on-LLM-Inference": "XiongjieDai, GPU-Benchmarks-on-LLM-Inference",
    "pytorch-labs/gpt-fast": "gpt-fast README",
    "ggml-org/llama.cpp": "llama.cpp on DGX Spark",
    "Leviathan": "Leviathan et al. 2022",
    "Pope": "Pope et al. 2022",
    "vllm": "vLLM blog",
    "geerlingguy/ai-benchmarks": "geerlingguy, ai-benchmarks",
    "sgl-project/sglang": "SGLang documentation",
    "alpha-one-index.github.io": "alpha-one-index",
    "LMSYS": "LMSYS blog",
    "ainews247.org": "ainews247, MLPerf v5.1",
    "brand-o/normiebench": "normiebench",
    "techcommunity.microsoft.com": "Azure ND GB200 v6",
    "bardai.ai": "Jetson Thor blog, copied",
    "Databricks": "Databricks blog",
}


@cache
def rows() -> tuple[Row, ...]:
    """Every row, in the order of the file."""
    return tuple(Row(json.loads(line)) for line in ROWS.read_text(encoding="utf-8").splitlines())


@cache
def model_of(name: str) -> ModelArch:
    """The sizes of a row's model, without what its config says of formats."""
    return find_model(MODELS.get(name, name), read_quantization=False)


@cache
def checkpoint(name: str, weights: str) -> ModelArch | None:
    """The model with the formats of its published checkpoint in ``weights``; None where there is no such config."""
    config = config_of(name)
    if (name, weights) in CHECKPOINTS:
        file = read_json(CONFIGS / CHECKPOINTS[name, weights])
        config = {**config, "quantization_config": file.get("quantization_config") or file["quantization"]}
    elif (name, weights) == ("moonshotai/Kimi-K2.5", "int4-g32"):
        config = {**config, "quantization_config": ROUTED_ONLY}
    arch = arch_from_config(config, name.split("/")[-1])
    return arch if arch.quantization is not None and arch.weight_format == weights else None


def config_of(name: str) -> dict[str, Any]:
    """The config that a row's model has."""
    known = MODELS.get(name, name)
    if known.endswith(".json"):
        return dict(read_json(Path(known)))
    return next(dict(row["config"]) for row in known_models() if known in (row["id"], row["hf_id"]))
