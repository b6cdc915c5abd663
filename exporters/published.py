"""The last Snapshot and its pages of metrics: written by the loop, read by many threads."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

from rooflens.exporters.prometheus import render
from rooflens.live_records import Snapshot

# A format that nobody asked for in this time is not rendered ahead; Prometheus asks every minute by default.
LATELY_S = 90.0


@dataclass(slots=True)
class _Current:
    """One Snapshot and the pages made of it so far, by openmetrics."""

    snapshot: Snapshot
    monotonic_s: float
    pages: dict[bool, bytes] = field(default_factory=dict)


class Published:
    """Holds one Snapshot; a page of it is rendered once, ahead of time if its format was asked for lately."""

    def __init__(self) -> None:
        self._current: _Current | None = None
        self._asked_monotonic_s: dict[bool, float] = {}
        self._rendering = threading.Lock()

    @property
    def snapshot(self) -> Snapshot | None:
        """The last one; None before the first."""
        current = self._current
        return current.snapshot if current else None

    def publish(self, snapshot: Snapshot) -> None:
        """Replace the Snapshot by one assignment; a reader sees the old one or the new one, whole."""
        now_s = time.monotonic()
        current = _Current(snapshot, now_s)
        for openmetrics, asked_s in list(self._asked_monotonic_s.items()):
            if now_s - asked_s <= LATELY_S:
                current.pages[openmetrics] = render(snapshot, openmetrics)
        self._current = current

    def age_s(self) -> float:
        """Seconds since the last Snapshot was published, infinite before the first."""
        current = self._current
        return time.monotonic() - current.monotonic_s if current else float("inf")

    def ready(self, openmetrics: bool) -> bytes | None:
        """The page of the last Snapshot if it was rendered already; never waits."""
        self._asked_monotonic_s[openmetrics] = time.monotonic()
        current = self._current
        return current.pages.get(openmetrics) if current else None

    def page(self, openmetrics: bool) -> bytes:
        """The page of the last Snapshot, rendered now if need be; LookupError before the first."""
        page, current = self.ready(openmetrics), self._current
        if page is not None:
            return page
        if current is None:
            raise LookupError("nothing is published yet")
        with self._rendering:
            page = current.pages.get(openmetrics) or render(current.snapshot, openmetrics)
            current.pages[openmetrics] = page
        return page
