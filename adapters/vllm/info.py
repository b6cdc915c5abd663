"""EngineInfo from a vLLM configuration: facts only, no path, no name of a person or a request."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable
from typing import Any

from rooflens.adapters.facts import MOST_LIST, plain
from rooflens.records import EngineInfo, KVGroup
from rooflens.ring_folder import host_name

ROLES = {"kv_producer": "prefill", "kv_consumer": "decode"}  # of a KV connector; kv_both may be anything


def _get(value: Any, *names: str) -> Any:
    """The attribute at the end of a chain, None where it breaks off."""
    for name in names:
        value = getattr(value, name, None)
        if value is None:
            return None
    return value


def _word(value: Any) -> str | None:
    return None if value is None else str(value).removeprefix("torch.").rsplit(".", 1)[-1]


def _kv_groups(scheduler: Any) -> tuple[KVGroup, ...]:
    groups: Iterable[Any] = _get(scheduler, "kv_cache_config", "kv_cache_groups") or ()
    found = []
    for group in groups:
        spec = group.kv_cache_spec
        kind = type(spec).__name__.removesuffix("Spec")
        window = _get(spec, "sliding_window")
        found.append(KVGroup(kind, len(group.layer_names), int(spec.block_size), window))
    return tuple(found)


def _state_dtype(scheduler: Any) -> str | None:
    """The format of the states of linear attention or Mamba as vLLM resolved it, else as it was told; None: no word.

    A layer's states are several (the recurrent one, that of a convolution before it); the largest is meant.
    """
    for group in _get(scheduler, "kv_cache_config", "kv_cache_groups") or ():
        nested = _get(group, "kv_cache_spec", "kv_cache_specs")
        for spec in nested.values() if isinstance(nested, dict) else (_get(group, "kv_cache_spec"),):
            dtypes, shapes = _get(spec, "dtypes"), _get(spec, "shapes")
            if dtypes and shapes and len(dtypes) == len(shapes):
                return _word(dtypes[max(range(len(shapes)), key=lambda place: math.prod(shapes[place]))])
    cache = _get(scheduler, "vllm_config", "cache_config")
    told = (_word(_get(cache, name)) for name in ("mamba_ssm_cache_dtype", "mamba_cache_dtype"))
    return next((word for word in told if word not in (None, "auto")), None)


def engine_version() -> str | None:
    """vLLM's own word; its distribution may carry another name."""
    try:
        import vllm

        return str(vllm.__version__)
    except (ImportError, AttributeError):
        return None


def engine_info(scheduler: Any, instance: str) -> EngineInfo:
    """What this vLLM says of itself; a field that this release does not have stays None."""
    config = scheduler.vllm_config
    model, cache, batch = config.model_config, config.cache_config, config.scheduler_config
    parallel, speculative = config.parallel_config, _get(config, "speculative_config")
    hf_config = _get(model, "hf_config")
    served = _get(model, "served_model_name")
    served = served[0] if isinstance(served, list) and served else served
    graphs = _get(config, "compilation_config")
    return EngineInfo(
        instance=instance,
        engine="vllm",
        engine_version=engine_version(),
        rank=int(_get(parallel, "data_parallel_rank") or 0),
        host=host_name(),
        pod=os.environ.get("POD_NAME") or os.environ.get("HOSTNAME") or None,
        start_unix_s=time.time(),
        runner=_get(model, "runner_type"),
        model_name=os.path.basename(str(served).rstrip("/")) if served else None,
        model_config=plain(hf_config.to_dict()) if hasattr(hf_config, "to_dict") else None,
        weight_dtype=_word(_get(model, "dtype")),
        quantization=_word(_get(model, "quantization")),
        kv_dtype=_word(_get(cache, "cache_dtype")),
        state_dtype=_state_dtype(scheduler),
        kv_groups=_kv_groups(scheduler),
        kv_blocks=int(scheduler.kv_cache_manager.block_pool.num_gpu_blocks) - 1,
        block_tokens=_get(scheduler, "block_size") or _get(cache, "block_size"),
        max_sequences=_get(batch, "max_num_seqs"),
        max_batched_tokens=_get(batch, "max_num_batched_tokens"),
        max_context_tokens=_get(model, "max_model_len"),
        graph_mode=_word(_get(graphs, "cudagraph_mode")),
        graph_sizes=tuple(_get(graphs, "cudagraph_capture_sizes") or ())[:MOST_LIST],
        attention_backend=os.environ.get("VLLM_ATTENTION_BACKEND")
        or _word(_get(config, "attention_config", "backend")),
        async_scheduling=_get(batch, "async_scheduling"),
        concurrent_batches=_get(config, "max_concurrent_batches"),
        prefix_caching=_get(cache, "enable_prefix_caching"),
        chunked_prefill=_get(batch, "enable_chunked_prefill") or _get(batch, "chunked_prefill_enabled"),
        tensor_parallel=int(_get(parallel, "tensor_parallel_size") or 1),
        pipeline_parallel=int(_get(parallel, "pipeline_parallel_size") or 1),
        data_parallel=int(_get(parallel, "data_parallel_size") or 1),
        expert_parallel=bool(_get(parallel, "enable_expert_parallel")),
        context_parallel=int(_get(parallel, "decode_context_parallel_size") or 1),
        speculative_method=_word(_get(speculative, "method")),
        speculative_tokens=_get(speculative, "num_speculative_tokens"),
        device=_word(_get(config, "device_config", "device_type")),
        role=ROLES.get(str(_get(config, "kv_transfer_config", "kv_role"))),
    )
