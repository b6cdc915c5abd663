"""How much Python runs, counted and not timed: the same on every machine."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def calls_of(act: Callable[[], Any]) -> int:
    """The calls of functions, Python's own and those of C, that ``act`` makes in this thread."""
    count = 0

    def counted(_frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before, collects = sys.getprofile(), gc.isenabled()
    gc.disable()  # what earlier tests left behind may be collected in the midst, with calls of its own
    sys.setprofile(counted)
    try:
        act()
    finally:
        sys.setprofile(before)
        if collects:
            gc.enable()
    return count
