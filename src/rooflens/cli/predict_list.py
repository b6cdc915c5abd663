"""`rooflens predict --list`: every name that its options know."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from rooflens.analyzer.arch import known_models
from rooflens.analyzer.hardware import known_hardware
from rooflens.analyzer.precision import KV_FORMATS, WEIGHT_FORMATS


class ListNames(argparse.Action):
    """Prints every name that --model, --hardware, --weights and --kv know, and ends, as --help does."""

    def __init__(self, option_strings: Sequence[str], dest: str, **settings: Any) -> None:
        super().__init__(option_strings, dest, nargs=0, default=False, help=settings.get("help"))

    def __call__(self, parser: argparse.ArgumentParser, *rest: Any) -> None:
        """Print the names and end."""
        models = [("models", ""), *((f"  {row['id']}", str(row["hf_id"])) for row in known_models())]
        devices = [("hardware", ""), *((f"  {spec.id}", spec.name) for spec in known_hardware().values())]
        formats = [("weight formats", ", ".join(WEIGHT_FORMATS)), ("KV formats", ", ".join(KV_FORMATS))]
        found = (*models, *devices, ("  this-cpu", "measured"), *formats)
        print("\n".join(f"{name:<40} {what}".rstrip() for name, what in found))
        parser.exit()
