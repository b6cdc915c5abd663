"""TensorRT-LLM's iteration statistics: one JSON object a step, in its log, in its files and at ``/metrics``.

Read in cpp/tensorrt_llm/executor/jsonSerialization (0.18 to 1.3), in the C++ GptManager's statistics of 0.5 to 0.17
(names with blanks), and in issues TensorRT-LLM#3376, #431, tensorrtllm_backend#217 and pull requests #13199, #14127.
``iterLatencyMS`` is 0.0 in the first record of a run: that is not a time. Under the overlap scheduler it spans about
two loops; ``hostStepTimeMS`` is that of one. ``usedNumBlocks`` counts the blocks that are
kept for reuse: 5,495 with one request and 250 allocated.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, TypeGuard

from rooflens.adapters.logs.prefix import ranks_of
from rooflens.adapters.logs.times import stamp
from rooflens.log_records import LogRecord, RecordKind

ENGINE = "tensorrt-llm"
MARKS = ('"iterLatencyMS"', '"inflightBatchingStats"', '"Iteration Counter"', '"Active Request Count"')
MOST_RECORDS = 1024  # of one line; the engine keeps 1000
MOST_UNKNOWN = 16
MOST_DEPTH = 3
LARGEST = 1e18
MILLI = 1e-3
# Of each key: what it is called here and what it is multiplied with; "" for one that is not kept.
KEYS: Mapping[str, tuple[str, float]] = {
    "iter": ("iteration", 1),
    "iterLatencyMS": ("iteration_s", MILLI),
    "hostStepTimeMS": ("", MILLI),  # see _step_time
    "prevDeviceStepTimeMS": ("previous_device_s", MILLI),
    "newActiveRequestsQueueLatencyMS": ("queue_s", MILLI),
    "numActiveRequests": ("active_requests", 1),
    "numNewActiveRequests": ("new_requests", 1),
    "numQueuedRequests": ("queued_requests", 1),
    "numCompletedRequests": ("completed_requests", 1),
    "maxNumActiveRequests": ("max_active_requests", 1),
    "maxBatchSizeRuntime": ("max_sequences", 1),
    "maxBatchSizeStatic": ("max_sequences_static", 1),
    "maxBatchSizeTunerRecommended": ("", 1),
    "maxNumTokensRuntime": ("max_batched_tokens", 1),
    "maxNumTokensStatic": ("max_batched_tokens_static", 1),
    "maxNumTokensTunerRecommended": ("", 1),
    "cpuMemUsage": ("cpu_bytes", 1),
    "gpuMemUsage": ("gpu_bytes", 1),
    "pinnedMemUsage": ("pinned_bytes", 1),
    "numScheduledRequests": ("scheduled_requests", 1),
    "numContextRequests": ("context_requests", 1),
    "numGenRequests": ("generation_requests", 1),
    "numPausedRequests": ("paused", 1),
    "numCtxTokens": ("context_tokens", 1),
    "numGenTokens": ("generation_tokens", 1),
    "numCtxKvTokens": ("context_kv_tokens", 1),
    "numGenKvTokens": ("generation_kv_tokens", 1),
    "numPausedKvTokens": ("paused_kv_tokens", 1),
    "numQueuedContextRequests": ("queued_context_requests", 1),
    "numQueuedCtxTokens": ("queued_context_tokens", 1),
    "numQueuedGenRequests": ("queued_generation_requests", 1),
    "numQueuedGenKvTokens": ("queued_generation_kv_tokens", 1),
    "avgNumDecodedTokensPerIter": ("decoded_tokens_mean", 1),
    "microBatchId": ("micro_batch", 1),
    "emptyGenSlots": ("empty_slots", 1),
    "maxNumBlocks": ("kv_blocks", 1),
    "freeNumBlocks": ("kv_blocks_free", 1),
    "usedNumBlocks": ("kv_blocks_used", 1),
    "tokensPerBlock": ("block_tokens", 1),
    "allocTotalBlocks": ("allocated_blocks", 1),
    "allocNewBlocks": ("newly_allocated_blocks", 1),
    "reusedBlocks": ("reused_blocks", 1),
    "missedBlocks": ("missed_blocks", 1),
    "cacheHitRate": ("prefix_hit_ratio", 1),
    "numDraftTokens": ("drafted_tokens", 1),
    "numAcceptedTokens": ("accepted_tokens", 1),
    "numRequestsWithDraftTokens": ("speculating_requests", 1),
    "acceptanceLength": ("acceptance_length", 1),
    "draftOverhead": ("draft_overhead_ratio", 1),
    "Iteration Counter": ("iteration", 1),
    "Active Request Count": ("active_requests", 1),
    "Max Request Count": ("max_sequences", 1),
    "Scheduled Requests": ("scheduled_requests", 1),
    "Context Requests": ("context_requests", 1),
    "Generation Requests": ("generation_requests", 1),
    "Paused Requests": ("paused", 1),
    "Waiting Requests": ("queued_requests", 1),
    "Total Context Tokens": ("context_tokens", 1),
    "Total Generation Tokens": ("generation_tokens", 1),
    "Empty Generation Slots": ("empty_slots", 1),
    "MicroBatch ID": ("micro_batch", 1),
    "Max KV cache blocks": ("kv_blocks", 1),
    "Free KV cache blocks": ("kv_blocks_free", 1),
    "Used KV cache blocks": ("kv_blocks_used", 1),
    "Tokens per KV cache block": ("block_tokens", 1),
    "Allocated total KV cache blocks": ("allocated_blocks", 1),
    "Allocated new KV cache blocks": ("newly_allocated_blocks", 1),
    "Reused KV cache blocks": ("reused_blocks", 1),
    "Fraction used KV cache blocks": ("kv_used_ratio", 1),
    "KV cache transfer time": ("kv_transfer_s", MILLI),
    "Request count": ("", 1),
    "Runtime CPU Memory Usage": ("cpu_bytes", 1),
    "Runtime GPU Memory Usage": ("gpu_bytes", 1),
    "Runtime Pinned Memory Usage": ("pinned_bytes", 1),
}
# Parts of the object that are read too; what else is an object or a list in it (requestStats) tells of requests.
PARTS = ("inflightBatchingStats", "staticBatchingStats", "kvCacheStats", "specDecStats", "specDecodingStats")
LATENCY = "iterLatencyMS"  # that of drafting has the same name in its own part
RANKS = {"attentionDpRank": "dp", "rank": "rank"}
TIMESTAMPS = ("timestamp", "Timestamp")
HOST_STEP, SCHEDULER_MODE = "hostStepTimeMS", "schedulerMode"
TEXTS = (*TIMESTAMPS, SCHEDULER_MODE)
# A 0 of these is no measurement: nothing takes no time, and no draft is verified in nothing.
NOT_ZERO = ("iteration_s", "previous_device_s", "acceptance_length")


def stats_record(data: Mapping[str, Any], now_unix_s: float = math.inf) -> LogRecord:
    """One step from its JSON object: kind ITERATION; what is no finite number is left out, unknown keys are named.

    ``now_unix_s`` is not needed for its stamps, which have a year.
    """
    values: dict[str, float] = {}
    unknown: list[str] = []
    ranks: dict[str, int] = {}
    _read(data, values, ranks, unknown, 0)
    _step_time(data, values)
    for name in NOT_ZERO:
        if values.get(name) == 0:
            del values[name]
    told = next((data[key] for key in TIMESTAMPS if isinstance(data.get(key), str)), "")
    unix_s = stamp(told[:64], 0.0)
    return LogRecord(ENGINE, RecordKind.ITERATION, values, {}, ranks, unix_s, tuple(unknown))


def _step_time(data: Mapping[str, Any], values: dict[str, float]) -> None:
    """The host's time of a step before the latency, wherever it stands; under overlap a latency is no step's time."""
    host_ms = data.get(HOST_STEP)
    if _is_number(host_ms) and host_ms > 0:
        values["iteration_s"] = host_ms / 1e3
    elif data.get(SCHEDULER_MODE) == "overlap":
        values.pop("iteration_s", None)


def _is_number(value: object) -> TypeGuard[int | float]:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return abs(value) < LARGEST


def _read(
    data: Mapping[str, Any], values: dict[str, float], ranks: dict[str, int], unknown: list[str], depth: int
) -> None:
    for key, value in data.items():
        if isinstance(value, (int, float)):  # nearly all of them; a look at an abstract class takes longer
            if key in TEXTS or not _is_number(value):
                continue
            if key in RANKS:
                ranks[RANKS[key]] = int(value)
            elif key in KEYS:
                name, factor = KEYS[key]
                if name and name not in values:
                    values[name] = value / 1e3 if factor == MILLI else float(value * factor)
            else:
                _name(key, unknown)
        elif isinstance(value, str):
            if key not in TEXTS and key not in KEYS and key not in RANKS:
                _name(key, unknown)
        elif isinstance(value, Mapping):
            if key in PARTS and depth < MOST_DEPTH:
                own = {k: v for k, v in value.items() if not (k == LATENCY and key.startswith("spec"))}
                _read(own, values, ranks, unknown, depth + 1)
            elif key not in PARTS:
                _name(key, unknown)


def _name(key: str, unknown: list[str]) -> None:
    if len(unknown) < MOST_UNKNOWN and len(key) <= 64 and key.replace(" ", "").replace("_", "").isalnum():
        unknown.append(key)


def stats_records(line: str, unix_s: float | None, now_unix_s: float) -> tuple[LogRecord, ...]:
    """The steps on a line that holds one object or a list of them, whatever stands before; none if it is cut off."""
    begins = [at for at in (line.find("{"), line.find("[{")) if at >= 0]
    if not begins:
        return ()
    start = min(begins)
    try:
        data, _ = json.JSONDecoder().raw_decode(line, start)
    except (ValueError, RecursionError):
        return ()
    found = data if isinstance(data, list) else [data]
    before = ranks_of(line[:start])
    records = []
    for each in found[:MOST_RECORDS]:
        if not isinstance(each, Mapping):
            continue
        record = stats_record(each, now_unix_s)
        if record.values:
            ranks = {**before, **record.ranks}
            own = record.unix_s if record.unix_s is not None else unix_s
            records.append(LogRecord(ENGINE, record.kind, record.values, {}, ranks, own, record.unknown))
    return tuple(records)
