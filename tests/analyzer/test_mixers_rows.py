"""The rows of a layer hold exactly the elements that its reference implementation holds in matrices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from counted_mixers import COUNTED, counted_name, hidden_size, mixer_of

from rooflens.analyzer.operators import works
from rooflens.analyzer.precision import Precision
from rooflens.arch_records import Attention, Deployment, Layer, ModelArch, StateMixer

BF16 = Precision("bf16", "bf16", "bf16", "bf16")


def layer_of(row: Mapping[str, Any]) -> ModelArch:
    """One layer without an MLP, between an embedding and a head that are the same matrix of one word."""
    mixer = mixer_of(row["fields"], row["kind"], row["layer"])
    return ModelArch(row["model"], hidden_size(row), 1, True, (Layer(1, mixer, None),))


@pytest.mark.parametrize("row", COUNTED, ids=counted_name)
def test_rows_hold_what_the_reference_holds(row: Mapping[str, Any]) -> None:
    arch = layer_of(row)
    held = sum(one.elements for one in works(arch, BF16)) - arch.hidden_size
    assert held == row["parameters"] - row["left_out"]


@pytest.mark.parametrize("row", COUNTED, ids=counted_name)
def test_a_pass_reads_every_matrix_once_and_multiplies_each_token_by_it(row: Mapping[str, Any]) -> None:
    """2 bytes an element once a pass, 2 flops an element and token; those of a state are said by the mixer."""
    arch = layer_of(row)
    mixer = arch.layers[0].mixer
    assert mixer is not None
    rows = [one for one in works(arch, BF16) if one.group not in ("embedding", "head")]
    held = sum(one.elements for one in rows)
    assert sum(one.weight_bytes.get("passes", 0.0) for one in rows) == 2 * held
    once = sum(one.flops.get("query_tokens", 0.0) for one in rows)
    if isinstance(mixer, StateMixer):
        assert once == 2 * (held - mixer.other_elements) + mixer.token_flops
    else:
        assert once == 2 * held


def _divides(row: Mapping[str, Any], devices: int) -> bool:
    mixer = mixer_of(row["fields"], row["kind"], row["layer"])
    kv_heads = mixer.kv_heads if isinstance(mixer, Attention) else devices
    return mixer.heads % devices == 0 and (kv_heads % devices == 0 or devices % kv_heads == 0)


SPREAD = [(row, devices) for row in COUNTED for devices in (2, 4, 8) if _divides(row, devices)]


def _name(part: Any) -> str:
    return str(part) if isinstance(part, int) else counted_name(part)


@pytest.mark.parametrize(("row", "devices"), SPREAD, ids=_name)
def test_tensor_parallel_devices_hold_at_least_their_share(row: Mapping[str, Any], devices: int) -> None:
    """What is divided is an equal part; what is replicated (latents, KV heads, indexers) is more than one."""
    arch = layer_of(row)
    alone = sum(one.resident_bytes for one in works(arch, BF16))
    shared = sum(one.resident_bytes for one in works(arch, BF16, Deployment(tensor=devices)))
    assert alone / devices <= shared * (1 + 1e-12)
    assert shared <= alone
