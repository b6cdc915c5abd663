"""Multi-head latent attention: absorbed in decode, un-absorbed in prefill (DeepSeek-V2 paper, section 2.1).

In decode the matrices that make keys and values of a latent are multiplied into queries and outputs, so each head
works on the latent itself; in prefill keys and values are made of the new tokens' latents. Strict: a prefill is not
charged for making those of cached latents again. The latent is replicated on the tensor-parallel devices.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rooflens.analyzer.number_formats import latent_bytes
from rooflens.analyzer.operators.indexer import indexer_rows
from rooflens.analyzer.operators.shard import Shard
from rooflens.analyzer.work import Work
from rooflens.arch_records import LatentAttention
from rooflens.spans import WINDOW, spanned


def latent_rows(shard: Shard, count: int, mixer: LatentAttention) -> Iterator[Work]:
    """The rows of ``count`` layers."""
    yield from _queries(shard, count, mixer)
    latent = mixer.kv_rank + mixer.rope_dim
    down = shard.matrix("kv_down_projection", "attention", count, shard.hidden, latent, shard.hidden * latent)
    # Engines keep it and the query's down projection in one matrix (fused_qkv_a_proj): more bytes, no launch more.
    yield from (replace(row, calls=0.0) for row in down) if mixer.q_rank else down
    heads, each = mixer.heads // shard.devices, mixer.nope_dim + mixer.value_dim
    whole = mixer.kv_rank * mixer.heads * each
    yield from shard.matrix("kv_up_projection", "attention", count, mixer.kv_rank, heads * each, whole)
    if mixer.indexer:
        yield from indexer_rows(shard, count, mixer.indexer, mixer.q_rank or shard.hidden)
    yield _attention(shard, count, mixer)
    if mixer.output_gate:
        whole = shard.hidden * mixer.heads * mixer.value_dim
        yield from shard.matrix("output_gate", "attention", count, shard.hidden, heads * mixer.value_dim, whole)
    whole = mixer.heads * mixer.value_dim * shard.hidden
    yield from shard.matrix("output_projection", "attention", count, heads * mixer.value_dim, shard.hidden, whole)


def span_of(mixer: LatentAttention) -> str:
    """The span that a query looks back over, "" for all of the context; that of what an indexer can choose at most."""
    reach = mixer.indexer.top_k if mixer.indexer else mixer.window_tokens
    return f"{WINDOW}{reach}" if reach else ""


def _queries(shard: Shard, count: int, mixer: LatentAttention) -> Iterator[Work]:
    """At once, or through a narrow space whose first matrix every device has."""
    wide = shard.hidden
    if mixer.q_rank is not None:
        wide = mixer.q_rank
        yield from shard.matrix("q_down_projection", "attention", count, shard.hidden, wide, shard.hidden * wide)
    each = mixer.nope_dim + mixer.rope_dim
    columns = mixer.heads // shard.devices * each
    yield from shard.matrix("q_projection", "attention", count, wide, columns, wide * mixer.heads * each)


def _attention(shard: Shard, count: int, mixer: LatentAttention) -> Work:
    """2 flops for each head, pair and element: a latent as key and as value, or a key and a value of the head's own."""
    heads, latent = mixer.heads // shard.devices, mixer.kv_rank + mixer.rope_dim
    span = span_of(mixer)
    token_bytes = count * latent_bytes(shard.precision.kv, mixer.kv_rank, mixer.rope_dim) / shard.deployment.context
    absorbed, own = latent + mixer.kv_rank, mixer.nope_dim + mixer.rope_dim + mixer.value_dim
    return Work(
        "attention",
        "attention",
        shard.kv.compute,
        calls=count,
        flops={
            spanned("decode_pairs", span): 2 * count * heads * absorbed,
            spanned("prefill_pairs", span): 2 * count * heads * own,
        },
        kv_read_bytes={spanned("context_tokens", span): token_bytes},
        kv_write_bytes={"query_tokens": token_bytes},
        stored_bytes={"context_tokens" if mixer.indexer else spanned("context_tokens", span): token_bytes},
        activation_bytes=shard.passed(count, heads * own),
    )
