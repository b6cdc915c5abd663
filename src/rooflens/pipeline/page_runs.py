"""Which page tells of which run of an engine: one that two pages tell of is counted once."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rooflens.collector.tables import empty_table
from rooflens.live_records import State
from rooflens.protocols import Batch

if TYPE_CHECKING:
    from rooflens.adapters.scrape.page_source import MetricsPage


@dataclass(frozen=True, slots=True)
class Told:
    """What one page tells of one run of an engine; ``run`` is the same whatever address it is read at."""

    url: str
    page: MetricsPage
    run: str
    batch: Batch

    @property
    def over(self) -> bool:
        """Whether this is the last that the page tells of this run."""
        return self.batch.progress is not None and self.batch.progress.state is State.ENDED


def read_pages(pages: Sequence[tuple[str, MetricsPage]]) -> list[Told]:
    """What every page tells since the last call, engine by engine."""
    return [
        Told(url, page, f"page:{batch.info.instance if batch.info else url}", batch)
        for url, page in pages
        for batch in page.read()
    ]


class Once:
    """Takes each run from one page. ``doubles`` names, for a page, the one where its engines are counted instead."""

    def __init__(self) -> None:
        self.doubles: dict[str, str] = {}
        self._ended: dict[str, float] = {}  # when the first of its pages said so, monotonic seconds

    def of(self, told: Sequence[Told], holders: Mapping[str, str]) -> list[Told]:
        """What to count; ``holders`` are the addresses where runs were counted so far, kept while they answer.

        A run is over when one of its pages says so: the others say the same once they are read again.
        """
        by_run: dict[str, list[Told]] = {}
        for each in told:
            by_run.setdefault(each.run, []).append(each)
        self._ended = {run: since_s for run, since_s in self._ended.items() if run in by_run}
        chosen = {run: _chosen(its, holders.get(run)) for run, its in by_run.items()}
        kept: list[Told] = []
        self.doubles = {}
        for each in told:
            if each.over:
                kept += [] if each.run in self._ended else [_end_of(each, holders.get(each.run))]
                self._ended.setdefault(each.run, time.monotonic())
            elif (each.page.taken_monotonic_s or 0.0) <= self._ended.get(each.run, -1.0):
                continue
            elif each.page is chosen[each.run]:
                self._ended.pop(each.run, None)
                kept.append(each)
            else:
                self.doubles[each.url] = chosen[each.run].name
        return kept


def _chosen(told: Sequence[Told], holder: str | None) -> MetricsPage:
    """The page that answers, of several the one that was chosen before, else the first."""
    return max(told, key=lambda each: (not each.over, each.page.state is State.LIVE, each.url == holder)).page


def _end_of(told: Told, holder: str | None) -> Told:
    """The end of a run, without steps where those were counted at another page already."""
    if holder in (None, told.url):
        return told
    return replace(told, batch=replace(told.batch, steps=empty_table()))
