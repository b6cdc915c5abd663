"""What a sidecar says on its terminal: engines that come and go, findings that fire and clear, what hinders it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rooflens.adapters.scrape.address import address_of
from rooflens.findings import Finding, Status
from rooflens.live_records import EngineView, Snapshot, SourceHealth, SourceKind, State

if TYPE_CHECKING:
    from rooflens.pipeline.watch_settings import WatchSettings

NOTHING_YET = (
    "no engine yet: a server's metrics page (--scrape URL; while it starts up, wait), its log (--log FILE), an engine "
    "with the hook, or 'rooflens demo' to try; 'rooflens doctor' says what is missing"
)
MOST_NAMED = 3  # of one kind: pages, feeds or logs that are waited for
WAITS = {
    SourceKind.METRICS: "the metrics page {} (while the server starts up, wait)",
    SourceKind.FEED: "forward-pass messages from {}",
    SourceKind.LOG: "lines of an engine's log in {}",
    SourceKind.PUSH: "steps that an engine pushes to {}",
}
PATIENCE_TURNS = 3  # of the loop: the first answer of a page takes one or two

MOST_AT_ONCE = 10  # problems told of one turn; a folder may be full of rings that cannot be read
NOT_READ_YET = "not read yet"  # what a page says of itself before its first answer


class Announcer:
    """An exporter that tells, in one line each, what a snapshot has that the one before it had not."""

    def __init__(self, say: Callable[[str], None], nothing_yet: str = NOTHING_YET) -> None:
        """``nothing_yet`` is what is said once where no engine comes, see `nothing_yet_of`."""
        self._say, self._nothing_yet_line = say, nothing_yet
        self._states: dict[tuple[str, str], tuple[State, float]] = {}
        self._firing: dict[tuple[str, str, str], Finding] = {}
        self._problems: frozenset[str] = frozenset()
        self._turns_without: int | None = 0  # None once an engine was seen, or it was said that there is none

    def export(self, snapshot: Snapshot) -> None:
        """Say what is new."""
        for line in (*self._engines(snapshot), *self._findings(snapshot), *self._hindrances(snapshot)):
            self._say(f"{time.strftime('%H:%M:%S', time.localtime(snapshot.created_unix_s))}  {line}")

    def _engines(self, snapshot: Snapshot) -> list[str]:
        lines = []
        before, self._states = self._states, {}
        for view in snapshot.engines:
            key = (view.model_name, view.engine)
            self._states[key] = now = (view.state, view.first_seen_unix_s)
            if before.get(key) != now:
                lines.append(f"{_name(view)}  {view.state}{_from(view)}{_without_floor(view)}")
        return lines + self._nothing_yet(snapshot)

    def _nothing_yet(self, snapshot: Snapshot) -> list[str]:
        """Once, after a few turns without any engine; a page that has not answered yet may have one."""
        if self._turns_without is None or snapshot.engines:
            self._turns_without = None
            return []
        if any(source.problem == NOT_READ_YET for source in snapshot.sources):
            return []
        self._turns_without += 1
        if self._turns_without < PATIENCE_TURNS:
            return []
        self._turns_without = None
        return [self._nothing_yet_line]

    def _findings(self, snapshot: Snapshot) -> list[str]:
        before, self._firing = self._firing, {}
        lines = []
        for view in snapshot.engines:
            for finding in view.findings:
                place = (view.model_name, view.engine, str(finding.code))
                if finding.status is Status.FIRING and view.state is State.LIVE:
                    self._firing[place] = finding
                    if place not in before:
                        lines.append(f"{_name(view)}  {fired(finding)}")
        live = {(view.model_name, view.engine) for view in snapshot.engines if view.state is State.LIVE}
        gone = [place for place in before if place not in self._firing and place[:2] in live]
        return lines + [f"{model}/{engine}  cleared  {code}" for model, engine, code in gone]

    def _hindrances(self, snapshot: Snapshot) -> list[str]:
        before = self._problems
        told = [_told(source) for source in snapshot.sources if source.problem]
        self._problems = frozenset((*snapshot.problems, *told)) - {NOT_READ_YET}
        new = sorted(self._problems - before)
        lines = [f"problem  {line}" for line in new[:MOST_AT_ONCE]]
        if len(new) > MOST_AT_ONCE:
            lines.append(f"problem  and {len(new) - MOST_AT_ONCE:,} more, see 'rooflens doctor'")
        return lines


def nothing_yet_of(settings: WatchSettings) -> str:
    """What a sidecar of these settings says where no engine comes: what it waits for, else how to come by one."""
    names = {SourceKind.METRICS: [address_of(url).name for url in settings.scrape_urls]}
    for feed in settings.feeds:
        names.setdefault(feed.kind, []).append(feed.health().name)
    waits = [WAITS[kind].format(_listed(named)) for kind, named in names.items() if named]
    if not waits:
        return NOTHING_YET
    if settings.discover is not None:
        waits.append("a server on the usual ports of this machine")
    if settings.use_rings:
        waits.append("an engine with the hook")
    *first, last = waits
    return f"no engine yet: waiting for {', '.join(first)}{' or ' if first else ''}{last}"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED:,} more" if len(names) > MOST_NAMED else ""
    return f"{', '.join(names[:MOST_NAMED])}{more}"


def _told(source: SourceHealth) -> str:
    """What is wrong with a source, with its name where the words lack it."""
    problem = source.problem or ""
    if source.kind not in (SourceKind.FEED, SourceKind.LOG) or problem == NOT_READ_YET or source.name in problem:
        return problem
    return f"{source.name}: {problem}"


def fired(finding: Finding) -> str:
    """A finding that fires, with its price and its remedy, in one line."""
    price = finding.price
    cost = ""
    if price is not None and price.judged_s > 0:
        share, low, high = (s / price.judged_s for s in (price.saved_s, price.saved_low_s, price.saved_high_s))
        interval = f" ({low:.0%} to {high:.0%})" if f"{low:.0%}" != f"{high:.0%}" else ""
        cost = f"; costs {share:.0%} of the engine's time{interval}"
    remedy = f"; {finding.remedy}" if finding.remedy else ""
    return f"{finding.severity}  {finding.code}: {finding.summary}{cost}{remedy}"


SOURCE_WORDS = {
    SourceKind.RING: "ring",
    SourceKind.PUSH: "pushed records",
    SourceKind.FEED: "forward-pass messages",
    SourceKind.METRICS: "metrics page",
    SourceKind.LOG: "log",
}


def _name(view: EngineView) -> str:
    return f"{view.model_name}/{view.engine}"


def _from(view: EngineView) -> str:
    engine = f"{view.info.engine} {view.info.engine_version or ''}".rstrip() if view.info else "an engine"
    return f": {engine}, read from its {SOURCE_WORDS[view.source]}"


def _without_floor(view: EngineView) -> str:
    return f" (no floor: {view.problem})" if view.problem and view.state is State.LIVE else ""
