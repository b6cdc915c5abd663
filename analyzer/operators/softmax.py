"""Softmax attention with a cache of keys and values: full, in a window, in chunks, or with another layer's keys.

Lower bounds: K and V of the tokens in the cache are read once for all query heads of a group, those of new tokens are
written and not read back; softmax, rotary and norms are free.
"""

from __future__ import annotations

from collections.abc import Iterator

from rooflens.analyzer.operators.indexer import block_indexer_rows
from rooflens.analyzer.operators.shard import Shard
from rooflens.analyzer.work import Work
from rooflens.arch_records import Attention
from rooflens.spans import CHUNK, WINDOW, spanned


def kv_heads(shard: Shard, heads: int) -> int:
    """KV heads that one device projects: an equal share, at least one."""
    return max(1, heads // shard.devices)


def cached_heads(shard: Shard, heads: int) -> float:
    """KV heads of a token that one device caches, on average over the tokens.

    The tensor / context groups of devices divide the heads, at least one each, and the ``context`` devices of a group
    divide the tokens.
    """
    context = shard.deployment.context
    return max(1, heads * context // shard.devices) / context


def span_of(mixer: Attention) -> str:
    """The span that a query looks back over, "" for all of the context; that of what an indexer can choose at most."""
    if mixer.indexer:
        return f"{WINDOW}{mixer.indexer.top_k}"
    if mixer.window_tokens:
        return f"{WINDOW}{mixer.window_tokens}"
    return f"{CHUNK}{mixer.chunk_tokens}" if mixer.chunk_tokens else ""


def softmax_rows(shard: Shard, count: int, mixer: Attention) -> Iterator[Work]:
    """The rows of ``count`` layers."""
    heads, kv = mixer.heads // shard.devices, kv_heads(shard, mixer.kv_heads)
    yield from shard.matrix(
        "qkv_projection",
        "attention",
        count,
        shard.hidden,
        qkv_columns(mixer, heads, kv),
        shard.hidden * qkv_columns(mixer, mixer.heads, mixer.kv_heads),
    )
    if mixer.indexer:
        yield from block_indexer_rows(shard, count, mixer.indexer)
    yield _attention(shard, count, mixer)
    rows = heads * mixer.value_head_dim
    whole = mixer.heads * mixer.value_head_dim * shard.hidden
    yield from shard.matrix("output_projection", "attention", count, rows, shard.hidden, whole)


def qkv_columns(mixer: Attention, heads: int, kv: int) -> int:
    """Columns of the projection into queries, their gate, keys and values, where each exists."""
    queries = heads * mixer.head_dim * (2 if mixer.output_gate else 1)
    if mixer.kv_shared:
        return queries
    return queries + kv * (mixer.head_dim + (0 if mixer.keys_are_values else mixer.value_head_dim))


def _attention(shard: Shard, count: int, mixer: Attention) -> Work:
    """QK^T and PV: 2 flops x width for each head and query-key pair under the causal mask, with two widths."""
    heads, span = mixer.heads // shard.devices, span_of(mixer)
    width = mixer.head_dim + mixer.value_head_dim
    head_bytes = width * shard.kv.bytes_per_element + 2 * shard.kv.head_bytes
    token_bytes = count * cached_heads(shard, mixer.kv_heads) * head_bytes
    context = spanned("context_tokens", span)
    own = not mixer.kv_shared
    return Work(
        "attention",
        "attention",
        shard.kv.compute,
        calls=count,
        flops={spanned("causal_pairs", span): 2 * count * heads * width},
        kv_read_bytes={context: token_bytes},
        kv_write_bytes={"query_tokens": token_bytes} if own else {},
        stored_bytes={"context_tokens" if mixer.indexer else context: token_bytes} if own else {},
        activation_bytes=shard.passed(count, heads * width),
    )
