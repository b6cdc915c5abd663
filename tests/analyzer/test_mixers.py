"""Mixers from the fields of configs: what they hold equals what the reference implementations hold, tensor by tensor."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rooflens.analyzer.architecture.attention import softmax
from rooflens.analyzer.architecture.latent import compressed, compressor_columns, latent
from rooflens.analyzer.architecture.state import state
from rooflens.arch_records import Attention, CompressedAttention, Indexer, LatentAttention, Mixer, StateMixer

COUNTED = json.loads((Path(__file__).parents[1] / "data" / "mixer_parameters.json").read_text())["rows"]


def mixer_of(row: Mapping[str, Any]) -> Mixer:
    kind, fields = row["kind"], row["fields"]
    if kind == "latent":
        return latent(fields, row["layer"])
    if kind == "compressed":
        return compressed(fields, row["layer"])
    return softmax(fields, kind) if kind in ("full", "window", "chunk") else state(fields, kind)


def held(mixer: Mixer, hidden: int) -> int:
    """Elements of the mixer's matrices as the records' own words describe them."""
    if isinstance(mixer, StateMixer):
        return hidden * (mixer.in_columns + mixer.out_rows) + mixer.other_elements
    if isinstance(mixer, Attention):
        query = mixer.heads * mixer.head_dim * (2 if mixer.output_gate else 1)
        value = 0 if mixer.keys_are_values else mixer.kv_heads * mixer.value_head_dim
        output = mixer.heads * mixer.value_head_dim
        return hidden * (query + mixer.kv_heads * mixer.head_dim + value + output)
    return _latent(mixer, hidden) if isinstance(mixer, LatentAttention) else _compressed(mixer, hidden)


def _latent(mixer: LatentAttention, hidden: int) -> int:
    query = mixer.heads * (mixer.nope_dim + mixer.rope_dim)
    elements = hidden * mixer.q_rank + mixer.q_rank * query if mixer.q_rank else hidden * query
    elements += hidden * (mixer.kv_rank + mixer.rope_dim)
    elements += mixer.kv_rank * mixer.heads * (mixer.nope_dim + mixer.value_dim)
    elements += mixer.heads * mixer.value_dim * hidden
    if mixer.indexer is None or mixer.indexer.shared:
        return elements
    assert mixer.q_rank is not None
    one = mixer.indexer
    return elements + mixer.q_rank * one.heads * one.head_dim + hidden * (one.head_dim + one.heads)


def _compressed(mixer: CompressedAttention, hidden: int) -> int:
    wide = mixer.heads * mixer.head_dim
    elements = hidden * mixer.q_rank + mixer.q_rank * wide + hidden * mixer.head_dim
    elements += wide * mixer.output_rank + mixer.output_groups * mixer.output_rank * hidden
    elements += hidden * compressor_columns(mixer.ratio, mixer.head_dim)
    if mixer.indexer is None:
        return elements
    one = mixer.indexer
    elements += mixer.q_rank * one.heads * one.head_dim + hidden * one.heads
    return elements + hidden * compressor_columns(mixer.ratio, one.head_dim)


@pytest.mark.parametrize("row", COUNTED, ids=lambda row: f"{row['model']} {row['class']} {row['layer']}")
def test_a_mixer_holds_what_its_reference_implementation_holds(row: Mapping[str, Any]) -> None:
    fields = row["fields"]
    hidden = fields.get("hidden_size") or fields.get("n_embd") or fields["d_model"]
    assert held(mixer_of(row), hidden) == row["parameters"] - row["left_out"]
    # Norms, sinks, biases, positions and gates of one number a head: never what a step waits for.
    assert row["left_out"] <= 0.004 * row["parameters"]


def config(model: str) -> dict[str, Any]:
    """The fields of one of the counted models."""
    fields: dict[str, Any] = next(row["fields"] for row in COUNTED if row["model"] == model)
    return fields
