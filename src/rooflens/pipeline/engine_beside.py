"""What one engine keeps for the comparison with others, and what it is told of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from rooflens.analyzer.peers import Peers, Speeds, speeds_of
from rooflens.analyzer.sums import known_sum
from rooflens.live_records import Window


@dataclass(frozen=True, slots=True)
class Handed:
    """Prompt tokens of a window by where their KV came from: computed here, or brought by another engine."""

    computed: float | None = None
    brought: float | None = None


class Beside:
    """``windows`` are the speeds of the last windows by load, the newest last; ``handed`` is of the newest.

    ``told`` gives what is known of the group, as of the turn before; it is called when a window has closed.
    """

    def __init__(self, kept_windows: int) -> None:
        self.windows: tuple[Speeds, ...] = ()
        self.handed = Handed()
        self.told: Callable[[], Peers] = Peers
        self._kept = kept_windows

    def closed(self, window: Window) -> None:
        """A window is complete."""
        self.windows = (*self.windows, speeds_of(window))[-self._kept :]
        self.handed = Handed(
            known_sum(window.steps, "prefill_tokens"), known_sum(window.steps, "prefix_hit_external_tokens")
        )

    def peers(self) -> Peers:
        """What the rules are told."""
        return replace(self.told(), windows=self.windows)
