"""The longest that the step in flight can be by its model: all of its tokens at the end of the longest context."""

from __future__ import annotations

import math

import numpy as np

from rooflens.analyzer.rules.case import Case
from rooflens.analyzer.sums import filled
from rooflens.records import RooflensError, StepKind, StepTable

CONTEXT_FIELD = "max_position_embeddings"  # of the model's config: what an engine takes where nobody limits it


def longest_step_s(case: Case) -> float | None:
    """The floor of the open step if its requests had the longest contexts that they may have, in seconds.

    A few tokens behind a long prefix take far longer than as many at a beginning, and the stamp of a step in flight
    tells only how many there are. None without a roofline, or where neither a context nor the step's size is known.
    """
    progress, info = case.progress, case.info
    if case.roofline is None or progress is None or not progress.open_tokens or info is None:
        return None
    context = _longest_context(case)
    if context <= 0:
        return None
    tokens, requests = float(progress.open_tokens), float(max(progress.open_requests or 1, 1))
    pool = (info.kv_blocks or 0) * (info.block_tokens or 0)
    held = min(requests * context, float(pool) or math.inf)
    pairs = tokens * context + tokens * (tokens + 1) / 2
    columns = {
        "kind": StepKind.MIXED,
        "requests": requests,
        "query_tokens": tokens,
        "prefill_tokens": tokens,
        "sampled_rows": requests,
        "context_tokens": held,
        "causal_pairs": pairs,
        "prefill_pairs": pairs,
        "context_blocks": held / (info.block_tokens or 1),
    }
    try:
        floor_s = float(case.roofline.analyse(StepTable({n: np.array([v]) for n, v in columns.items()})).floor_s[0])
    except RooflensError:
        return None
    return floor_s if math.isfinite(floor_s) else None


def _longest_context(case: Case) -> float:
    """The longest context that a request may have, in tokens; 0 where nothing tells.

    As the engine limits it, else the model's own limit, else the whole pool; and what was seen in any case.
    """
    info = case.info
    limit = info.max_context_tokens if info is not None else None
    if limit is None and info is not None:
        told = (info.model_config or {}).get(CONTEXT_FIELD)
        limit = told if isinstance(told, int) else (info.kv_blocks or 0) * (info.block_tokens or 0)
    tables = [window.steps for window in case.windows] if case.recent is None else [case.recent]
    seen = max((float(filled(t, "max_context_tokens").max()) for t in tables if len(t)), default=0.0)
    return max(float(limit or 0), seen)
