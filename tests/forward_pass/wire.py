"""Messages as engines write them: real msgspec Structs with the fields, order and defaults of their sources.

The maps: Dynamo 327e70f4 (without version) and later, SGLang 0.5.12 to 0.5.23, vLLM pull request 52061.
"""

from __future__ import annotations

from typing import Any

import msgspec


class Scheduled(msgspec.Struct, frozen=True, gc=False):
    num_prefill_requests: int = 0
    sum_prefill_tokens: int = 0
    var_prefill_length: float = 0.0
    sum_prefill_kv_tokens: int = 0
    num_decode_requests: int = 0
    sum_decode_kv_tokens: int = 0
    var_decode_kv_tokens: float = 0.0


class Queued(msgspec.Struct, frozen=True, gc=False):
    num_prefill_requests: int = 0
    sum_prefill_tokens: int = 0
    var_prefill_length: float = 0.0
    num_decode_requests: int = 0
    sum_decode_kv_tokens: int = 0
    var_decode_kv_tokens: float = 0.0


class Sent(msgspec.Struct, frozen=True, gc=False):
    """Dynamo and SGLang, version 1."""

    version: int = 1
    worker_id: str = ""
    dp_rank: int = 0
    counter_id: int = 0
    wall_time: float = 0.0
    scheduled_requests: Scheduled = Scheduled()
    queued_requests: Queued = Queued()


class SentByVllm(msgspec.Struct, frozen=True, gc=False):
    """vLLM's pull request 52061: version 1 with the scope of its time."""

    version: int = 1
    worker_id: str = ""
    dp_rank: int = 0
    counter_id: int = 0
    timing_scope: str = "model_step_cuda"
    wall_time: float = 0.0
    scheduled_requests: Scheduled = Scheduled()
    queued_requests: Queued = Queued()


class SentFirst(msgspec.Struct, frozen=True, gc=False):
    """Dynamo's first form."""

    worker_id: str = ""
    dp_rank: int = 0
    wall_time: float = 0.0
    scheduled_requests: Scheduled = Scheduled()
    queued_requests: Queued = Queued()


class ScheduledPlaces(Scheduled, frozen=True, gc=False, array_like=True):
    """The same by position."""


class QueuedPlaces(Queued, frozen=True, gc=False, array_like=True):
    """The same by position."""


class SentPlaces(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Version 1 by position, as SGLang's docstring says it is."""

    version: int = 1
    worker_id: str = ""
    dp_rank: int = 0
    counter_id: int = 0
    wall_time: float = 0.0
    scheduled_requests: ScheduledPlaces = ScheduledPlaces()
    queued_requests: QueuedPlaces = QueuedPlaces()


class LaterPlaces(SentPlaces, frozen=True, gc=False, array_like=True):
    """A later form with one more place."""

    spec_tokens: int = 7


SCHEDULED = Scheduled(2, 256, 100.0, 64, 3, 1024, 50.0)  # of the example in Dynamo's documentation of its trace
QUEUED = Queued(num_prefill_requests=1, sum_prefill_tokens=128)
DECODE = Scheduled(num_decode_requests=4, sum_decode_kv_tokens=4096)


def packed(message: Any) -> bytes:
    return msgspec.msgpack.encode(message)


def frames(message: Any) -> tuple[bytes, bytes, bytes]:
    """As all three publishers send it."""
    return b"", message.counter_id.to_bytes(8, "big"), packed(message)
