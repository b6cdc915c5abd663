"""Whether the steps of an interval can be told by what ran at its ends: more may have run in between, unseen.

Steps are then counted more than once, without bound. It shows where the ends differ, or where the steps would be far
quicker than those around it: a batch that is not smaller takes no less time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from statistics import median_low

from rooflens.adapters.scrape.rows import Row
from rooflens.live_records import Derived

KEPT = 8
NEAR = 8 / 7  # of numbers of sequences: 8 and 7 are near each other, 2 and 1 are not
QUICK_RATIO = 1.5  # contexts change the pace as well, and more slowly
ENDS = (
    "other numbers of requests ran at the beginning of an interval than at its end: its steps are not known and not "
    "compared with a floor"
)
QUICK = (
    "an interval has more tokens than what ran at its ends makes at the pace around it: more ran in between, and its "
    "steps are not known and not compared with a floor"
)
CONTEXTS = ("context_tokens", "context_blocks")
PAIRS = ("causal_pairs", "prefill_pairs")


class Paces:
    """Steps a second of the last intervals that were decode alone, by how many sequences ran."""

    def __init__(self) -> None:
        self._kept: deque[tuple[float, float]] = deque(maxlen=KEPT)

    def note(self, running: float, per_s: float) -> None:
        """Keep an interval without prompts whose ends were alike."""
        self._kept.append((running, per_s))

    def most_per_s(self, running: float, after: tuple[float, float] | None) -> float | None:
        """The most steps a second that so many sequences may make; None where nothing tells.

        ``after`` is (running, steps a second) of the interval that follows, of use where none before tells.
        """
        near = [pace * max(r / running, 1.0) for r, pace in self._kept if running / NEAR <= r <= running * NEAR]
        found = near or [pace for r, pace in self._kept if r <= running]
        if not found and after is not None and after[0] == running:
            found = [after[1]]
        return QUICK_RATIO * median_low(found) if found else None


def checked(row: Row, span_s: float, ends: tuple[float, float], most_per_s: float | None) -> tuple[Row, str | None]:
    """The row with no more steps than are sure, and what is not known of them; ``ends`` are the running sequences."""
    low, high = sorted(ends)
    steps = row.columns["resolution_steps"]
    if most_per_s is not None and steps > max(most_per_s * span_s, 1.0):
        kept = {name: value for name, value in row.columns.items() if name not in (*CONTEXTS, *PAIRS, "observed_s")}
        return _with_steps(row, kept, max(int(most_per_s * span_s / QUICK_RATIO), 1), QUICK), QUICK
    if low == high:
        return row, None
    fewest = max(int(steps * (low + high) / 2 / high), 1)
    kept = {name: value for name, value in row.columns.items() if name not in PAIRS}
    kept |= {name: kept[name] * fewest / steps for name in CONTEXTS if name in kept}
    if high <= NEAR * low:
        return _with_steps(row, kept, fewest, "tokens / the most that ran at an end"), None
    kept.pop("observed_s", None)
    return _with_steps(row, kept, fewest, ENDS), ENDS


def _with_steps(row: Row, columns: Mapping[str, float], steps: int, words: str) -> Row:
    """The row with so many steps; what was worked out by the others is left out."""
    columns = {**columns, "resolution_steps": steps}
    names = {"observed_s": "observed_s" in columns, "step_s": False, "batch": False, "resolution_steps": False}
    derived = [value for value in row.derived if names.get(value.name, True)]
    if "context_tokens" not in columns:
        derived = [value for value in derived if value.name not in ("context", "prefill_pairs")]
    return replace(row, columns=columns, derived=(Derived("resolution_steps", steps, "", words), *derived))
