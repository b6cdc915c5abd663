"""The door through which engines push, where the settings of a sidecar have a token for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rooflens.protocols import Feed

if TYPE_CHECKING:
    from rooflens.exporters.http_push import Push


def push_named(settings: Any) -> tuple[Push | None, tuple[Feed, ...]]:
    """What the HTTP server hands bodies to and what the watch reads of them; (None, ()) without a token."""
    from rooflens.config import push_token

    token = push_token(settings)
    if token is None:
        return None, ()
    from rooflens.adapters.push.receiver import Receiver
    from rooflens.exporters.http_push import Push
    from rooflens.pipeline.pushed import PushFeed

    receiver = Receiver()
    return Push(token, receiver.take), (PushFeed(receiver),)
