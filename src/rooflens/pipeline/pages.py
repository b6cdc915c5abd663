"""The metrics pages that are read: those that were asked for, and those found where nothing else is."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from rooflens.analyzer.arch import known_models
from rooflens.collector.hf_cache import cached_config, hub_folder
from rooflens.live_records import SourceHealth, SourceKind, State
from rooflens.records import EngineInfo, RooflensError

if TYPE_CHECKING:
    from rooflens.adapters.scrape.page_source import MetricsPage

CACHE_S = 60.0  # between two looks for a model in the Hugging Face cache
DISCOVERY_S = 30.0  # between two looks for servers; each asks a handful of local ports
FORGOTTEN_S = 600.0  # a page that was found and has not answered for so long is looked for anew
Discover = Callable[[], Sequence[str]]


class Pages:
    """Pages by address. ``failures`` counts reads that failed, ``problems`` is what hinders finding any."""

    def __init__(
        self, urls: Sequence[str], period_s: float, discover: Discover | None, token: str | None = None
    ) -> None:
        """Start reading ``urls``; RooflensError in one line for one that is no address.

        ``token`` goes to these alone: what listens on a usual port may be anybody's.
        """
        self._period_s, self._discover = period_s, discover
        self._pages: dict[str, MetricsPage] = {}
        self._found: dict[str, float] = {}  # when, monotonic seconds
        self._answer: tuple[str, ...] = ()
        self._looking: threading.Thread | None = None
        self._looked_s = -DISCOVERY_S
        self._gone_failures = 0
        self.problems: tuple[str, ...] = ()
        for url in dict.fromkeys(urls):
            self._open(url, token)

    @property
    def failures(self) -> int:
        """Reads that failed, of all pages there were."""
        return self._gone_failures + sum(page.failures for page in self._pages.values())

    def all(self) -> list[tuple[str, MetricsPage]]:
        """Every page with its address."""
        return list(self._pages.items())

    def look(self, wanted: bool) -> None:
        """Take what a search found, and begin another if it is ``wanted`` and due; never waits for one."""
        now_s = time.monotonic()
        found, self._answer = self._answer, ()
        for url in found:
            if url not in self._pages:
                try:
                    self._open(url)
                    self._found[url] = now_s
                except RooflensError as error:
                    self.problems = (str(error),)
        self._forget(now_s)
        searching = self._looking is not None and self._looking.is_alive()
        if wanted and self._discover is not None and not searching and now_s - self._looked_s >= DISCOVERY_S:
            self._looked_s = now_s
            self._looking = threading.Thread(target=self._search, args=(self._discover,), daemon=True)
            self._looking.start()

    def health(
        self,
        standby: frozenset[str],
        engines: Mapping[str, int],
        doubles: Mapping[str, str],
        unsure: Mapping[str, str],
    ) -> list[SourceHealth]:
        """How every page is doing; those in ``standby`` are left aside, ``doubles`` name where theirs are counted.

        ``unsure`` are lines, by address, on pages that may have been left aside wrongly.
        """
        aside = standby | {url for url in doubles if not engines.get(url)}
        return [
            SourceHealth(
                name=_short(page.name),
                kind=SourceKind.METRICS,
                state=State.STANDBY if url in aside and page.state is State.LIVE else page.state,
                engines=engines.get(url, 0),
                last_read_unix_s=page.last_read_unix_s,
                read_s=page.read_s,
                problem=page.problem or (_double(page.name, doubles[url]) if url in doubles else unsure.get(url)),
            )
            for url, page in self._pages.items()
        ]

    def close(self) -> None:
        """Stop reading."""
        for page in self._pages.values():
            page.close()
        self._pages.clear()

    def _open(self, url: str, token: str | None = None) -> None:
        from rooflens.adapters.scrape.page_source import MetricsPage  # an HTTP client, of no use beside rings

        page = MetricsPage(url, self._period_s, token=token)
        page.start()
        self._pages[url] = page

    def _search(self, discover: Discover) -> None:
        try:
            self._answer, self.problems = tuple(discover()), ()
        except Exception as error:
            self.problems = (f"looking for engines on the usual ports failed: {error}",)

    def _forget(self, now_s: float) -> None:
        for url in list(self._found):
            page = self._pages[url]
            heard_s = max(page.taken_monotonic_s or 0.0, self._found[url])
            if page.state is State.UNREACHABLE and now_s - heard_s > FORGOTTEN_S:
                self._gone_failures += page.failures
                page.close()
                del self._pages[url]
                del self._found[url]


def _short(name: str) -> str:
    """A page's name for lists: the path tells pages apart where it is not that of every engine."""
    return name.removesuffix("/metrics") if urlsplit(name).path == "/metrics" else name


def _double(name: str, counted: str) -> str:
    return f"{name} tells of the same engine as {counted}: counted there, once; leave one of them out"


@lru_cache(maxsize=1024)  # asked of each page at each turn
def is_loopback(url: str) -> bool:
    """Whether the page is one of this host, as far as its address tells; one that cannot be read tells nothing."""
    try:
        host = urlsplit(url if "//" in url else f"//{url}").hostname or ""
        if host == "localhost" or host.endswith(".localhost"):
            return True
        return ip_address(host).is_loopback
    except ValueError:
        return False


# The facts with their config, by the facts without: a source hands over the same object at each turn.
_MADE: dict[int, tuple[EngineInfo, Mapping[str, Any], EngineInfo]] = {}
MOST_MADE = 512


def with_model(info: EngineInfo | None, given: Mapping[str, Any] | None) -> EngineInfo | None:
    """The facts with the model's config where the engine does not state it.

    That is the given one, else that which the Hugging Face cache of this host holds of exactly this name, else a
    shipped one of it.
    """
    if info is None or info.model_config is not None:
        return info
    config = given if given is not None else _named(info)
    if config is None:
        return info
    made = _MADE.get(id(info))
    if made is None or made[0] is not info or made[1] is not config:
        if len(_MADE) >= MOST_MADE:
            _MADE.clear()
        made = _MADE[id(info)] = (info, config, replace(info, model_config=dict(config)))
    return made[2]


def _named(info: EngineInfo) -> Mapping[str, Any] | None:
    """The config of the model that the engine names, by what it is called where it comes from before what it is served
    as."""
    names = [name for name in (info.base_model_name, info.model_name) if name]
    hub, minute = str(hub_folder()), int(time.monotonic() // CACHE_S)
    found = next((config for name in names if (config := _cached(name, hub, minute)) is not None), None)
    return found or next((config for name in names if (config := _shipped(name)) is not None), None)


@lru_cache(maxsize=64)
def _cached(name: str, hub: str, minute: int) -> Mapping[str, Any] | None:
    """What the cache holds, looked at once in CACHE_S: a page is read every second, and a model may come later."""
    return cached_config(name, Path(hub))


def _shipped(name: str | None) -> Mapping[str, Any] | None:
    """The config of a model that is known by exactly this name; a similar name is another model.

    Rings and pages tell the name without the organisation before it: it is then compared so, and must fit one alone.
    """
    wanted = (name or "").strip().casefold()
    rows = known_models() if wanted else ()
    exact = [row for row in rows if wanted in (str(row["id"]).casefold(), str(row["hf_id"]).casefold())]
    bare = [row for row in rows if str(row["hf_id"]).casefold().rpartition("/")[2] == wanted]
    found = exact[:1] or (bare if len(bare) == 1 else [])
    return found[0]["config"] if found else None
