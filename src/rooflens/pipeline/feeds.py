"""The sources that come by themselves: logs, sockets, what is pushed; each tells of one engine or more."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rooflens.live_records import SourceHealth, SourceKind, State
from rooflens.protocols import Batch, Feed

SILENT_KEPT_S = 600.0  # an engine that its feed no longer names stays for so long


@dataclass(frozen=True, slots=True)
class FeedTold:
    """What one feed tells of one run of an engine."""

    feed: Feed
    name: str
    run: str
    batch: Batch

    @property
    def state(self) -> State:
        """How the engine is, as the batch says; live where it does not say."""
        return self.batch.progress.state if self.batch.progress is not None else State.LIVE

    @property
    def over(self) -> bool:
        """Whether this is the last that the feed tells of this run."""
        return self.state in (State.ENDED, State.DIED)

    @property
    def from_monotonic_s(self) -> float | None:
        """The moment from which the run counts as watched: when its first step began; None without one."""
        steps = self.batch.steps
        known = len(steps) and "submit_monotonic_s" in steps.columns and bool(steps.where("submit_monotonic_s")[0])
        return float(steps["submit_monotonic_s"][0]) if known else None


class Feeds:
    """Reads every feed once a turn. ``failures`` counts, by kind, what could not be read."""

    def __init__(self, feeds: Sequence[Feed]) -> None:
        """Start them; RooflensError in one line for one that cannot be."""
        self._feeds = tuple(feeds)
        self._heard: dict[str, tuple[Feed, float]] = {}  # by run, with when it was last told of, monotonic seconds
        self._left: list[str] = []
        self._aside: Mapping[str, str] = {}
        started: list[Feed] = []
        try:
            for feed in self._feeds:
                feed.start()
                started.append(feed)
        except BaseException:
            for feed in started:
                feed.close()
            raise

    @property
    def failures(self) -> Mapping[SourceKind, int]:
        """What could not be read, by kind of source."""
        counts: Counter[SourceKind] = Counter()
        for feed in self._feeds:
            counts[feed.kind] += feed.failures
        return counts

    def read(self, guarded: Callable[..., None]) -> Iterator[FeedTold]:
        """What every feed tells since the last call; one that fails is ``guarded`` and takes no other with it."""
        found: list[FeedTold] = []
        for feed in self._feeds:
            guarded(feed.health().name, self._one, feed, found)
        now_s = time.monotonic()
        for told in found:
            if told.over:
                self._heard.pop(told.run, None)
            else:
                self._heard[told.run] = (told.feed, now_s)
        self._left = [run for run, (_, heard_s) in self._heard.items() if now_s - heard_s > SILENT_KEPT_S]
        for run in self._left:
            del self._heard[run]
        yield from found

    def left(self) -> Sequence[str]:
        """Runs of which nothing was heard for long, named once."""
        left, self._left = self._left, []
        return left

    def place(self, run: str) -> str | None:
        """The log that tells of a run, whose other runs are engines of the same server; None for other feeds."""
        feed, _ = self._heard.get(run, (None, 0.0))
        return feed.health().name if feed is not None and feed.kind is SourceKind.LOG else None

    def stand_aside(self, aside: Mapping[str, str]) -> None:
        """These runs are counted by better sources; each with a line that says so."""
        self._aside = aside

    def health(self) -> list[SourceHealth]:
        """How every feed is doing, with the engines that it tells of and that are counted so."""
        return [self._health(feed) for feed in self._feeds]

    def _health(self, feed: Feed) -> SourceHealth:
        runs = [run for run, (its, _) in self._heard.items() if its is feed]
        aside = [self._aside[run] for run in runs if run in self._aside]
        found = replace(feed.health(), engines=len(runs) - len(aside))
        if not aside or found.state is not State.LIVE:
            return found
        state = State.STANDBY if len(aside) == len(runs) else found.state
        return replace(found, state=state, problem=found.problem or aside[0])

    def close(self) -> None:
        """Stop all of them."""
        for feed in self._feeds:
            feed.close()

    def _one(self, feed: Feed, found: list[FeedTold]) -> None:
        name = feed.health().name
        for batch in feed.read():
            if batch.info is not None:
                found.append(FeedTold(feed, name, f"{feed.kind}:{batch.info.instance}", batch))
