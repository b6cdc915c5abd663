"""Drives vLLM's real schedulers with made-up model outputs, and keeps the books that the ring is compared with.

The engine side keeps its own account of every request straight from the Request objects, before and after each
call, so that nothing of the hook is used to check the hook.
"""

from __future__ import annotations

import inspect
import json
import random
import tempfile
from pathlib import Path
from typing import Any

import cpu_platform  # noqa: F401 - before vLLM's other modules
import numpy as np
import torch
from vllm.engine.arg_utils import EngineArgs
from vllm.pooling_params import PoolingParams
from vllm.sampling_params import SamplingParams
from vllm.v1.core import kv_cache_utils
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

try:
    from vllm.utils.hashing import sha256
except ImportError:  # before 0.12
    from vllm.utils import sha256

try:
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler
except ImportError:  # before 0.10

    class AsyncScheduler(Scheduler):  # type: ignore[no-redef]
        """Stands in, so that the names are there; nothing of it is asynchronous."""


BLOCK = 16
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 1024, "intermediate_size": 2816,
    "num_hidden_layers": 16, "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 64, "vocab_size": 32000,
    "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "tie_word_embeddings": False,
    "torch_dtype": "bfloat16", "hidden_act": "silu", "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
HASHER = None
if hasattr(kv_cache_utils, "init_none_hash"):  # since 0.10
    kv_cache_utils.init_none_hash(sha256)
if hasattr(kv_cache_utils, "get_request_block_hasher"):  # since 0.10.2; before, the cache manager hashes
    HASHER = kv_cache_utils.get_request_block_hasher(BLOCK, sha256)


def _config(**options: Any) -> Any:
    folder = tempfile.mkdtemp()
    Path(folder, "config.json").write_text(json.dumps(CONFIG))
    arguments = {"model": folder, "load_format": "dummy", "skip_tokenizer_init": True, "max_model_len": 4096}
    return EngineArgs(**arguments, **options).create_engine_config()


_configs: dict[str, Any] = {}


def make_scheduler(
    cls: type = AsyncScheduler, *, blocks: int = 20000, spec: int = 0, seqs: int = 256, budget: int = 2048,
    v2: bool = False, prefix: bool = True, pipeline: int = 1, connector: Any = None, chunk: int = 0,
    pooling: bool = False,
) -> Any:  # fmt: skip
    """A real scheduler on a made-up KV cache; ``v2`` is model runner 2's way of resuming requests."""
    import copy

    options: dict[str, Any] = {"max_num_seqs": seqs, "max_num_batched_tokens": budget, "enable_prefix_caching": prefix}
    if spec:
        options["speculative_config"] = {"method": "ngram", "num_speculative_tokens": spec, "prompt_lookup_max": 3}
    if chunk:
        options["long_prefill_token_threshold"] = chunk
    if connector:
        options["kv_transfer_config"] = connector
    key = repr(options)
    if connector or key not in _configs:
        _configs[key] = _config(**options)
    config = copy.copy(_configs[key])
    config.scheduler_config = copy.copy(config.scheduler_config)
    config.parallel_config = copy.copy(config.parallel_config)
    config.cache_config = copy.copy(config.cache_config)
    if pooling:
        config.model_config = copy.copy(config.model_config)
        config.model_config.runner_type = "pooling"
    config.scheduler_config.async_scheduling = issubclass(cls, AsyncScheduler)
    config.parallel_config.pipeline_parallel_size = pipeline
    config.cache_config.num_gpu_blocks = blocks
    config.cache_config.block_size = BLOCK
    spec_of_layer = FullAttentionSpec(
        **{k: v for k, v in {"block_size": BLOCK, "num_kv_heads": 1, "head_size": 64, "dtype": torch.float32,
                             "use_mla": False}.items() if k in inspect.signature(FullAttentionSpec).parameters}
    )  # fmt: skip
    tensors = {
        "num_blocks": blocks,
        "kv_cache_tensors": [],
        "kv_cache_groups": [KVCacheGroupSpec(["l"], spec_of_layer)],
    }
    arguments = {
        "vllm_config": config, "kv_cache_config": KVCacheConfig(**tensors), "log_stats": True, "block_size": BLOCK,
        "structured_output_manager": StructuredOutputManager(config),
    }  # fmt: skip
    accepted = inspect.signature(Scheduler.__init__).parameters
    scheduler = cls(**{k: v for k, v in arguments.items() if k in accepted})
    if v2:
        scheduler.use_v2_model_runner = True
    return scheduler


