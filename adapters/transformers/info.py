"""EngineInfo of a batch processor: facts only, no path, no name of a person or a request."""

from __future__ import annotations

import sys
from typing import Any

from rooflens.adapters.transformers import blocks

PAGED = "paged|"  # what some releases put before the name of an attention that reads a paged cache


def _dtype(value: Any) -> str | None:
    return None if value is None else str(value).removeprefix("torch.")


def _graphs(processor: Any) -> str | None:
    """Which of the two kinds of batch are launched as graphs; None where this release does not say."""
    runner = getattr(processor, "model_runner", None)
    if runner is None:
        return None
    kinds = {"varlen": runner.use_cuda_graph_varlen, "decode": runner.use_cuda_graph_decode}
    chosen = [kind for kind, used in kinds.items() if used]
    return "none" if not chosen else "full" if len(chosen) == len(kinds) else f"full_{chosen[0]}_only"


def _device_uuids(device: Any) -> tuple[str, ...]:
    """The uuid of the device by torch, which the engine has imported; empty where there is none."""
    torch = sys.modules.get("torch")
    if torch is None or device.type != "cuda":
        return ()
    uuid = getattr(torch.cuda.get_device_properties(device), "uuid", None)
    return () if uuid is None else (f"GPU-{uuid}",)


def facts(processor: Any) -> dict[str, Any]:
    """Fields of records.EngineInfo, as the recorder takes them; None for what this release does not say."""
    config, cache = processor.config, processor.cache
    settings = getattr(processor, "cb_config", None)
    stated: dict[str, Any] = config.to_dict()
    quantized = stated.get("quantization_config") or {}
    ahead = bool(getattr(processor, "use_async_batching", False))
    attention = getattr(config, "_attn_implementation", None)
    groups = [
        {"kind": kind, "layers": layers, "block_tokens": tokens, "window_tokens": window}
        for kind, layers, tokens, window in blocks.groups(cache)
    ]
    return {
        "engine_version": getattr(sys.modules.get("transformers"), "__version__", None),
        "model_name": getattr(config, "_name_or_path", None) or None,
        "model_config": stated,
        "weight_dtype": _dtype(processor.model_dtype),
        "quantization": quantized.get("quant_method") if isinstance(quantized, dict) else None,
        "kv_dtype": _dtype(getattr(cache, "dtype", None)),
        "kv_groups": groups or None,
        "kv_blocks": cache.num_blocks,
        "block_tokens": blocks.block_tokens(cache),
        "max_sequences": getattr(settings, "max_requests_per_batch", None),
        "max_batched_tokens": getattr(cache, "max_batch_tokens", None),
        "max_context_tokens": getattr(config, "max_position_embeddings", None),
        "graph_mode": _graphs(processor),
        "attention_backend": None if attention is None else str(attention).removeprefix(PAGED),
        "async_scheduling": ahead,
        "concurrent_batches": 2 if ahead else 1,
        "prefix_caching": getattr(cache, "use_prefix_sharing", None),
        "chunked_prefill": True,
        "tensor_parallel": getattr(getattr(processor, "distributed_helper", None), "tp_size", 1),
        "device": getattr(processor.model_device, "type", None),
        "device_uuids": _device_uuids(processor.model_device) or None,
    }
