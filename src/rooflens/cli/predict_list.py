"""`rooflens predict --list`: every name that its options know."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from rooflens.analyzer.arch import known_models
from rooflens.analyzer.hardware import known_hardware
from rooflens.analyzer.precision import KV_FORMATS, WEIGHT_FORMATS


class ListNames(argparse.Action):
    """Asks for every name that --model, --hardware, --weights and --kv know; then ``released`` is not required."""

    def __init__(self, option_strings: Sequence[str], dest: str, released: argparse.Action, **settings: Any) -> None:
        super().__init__(option_strings, dest, nargs=0, default=False, help=settings.get("help"))
        self._released = released

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, *rest: Any) -> None:
        """Note that the names are asked for."""
        setattr(namespace, self.dest, True)
        self._released.required = False


def names_text() -> str:
    """Every name, one a line."""
    models = [("models", ""), *((f"  {row['id']}", str(row["hf_id"])) for row in known_models())]
    devices = [("hardware", ""), *((f"  {spec.id}", spec.name) for spec in known_hardware().values())]
    formats = [("weight formats", ", ".join(WEIGHT_FORMATS)), ("KV formats", ", ".join(KV_FORMATS))]
    found = (*models, *devices, ("  this-cpu", "measured"), *formats)
    return "\n".join(f"{name:<40} {what}".rstrip() for name, what in found)


def names_json() -> dict[str, Any]:
    """The same by kind."""
    return {
        "models": [{"id": row["id"], "hf_id": row["hf_id"]} for row in known_models()],
        "hardware": [
            *({"id": spec.id, "name": spec.name} for spec in known_hardware().values()),
            {"id": "this-cpu", "name": None},
        ],
        "weight_formats": list(WEIGHT_FORMATS),
        "kv_formats": list(KV_FORMATS),
    }
