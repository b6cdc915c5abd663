"""What people reported of clocks and counters, laid out as windows: what was not stated is named as assumed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from made_counters import beside
from made_windows import case, info_with, steps

from rooflens.analyzer.arch import known_models
from rooflens.analyzer.hardware import find_hardware
from rooflens.analyzer.roofline import Roofline
from rooflens.analyzer.rules import RULES
from rooflens.analyzer.rules.case import Case
from rooflens.device_records import CounterSource, Throttle
from rooflens.findings import Code, Status

CASES = json.loads((Path(__file__).parents[2] / "data" / "counter_cases.json").read_text(encoding="utf-8"))
OF_CLOCKS = [each for each in CASES if "throttling" in each]
OF_COUNTERS = [each for each in CASES if "measurement_invalid" in each]


def case_of(told: dict[str, Any]) -> Case:
    hardware, model = find_hardware(told["hardware"]), told["model"]
    config = model if isinstance(model, dict) else next(r["config"] for r in known_models() if r["id"] == model)
    info = info_with(model_config=config, weight_dtype=None, quantization=told["quantization"])
    roofline = Roofline.of(info, hardware)
    table = steps(60, told.get("batch", 0), told.get("context", 0), told.get("prompt", 0), observed_s=told["step_s"],
                  roofline=roofline)  # fmt: skip
    throttled = {Throttle(name): share for name, share in told["throttled_ratio"].items()}
    return beside(table, info, roofline, throttled_ratio=throttled, **told["counters"])


@pytest.mark.parametrize("told", OF_CLOCKS, ids=[told["id"] for told in OF_CLOCKS])
def test_a_reported_clock(told: dict[str, Any]) -> None:
    found = RULES[Code.THROTTLING](case_of(told))
    assert found.status is Status(told["throttling"]), found.summary
    if found.status is Status.FIRING:
        assert told["cause"] in found.summary
        assert "changes nothing" in (found.remedy or "")
        assert found.price is not None
    elif told["throttled_ratio"]:
        assert "costs these steps 0.0% of their time, though the devices say: power cap 100%" in found.summary
    assert told["said"]
    assert told["source"].startswith("github.com/")


def test_a_windows_host_that_holds_the_device_up_is_the_hosts() -> None:
    """HOST-11: the steps are three and a half times their floor, and no clock explains it."""
    (told,) = (each for each in OF_CLOCKS if each["id"] == "HOST-11")
    made = case_of(told)
    assert made.figures[0].compared_s == pytest.approx(60 * told["step_s"])
    assert made.figures[0].compared_s / (made.figures[0].floor_s or 0.0) == pytest.approx(3.5, abs=0.4)


@pytest.mark.parametrize("told", OF_COUNTERS, ids=[told["id"] for told in OF_COUNTERS])
@pytest.mark.parametrize("stepping", [True, False])
def test_counters_that_stand_still_are_not_taken_for_an_idle_device(told: dict[str, Any], stepping: bool) -> None:
    facts = told["counters"] | {"source": CounterSource(told["counters"]["source"])}
    ahead = info_with(async_scheduling=True, concurrent_batches=2)
    table = steps() if stepping else steps(gap_ratio=1000.0)
    found = RULES[Code.MEASUREMENT_INVALID](beside(table, ahead, **facts))
    assert found.status is Status(told["measurement_invalid"])
    assert "the counters stand still, the devices do not" in found.summary
    assert {e.name: e.value for e in found.evidence}["not_to_be_trusted"] == "device counters"
    assert "restart the DCGM host engine" in (found.remedy or "")
    for code, judge in RULES.items():
        if code is not Code.MEASUREMENT_INVALID:
            assert judge(beside(table, ahead, **facts)) == _without_counters(judge, table, ahead, code), code


def _without_counters(judge: Any, table: Any, info: Any, code: Code) -> Any:
    """The answer without any counter that was measured; clocks are no such counter."""
    plain = beside(table, info, power_ratio=0.6, source=CounterSource.DCGM)
    return judge(plain if code is Code.THROTTLING else case(table, info=info))
