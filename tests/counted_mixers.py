"""Mixers whose parameters were counted in their reference implementations, and the mixers made of their fields."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rooflens.analyzer.architecture.attention import softmax
from rooflens.analyzer.architecture.latent import compressed, latent
from rooflens.analyzer.architecture.state import state
from rooflens.arch_records import Mixer

COUNTED = json.loads((Path(__file__).parent / "data" / "mixer_parameters.json").read_text())["rows"]


def counted_name(row: Mapping[str, Any]) -> str:
    """What a test of the row is called."""
    return f"{row['model']} {row['class']} {row['layer']}"


def fields_of(model: str) -> dict[str, Any]:
    """The fields of one of the counted models."""
    fields: dict[str, Any] = next(row["fields"] for row in COUNTED if row["model"] == model)
    return fields


def hidden_size(row: Mapping[str, Any]) -> int:
    """The width between its layers."""
    fields = row["fields"]
    return int(fields.get("hidden_size") or fields.get("n_embd") or fields["d_model"])


def mixer_of(fields: Mapping[str, Any], kind: str, index: int = 0) -> Mixer:
    """The mixer of ``kind`` in layer ``index``."""
    if kind == "latent":
        return latent(fields, index)
    if kind == "compressed":
        return compressed(fields, index)
    return softmax(fields, kind) if kind in ("full", "window", "chunk") else state(fields, kind)
