"""What chooses the entries that a sparse attention reads: every key is read and multiplied, top_k survive.

Strict: where there are no more than top_k there is nothing to choose, and an engine may skip it, but for keeping keys.
Its weights and keys are replicated on the tensor-parallel devices, as every engine that runs it does, but for query
heads that belong to KV heads. The keys count in the format of the KV cache unless the precision names one of their
own: vLLM and SGLang keep them in fp8 or fp4 whatever the cache is in, and multiply them so.
"""

from __future__ import annotations

from collections.abc import Iterator

from rooflens.analyzer.number_formats import KV_FORMATS, indexer_key_bytes
from rooflens.analyzer.operators.shard import Shard
from rooflens.analyzer.work import Work
from rooflens.arch_records import Indexer
from rooflens.spans import OVER, spanned

NARROW = ("mxfp4", "nvfp4", "fp8")  # what index products may run in, whatever the KV cache is kept in


def indexer_rows(shard: Shard, count: int, indexer: Indexer, query_width: int, ratio: int = 1) -> Iterator[Work]:
    """The rows of ``count`` layers whose index queries come from ``query_width`` elements.

    ``ratio`` tokens share one key, which then comes out of a compressor (compressed.py) and not of a matrix here. A
    column for each head weighs the heads.
    """
    if indexer.shared:
        return
    queries = query_width * indexer.heads * indexer.head_dim
    yield from _matrix(shard, "index_queries", count, query_width, indexer.heads * indexer.head_dim, queries)
    yield from _matrix(shard, "index_weights", count, shard.hidden, indexer.heads, shard.hidden * indexer.heads)
    if ratio == 1:
        yield from _keys(shard, count, indexer)
    yield _scores(shard, count, indexer, indexer.heads, ratio)


def block_indexer_rows(shard: Shard, count: int, indexer: Indexer) -> Iterator[Work]:
    """The same beside softmax attention, where each index head chooses for its KV head and is divided like it."""
    if indexer.shared:
        return
    heads = max(1, indexer.heads // shard.devices)
    queries = shard.hidden * indexer.heads * indexer.head_dim
    yield from _matrix(shard, "index_queries", count, shard.hidden, heads * indexer.head_dim, queries)
    yield from _keys(shard, count, indexer)
    yield _scores(shard, count, indexer, heads, 1)


def _keys(shard: Shard, count: int, indexer: Indexer) -> tuple[Work, ...]:
    elements = shard.hidden * indexer.head_dim
    return _matrix(shard, "index_keys", count, shard.hidden, indexer.head_dim, elements)


def _matrix(shard: Shard, operator: str, count: int, rows: int, columns: int, whole: int) -> tuple[Work, ...]:
    return shard.matrix(operator, "indexer", count, rows, columns, whole, group="indexer")


def _scores(shard: Shard, count: int, indexer: Indexer, heads: int, ratio: int) -> Work:
    """``heads`` times the one key of each entry: 2 x head_dim flops for each head and pair."""
    kept = shard.precision.indexer_keys or shard.precision.kv
    key_bytes = indexer_key_bytes(kept, indexer.head_dim)
    entries = count / ratio / indexer.pool / shard.deployment.context  # of this device, for each token
    span = f"{OVER}{indexer.idle_tokens(ratio)}"
    return Work(
        "index_scores",
        "indexer",
        tuple(dict.fromkeys((*NARROW, *KV_FORMATS[kept].compute))),
        calls=count,
        flops={spanned("causal_pairs", span): 2 * entries * heads * indexer.head_dim},
        kv_read_bytes={spanned("context_tokens", span): entries * key_bytes},
        kv_write_bytes={"query_tokens": entries * key_bytes},
        stored_bytes={"context_tokens": entries * key_bytes},
        activation_bytes=shard.passed(count, heads * indexer.head_dim),
    )
