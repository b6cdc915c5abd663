"""DeepSeek V4's attention: recent entries whole, older ones compressed, an indexer's choice or all of them.

A compressor weighs ``ratio`` tokens into one entry: one matrix for what goes in, one for its weight, each twice as
wide where entries overlap, which they do where an indexer chooses among them.
Entries count as context / ratio, at most one more than are whole yet. Queries, output and the indexer's scores follow
the model's published code (transformers, modeling_deepseek_v4). The one entry of a token is key and value at once and
replicated on the tensor-parallel devices; what a compressor holds of an entry not yet whole is not counted.
"""

from __future__ import annotations

from collections.abc import Iterator

from rooflens.analyzer.number_formats import latent_bytes
from rooflens.analyzer.operators.indexer import indexer_rows
from rooflens.analyzer.operators.shard import Shard
from rooflens.analyzer.work import Work
from rooflens.arch_records import CompressedAttention
from rooflens.spans import WINDOW, spanned


def compressed_rows(shard: Shard, count: int, mixer: CompressedAttention) -> Iterator[Work]:
    """The rows of ``count`` layers."""
    hidden, wide = shard.hidden, mixer.heads * mixer.head_dim
    queries = mixer.q_rank * wide
    yield from shard.matrix("q_down_projection", "attention", count, hidden, mixer.q_rank, hidden * mixer.q_rank)
    yield from shard.matrix("q_projection", "attention", count, mixer.q_rank, wide // shard.devices, queries)
    yield from shard.matrix("kv_projection", "attention", count, hidden, mixer.head_dim, hidden * mixer.head_dim)
    if mixer.ratio:
        yield from _compressor(shard, "compressor", "attention", count, mixer, mixer.head_dim)
        if mixer.indexer:
            yield from _index(shard, count, mixer)
    yield _window(shard, count, mixer)
    if mixer.ratio:
        yield _entries(shard, count, mixer)
    yield from _output(shard, count, mixer)


def _compressor(
    shard: Shard, operator: str, tensors: str, count: int, mixer: CompressedAttention, width: int
) -> tuple[Work, ...]:
    columns = width * (2 if mixer.indexer else 1)
    group = "indexer" if tensors == "indexer" else "linear"
    return shard.matrix(operator, tensors, count, shard.hidden, 2 * columns, 2 * shard.hidden * columns, group=group)


def _index(shard: Shard, count: int, mixer: CompressedAttention) -> Iterator[Work]:
    indexer = mixer.indexer
    if indexer is None or indexer.shared:
        return
    yield from _compressor(shard, "index_compressor", "indexer", count, mixer, indexer.head_dim)
    yield from indexer_rows(shard, count, indexer, mixer.q_rank, mixer.ratio)


def _window(shard: Shard, count: int, mixer: CompressedAttention) -> Work:
    return _over(shard, "window_attention", count, mixer, f"{WINDOW}{mixer.window_tokens}", 1)


def _entries(shard: Shard, count: int, mixer: CompressedAttention) -> Work:
    """min(context / ratio, top_k) entries are min(context, ratio x top_k) / ratio."""
    span = f"{WINDOW}{mixer.ratio * mixer.indexer.top_k}" if mixer.indexer else ""
    return _over(shard, "compressed_attention", count, mixer, span, mixer.ratio)


def _over(shard: Shard, operator: str, count: int, mixer: CompressedAttention, span: str, ratio: int) -> Work:
    """Attention over one entry for each ``ratio`` tokens of ``span``: 4 flops for each head, pair and element."""
    heads = mixer.heads // shard.devices
    entry_bytes = latent_bytes(shard.precision.kv, mixer.head_dim - mixer.rope_dim, mixer.rope_dim)
    token_bytes = count * entry_bytes / ratio / shard.deployment.context
    kept = spanned("context_tokens", span) if ratio == 1 else "context_tokens"
    return Work(
        operator,
        "attention",
        shard.kv.compute,
        calls=count,
        flops={spanned("causal_pairs", span): 4 * count * heads * mixer.head_dim / ratio},
        kv_read_bytes={spanned("context_tokens", span): token_bytes},
        kv_write_bytes={"query_tokens": token_bytes},
        stored_bytes={kept: token_bytes},
        activation_bytes=shard.passed(count, 2 * heads * mixer.head_dim),
    )


def _output(shard: Shard, count: int, mixer: CompressedAttention) -> Iterator[Work]:
    """Heads in groups, each into its rank; then all ranks into the hidden width."""
    each = mixer.heads * mixer.head_dim // mixer.output_groups
    groups = mixer.output_groups / shard.devices
    ranks = mixer.output_groups * mixer.output_rank
    columns = groups * mixer.output_rank
    yield from shard.matrix("output_down_projection", "attention", count, each, columns, each * ranks)
    yield from shard.matrix("output_projection", "attention", count, columns, shard.hidden, ranks * shard.hidden)
