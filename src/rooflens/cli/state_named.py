"""Where a sidecar keeps what it learns, as its options and variables say."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from rooflens.records import RooflensError

NOT_KEPT = "not kept (--no-state)"


def state_named(settings: Any) -> tuple[Path | None, str]:
    """The folder, None where nothing is kept, and what is to be said of it in a line of the first words."""
    from rooflens.collector.state.place import state_folder

    if not settings.keep_state:
        return None, NOT_KEPT
    try:
        folder = Path(settings.state).expanduser() if settings.state else state_folder(os.environ)
    except (RooflensError, RuntimeError) as error:  # no HOME, or none of the user that ~NAME names
        return None, f"not kept: {error}"
    return folder, f"{folder}"
