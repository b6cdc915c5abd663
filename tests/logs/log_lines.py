"""Lines as engines write them, for tests of what follows from them: forms of vllm#36748, sglang#938, vLLM 0.32."""

from __future__ import annotations

import datetime
from collections.abc import Iterable

from rooflens.adapters.logs.clock import Clock
from rooflens.adapters.logs.lines import LineReader
from rooflens.adapters.logs.rows import LogEngines
from rooflens.protocols import Batch

BEGIN = datetime.datetime(2026, 6, 23, 10, 0, 0).timestamp()
CONFIG = (
    "(EngineCore pid=5) INFO 06-23 09:59:00 [core.py:1] Initializing a V1 LLM engine (v0.32.0) with config: "
    "model='/models/secret/Meta-Llama-3-8B-Instruct', tokenizer='/models', dtype=torch.bfloat16, max_seq_len=8192, "
    "tensor_parallel_size=1, quantization=None"
)
POOL = "(EngineCore pid=5) INFO 06-23 09:59:10 [kv_cache_utils.py:1319] GPU KV cache size: 160,000 tokens"
FITS = "INFO 06-23 09:59:10 [kv_cache_utils.py:1324] Maximum concurrency for 8,000 tokens per request: 20.00x"


def stamp(at_s: float) -> str:
    return datetime.datetime.fromtimestamp(BEGIN + at_s).strftime("%m-%d %H:%M:%S")


def vllm(at_s: float, rate: float, running: int = 8, waiting: int = 0, used: float = 10.0, prompt: float = 0.0,
         engine: int = 0) -> str:  # fmt: skip
    return (
        f"(APIServer pid=554) INFO {stamp(at_s)} [loggers.py:271] Engine {engine:03d}: Avg prompt throughput: "
        f"{prompt:.1f} tokens/s, Avg generation throughput: {rate:.1f} tokens/s, Running: {running} reqs, Waiting: "
        f"{waiting} reqs, GPU KV cache usage: {used:.1f}%, Prefix cache hit rate: 0.0%"
    )


def iteration(number: int, at_s: float, ms: float, prompts: int = 0, prompt_tokens: int = 0, decodes: int = 8,
              dummy: str = "") -> str:  # fmt: skip
    return (
        f"(EngineCore pid=5) INFO {stamp(at_s)} [core.py:399] Iteration({number}): {prompts} context requests, "
        f"{prompt_tokens} context tokens, {decodes} generation requests, {decodes} generation tokens, iteration "
        f"elapsed time: {ms:.2f} ms{dummy}, GPU KV cache usage: 10.0%"
    )


def decode(at_s: float, rate: float, running: int = 8, tokens: int = 62_531, rank: str = "TP0", queue: int = 0) -> str:
    when = datetime.datetime.fromtimestamp(BEGIN + at_s).strftime("%Y-%m-%d %H:%M:%S")
    return (
        f"[{when} {rank}] Decode batch. #running-req: {running}, #token: {tokens}, token usage: 0.12, gen throughput "
        f"(token/s): {rate:.2f}, #queue-req: {queue}, "
    )


def prefill(at_s: float, running: int, tokens: int = 791, sequences: int = 2, rank: str = "TP0") -> str:
    when = datetime.datetime.fromtimestamp(BEGIN + at_s).strftime("%Y-%m-%d %H:%M:%S")
    return (
        f"[{when} {rank}] Prefill batch. #new-seq: {sequences}, #new-token: {tokens}, #cached-token: 180, cache hit "
        f"rate: 11.56%, token usage: 0.02, #running-req: {running}, #queue-req: 0"
    )


def engines_of(lines: Iterable[str]) -> list[Batch]:
    """What a log of these lines tells, read at once."""
    engines, reader = LogEngines("log", Clock(0.0)), LineReader(now_unix_s=BEGIN + 86_400)
    for line in lines:
        for record in reader.take(line):
            engines.take(record)
    for record in reader.close():
        engines.take(record)
    engines.flush()
    return engines.drain()


def told_by(batch: Batch, name: str) -> list[float | None]:
    """A column with None where it is not known."""
    if name not in batch.steps.columns:
        return [None] * len(batch.steps)
    values, known = batch.steps[name].tolist(), batch.steps.where(name).tolist()
    return [value if is_known else None for value, is_known in zip(values, known, strict=True)]
