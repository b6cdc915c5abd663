"""One SchedulerOutput seen by vLLM's ModelMetrics, and by the hook, the ring and the roofline.

No weights are loaded and nothing is computed: a config.json becomes vLLM's own configuration, and vLLM's scheduler
makes the steps. The roofline has the model's config from the ring, as the hook found it in that configuration.
"""

from __future__ import annotations

import json
import os
import random
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cpu_platform  # noqa: F401 - before vLLM's other modules
import torch
from scheduler_harness import BLOCK, Model, Scheduler, make_request
from vllm.engine.arg_utils import EngineArgs
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.metrics.perf import ExecutionContext, ModelMetrics
from vllm.v1.outputs import DraftTokenIds
from vllm.v1.structured_output import StructuredOutputManager

from rooflens.adapters.vllm import patch
from rooflens.analyzer.arch import known_models
from rooflens.analyzer.hardware import find_hardware
from rooflens.analyzer.roofline import Roofline
from rooflens.analyzer.spans import spans_of_engine
from rooflens.analyzer.work import Coefficients, dot
from rooflens.collector.ring_source import RingSource

CONFIGS = Path(__file__).parents[1] / "data" / "configs"
CONTEXT, CHUNK, CHUNK_ONTO, DRAFTS = 4096, 512, 1536, 3
HARDWARE = "h200-sxm-141"  # any will do: work does not depend on it
FP8_CHANNELS = {
    "quant_method": "compressed-tensors", "format": "float-quantized", "ignore": ["lm_head"],
    "config_groups": {"group_0": {
        "targets": ["Linear"],
        "weights": {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True, "dynamic": False},
        "input_activations": {"num_bits": 8, "type": "float", "strategy": "token", "symmetric": True, "dynamic": True},
    }},
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Case:
    """A model as it is served: a file in tests/data/configs or an id of the shipped table, and vLLM's options.

    ``more`` are fields that vLLM asks for and the table, which keeps shapes alone, does not have.
    """

    name: str
    model: str
    more: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)


LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "max_position_embeddings": 131072}
DENSE = Case("Llama-3.1-8B", "meta-llama-3.1-8b", LLAMA)
FP8_KV = Case("Llama-3.1-8B, fp8 KV", DENSE.model, LLAMA, {"kv_cache_dtype": "fp8"})
FP8 = Case("Llama-3.1-8B, fp8 by compressed-tensors", DENSE.model, {**LLAMA, "quantization_config": FP8_CHANNELS})
MOE = Case("Qwen3-30B-A3B", "qwen3-30b-a3b", {"architectures": ["Qwen3MoeForCausalLM"]})
MLA = Case("DeepSeek-V3", "deepseek-ai--DeepSeek-V3_config.json")
MLA_TP8 = Case("DeepSeek-V3, tensor parallel 8", MLA.model, options={"tensor_parallel_size": 8})
HYBRID = Case(
    "Qwen3-Next-80B-A3B", "qwen3-next-80b-a3b-instruct",
    {"architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next"},
    {"mamba_ssm_cache_dtype": "bfloat16"},  # as on a GPU by itself; a CPU that multiplies bf16 would take fp32
)  # fmt: skip
MAMBA = Case("Nemotron-3-Nano-30B-A3B", "nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16_config.json")
CASES = (DENSE, FP8_KV, FP8, MOE, MLA, MLA_TP8, HYBRID, MAMBA)


@dataclass(frozen=True)
class Step:
    """``batch`` sequences with ``CONTEXT`` cached tokens that decode, each with ``drafts`` to verify; with ``chunk``
    the rest of a prompt of which CHUNK_ONTO tokens are cached besides."""

    name: str
    batch: int
    drafts: int = 0
    chunk: bool = False


DECODE, MIXED, VERIFY = Step("decode", 32), Step("mixed", 32, chunk=True), Step("verify", 32, drafts=DRAFTS)
DECODE_16 = Step("decode, batch 16", 16)
PAIRS = (*((case, step) for case in CASES for step in (DECODE, MIXED, VERIFY)), (MOE, DECODE_16))


