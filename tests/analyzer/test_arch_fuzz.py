"""Whatever stands in a config.json, a ModelArch that can be counted or one line comes out."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rooflens.analyzer.arch import arch_from_config, known_models
from rooflens.arch_records import ModelArch
from rooflens.records import RooflensError

FOLDER = Path(__file__).parents[1] / "data" / "configs"
CONFIGS = [json.loads(f.read_text()) for f in sorted(FOLDER.glob("*_config.json")) if "hf_quant" not in f.name]
CONFIGS += [row["config"] for row in known_models() if row["source_kind"] != "recalled"]
ABSENT = object()
HARD = [
    None, 0, -1, 1, 2, 3, 7, True, False, 0.5, 1e308, math.nan, math.inf, -math.inf, 10**30, 2**63, 1 << 24, "", "auto",
    "4096", "\x00", [], [0], [1, 0], [None], [[]], ["full_attention"], ["sliding_attention", "x"], {}, {"a": 1}, ABSENT,
]  # fmt: skip


def model_or_one_line(config: Any) -> ModelArch | None:
    arch, fault = None, ""
    try:
        arch = arch_from_config(config, read_quantization=False)
    except RooflensError as error:
        fault = str(error)
    assert len(fault.splitlines()) == (0 if arch else 1)
    assert len(fault) < 400
    if arch is None:
        return None
    assert sum(layer.count for layer in arch.layers) == len(arch.order)
    assert all(isinstance(e, int) and e >= 0 for layer in arch.layers for e in (layer.other_elements, layer.count))
    assert all(len(line.splitlines()) == 1 for line in (*arch.unknown, *arch.assumptions))
    hash(arch.layers)
    return arch


def changed(config: dict[str, Any], name: str, value: Any) -> dict[str, Any]:
    """A copy in which the field is another value, in the language model's part where there is one."""
    inner = config.get("text_config")
    if inner is not None and name in inner:
        return {**config, "text_config": changed(inner, name, value)}
    copied = {**config, name: value}
    if value is ABSENT:
        del copied[name]
    return copied


@pytest.mark.parametrize("config", CONFIGS, ids=range(len(CONFIGS)))
def test_every_field_with_hard_values(config: dict[str, Any]) -> None:
    turn = len(config)
    for name in {**config, **config.get("text_config", {})}:
        for value in (HARD[turn % len(HARD)], HARD[(turn + 11) % len(HARD)], HARD[(turn + 19) % len(HARD)]):
            model_or_one_line(changed(config, name, value))
        turn += 1


@pytest.mark.parametrize("config", CONFIGS, ids=range(len(CONFIGS)))
def test_every_list_a_little_longer_and_shorter(config: dict[str, Any]) -> None:
    fields = config.get("text_config", config)
    for name, value in fields.items():
        if isinstance(value, list | str) and len(value) > 1:
            model_or_one_line(changed(config, name, value[:-1]))
            model_or_one_line(changed(config, name, value + value[-1:]))
            model_or_one_line(changed(config, name, value * 3))


NAMES = sorted({name for c in CONFIGS for name in {**c, **c.get("text_config", {})}})
SCALARS = st.none() | st.booleans() | st.integers(-(10**40), 10**40) | st.floats() | st.text(max_size=8)
VALUES = st.recursive(SCALARS, lambda v: st.lists(v, max_size=4) | st.dictionaries(st.text(max_size=8), v, max_size=3))


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(CONFIGS), st.dictionaries(st.sampled_from(NAMES), VALUES, min_size=1, max_size=4))
def test_any_changes_of_a_published_config(config: dict[str, Any], changes: dict[str, Any]) -> None:
    model_or_one_line({**config, **changes})
    if "text_config" in config:
        model_or_one_line({**config, "text_config": {**config["text_config"], **changes}})


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(CONFIGS), st.sampled_from(CONFIGS))
def test_two_models_in_one_file(one: dict[str, Any], other: dict[str, Any]) -> None:
    model_or_one_line({**one, **other})


@pytest.mark.parametrize("name", ["hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size"])
@pytest.mark.parametrize("value", [ABSENT, None, 0, -4, 2.5, True, "64", [], math.nan, 10**30])
def test_what_no_model_is_without_is_named(name: str, value: Any) -> None:
    flat = next(c for c in CONFIGS if c.get("model_type") == "minimax_m2")
    with pytest.raises(RooflensError, match=name):
        arch_from_config(changed(flat, name, value), read_quantization=False)
