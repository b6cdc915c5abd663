"""What one reading alone says: what the engine holds at that moment, and what it has done in its whole life."""

from __future__ import annotations

from rooflens.adapters.scrape.pool import pool_of
from rooflens.adapters.scrape.readings import Reading
from rooflens.live_records import Load


def load_of(reading: Reading) -> Load:
    """What the engine held when the page was read."""
    pool, used, waiting = pool_of(reading), reading.get("kv_used"), reading.get("waiting_capacity")
    if waiting is None and (every := reading.get("waiting")) is not None:
        waiting = every + (reading.get("swapped") or 0)
    return Load(
        monotonic_s=reading.monotonic_s,
        running=reading.get("running"),
        waiting=waiting,
        deferred=reading.get("waiting_deferred"),
        kv_blocks_used=used * pool.blocks if pool is not None and used is not None else None,
    )


def steps_made(reading: Reading) -> int | None:
    """Steps since the engine began; where they are not counted, as many as its tokens need at the batch of now."""
    counted = reading.get("iteration_tokens_count")
    if counted is None and (tokens := reading.get("generated_tokens")) is not None:
        counted = tokens / max(reading.get("running") or 0.0, 1.0)
    return None if counted is None else round(counted)


def mean_step_s(reading: Reading) -> float | None:
    """Mean time from a token to the next one of its sequence since the engine began; None before the first."""
    total, count = reading.get("inter_token_sum"), reading.get("inter_token_count")
    return total / count if total is not None and count else None


def has_requests(reading: Reading) -> bool:
    """Whether requests run or wait."""
    return bool((reading.get("running") or 0) > 0 or (reading.get("waiting") or 0) > 0)


def has_work(reading: Reading) -> bool | None:
    """Whether a request runs or waits for capacity: what is deferred waits for something else than a step.

    None where requests wait, none runs, and it is not told what for (before vLLM 0.24).
    """
    capacity = reading.get("waiting_capacity")
    if max(reading.get("running") or 0, reading.get("swapped") or 0, capacity or 0) > 0:
        return True
    return None if capacity is None and (reading.get("waiting") or 0) > 0 else False
