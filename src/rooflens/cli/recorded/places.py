"""The files that `rooflens analyze` was given: rings, other recordings, and the files of rotated logs together."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rooflens.cli.find_rings import rings_at
from rooflens.cli.recorded import Asked, format_of
from rooflens.records import RooflensError
from rooflens.ring_folder import list_rings

LOG = "rooflens.cli.recorded.log"
MOST_FILES = 1_000


def recordings_at(places: Sequence[str]) -> list[Path]:
    """What ``places`` name: of a folder its rings, or where it has none the files in it; RooflensError as rings_at."""
    from rooflens.adapters.logs.files import files_in

    if not places:
        return rings_at(places)
    found: list[Path] = []
    for place in places:
        files = files_in(Path(place)) if os.path.isdir(place) and not list_rings(Path(place)) else []
        if len(files) > MOST_FILES:
            raise RooflensError(f"{place}: more than {MOST_FILES:,} files are in it: name those that are wanted")
        found += files or rings_at([place])
    return found


def together(paths: Sequence[Path], asked: Asked) -> list[tuple[Path, Asked]]:
    """Each recording once: the files of one rotated log are one, under the name of its newest file."""
    from rooflens.adapters.logs.files import sets_of

    found: list[tuple[Path, Asked]] = []
    for parts in sets_of(paths):
        if len(parts) > 1 and all(_is_log(part) for part in parts):
            found.append((parts[-1], replace(asked, parts=parts)))
        else:
            found += [(part, asked) for part in sorted(parts, key=paths.index)]
    return found


def _is_log(path: Path) -> bool:
    try:
        report = format_of(path)
    except RooflensError:
        return False
    return report is not None and report.__module__ == LOG
