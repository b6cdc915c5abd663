"""The names of the ranges that engines put around a step, and what those names tell.

Sources, read for their format: vLLM v1/worker/gpu_worker.py (annotate_profile) and gpu_model_runner.py of 0.9 to 0.32,
SGLang's ``step[...]`` and ``scheduler.run_batch`` ranges, TensorRT-LLM _torch/pyexecutor/py_executor.py
(_forward_step), torch.profiler's ``ProfilerStep#N``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from rooflens.records import StepKind

LONGEST_NAME = 400  # characters: a longer one is nobody's step
LARGEST = 1 << 53
# From the name that tells most to the one that tells least: a file is cut by the first of these that is in it.
VLLM, TENSORRT_LLM, SGLANG, VLLM_FORWARD, SGLANG_BATCH, TORCH = range(6)
FAMILIES = (
    "vLLM execute_...",
    "TensorRT-LLM _forward_step",
    "SGLang step[...]",
    "vLLM gpu_model_runner: forward",
    "SGLang scheduler.run_batch",
    "ProfilerStep#N",
)


@dataclass(frozen=True, slots=True)
class Boundary:
    """What the name of a step's range tells; columns by their names in STEP_COLUMNS, without those that are unknown."""

    family: int
    kind: StepKind | None = None
    columns: Mapping[str, int] | None = None

    @property
    def empty(self) -> bool:
        """Whether nothing was computed: a turn of the engine without a request."""
        return self.columns is not None and self.columns.get("requests") == 0


def _kind(context: int, generation: int) -> StepKind:
    if context:
        return StepKind.MIXED if generation else StepKind.PREFILL
    return StepKind.DECODE if generation else StepKind.DUMMY


def _counts(context: int, context_tokens: int | None, generation: int, tokens: int | None) -> dict[str, int]:
    known = {"requests": context + generation, "prefill_requests": context}
    if context_tokens is not None:
        known["prefill_tokens"] = context_tokens
        if tokens is not None:
            known["query_tokens"] = context_tokens + tokens
    return known


def _vllm(found: re.Match[str]) -> Boundary:
    """Requests and tokens of both phases; a context request is one without an output token yet."""
    context, context_tokens, generation, tokens = map(int, found.groups())
    return Boundary(VLLM, _kind(context, generation), _counts(context, context_tokens, generation, tokens))


def _vllm_detailed(found: re.Match[str]) -> Boundary:
    """With q tokens of a request and k in its cache afterwards: the sums of q, k, q * q and q * k of each phase.

    The pairs of a request are q * (k - q) + q * (q + 1) / 2, so all of them are sum(qk) - (sum(qq) - sum(q)) / 2.
    """
    _, context, *first, generation, q, k, qq, qk = map(int, found.groups())
    columns = _counts(context, first[0], generation, q)
    prefill = first[3] - (first[2] - first[0]) // 2
    columns["context_tokens"] = first[1] - first[0] + k - q
    columns["prefill_pairs"] = prefill
    columns["causal_pairs"] = prefill + qk - (qq - q) // 2
    return Boundary(VLLM, _kind(context, generation), columns)


def _vllm_first(found: re.Match[str]) -> Boundary:
    """New and cached requests: a cached one may still be at its prompt, so the kind of a step is not told."""
    new, cached = map(int, found.groups())
    return Boundary(VLLM, None if new or cached else StepKind.DUMMY, {"requests": new + cached})


def _tensorrt_llm(found: re.Match[str]) -> Boundary:
    context, generation = int(found[1]), int(found[3])
    tokens = None if found[2] is None else int(found[2])
    return Boundary(TENSORRT_LLM, _kind(context, generation), _counts(context, tokens, generation, None))


_SGLANG_KINDS = {
    "DECODE": StepKind.DECODE,
    "EXTEND": StepKind.PREFILL,
    "MIXED": StepKind.MIXED,
    "TARGET_VERIFY": StepKind.VERIFY,
    "IDLE": StepKind.DUMMY,
}


def _sglang(found: re.Match[str]) -> Boundary:
    kind = _SGLANG_KINDS.get(found[1])
    columns = {"requests": int(found[2])}
    if kind is StepKind.DECODE:
        columns |= {"query_tokens": columns["requests"], "prefill_requests": 0, "prefill_tokens": 0}
    elif found[3] is not None:
        columns["query_tokens"] = int(found[3])
        if kind is StepKind.PREFILL:
            columns |= {"prefill_requests": columns["requests"], "prefill_tokens": columns["query_tokens"]}
    return Boundary(SGLANG, kind, columns)


_PHASE = r"(\d+)\(sq(\d+)sk(\d+)sqsq(\d+)sqsk(\d+)\)"
_READERS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], Boundary]], ...] = tuple(
    (re.compile(pattern, re.ASCII), read)
    for pattern, read in (
        (r"execute_context_(\d+)\((\d+)\)_generation_(\d+)\((\d+)\)", _vllm),
        (rf"execute_(\d+)_context_{_PHASE}_generation_{_PHASE}", _vllm_detailed),
        (r"execute_new_(\d+)_cached_(\d+)", _vllm_first),
        (
            r"\[Executor\] _forward_step(?: \d+)?: (\d+) ctx reqs,(?: (\d+) ctx tokens,)? (\d+) gen reqs.*",
            _tensorrt_llm,
        ),
        (r"step\[([A-Z_]+) bs=(\d+)(?: toks=(\d+))?[^\]]*\]", _sglang),
        (r"gpu_model_runner: forward", lambda _: Boundary(VLLM_FORWARD)),
        (r"scheduler\.run_batch", lambda _: Boundary(SGLANG_BATCH)),
        (r"ProfilerStep#\d+", lambda _: Boundary(TORCH)),
    )
)


@lru_cache(maxsize=65536)
def boundary(name: str) -> Boundary | None:
    """What the range of this name is the step of; None where it is no step's, or its numbers cannot be."""
    if len(name) > LONGEST_NAME:
        return None
    for pattern, read in _READERS:
        if found := pattern.fullmatch(name):
            told = read(found)
            numbers = (told.columns or {}).values()
            return told if all(0 <= value < LARGEST for value in numbers) else None
    return None
