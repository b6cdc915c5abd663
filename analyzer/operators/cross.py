"""A decoder layer's attention to the encoder's output: keys and values computed once, then read in every pass.

Their projection is not charged to a pass, since a pass computes them for the sequences that begin in it alone.
"""

from __future__ import annotations

from collections.abc import Iterator

from rooflens.analyzer.operators.shard import Shard
from rooflens.analyzer.operators.softmax import cached_heads, kv_heads
from rooflens.analyzer.work import Work
from rooflens.arch_records import CrossAttention


def cross_rows(shard: Shard, count: int, cross: CrossAttention) -> Iterator[Work]:
    """The rows of ``count`` layers; the fewest pairs are those of one query a sequence."""
    hidden, heads = shard.hidden, cross.heads // shard.devices
    whole = hidden * cross.heads * cross.head_dim
    yield from shard.matrix("cross_query_projection", "attention", count, hidden, heads * cross.head_dim, whole)
    elements = count * 2 * hidden * kv_heads(shard, cross.kv_heads) * cross.head_dim
    yield Work(
        "cross_kv_projection",
        "linear",
        resident_bytes=elements * shard.mean_bytes("attention"),
        elements=count * 2 * hidden * cross.kv_heads * cross.head_dim,
    )
    head_bytes = cross.head_dim * shard.kv.bytes_per_element + shard.kv.head_bytes
    token_bytes = 2 * count * cached_heads(shard, cross.kv_heads) * head_bytes
    yield Work(
        "cross_attention",
        "attention",
        shard.kv.compute,
        calls=count,
        flops={"encoder_tokens": 4 * count * heads * cross.head_dim},
        kv_read_bytes={"encoder_tokens": token_bytes},
        stored_bytes={"encoder_tokens": token_bytes},
        activation_bytes=shard.passed(count, 2 * heads * cross.head_dim),
    )
    yield from shard.matrix("cross_output_projection", "attention", count, heads * cross.head_dim, hidden, whole)
