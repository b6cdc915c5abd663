"""examples/pytorch_loop.py as it stands: its steps in the ring are those of the loop."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from compare import read_ring

pytestmark = pytest.mark.engine

EXAMPLE = Path(__file__).parents[2] / "examples" / "pytorch_loop.py"


def test_the_loop_is_recorded(rings: Path) -> None:
    command = [sys.executable, "-P", str(EXAMPLE), "--batch", "3", "--prompt", "20", "--tokens", "12"]
    said = subprocess.run(command, check=True, timeout=60, env=os.environ, capture_output=True, text=True).stdout
    (path,) = rings.glob("*.ring")
    assert str(path) in said
    batch, lengths, doubted = read_ring(path)
    assert doubted == 0
    assert batch.info is not None
    assert (batch.info.engine, batch.info.weight_dtype) == ("pytorch-loop", "bfloat16")
    steps = batch.steps
    assert steps["query_tokens"].tolist() == [60] + [3] * 11
    assert [one.contexts.tolist() for one in lengths.values()] == [[0] * 3] + [[20 + n] * 3 for n in range(11)]
    first = int(steps["prompt_tokens"].sum())
    assert int(steps["query_tokens"].sum()) == first + int(steps["generated_tokens"].sum()) - 3
    assert (steps["observed_s"] > 0).all()
    assert (steps["update_s"] >= 0).all()
