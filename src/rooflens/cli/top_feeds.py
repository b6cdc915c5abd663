"""Where the live view gets its frames: from a sidecar's API, or by watching engines itself."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from rooflens.adapters.scrape.address import address_of
from rooflens.adapters.scrape.fetch import Limits, fetch
from rooflens.records import RooflensError

if TYPE_CHECKING:
    from rooflens.pipeline.watch_settings import WatchSettings

# Somebody looks on, so a sidecar has less time than a page; 64 engines with six windows each are below a megabyte.
LIMITS = Limits(silence_s=2.0, total_s=3.0, most_bytes=16 << 20)
ONCE_SCRAPES = 4  # of an engine that rests, no more is to be seen


class Feed(Protocol):
    """Anything that yields frames, the newest at each call.

    ``origin`` says in words where they are from; ``patience_s`` is how long a single frame waits for figures, 0 where
    another call at once would bring no more.
    """

    origin: str
    patience_s: float

    def read(self) -> Mapping[str, Any]:
        """The frame of now; never raises for an engine's or a network's fault after the first one."""
        ...

    def close(self) -> None:
        """Let go of what is held."""
        ...


class SidecarFeed:
    """Frames of a sidecar that runs; while it does not answer, its last frame with the problem beside it."""

    patience_s = 30.0  # one that has just begun makes its first window in ten seconds or more

    def __init__(self, url: str) -> None:
        """Ask it once; RooflensError in one line where it does not answer as a sidecar does."""
        self._address = address_of(url)
        self.origin = self._address.name.removesuffix("/metrics")
        self._last = self._ask()
        self._read = False

    def read(self) -> Mapping[str, Any]:
        """The newest frame."""
        if not self._read:
            self._read = True
            return self._last
        try:
            self._last = self._ask()
        except RooflensError as error:
            age_s = time.time() - float((self._last.get("snapshot") or {}).get("created_unix_s") or time.time())
            stale = f"{error}; what is shown was said {max(0.0, age_s):,.0f} s ago"
            return {**self._last, "problems": [*(self._last.get("problems") or []), stale]}
        return self._last

    def _ask(self) -> Mapping[str, Any]:
        return with_findings(self._object("/api/v1/engines"), self._object("/api/v1/findings"))

    def _object(self, path: str) -> Mapping[str, Any]:
        name = f"{self.origin}{path}"
        page = fetch(replace(self._address, name=name, target=path), LIMITS)
        try:
            found = json.loads(page.text, parse_constant=lambda _: None)
        except (ValueError, RecursionError):
            found = None
        rows = found.get(path.rpartition("/")[2]) if isinstance(found, dict) else None
        if not isinstance(found, dict) or not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise RooflensError(f"{name} is not what a sidecar says: is one of this version of rooflens there?")
        return found

    def close(self) -> None:
        """Nothing is held between two frames."""


class WatchFeed:
    """Frames of engines that this process watches itself."""

    def __init__(self, settings: WatchSettings) -> None:
        """RooflensError in one line for an address of a page that is none."""
        from rooflens.pipeline.watch import Watch

        places = [*map(str, settings.folders), *settings.scrape_urls]
        self.origin = places[0] if len(places) == 1 else f"{len(places)} places"
        # A ring holds its past; a page says something from its second read on.
        self.patience_s = ONCE_SCRAPES * settings.scrape_s if settings.scrape_urls else 0.0
        self._watch = Watch(settings)

    def read(self) -> Mapping[str, Any]:
        """A turn of the loop."""
        from rooflens.exporters.json_view import engines_json, findings_json

        snapshot = self._watch.turn()
        return with_findings(engines_json(snapshot), findings_json(snapshot))

    def close(self) -> None:
        """Let go of rings and pages."""
        self._watch.close()


def with_findings(frame: Mapping[str, Any], findings: Mapping[str, Any]) -> Mapping[str, Any]:
    """One frame of the engines and their findings."""
    return {**frame, "findings": findings.get("findings") or []}
