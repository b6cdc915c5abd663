"""The feeds that the settings of a sidecar name: sources that come by themselves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rooflens.protocols import Feed


def feeds_named(settings: Any) -> tuple[Feed, ...]:
    """One feed for each address of --feed and each file of --log; RooflensError in one line for one that is none."""
    from rooflens.adapters.forward_pass.feed import ForwardPassFeed
    from rooflens.adapters.logs.follow import LogFeed

    return (*(ForwardPassFeed(url) for url in settings.feed_urls), *(LogFeed(path) for path in settings.log_paths))


def feed_lines(feeds: Sequence[Feed]) -> Iterator[str]:
    """What comes by itself, in words."""
    for feed in feeds:
        yield f"{feed.kind:<9} {feed.health().name}"
