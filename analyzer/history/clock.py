"""Wall clocks that were set while an engine ran: when, by how much, and how long the engine really ran."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

LEAST_S = 1.0  # a clock is set by more; the clocks of a host run at the same rate
SHOWN = 3
Column = NDArray[np.float64]
WORDS = (
    "{}: its wall clock was set {}: times on one side are off by that, windows may hold both, and time without a step "
    "is not told; its span is by the host's own clock"
)


@dataclass(slots=True)
class HostClock:
    """The clocks of the steps of one run: take() pieces, in any order."""

    _pieces: list[NDArray[np.float64]] = field(default_factory=list)

    def take(self, monotonic_s: Column, unix_s: Column, observed_s: Column) -> None:
        """Some steps, each array of shape (steps,); NaN for not known."""
        known = np.isfinite(monotonic_s) & np.isfinite(unix_s)
        piece = np.stack([monotonic_s, unix_s - monotonic_s, np.nan_to_num(observed_s)])
        self._pieces.append(piece[:, known])

    def _all(self) -> NDArray[np.float64]:
        found = np.concatenate([np.empty((3, 0)), *self._pieces], axis=1)
        return found[:, np.argsort(found[0], kind="stable")]

    @property
    def span_s(self) -> float:
        """From the begin of the first step to the last output."""
        monotonic_s, _, observed_s = self._all()
        return float(monotonic_s[-1] - (monotonic_s - observed_s).min()) if len(monotonic_s) else 0.0

    @property
    def jumps(self) -> list[tuple[float, float]]:
        """(the new time, by how much it was set) of each; seconds."""
        monotonic_s, offset_s, _ = self._all()
        moved = np.diff(offset_s)
        rows = np.flatnonzero(np.abs(moved) > LEAST_S)
        return [(float(monotonic_s[row + 1] + offset_s[row + 1]), float(moved[row])) for row in rows.tolist()]


def clock_line(label: str, jumps: Sequence[tuple[float, float]]) -> str:
    """What a reader should know of the clock of an engine."""
    told = [f"by {_length(moved_s)} at {_time(unix_s)}" for unix_s, moved_s in jumps[:SHOWN]]
    more = f" and {len(jumps) - SHOWN:,} times more" if len(jumps) > SHOWN else ""
    return WORDS.format(label, ", ".join(told) + more)


def _length(seconds: float) -> str:
    days = abs(seconds) / 86400
    return f"{seconds / 86400:+,.1f} days" if days >= 1 else f"{seconds:+,.1f} s"


def _time(unix_s: float) -> str:
    try:
        return f"{datetime.fromtimestamp(unix_s, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, OverflowError, OSError):
        return f"{unix_s:.0f}"
