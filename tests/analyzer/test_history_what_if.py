"""What-ifs on captured steps: by hand on a model of one number, and relations between them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recorded_rings import HARDWARE, unpacked

from rooflens.analyzer.hardware import find_hardware
from rooflens.analyzer.history.changed import Change, under
from rooflens.analyzer.history.records import WhatIfAnswer
from rooflens.analyzer.history.what_if import WhatIf
from rooflens.analyzer.roofline import Roofline
from rooflens.analyzer.rules.reprice import at_larger_batch
from rooflens.pipeline import Recording, read_ring
from rooflens.records import RooflensError, StepKind

ROOF = find_hardware(str(HARDWARE))


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    return read_ring(unpacked("vllm-a", Path(tmp_path_factory.mktemp("ring"))))


def asked(recording: Recording, pieces: int = 1, keyframes: bool = False, **changes: Any) -> WhatIfAnswer:
    assert recording.info is not None
    now = Roofline.of(recording.info, ROOF)
    one = WhatIf(Change("x", **changes))
    then = under(now, one.change)
    for rows in np.array_split(np.arange(len(recording.steps)), pieces):
        frames = {0: ([100, 200], [1, 1])} if keyframes else {}
        one.take(now, then, recording.info, recording.steps.take(rows), frames)
    return one.answer(price_per_device_hour=3600.0)


def test_no_change_changes_nothing(recording: Recording) -> None:
    found = asked(recording)
    assert found.total is not None
    assert found.total.new_low_s == pytest.approx(found.total.observed_s, rel=1e-12)
    assert found.total.new_high_s == pytest.approx(found.total.observed_s, rel=1e-12)
    assert found.total.reachable_then_s == pytest.approx(found.total.reachable_now_s, rel=1e-12)
    assert (found.fits, found.devices_now, found.devices_then) == (True, 1, 1)
    # 126 of 159 blocks of 32 tokens were in use at the fullest step.
    assert found.needed_bytes is not None
    assert found.pool_bytes is not None
    assert found.needed_bytes / found.pool_bytes == pytest.approx(126 / 159, rel=1e-9)


def test_in_pieces_it_is_the_same(recording: Recording) -> None:
    whole, pieces = asked(recording, weights="fp8"), asked(recording, pieces=7, weights="fp8")
    assert whole.total is not None
    assert pieces.total is not None
    assert pieces.total.new_high_s == pytest.approx(whole.total.new_high_s, rel=1e-9)
    assert pieces.needed_bytes == pytest.approx(whole.needed_bytes)


def test_the_interval_is_waste_scaled_to_waste_constant(recording: Recording) -> None:
    """Worked out beside: observed x then / now, and observed less what reachable time shrinks by."""
    assert recording.info is not None
    now = Roofline.of(recording.info, ROOF)
    before, after = (roof.analyse_all(recording.steps) for roof in (now, under(now, Change("x", weights="fp8"))))
    assert before.reachable_s is not None
    assert after.reachable_s is not None
    seconds, growth = before.observed_s, after.reachable_s / before.reachable_s
    usual = np.minimum(before.reachable_s, seconds)
    found = asked(recording, weights="fp8").total
    assert found is not None
    assert found.new_low_s == pytest.approx(float((seconds * growth).sum()), rel=1e-9)
    assert found.new_high_s == pytest.approx(float((seconds - usual * (1 - growth)).sum()), rel=1e-9)
    assert found.tokens_per_s_low == pytest.approx(832 / found.new_high_s)


def test_a_larger_batch_is_what_the_rules_say_of_it(recording: Recording) -> None:
    assert recording.info is not None
    decode = recording.steps["kind"] == StepKind.DECODE
    larger = at_larger_batch(Roofline.of(recording.info, ROOF), recording.steps, decode, 16.0)
    part = next(part for part in asked(recording, batch=16).kinds if part.name == "decode")
    assert larger is not None
    assert part.observed_s - part.new_low_s == pytest.approx(larger.high_s, rel=1e-6)
    assert part.observed_s - part.new_high_s == pytest.approx(larger.low_s, rel=1e-6)
    others = [part for part in asked(recording, batch=16).kinds if part.name != "decode"]
    assert [part.new_low_s for part in others] == pytest.approx([part.observed_s for part in others])


def test_a_batch_that_the_pool_cannot_hold_does_not_fit(recording: Recording) -> None:
    assert asked(recording, batch=4096).fits is False
    assert asked(recording, batch=2).fits is True


def test_half_the_bytes_of_the_cache_hold_twice_the_tokens(recording: Recording) -> None:
    wide, narrow = asked(recording), asked(recording, kv="fp8")
    assert narrow.needed_bytes == pytest.approx((wide.needed_bytes or 0) / 2)
    assert narrow.pool_bytes == pytest.approx(wide.pool_bytes)


def test_keyframes_stand_for_the_mean(recording: Recording) -> None:
    assert any("mean stands in" in note for note in asked(recording).notes)
    assert not any("mean stands in" in note for note in asked(recording, keyframes=True).notes)


def test_money_is_for_device_time(recording: Recording) -> None:
    found = asked(recording, weights="fp8")
    assert found.saved_device_s is not None
    assert found.saved_money == pytest.approx(found.saved_device_s)  # at 3,600 an hour


def test_other_hardware_and_what_cannot_be_run(recording: Recording) -> None:
    found = asked(recording, hardware=find_hardware("h100-sxm5-80"))
    assert found.total is not None
    assert found.total.reachable_then_s < found.total.reachable_now_s / 20
    with pytest.raises(RooflensError):
        asked(recording, tensor=2)  # the hardware has no link
