"""When to read a dcgm-exporter page, and for how long its values hold: its period is found by when they change."""

from __future__ import annotations

from collections import deque
from statistics import median

# However fast the exporter is, a page is no counter to be read more often.
FASTEST_S = 1.0
# So many reads in a row without a change: they come too soon. A page that is read at its right pace changes at every
# second to every fourth one, and the pause twice as long after this is still less than half of its period.
TOO_MANY_SAME = 4
REMEMBERED = 8


class Pace:
    """``interval_s`` is the pause between two reads, ``page_period_s`` the exporter's own, None before it is found.

    A page that changes at every read may change more often: the pause is halved until a read finds nothing new, or it
    is the fastest. So a page is read at least twice in its own period, and no change hides another.
    """

    def __init__(self, period_s: float) -> None:
        self.slowest_s = period_s
        self.interval_s = period_s
        self._fastest_s = min(FASTEST_S, period_s)
        self._same_in_a_row = 0
        self._since_change_s: float | None = None
        self._distances_s: deque[float] = deque(maxlen=REMEMBERED)

    @property
    def page_period_s(self) -> float | None:
        """The median of the time between changes, of those between which no other can have hidden."""
        return median(self._distances_s) if self._distances_s else None

    def changed(self, at_s: float) -> None:
        """A read found new values."""
        hides_none = self._same_in_a_row > 0 or self.interval_s <= self._fastest_s
        if not hides_none:
            self.interval_s = max(self.interval_s / 2, self._fastest_s)
            self._distances_s.clear()
        elif self._since_change_s is not None:
            self._distances_s.append(at_s - self._since_change_s)
        self._since_change_s = at_s
        self._same_in_a_row = 0

    def same(self) -> None:
        """A read found the values of the last one."""
        self._same_in_a_row += 1
        if self._same_in_a_row % TOO_MANY_SAME == 0:
            self.interval_s = min(self.interval_s * 2, self.slowest_s)

    def missed(self) -> None:
        """A read failed: what changed meanwhile is not known."""
        self._since_change_s = None