@dataclass(frozen=True)
class Theirs:
    """What ModelMetrics says of one step of one GPU; flops and bytes, by its own names and in sum."""

    flops: float
    read_bytes: float
    write_bytes: float
    flops_of: Mapping[str, float]
    read_of: Mapping[str, float]
    queries_bytes: float  # of attn_input, what is not the cache

    @property
    def weight_bytes(self) -> float:
        """All that is called weights."""
        return sum(value for name, value in self.read_of.items() if "weight" in name)

    @property
    def expert_bytes(self) -> float:
        """Weights of routed experts."""
        return sum(value for name, value in self.read_of.items() if "routed" in name and "weight" in name)

    @property
    def attention_flops(self) -> float:
        """Query times key and weight times value."""
        return sum(value for name, value in self.flops_of.items() if name.endswith(("attn_qk", "attn_av")))

    @property
    def kv_read_bytes(self) -> float:
        """What attention reads of keys and values."""
        return sum(value for name, value in self.read_of.items() if name.endswith("attn_input")) - self.queries_bytes


@dataclass(frozen=True)
class Ours:
    """What the roofline says of the same step and GPU. ``weight_bytes`` are strict, ``spread_bytes`` what uniform
    routing reads of the experts beyond them."""

    flops: float
    attention_flops: float
    head_flops: float
    weight_bytes: float
    spread_bytes: float
    expert_bytes: float
    kv_read_bytes: float
    kv_write_bytes: float
    state_bytes: float
    gather_bytes: float


@dataclass(frozen=True)
class Both:
    """One step of one GPU."""

    theirs: Theirs
    ours: Ours


def config_of(case: Case) -> dict[str, Any]:
    """The model's config.json."""
    if case.model.endswith(".json"):
        found = json.loads((CONFIGS / case.model).read_text(encoding="utf-8"))
    else:
        found = next(model["config"] for model in known_models() if model["id"] == case.model)
    return {**found, **case.more}


def engine_config(case: Case, step: Step) -> Any:
    """vLLM's own configuration of a server that runs such steps."""
    options = dict(case.options)
    if step.drafts:
        options["speculative_config"] = {
            "method": "ngram", "num_speculative_tokens": step.drafts, "prompt_lookup_max": 3,
        }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(config_of(case)))
        return EngineArgs(
            model=folder, load_format="dummy", skip_tokenizer_init=True, max_model_len=2 * CONTEXT, max_num_seqs=64,
            max_num_batched_tokens=step.batch * CONTEXT, enable_prefix_caching=False, async_scheduling=False, **options,
        ).create_engine_config()  # fmt: skip


def _scheduler(config: Any) -> Any:
    config.cache_config.num_gpu_blocks, config.cache_config.block_size = 20000, BLOCK
    spec = FullAttentionSpec(block_size=BLOCK, num_kv_heads=1, head_size=64, dtype=torch.float32)
    cache = KVCacheConfig(
        num_blocks=20000, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)]
    )  # fmt: skip
    return Scheduler(
        vllm_config=config, kv_cache_config=cache, structured_output_manager=StructuredOutputManager(config),
        block_size=BLOCK, log_stats=True,
    )  # fmt: skip


def _prompt(rng: random.Random, tokens: int) -> list[int]:
    return [rng.randrange(10, 30000) for _ in range(tokens)]


def _last_output(scheduler: Any, step: Step) -> Any:
    """Prefill; a step in which the cache grows to CONTEXT and the prompt's first piece is computed; the step itself."""
    rng = random.Random(1)
    model = Model(scheduler, 1, accept=lambda drafted: 0)
    for number in range(step.batch):
        scheduler.add_request(make_request(number, _prompt(rng, CONTEXT - 1), 100))
    budgets = (
        step.batch * CONTEXT,
        step.batch * (1 + step.drafts) + CHUNK_ONTO,
        step.batch * (1 + step.drafts) + CHUNK,
    )
    for number, budget in enumerate(budgets):
        if step.chunk and number == 1:
            scheduler.add_request(make_request(step.batch, _prompt(rng, CHUNK_ONTO + CHUNK), 100))
        scheduler.max_num_scheduled_tokens = budget
        output = scheduler.schedule()
        model.scheduled(output)
        scheduler.update_from_output(output, model.run(output))
        names = list(output.num_scheduled_tokens)
        if step.drafts:
            scheduler.update_draft_token_ids(DraftTokenIds(names, [[7] * step.drafts for _ in names]))
    return output


