"""Every ceiling side by side, and what each is used for."""

from __future__ import annotations

from dataclasses import replace

import pytest
from made_calibrations import MIB, cpu_calibration, h100_calibration
from made_windows import H100

from rooflens.analyzer.calibrated import hardware_of
from rooflens.analyzer.ceilings import ceilings_of
from rooflens.calibration_records import Ceiling, CeilingOrigin

DATASHEET, CALIBRATED = CeilingOrigin.DATASHEET, CeilingOrigin.CALIBRATED
ADJUSTED, MEASURED = CeilingOrigin.CLOCK_ADJUSTED, CeilingOrigin.MEASURED


def some(found: tuple[Ceiling, ...], origin: CeilingOrigin, number_format: str | None) -> list[Ceiling]:
    return [one for one in found if (one.origin, one.number_format) == (origin, number_format)]


def test_a_datasheet_is_used_for_everything_while_nothing_was_calibrated() -> None:
    found = ceilings_of(H100)
    (memory,) = some(found, DATASHEET, None)
    assert (memory.per_s, memory.used_for) == (3.35e12, ("floor", "reachable", "mbu"))
    printed, highest = some(found, DATASHEET, "bf16")
    assert (printed.per_s, printed.used_for) == (989.4e12, ("reachable", "mfu"))
    assert highest.per_s == pytest.approx(1980 / 1830 * 989.4e12, rel=1e-2)
    assert highest.used_for == ("floor",)
    assert {one.origin for one in found} == {DATASHEET}


def test_a_calibration_takes_reachable_and_nothing_else() -> None:
    found = ceilings_of(H100, h100_calibration())
    assert some(found, DATASHEET, None)[0].used_for == ("floor", "mbu")
    assert some(found, DATASHEET, "bf16")[0].used_for == ("mfu",)
    assert some(found, DATASHEET, "fp8")[0].used_for == ("reachable", "mfu")  # which was not calibrated
    (reads,) = some(found, CALIBRATED, None)
    assert reads.used_for == ("reachable",)
    assert 0.79 * 3.35e12 < reads.per_s < 0.8 * 3.35e12
    (products,) = some(found, CALIBRATED, "bf16")
    assert (products.per_s, products.used_for) == (pytest.approx(0.7 * 989.4e12), ("reachable",))
    assert "2026-09-21" in products.note


def test_a_calibration_of_another_device_is_not_shown() -> None:
    assert ceilings_of(H100, cpu_calibration()) == ceilings_of(H100)


def test_clocks_are_shown_and_used_for_nothing() -> None:
    found = ceilings_of(H100, None, 915e6, 1.98e9, 0.9)
    (memory,) = some(found, ADJUSTED, None)
    assert memory.per_s == pytest.approx(0.9 * 3.35e12)
    (products,) = some(found, ADJUSTED, "bf16")
    assert products.per_s == pytest.approx(989.4e12 / 2, rel=1e-2)  # the datasheet's peak is at 1830 MHz
    assert "915 MHz" in products.note
    assert all(one.used_for == () for one in found if one.origin is ADJUSTED)
    assert [one for one in found if one.origin is not ADJUSTED] == list(ceilings_of(H100))


def test_a_device_that_states_no_clock_is_held_against_its_highest() -> None:
    other = replace(H100, datasheet_clock_hz=None)
    (products,) = some(ceilings_of(other, None, 1e9, 2e9), ADJUSTED, "bf16")
    assert products.per_s == pytest.approx(other.ceiling_flops_per_s["bf16"] / 2)
    assert not some(ceilings_of(other, None, 1e9, None), ADJUSTED, "bf16")


def test_a_measured_roof_is_told_from_what_is_usually_reached() -> None:
    calibration = cpu_calibration()
    found = ceilings_of(hardware_of(calibration, 128 * MIB), calibration)
    (memory,) = some(found, MEASURED, None)
    assert (memory.per_s, memory.used_for) == (25e9, ("floor", "mbu"))
    (reads,) = some(found, CALIBRATED, None)
    assert (reads.per_s, reads.used_for) == (pytest.approx(20e9), ("reachable",))
    assert some(found, MEASURED, "fp32")[0].used_for == ("floor", "mfu")
    assert some(found, CALIBRATED, "fp32")[0].per_s == 400e9
    assert not [one for one in found if one.origin is DATASHEET]
    without = ceilings_of(hardware_of(calibration, 200 * MIB))
    assert {one.origin for one in without} == {MEASURED}
