"""The wiring: from sources to figures, findings and a snapshot, once over a recording or live turn by turn."""

from __future__ import annotations

from rooflens.pipeline.recording import DIED, ENDED, LIVE, Recording, lay_beside, open_step, read_ring

__all__ = ["DIED", "ENDED", "LIVE", "Recording", "lay_beside", "open_step", "read_ring"]
