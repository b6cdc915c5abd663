"""The report as one HTML file, which opens offline, asks for nothing, and is read without JavaScript too."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rooflens.dashboards.report.page import page
from rooflens.dashboards.vendored import uplot
from rooflens.records import RooflensError

MODE = 0o666  # less what the user's mask takes away


def write_html(path: str | Path, objects: Sequence[Mapping[str, Any]]) -> None:
    """Write the objects of `rooflens analyze --json` to ``path`` as a page; what was there stays until it is whole.

    ``objects`` are ready for JSON: no NaN, no infinity. RooflensError in one line where the file cannot be written.
    """
    path = Path(path)
    text = page(objects, uplot()).encode("utf-8", "replace")
    aside: str | None = None
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
            aside = file.name
            file.write(text)
        os.chmod(aside, MODE & ~_mask())
        os.replace(aside, path)
    except OSError as error:
        if aside is not None:
            with contextlib.suppress(OSError):
                os.unlink(aside)
        raise RooflensError(f"--html {str(path)[:60]!r} cannot be written: {error.strerror}") from error


def check_html(name: str) -> None:
    """RooflensError in one line for a name under which no file can be written."""
    path = Path(name)
    if name == "-" or path.suffix.lower() not in (".html", ".htm"):
        raise RooflensError(f"--html {name[:60]!r} must end in .html")
    if path.is_dir():
        raise RooflensError(f"--html {name[:60]!r} is a folder: name a file in it")
    if not path.parent.is_dir():
        raise RooflensError(f"--html {name[:60]!r}: the folder {str(path.parent)[:60]!r} is not there")


def _mask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
