"""Who answers: the same process, a restarted one, or several in turn that each count for themselves."""

from __future__ import annotations

from enum import StrEnum

# A started process was not there when the one before it answered; clocks tell whole seconds (the Date header) and
# the kernel's start times are good to 10 ms.
CLOCK_SLACK_S = 2.0
# Several processes behind one address answer in any order: only after so many answers of one of them is it alone.
ANSWERS_ALONE = 10
MOST_SEEN = 64


class Life(StrEnum):
    """SAME as before, NEW since a restart, or SEVERAL processes that answer in turn."""

    SAME = "same"
    NEW = "new"
    SEVERAL = "several"


class Lives:
    """Remembers which processes answered at one address."""

    def __init__(self) -> None:
        self._current: float | None = None
        self._seen: dict[float, float] = {}
        self._alone = ANSWERS_ALONE

    def judge(self, started_unix_s: float | None, clock_unix_s: float) -> Life:
        """What the answer of a process is that says when it started, on the clock of its own host.

        A page that does not say when its process started is taken for the same one: its counters must tell.
        """
        if started_unix_s is None:
            return Life.SAME
        previous, self._current = self._current, started_unix_s
        others = [seen for start, seen in self._seen.items() if start != started_unix_s]
        known = started_unix_s in self._seen
        if len(self._seen) >= MOST_SEEN:
            self._seen.clear()
        self._seen[started_unix_s] = clock_unix_s
        if previous is None:
            return Life.SAME
        if previous == started_unix_s:
            self._alone += 1
            return Life.SAME if self._alone >= ANSWERS_ALONE else Life.SEVERAL
        alive_beside = known or any(started_unix_s < seen - CLOCK_SLACK_S for seen in others)
        if alive_beside:
            self._alone = 0
            return Life.SEVERAL
        self._alone = ANSWERS_ALONE
        return Life.NEW
