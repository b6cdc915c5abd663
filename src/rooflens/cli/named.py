"""What a user names on the command line of a live verb: the hardware and the model of the engines."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rooflens.analyzer.arch import find_model, known_models, read_json
from rooflens.analyzer.hardware import find_hardware
from rooflens.model_records import HardwareSpec

THIS_CPU = "this-cpu"


def is_this_cpu(name: str | None) -> bool:
    """Whether the name is that of this machine's CPU, which is measured."""
    return name is not None and name.strip().lower() == THIS_CPU


def hardware_named(name: str | None) -> HardwareSpec | None:
    """The device called ``name``; None without a name, and for ``this-cpu``. RooflensError for an unknown one."""
    return find_hardware(name) if name and not is_this_cpu(name) else None


def config_named(name: str | None) -> Mapping[str, Any] | None:
    """The config.json of the model called ``name``, a shipped one or a file. RooflensError if it has no roofline."""
    if not name:
        return None
    find_model(name)
    wanted = name.strip().casefold()
    for row in known_models():
        if wanted in (row["id"].casefold(), row["hf_id"].casefold()):
            shipped: Mapping[str, Any] = row["config"]
            return shipped
    path = Path(name)
    found: Mapping[str, Any] = read_json(path / "config.json" if path.is_dir() else path)
    return found
