"""What a rule judges: the newest window of one engine, with the ones before it for context."""

from __future__ import annotations

from dataclasses import dataclass, field

from rooflens.analyzer.peers import Peers
from rooflens.analyzer.roofline import Roofline
from rooflens.live_records import Progress, Window, WindowFigures
from rooflens.model_records import HardwareSpec
from rooflens.records import EngineInfo, StepTable


@dataclass(frozen=True, slots=True)
class Case:
    """One engine at one moment.

    ``windows`` are its last windows, oldest first, at most six, with ``figures`` one for one; the newest is judged.
    ``roofline`` is None where hardware or model is not known (the window's ``problem`` says why). ``recent`` are its
    last steps, those of the window that is still open included; None stands for the steps of the windows. ``peers`` is
    what is known of the engines that belong to the same group, empty without any.
    """

    windows: tuple[Window, ...] = ()
    figures: tuple[WindowFigures, ...] = ()
    roofline: Roofline | None = None
    hardware: HardwareSpec | None = None
    progress: Progress | None = None
    recent: StepTable | None = None
    peers: Peers = field(default_factory=Peers)

    @property
    def window(self) -> Window | None:
        """The window to judge; None before the first one closed."""
        return self.windows[-1] if self.windows else None

    @property
    def info(self) -> EngineInfo | None:
        """What the engine is, as it stood in the newest window."""
        return self.windows[-1].info if self.windows else None
