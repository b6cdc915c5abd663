"""Steps of an engine that was never run: known times, known noise, known faults."""

from __future__ import annotations

from typing import Any

import numpy as np

from rooflens.analyzer.diff.steps import Run, run_of
from rooflens.records import StepKind, StepTable

BASE_S, REQUEST_S, QUERY_S, CONTEXT_S = 0.010, 0.0002, 0.00005, 1e-7
JITTER = 0.02  # standard deviation of the logarithm of a step's time
HOST_S = 0.0002


def made_steps(
    seed: int,
    *,
    steps: int = 400,
    slower: float = 0.0,
    host_s: float = HOST_S,
    kv: float = 0.0,
    batch: tuple[int, int] = (4, 8),
    context: tuple[int, int] = (200, 900),
    run_sd: float = 0.0,
    correlation: float = 0.5,
    jitter: float = JITTER,
    prefill: float = 0.1,
) -> StepTable:
    """``steps`` of decode and some of mixed; ``slower`` multiplies the work, ``kv`` only what the context costs.

    The noise is autoregressive, and ``run_sd`` is that of a factor that the whole run has.
    """
    random = np.random.default_rng(seed)
    requests = random.integers(batch[0], batch[1], steps)
    mixed = random.random(steps) < prefill
    tokens = np.where(mixed, random.integers(32, 128, steps), 0)
    held = requests * random.integers(context[0], context[1], steps)
    work = BASE_S + REQUEST_S * requests + QUERY_S * (requests + tokens) + CONTEXT_S * (1 + kv) * held * 10
    noise = np.zeros(steps)
    shocks = random.normal(0, jitter * np.sqrt(1 - correlation**2), steps)
    for at in range(1, steps):
        noise[at] = correlation * noise[at - 1] + shocks[at]
    observed = work * (1 + slower) * np.exp(noise + random.normal(0, run_sd))
    output = np.cumsum(observed + host_s)
    return StepTable(
        {
            "sequence": np.arange(1, steps + 1),
            "kind": np.where(mixed, int(StepKind.MIXED), int(StepKind.DECODE)),
            "unix_s": 1_700_000_000.0 + output,
            "submit_monotonic_s": output - observed,
            "output_monotonic_s": output,
            "observed_s": observed,
            "requests": requests,
            "query_tokens": requests + tokens,
            "context_tokens": held,
            "causal_pairs": held + tokens * 100,
            "running": requests,
            "waiting": np.zeros(steps, dtype=np.int64),
            "deferred": np.zeros(steps, dtype=np.int64),
            "resolution_steps": np.ones(steps, dtype=np.int64),
        }
    )


def made_run(seed: int, **settings: Any) -> Run:
    """The same as a run to compare."""
    run = run_of(f"made {seed}", made_steps(seed, **settings))
    assert run is not None
    return run
