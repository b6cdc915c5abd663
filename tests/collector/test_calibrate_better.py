"""Which of two calibrations of one device is kept."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from made_calibrations import UNIX_S, cpu_calibration, measured

from rooflens.calibration_records import Calibration
from rooflens.collector.calibrate import why_better
from rooflens.model_records import DISTURBED

OTHERS = (f"{DISTURBED}: cc1",)
NOW_S = UNIX_S + 3600.0


def made(spread_ratio: float, **changes: Any) -> Calibration:
    value = measured(1e9, 2e9, spread_ratio)
    curve = ((1 << 20, value), (1 << 22, value))
    return cpu_calibration(
        reads=curve, copies=curve, attention=curve, products={"fp32": value}, launch_s=value, **changes
    )


CASES: list[tuple[Calibration, Calibration, bool]] = [
    (made(0.1), made(0.1), False),
    (made(0.9), made(0.1, flags=OTHERS), True),
    (made(0.1, flags=OTHERS), made(0.9, flags=OTHERS), False),
    (made(0.1, flags=OTHERS, took_s=60.0), made(0.9, flags=OTHERS), True),
    (made(0.1, flags=OTHERS, took_s=600.0), made(0.9), False),
    (made(0.1, took_s=60.0), made(0.2), True),
    (made(0.1, took_s=59.0), made(0.2), False),
    (made(0.2, took_s=60.0), made(0.1), False),
    (made(0.1, versions={"numpy": "2.0.0", "rooflens": "older"}), made(0.1, flags=OTHERS), False),
    (made(0.1, measured_unix_s=UNIX_S - 200 * 86400), made(0.1, flags=OTHERS), False),
]


@pytest.mark.parametrize(("kept", "new", "stays"), CASES)
def test_the_kept_one_stays_only_where_it_is_clearly_better(kept: Calibration, new: Calibration, stays: bool) -> None:
    assert (why_better(kept, new, NOW_S) is not None) == stays


def test_one_of_another_device_is_never_compared() -> None:
    kept, new = made(0.1), made(0.1, flags=OTHERS)
    assert why_better(replace(kept, identity=replace(kept.identity, units=3)), new, NOW_S) is None
