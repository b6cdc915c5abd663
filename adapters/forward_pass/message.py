"""The frames of one ZMQ message: (topic, sequence of 8 bytes, msgpack payload), as every engine sends them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rooflens.adapters.forward_pass.layout import ForwardPass, NotReadError, forward_pass
from rooflens.records import RooflensError

MOST_FRAMES = 8
LARGEST_PAYLOAD_BYTES = 64 << 10  # a message of version 1 has some 600
SEQUENCE_BYTES = 8
MISSING = "forward-pass messages need msgspec and pyzmq: pip install 'rooflens[feeds]'"


def unpacker() -> Callable[[bytes], Any]:
    """What unpacks msgpack; RooflensError that says what to install where it is not there."""
    try:
        import msgspec
    except ImportError:
        raise RooflensError(MISSING) from None
    return msgspec.msgpack.Decoder().decode


def take(frames: Sequence[bytes], unpack: Callable[[bytes], Any]) -> tuple[int | None, ForwardPass]:
    """The publisher's sequence number (None without such a frame) and the message; NotReadError otherwise.

    A topic, which is empty, may be missing or more than one frame: the payload is the last, the number before it.
    """
    if not frames or len(frames) > MOST_FRAMES:
        raise NotReadError(f"{len(frames)} frames")
    payload = frames[-1]
    if len(payload) > LARGEST_PAYLOAD_BYTES:
        raise NotReadError(f"a payload of {len(payload):,} bytes")
    numbered = len(frames) > 1 and len(frames[-2]) == SEQUENCE_BYTES
    try:
        message = unpack(payload)
    except Exception as error:  # whatever a foreign payload makes an unpacker raise
        raise NotReadError("no msgpack") from error
    read = forward_pass(message)
    return int.from_bytes(frames[-2], "big") if numbered else read.counter, read
