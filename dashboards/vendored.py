"""Other people's scripts that a page may hold: fetched while rooflens is built, or not there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).with_name("vendor")
NOT_THERE = "uPlot was not there when rooflens was built (it takes npm): pictures stand still and do not zoom"


@dataclass(frozen=True, slots=True)
class Vendored:
    """A script with its style sheet and licence, each as text."""

    name: str
    script: str
    style: str
    licence: str


def uplot(folder: Path = FOLDER) -> Vendored | None:
    """uPlot (MIT), which draws lines over time; None where the build could not fetch it."""
    try:
        script, style, licence, stamp = (
            (folder / f"uPlot.{ending}").read_text(encoding="utf-8")
            for ending in ("iife.min.js", "min.css", "LICENSE.txt", "version.txt")
        )
    except (OSError, UnicodeDecodeError):
        return None
    return Vendored(" ".join(stamp.split()[:2]), script, style, licence)