def make_request(number: int, prompt: list[int], most: int, stop: int | None = None, **sampling: Any) -> Any:
    """A request as the engine core would build it; one that is to be pooled, not continued, if ``most`` is 0."""
    pooling = params = None
    if most:
        params = SamplingParams(
            max_tokens=most, ignore_eos=stop is None, stop_token_ids=[stop] if stop else None, **sampling
        )
        params.update_from_generation_config({}, None)
    else:
        pooling = PoolingParams(task="embed")
    arguments = {
        "request_id": f"cmpl-{number:032x}-0", "prompt_token_ids": prompt, "sampling_params": params,
        "pooling_params": pooling, "block_hasher": HASHER, "eos_token_id": None, "client_index": 0,
    }  # fmt: skip
    accepted = inspect.signature(Request).parameters
    needed = {name: None for name, parameter in accepted.items() if parameter.default is parameter.empty}
    return Request(**needed | {k: v for k, v in arguments.items() if k in accepted})


def is_partial(request: Any) -> bool:
    """Whether the prompt is not complete after the step just scheduled."""
    return bool(getattr(request, "is_prefill_chunk", request.num_computed_tokens < request.num_tokens))


class Model:
    """Makes up a model's outputs: which tokens, how many drafts are accepted, which requests stop."""

    def __init__(self, scheduler: Any, seed: int, stop: int | None = None, accept: Any = None) -> None:
        self._scheduler = scheduler
        self._random = random.Random(seed)
        self._stop = stop
        self._accept = accept or (lambda drafted: self._random.randrange(drafted + 1))
        self._partial: dict[int, set[str]] = {}
        self._pooling = scheduler.vllm_config.model_config.runner_type == "pooling"

    def scheduled(self, output: Any) -> None:
        """Note which rows will not sample; to be called right after schedule()."""
        requests = self._scheduler.requests
        self._partial[id(output)] = {n for n in output.num_scheduled_tokens if is_partial(requests[n])}

    def run(self, output: Any, **more: Any) -> Any:
        """The result of executing ``output``."""
        partial = self._partial.pop(id(output), set())
        names = list(output.num_scheduled_tokens)
        self._random.shuffle(names)  # the model runner keeps an order of its own
        sampled = []
        for name in names:
            drafted = len(output.scheduled_spec_decode_tokens.get(name, ()))
            token = self._stop if self._stop and self._random.random() < 0.03 else 7
            sampled.append([] if name in partial else [7] * (self._accept(drafted) if drafted else 0) + [token])
        fields = {
            "req_ids": names,
            "req_id_to_index": {n: i for i, n in enumerate(names)},
            "sampled_token_ids": sampled,
        }
        if "ndarray" in str(ModelRunnerOutput.__annotations__["sampled_token_ids"]):  # 0.11.2
            fields["sampled_token_ids"] = [np.array(tokens, np.int32) for tokens in sampled]
        if self._pooling:
            fields["sampled_token_ids"] = []
            more |= {"pooler_output": [None if name in partial else torch.zeros(1) for name in names]}
        needed = {"spec_token_ids": None, "logprobs": None, "prompt_logprobs_dict": {}, "pooler_output": None}
        accepted = inspect.signature(ModelRunnerOutput).parameters
        return ModelRunnerOutput(**{k: v for k, v in (needed | fields | more).items() if k in accepted})
