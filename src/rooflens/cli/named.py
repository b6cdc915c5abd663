"""What a user names on the command line of a live verb: the hardware and the model of the engines."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rooflens.analyzer.arch import find_model, known_models
from rooflens.analyzer.hardware import find_hardware
from rooflens.model_records import HardwareSpec

THIS_CPU = "this-cpu"


def hardware_named(name: str | None) -> HardwareSpec | None:
    """The device called ``name``; ``this-cpu`` is measured, which takes seconds. RooflensError for an unknown one."""
    if name is None or name.strip().lower() != THIS_CPU:
        return find_hardware(name) if name else None
    from rooflens.cli.report import progress
    from rooflens.collector.cpu_roof import measure_cpu

    return measure_cpu(progress=progress)


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
    found: Mapping[str, Any] = json.loads((path / "config.json" if path.is_dir() else path).read_text("utf-8-sig"))
    return found
