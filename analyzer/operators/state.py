"""Mixers whose memory does not grow: linear attention, gated delta nets, Mamba.

A sequence's state is read and written once a pass, however many of its tokens the pass computes; the first pass of its
prompt has none to read.
"""

from __future__ import annotations

from collections.abc import Iterator

from rooflens.analyzer.operators.shard import Shard
from rooflens.analyzer.precision import KV_FORMATS, WEIGHT_FORMATS
from rooflens.analyzer.work import Work
from rooflens.arch_records import StateMixer


def state_rows(shard: Shard, count: int, mixer: StateMixer) -> Iterator[Work]:
    """The rows of ``count`` layers; their heads, and with them the state, are divided over the devices."""
    hidden, devices = shard.hidden, shard.devices
    columns, rows = mixer.in_columns / devices, mixer.out_rows / devices
    yield from shard.matrix("state_in_projection", "state", count, hidden, columns, hidden * mixer.in_columns)
    yield _state(shard, count, mixer)
    yield from shard.matrix("state_out_projection", "state", count, rows, hidden, mixer.out_rows * hidden)


def _state(shard: Shard, count: int, mixer: StateMixer) -> Work:
    """The recurrence: its flops may run in the state's format or, in chunks of a prefill, in that of activations."""
    precision, devices = shard.precision, shard.devices
    kept = KV_FORMATS[precision.state or mixer.state_format]
    sequence_bytes = mixer.state_elements * kept.bytes_per_element
    sequence_bytes += mixer.conv_state_elements * precision.activation_bytes
    own_bytes = count * sequence_bytes / devices
    weight_bytes = count * mixer.other_elements * precision.activation_bytes / devices
    return Work(
        "state",
        "state",
        tuple(dict.fromkeys((*kept.compute, *WEIGHT_FORMATS[precision.activations].compute))),
        calls=count,
        flops={"query_tokens": count * mixer.token_flops / devices},
        weight_bytes={"passes": weight_bytes},
        state_bytes={"requests": own_bytes, "continued_requests": own_bytes},
        stored_bytes={"requests": own_bytes},
        activation_bytes=shard.passed(count, (mixer.in_columns + mixer.out_rows) / devices),
        resident_bytes=weight_bytes,
        elements=count * mixer.other_elements,
    )
