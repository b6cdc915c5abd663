"""What counters are held against: every byte that the floor of a step counts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from made_windows import H100, INFO, steps

from rooflens.analyzer.arch import known_models
from rooflens.analyzer.roofline import Roofline
from rooflens.pipeline.window_counters import step_bytes


@pytest.mark.parametrize("name", ["nvidia-nemotron-3-nano-30b-a3b-bf16", "meta-llama-3-8b"])
def test_all_bytes_of_the_floor_are_counted_also_those_of_states(name: str) -> None:
    row = next(row for row in known_models() if row["id"] == name)
    table = steps(5, decode=128)
    analysis = Roofline.of(replace(INFO, model_name=name, model_config=row["config"]), H100).analyse_all(table)
    found = step_bytes(table, analysis)
    assert H100.cache_bytes is not None
    floor_bytes = analysis.memory_s * H100.memory_bandwidth_bytes_per_s + H100.cache_bytes  # may stay in the cache
    assert found == pytest.approx(floor_bytes, rel=1e-9)
    short = analysis.weight_bytes + analysis.kv_read_bytes + analysis.kv_write_bytes
    assert bool(np.all(found > 1.5 * short)) is (name != "meta-llama-3-8b")


def test_a_step_without_a_model_has_no_bytes() -> None:
    assert np.isnan(step_bytes(steps(3), None)).all()
