"""What chooses the entries that a sparse attention reads: every key is read and multiplied, top_k survive.

Its weights and keys are replicated on the tensor-parallel devices, as every engine that runs it does. The keys count
in the format of the KV cache unless the precision names one of their own: vLLM and SGLang keep them in fp8 whatever
the cache is in. Their products may run in fp8 always.
"""

from __future__ import annotations

from collections.abc import Iterator

from rooflens.analyzer.number_formats import indexer_key_bytes
from rooflens.analyzer.operators.shard import Shard
from rooflens.analyzer.work import Work
from rooflens.arch_records import Indexer


def indexer_rows(shard: Shard, count: int, indexer: Indexer, query_width: int, ratio: int = 1) -> Iterator[Work]:
    """The rows of ``count`` layers whose index queries come from ``query_width`` elements.

    ``ratio`` tokens share one key, which then comes out of a compressor (compressed.py) and not of a matrix here.
    """
    if indexer.shared:
        return
    queries = indexer.heads * indexer.head_dim
    yield from _replicated(shard, "index_queries", count, query_width, queries)
    yield from _replicated(shard, "index_weights", count, shard.hidden, indexer.heads)
    if ratio == 1:
        yield from _replicated(shard, "index_keys", count, shard.hidden, indexer.head_dim)
    yield _scores(shard, count, indexer, ratio)


def _replicated(shard: Shard, operator: str, count: int, rows: int, columns: int) -> tuple[Work, ...]:
    return shard.matrix(operator, "indexer", count, rows, columns, rows * columns, group="indexer")


def _scores(shard: Shard, count: int, indexer: Indexer, ratio: int) -> Work:
    """All heads times the one key of each entry: 2 x head_dim flops for each head and pair."""
    keys = shard.index_keys
    key_bytes = indexer_key_bytes(shard.precision.indexer_keys or shard.precision.kv, indexer.head_dim)
    token_bytes = count * key_bytes / ratio / shard.deployment.context
    return Work(
        "index_scores",
        "indexer",
        tuple(dict.fromkeys(("fp8", *keys.compute))),
        calls=count,
        flops={"causal_pairs": 2 * count * indexer.heads * indexer.head_dim / ratio},
        kv_read_bytes={"context_tokens": token_bytes},
        kv_write_bytes={"query_tokens": token_bytes},
        stored_bytes={"context_tokens": token_bytes},
        activation_bytes=shard.passed(count, indexer.heads * indexer.head_dim),
    )