def _theirs(config: Any, output: Any) -> Theirs:
    metrics = ModelMetrics(config)
    stats = metrics.get_step_perf_stats_per_gpu(output)
    context = execution_context(output)
    flops, reads = metrics.get_num_flops_breakdown(context), metrics.get_read_bytes_breakdown(context)
    assert (stats.num_flops_per_gpu, stats.num_read_bytes_per_gpu) == (sum(flops.values()), sum(reads.values()))
    (attention,) = (one for one in metrics.metrics if one.component_type() in ("attn", "mla_attn"))
    heads = max(1, attention.num_attention_heads // attention.tp_size)
    width = getattr(attention, "head_dim", 0) or attention.qk_nope_head_dim + attention.qk_rope_head_dim
    rows = context.total_num_tokens() * attention.num_hidden_layers
    queries = rows * heads * width * attention.activation_byte_size
    written = stats.num_write_bytes_per_gpu
    return Theirs(stats.num_flops_per_gpu, stats.num_read_bytes_per_gpu, written, flops, reads, queries)


def execution_context(output: Any) -> ExecutionContext:
    """The sums that ModelMetrics makes of an output, for its breakdowns; checked against its own totals."""
    context = ExecutionContext()
    for new in output.scheduled_new_reqs:
        tokens = output.num_scheduled_tokens[new.req_id]
        context.add(tokens, new.num_computed_tokens + tokens, is_prefill=True)
    cached = output.scheduled_cached_reqs
    for name, computed in zip(cached.req_ids, cached.num_computed_tokens, strict=True):
        tokens = output.num_scheduled_tokens[name]
        context.add(tokens, computed + tokens, is_prefill=tokens > 1)
    return context


def _ours(path: Path) -> Ours:
    source = RingSource(path, spans_of=spans_of_engine)
    batch = source.read()
    source.close()
    assert batch.info is not None
    roofline = Roofline.of(batch.info, find_hardware(HARDWARE))
    ((_, features, known),) = roofline.chunks(batch.steps)
    assert known[-1], "the last step is modelled"
    at = dict(zip(roofline.names, features[:, -1].tolist(), strict=True))

    def total(part: str, *operators: str) -> float:
        chosen = [row for row in roofline.rows if not operators or row.operator in operators]
        return sum(dot(_part(row, part), at) for row in chosen)

    found = Ours(
        total("flops"), total("flops", "attention"), total("flops", "head"), total("weight_bytes"),
        total("expert_bytes"), total("weight_bytes", "experts") + total("expert_bytes"), total("kv_read_bytes"),
        total("kv_write_bytes"), total("state_bytes"), total("gather_bytes"),
    )  # fmt: skip
    whole = roofline.analyse(batch.steps)
    assert abs(whole.flops[-1] / whole.devices / found.flops - 1) < 1e-12
    return found


def _part(row: Any, name: str) -> Coefficients:
    part: Coefficients = getattr(row, name)
    return part


@contextmanager
def _ring(folder: Path) -> Iterator[None]:
    before = os.environ.get("ROOFLENS_DIR")
    os.environ["ROOFLENS_DIR"] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ["ROOFLENS_DIR"]
        else:
            os.environ["ROOFLENS_DIR"] = before


def beside(case: Case, step: Step) -> Both:
    """Both estimators on the last of the scheduler's steps; the hook must be registered."""
    config = engine_config(case, step)
    with tempfile.TemporaryDirectory() as folder, _ring(Path(folder)):
        scheduler = _scheduler(config)
        capture = getattr(scheduler, patch.CAPTURE)
        output = _last_output(scheduler, step)
        assert not capture.failures
        patch.detach(scheduler)
        (path,) = Path(folder).glob("*.ring")
        ours = _ours(path)
    return Both(_theirs(config, output), ours)
