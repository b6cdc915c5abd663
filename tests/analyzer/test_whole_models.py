"""Whole models of a hundred families: their parameters are those that the reference implementations allocate.

Norms that no field tells of and biases may be missed: five in ten thousand at most.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rooflens.analyzer.arch import arch_from_config
from rooflens.analyzer.counting import parameters
from rooflens.analyzer.operators import works
from rooflens.analyzer.point import UniformBatch, point_features
from rooflens.analyzer.precision import Precision
from rooflens.analyzer.work import dot, resident_bytes

ROWS = json.loads((Path(__file__).parents[1] / "data" / "whole_parameters.json").read_text())["rows"]
BF16 = Precision("bf16", "bf16", "bf16", "bf16")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["model_type"])
def test_parameters(row: Mapping[str, Any]) -> None:
    arch = arch_from_config(row["config"], row["model_type"])
    assert parameters(arch).total == pytest.approx(row["parameters"], rel=5e-4)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["model_type"])
def test_a_decode_step_reads_no_weight_twice(row: Mapping[str, Any]) -> None:
    """One sequence reads at most what is resident, at 2 bytes an element, and multiplies each of it at most once.

    Flops beyond that are those over the context and in the states.
    """
    arch = arch_from_config(row["config"], row["model_type"])
    rows = works(arch, BF16)
    step = UniformBatch(sequences=1, cached_tokens=0)
    read = sum(dot(one.weight_bytes, point_features(step, one.weight_bytes)) for one in rows)
    linear = [one for one in rows if one.group in ("linear", "experts", "indexer", "head")]
    flops = sum(dot(one.flops, point_features(step, one.flops)) for one in linear if one.elements)
    assert 0 < read <= resident_bytes(rows) * (1 + 1e-9)
    assert flops <= read * (1 + 1e-9)  # 2 flops and 2 bytes an element
