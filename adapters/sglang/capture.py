"""One scheduler's batches as the recorder's steps, with exact lengths.

Lengths are read when a batch is launched: with overlap its result is taken in after the next one was launched, and the
scheduler has moved on by then. A result finds its step by being the same object. ``seq_lens_cpu`` of a decoding batch
counts the token of this pass, so the context is one less; ``prefix_lens`` of a prefilling one is its context. In a
mixed batch the decoding requests come last, with one token each.
"""

from __future__ import annotations

import importlib
import logging
from collections import deque
from collections.abc import Mapping
from typing import Any

from rooflens.adapters.recorder import Recorder, Step

log = logging.getLogger("sglang.rooflens")
MOST_IN_FLIGHT = 64  # results that are never taken in must not keep their tensors
MOST_FAILURES = 16  # a hook that fails this often tells nothing true any more


class Capture:
    """Belongs to the scheduler's thread; ``off`` is set after too many failures."""

    def __init__(self, scheduler: Any, recorder: Recorder) -> None:
        self.recorder, self.off = recorder, False
        self._scheduler = scheduler
        self._open: deque[tuple[Step, Any]] = deque()
        self._failures = 0

    @classmethod
    def of(cls, scheduler: Any) -> Capture | None:
        """The recording of this scheduler; None on the ranks that mirror another one, or where no ring can be."""
        if not _leads(scheduler):
            return None
        rank = getattr(scheduler, "dp_rank", None)
        if rank is None:
            rank = getattr(getattr(scheduler, "ps", None), "dp_rank", None) or 0
        recorder = Recorder("sglang", rank=int(rank), **facts_of(scheduler))
        return cls(scheduler, recorder) if recorder.path is not None else None

    def begin(self, batch: Any) -> Step | None:
        """A batch is about to be launched; None where it is not a pass over known lengths."""
        try:
            step = self._step(batch)
            if step is not None:
                self.recorder.begin(step)
            return step
        except Exception as error:
            self._fail(error)
            return None

    def launched(self, step: Step, result: Any) -> None:
        """The engine has the result, or its promise; it is taken in later."""
        if len(self._open) >= MOST_IN_FLIGHT:
            self._open.popleft()
        self._open.append((step, result))

    def failed(self, step: Step) -> None:
        """The engine's own call raised: its error goes on, the step is told as failed."""
        self.recorder.end(step, failed=True)

    def processed(self, result: Any) -> None:
        """The scheduler took a result in: its step, and no other, is over."""
        try:
            for at, (step, promised) in enumerate(self._open):
                if promised is result:
                    del self._open[at]
                    self.recorder.end(step, failed=False)
                    return
        except Exception as error:
            self._fail(error)

    def _step(self, batch: Any) -> Step | None:
        mode = batch.forward_mode
        waiting = len(self._scheduler.waiting_queue)
        if mode.is_decode():
            contexts = [length - 1 for length in _list(batch.seq_lens_cpu)]
            if len(contexts) != len(batch.reqs):
                raise ValueError("as many lengths as requests are expected")
            step = self.recorder.step(contexts, waiting=waiting)
            step.generated_tokens = len(contexts)
            return step
        if not mode.is_extend() or mode.is_idle():
            return None
        contexts, queries = _list(batch.prefix_lens), _list(batch.extend_lens)
        if not len(contexts) == len(queries) == len(batch.reqs):
            raise ValueError("as many lengths as requests are expected")
        prompts = len(queries) - (len(batch.decoding_reqs or ()) if mode.is_mixed() else 0)
        step = self.recorder.step(contexts, queries, prefill=range(prompts), waiting=waiting)
        ends = [c + q >= r.seqlen for c, q, r in zip(contexts[:prompts], queries, batch.reqs, strict=False)]
        step.generated_tokens = sum(ends) + len(queries) - prompts  # a part of a prompt generates nothing
        return step

    def _fail(self, error: Exception) -> None:
        self._failures += 1
        if self._failures == 1:
            log.warning("rooflens could not record a batch: %s: %s", type(error).__name__, error)
        if self._failures >= MOST_FAILURES and not self.off:
            self.off = True
            self._open.clear()
            self.recorder.event("hook_off")
            self.recorder.close()


def _list(lengths: Any) -> list[int]:
    """Plain numbers of a list or of a tensor on the host."""
    return [int(length) for length in (lengths.tolist() if hasattr(lengths, "tolist") else lengths)]


def _leads(scheduler: Any) -> bool:
    """Whether this is the first of the ranks that run the same batches; ValueError where that cannot be told."""
    for holder in (scheduler, getattr(scheduler, "ps", None)):
        rank = getattr(holder, "attn_tp_rank", None)
        if isinstance(rank, int):
            return rank == 0 and not getattr(holder, "attn_cp_rank", 0)
    parallel = importlib.import_module("sglang.srt.runtime_context").get_parallel()  # 0.5.22 and newer
    if not isinstance(parallel.attn_tp_rank, int):
        raise ValueError("the rank is not told")
    return parallel.attn_tp_rank == 0 and not getattr(parallel, "attn_cp_rank", 0)


def facts_of(scheduler: Any) -> Mapping[str, Any]:
    """What SGLang says of itself, as fields of EngineInfo; the recorder leaves out what is none."""
    args = scheduler.server_args
    config = getattr(scheduler.model_config, "hf_config", None)
    given = {
        "engine_version": str(importlib.import_module("sglang.version").__version__),
        "model_name": getattr(args, "served_model_name", None),
        "model_config": config.to_dict() if config is not None and hasattr(config, "to_dict") else None,
        "weight_dtype": str(getattr(scheduler.model_config, "dtype", "") or "").removeprefix("torch.") or None,
        "quantization": getattr(args, "quantization", None),
        "kv_dtype": getattr(args, "kv_cache_dtype", None),
        "tensor_parallel": getattr(args, "tp_size", None),
        "data_parallel": getattr(args, "dp_size", None),
        "expert_parallel": bool((getattr(args, "ep_size", 1) or 1) > 1),
        "max_sequences": getattr(scheduler, "max_running_requests", None),
        "block_tokens": getattr(scheduler, "page_size", None),
        "async_scheduling": getattr(scheduler, "enable_overlap", None),
        "speculative_method": None,
    }
    if given["kv_dtype"] == "auto":
        given["kv_dtype"] = None
    return {name: value for name, value in given.items() if value is not None}
