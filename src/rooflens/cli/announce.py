"""What a sidecar says on its terminal: engines that come and go, findings that fire and clear, what hinders it."""

from __future__ import annotations

import time
from collections.abc import Callable

from rooflens.findings import Finding, Status
from rooflens.live_records import EngineView, Snapshot, SourceKind, State

NOTHING_YET = (
    "no engine yet: a vLLM server's page (--scrape URL; while it starts up, wait), an engine with the hook, or "
    "'rooflens demo' to try; 'rooflens doctor' says what is missing"
)
PATIENCE_TURNS = 3  # of the loop: the first answer of a page takes one or two

MOST_AT_ONCE = 10  # problems told of one turn; a folder may be full of rings that cannot be read
NOT_READ_YET = "not read yet"  # what a page says of itself before its first answer


class Announcer:
    """An exporter that tells, in one line each, what a snapshot has that the one before it had not."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
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
        return [NOTHING_YET]

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
        told = [source.problem for source in snapshot.sources if source.problem]
        self._problems = frozenset((*snapshot.problems, *told)) - {NOT_READ_YET}
        new = sorted(self._problems - before)
        lines = [f"problem  {line}" for line in new[:MOST_AT_ONCE]]
        if len(new) > MOST_AT_ONCE:
            lines.append(f"problem  and {len(new) - MOST_AT_ONCE:,} more, see 'rooflens doctor'")
        return lines


def fired(finding: Finding) -> str:
    """A finding that fires, with its price and its remedy, in one line."""
    price = finding.price
    cost = ""
    if price is not None and price.judged_s > 0:
        share, low, high = (s / price.judged_s for s in (price.saved_s, price.saved_low_s, price.saved_high_s))
        cost = f"; costs {share:.0%} of the engine's time ({low:.0%} to {high:.0%})"
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
