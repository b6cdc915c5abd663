"""What people reported of real servers, laid out as windows: the right finding, or an honest cannot_tell."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_windows import H100, ROOFLINE, info_with, steps, window

from rooflens.analyzer.arch import find_model, known_models
from rooflens.analyzer.hardware import find_hardware
from rooflens.analyzer.roofline import Roofline
from rooflens.analyzer.rules import RULES
from rooflens.analyzer.rules.case import Case
from rooflens.analyzer.window_figures import window_figures
from rooflens.findings import Code, Severity, Status
from rooflens.model_records import HardwareSpec
from rooflens.records import StepTable

POINTS = json.loads((Path(__file__).parents[2] / "data" / "operating_points.json").read_text(encoding="utf-8"))
BLOCKS = 10_000


def hardware_of(point: dict[str, Any]) -> HardwareSpec | None:
    stated = point["hardware"]
    if isinstance(stated, dict):
        rates = {"bf16": stated["bf16"]}
        return replace(
            H100, id="stated", memory_bandwidth_bytes_per_s=stated["memory_bandwidth_bytes_per_s"],
            peak_flops_per_s=rates, ceiling_flops_per_s=rates, cache_bytes=None,
        )  # fmt: skip
    return find_hardware(stated) if stated else None


def config_of(point: dict[str, Any]) -> Any:
    if point["model"] is None or isinstance(point["model"], dict):
        return point["model"]
    assert find_model(point["model"])
    return next(row["config"] for row in known_models() if row["id"] == point["model"])


def table_of(point: dict[str, Any]) -> StepTable:
    """The steps as far as they are stated: what nobody stated (preemptions, times between steps) is left out."""
    count = point["steps"]
    prompts, seconds = np.zeros(count, dtype=int), np.full(count, point["step_s"])
    for number, (tokens, stall_s) in enumerate(point.get("stalls", ()), 1):
        prompts[number * count // 4], seconds[number * count // 4] = tokens, stall_s
    table = steps(count, point["batch"], point.get("context", 500), prompts, gap_ratio=0.0, observed_s=seconds,
                  waiting=point["waiting"])  # fmt: skip
    known = {n: c for n, c in table.columns.items() if n not in ("preempted", "recomputed_tokens", "kv_blocks_used")}
    if point["kv_used"] is not None:
        known["kv_blocks_used"] = np.full(count, round(point["kv_used"] * BLOCKS))
    return StepTable(known)


def case_of(point: dict[str, Any]) -> Case:
    hardware, config = hardware_of(point), config_of(point)
    info = info_with(
        engine=point["engine"], model_config=config, weight_dtype=None, max_sequences=point.get("max_sequences"),
        kv_blocks=BLOCKS if point["kv_used"] is not None else None, async_scheduling=None, concurrent_batches=None,
        block_tokens=None, max_batched_tokens=None,
    )  # fmt: skip
    roofline = Roofline.of(info, hardware) if hardware is not None and config is not None else None
    made = window(table_of(point), info, roofline)
    return Case((made,), (window_figures(made),), roofline, hardware)


@pytest.mark.parametrize("point", POINTS, ids=[point["id"] for point in POINTS])
def test_a_reported_operating_point(point: dict[str, Any]) -> None:
    found = {code: judge(case_of(point)) for code, judge in RULES.items()}
    fires = {code for code, f in found.items() if f.status is Status.FIRING and f.severity is not Severity.INFO}
    assert fires == {Code(name) for name in point["firing"]}, point["said"]
    for name in point.get("cleared", ()):
        assert found[Code(name)].status is Status.CLEARED, (name, found[Code(name)].summary)
    for name in point.get("cannot_tell", ()):
        assert found[Code(name)].status is Status.CANNOT_TELL, (name, found[Code(name)].summary)
    for name in point.get("info", ()):
        assert found[Code(name)].status is Status.FIRING, name
    assert ROOFLINE.hardware is H100
    assert point["source"].startswith("github.com/")
