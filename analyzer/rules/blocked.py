"""Time between steps in which requests were there and none could be computed: they waited for something else."""

from __future__ import annotations

import numpy as np

from rooflens.analyzer.sums import Column, filled, time_spent
from rooflens.live_records import Window, WindowFigures
from rooflens.records import StepTable


def blocked_gaps_s(table: StepTable) -> Column:
    """Seconds (steps,) before each step that lie behind one after which no request ran and some were deferred.

    Deferred are requests that wait for remote KV, a grammar or more input: neither host nor device has work then. That
    others wait for capacity as well changes nothing, since the deferred ones may hold it. Where nothing is deferred a
    request that waits is taken up in the next step, so that this time is the host's.
    """
    stuck = table.where("running") & (filled(table, "running") == 0) & (filled(table, "deferred") > 0)
    behind = np.concatenate((np.zeros(min(1, len(table)), dtype=bool), stuck[:-1]))
    return np.where(behind, time_spent(table).gap_s, 0.0)


def blocked_s(window: Window, figures: WindowFigures) -> float:
    """The same of a whole window; 0 of a page, which does not tell the time between steps."""
    return float(blocked_gaps_s(window.steps).sum()) if figures.between_s is not None else 0.0
