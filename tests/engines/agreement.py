"""The same stretches of time as the steps of a ring and as the rows of a metrics page tell them, side by side."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from live_harness import Sidecar

POLL_S = 2.0  # the API holds 512 steps of an engine: eight seconds of this one
COLUMNS = (
    "sequence", "kind", "submit_monotonic_s", "output_monotonic_s", "observed_s", "resolution_steps", "requests",
    "generated_tokens", "prefill_tokens", "context_tokens", "kv_blocks_used", "memory_s",
)  # fmt: skip
Step = Mapping[str, Any]


class Follower:
    """Every step that a sidecar's API showed while it was followed, and what it derived with each of its rows."""

    def __init__(self, sidecar: Sidecar, poll_s: float = POLL_S) -> None:
        self.steps: dict[int, Step] = {}
        self.derived: dict[int, dict[str, dict[str, Any]]] = {}
        self._sidecar, self._poll_s = sidecar, poll_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        while not self._stop.wait(self._poll_s):
            self._look()

    def _look(self) -> None:
        before = self._sidecar.json("engines")
        if not before["engines"]:
            return
        found = self._sidecar.json("steps?last=512")
        rows = found["columns"]
        for values in zip(*(rows.get(name, [None] * found["steps"]) for name in COLUMNS), strict=True):
            row = dict(zip(COLUMNS, values, strict=True))
            self.steps[row["sequence"]] = row
        if found["steps"] and before["snapshot"]["number"] == found["snapshot"]["number"]:
            derived = before["engines"][0]["derived"]
            self.derived[rows["sequence"][-1]] = {one["name"]: one for one in derived}

    def end(self) -> list[Step]:
        """Stop; the steps in order."""
        self._stop.set()
        self._thread.join(30)
        self._look()
        return [self.steps[number] for number in sorted(self.steps)]


@dataclass(frozen=True)
class Figures:
    """Means and sums of one stretch of time by one source."""

    steps: int
    batch: float
    tokens_per_s: float
    context_tokens: float
    step_s: float
    kv_blocks: float
    mbu: float


@dataclass
class Stretch:
    """One row of the page, the steps of the ring within it, and what the page's reader said of the row's bounds."""

    row: Step
    inside: list[Step]
    derived: Mapping[str, Any] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        return float(self.row["output_monotonic_s"] - self.row["submit_monotonic_s"])


def stretches(rows: Sequence[Step], steps: Sequence[Step], follower: Follower | None = None) -> list[Stretch]:
    """Each row of several steps with the single steps whose output came within it."""
    found = []
    for row in rows:
        begin, end = row["submit_monotonic_s"], row["output_monotonic_s"]
        inside = [step for step in steps if begin < step["output_monotonic_s"] <= end]
        found.append(Stretch(row, inside, follower.derived.get(row["sequence"], {}) if follower else {}))
    return found


def figures(rows: Sequence[Step], seconds: float) -> Figures:
    """What steps, or rows of several, amount to over so many seconds; rows weigh as many steps as they stand for."""

    def total(name: str) -> float:
        return float(sum(row[name] for row in rows))

    steps = sum(row["resolution_steps"] or 1 for row in rows)
    blocks = sum(row["kv_blocks_used"] * (row["resolution_steps"] or 1) for row in rows)
    return Figures(
        steps=steps,
        batch=total("requests") / steps,
        tokens_per_s=total("generated_tokens") / seconds,
        context_tokens=total("context_tokens") / total("requests"),
        step_s=total("observed_s") / steps,
        kv_blocks=blocks / steps,
        mbu=total("memory_s") / total("observed_s"),
    )


def both(found: Sequence[Stretch]) -> tuple[Figures, Figures]:
    """The same time by the ring and by the page."""
    seconds = sum(one.seconds for one in found)
    inside = [step for one in found for step in one.inside]
    return figures(inside, seconds), figures([one.row for one in found], seconds)


def table(name: str, ring: Figures, page: Figures) -> str:
    """Both, and how far the page is from the ring, for people."""
    lines = [f"{name:<26} {'ring':>11} {'page':>11}   off by"]
    for key, scale, unit in (
        ("steps", 1, ""), ("batch", 1, ""), ("tokens_per_s", 1, "/s"), ("context_tokens", 1, ""),
        ("step_s", 1e3, " ms"), ("kv_blocks", 1, ""), ("mbu", 100, " %"),
    ):  # fmt: skip
        one, other = getattr(ring, key) * scale, getattr(page, key) * scale
        lines.append(f"{key:<26} {one:>11.4g} {other:>11.4g}{unit:<3} {other / one - 1:+.1%}")
    return "\n".join(lines)
