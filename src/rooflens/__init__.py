"""rooflens watches live LLM serving engines, iteration by iteration, beside the hardware roofline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rooflens.api import Trace as Trace
    from rooflens.api import load as load
    from rooflens.records import RooflensError as RooflensError

__version__ = "0.1.0"
# Taken from their modules when they are first asked for: an engine loads this package and needs none of them.
_LATER = {"load": "rooflens.api", "Trace": "rooflens.api", "RooflensError": "rooflens.records"}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_LATER[name]), name)


def __dir__() -> list[str]:
    return sorted((*globals(), *_LATER))
