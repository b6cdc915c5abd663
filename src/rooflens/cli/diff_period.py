"""The period of a recording that a side of a comparison is: NAME@FROM..TO, either end left out where it is open."""

from __future__ import annotations

from dataclasses import dataclass

from rooflens.cli.amounts import Refused
from rooflens.cli.analysis.period import moment
from rooflens.records import RooflensError


@dataclass(frozen=True, slots=True)
class Period:
    """As it was written; None for an open end."""

    begin: str | None = None
    end: str | None = None

    @property
    def is_open(self) -> bool:
        """Whether it leaves nothing out."""
        return self.begin is None and self.end is None

    def between(self, last_unix_s: float) -> tuple[float, float]:
        """(from, to) in unix seconds for a recording that ends at ``last_unix_s``; RooflensError for what is none."""
        begin = float("-inf") if self.begin is None else _unix_s(self.begin, last_unix_s)
        end = float("inf") if self.end is None else _unix_s(self.end, last_unix_s)
        if begin >= end:
            raise RooflensError(f"the period {self.begin}..{self.end} is empty: write the earlier moment first")
        return begin, end


def placed(text: str) -> tuple[str, Period]:
    """A place and the period behind its last @, if there is one with two dots."""
    place, at, rest = text.rpartition("@")
    if not at or ".." not in rest or "/" in rest:
        return text, Period()
    begin, end = rest.split("..", 1)
    return place, Period(begin.strip() or None, end.strip() or None)


def _unix_s(text: str, last_unix_s: float) -> float:
    try:
        return moment(text).of(last_unix_s)
    except Refused as error:
        raise RooflensError(str(error)) from None
