"""When the ranks of a server on this host computed prompts, of the last minute."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rooflens.analyzer.peers import Prompts
from rooflens.analyzer.sums import Column, filled
from rooflens.records import StepTable

KEPT_S = 60.0  # longer than a window that is judged, at the usual length
MOST_ROWS = 4096  # of one rank


class PromptHistory:
    """The steps of one rank that computed prompts: begin, end, tokens; shape (steps, 3), in the order of their end.

    It is complete from ``from_s`` to ``until_s``, on this host's monotonic clock.
    """

    def __init__(self) -> None:
        self.rows: Column = np.empty((0, 3))
        self.from_s = float("inf")
        self.until_s = float("-inf")
        self._seen_s = float("-inf")

    def take(self, recent: StepTable, read_monotonic_s: float) -> None:
        """Take what is new of a rank's last steps; they are complete up to ``read_monotonic_s``."""
        needed = {"output_monotonic_s", "observed_s", "prefill_tokens"}
        if not needed <= recent.columns.keys() or not len(recent):
            self.from_s = min(self.from_s, read_monotonic_s)
            self.until_s = read_monotonic_s
            return
        end_s = filled(recent, "output_monotonic_s")
        begin_s = end_s - filled(recent, "observed_s")
        if end_s[0] > self._seen_s:  # the first look, or more steps came than are kept: what lies between is not known
            self.from_s, self.rows = float(begin_s[0]), np.empty((0, 3))
        tokens = filled(recent, "prefill_tokens")
        new = (end_s > self._seen_s) & (tokens > 0)
        rows = np.concatenate((self.rows, np.stack([begin_s, end_s, tokens], axis=1)[new]))[-MOST_ROWS:]
        if len(rows) == MOST_ROWS:
            self.from_s = max(self.from_s, float(rows[0, 0]))
        self.rows = rows[rows[:, 1] >= read_monotonic_s - KEPT_S]
        self.from_s = max(self.from_s, read_monotonic_s - KEPT_S)
        self._seen_s = float(end_s[-1])
        self.until_s = max(read_monotonic_s, self._seen_s)


def prompts_of(histories: Sequence[PromptHistory]) -> Prompts | None:
    """Those of all ranks together; None where they have no time in common."""
    from_s = max((history.from_s for history in histories), default=0.0)
    until_s = min((history.until_s for history in histories), default=0.0)
    if not until_s > from_s:
        return None
    rows = np.concatenate([history.rows for history in histories])
    member = np.concatenate([np.full(len(history.rows), at) for at, history in enumerate(histories)])
    order = np.argsort(rows[:, 1], kind="stable")
    return Prompts(rows[order, 1], rows[order, 2], member[order].astype(np.int64), _busy(rows), from_s, until_s)


def _busy(rows: Column) -> Column:
    """The stretches that the rows cover together, shape (stretches, 2), in order and apart."""
    if not len(rows):
        return np.empty((0, 2))
    order = np.argsort(rows[:, 0], kind="stable")
    begins, ends = rows[order, 0], np.maximum.accumulate(rows[order, 1])
    first = np.concatenate(([True], begins[1:] > ends[:-1]))
    last = np.concatenate((first[1:], [True]))
    return np.stack([begins[first], ends[last]], axis=1)
