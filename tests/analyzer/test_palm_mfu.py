"""Model flops utilisation of PaLM as it was served on TPU v4, against what was reported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from made_archs import palm

from rooflens.analyzer.hardware import find_hardware
from rooflens.analyzer.precision import choose_precision
from rooflens.analyzer.predict import Plan, predict

REPORTED = json.loads((Path(__file__).parents[1] / "data" / "palm_mfu.json").read_text())


@pytest.mark.parametrize("row", REPORTED["rows"], ids=lambda row: f"{row['model']}-{row['phase']}-{row['batch']}")
def test_mfu_within_a_hundredth(row: dict[str, Any]) -> None:
    # Prefill of one prompt of 2,048 on 540B: 2 x 535.6e9 weights that multiply each token x 2,048 tokens, one row of
    # the head (2 x 256,000 x 18,432) and the causal half of attention, 4 x 118 x 48 x 256 x 2,048 x 2,049 / 2, are
    # 2.206e15 flops; 64 chips of 275e12 do 5.104e15 in 0.29 s: 0.432. A decode step is one of the 64 generated
    # tokens, with 2,048 + 32 tokens before it on average.
    arch, hardware = palm(row["model"]), find_hardware(REPORTED["hardware"])
    decode = row["phase"] == "decode"
    steps = REPORTED["generated_tokens"]
    context = row["tokens"] + steps // 2 if decode else row["tokens"]
    plan = Plan(batch=row["batch"], context_tokens=context, phase=row["phase"])
    flops = predict(arch, hardware, choose_precision(arch), plan).flops
    seconds = row["latency_s"] / steps if decode else row["latency_s"]
    mfu = flops / (seconds * row["chips"] * hardware.peak_flops_per_s["bf16"])
    assert mfu == pytest.approx(row["mfu"], abs=0.01)
    assert mfu == pytest.approx(row["computed"], abs=0.0005)
