"""Published measurements: no plain figure is below its floor, and what is reachable is as near as the page says."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from measured_floors import Bound, bound_of, largest_batch
from measured_reachable import Step, left_out, prompts, step_of, steps, summary, sweeps
from measured_rows import ROWS, Row, rows
from measured_verdicts import below, reason_of
from roofline_tables import CAUSES

BY_ID = {str(row.id): row for row in rows()}
BELOW = {"m0056", "m0057", "m0059", "m0064", "m0065", "m0067", "m0173", "m0174", "m0177"}


def changed(name: str, **fields: object) -> Row:
    return Row({**BY_ID[name].data, **fields})


def test_every_line_of_the_file_is_a_row_with_a_source() -> None:
    assert len(rows()) == len(BY_ID) == len(ROWS.read_text().splitlines()) == 344
    assert all(row.source for row in rows())


@pytest.fixture(scope="module")
def bounds() -> list[tuple[Row, Bound]]:
    return [(row, bound_of(row)) for row in rows()]


def test_no_plain_figure_is_below_its_floor(bounds: list[tuple[Row, Bound]]) -> None:
    """Both floors: the one free of sharding, and floor_s of the deployment where that is stated."""
    plain = [(row, bound) for row, bound in bounds if row.flag is None]
    assert len(plain) == 322
    assert [row.id for row, bound in plain if not bound.ratio >= 1] == []
    stated = [(row, bound) for row, bound in plain if row.tensor and bound.product_s is not None]
    assert len(stated) > 150
    assert [row.id for row, bound in stated if bound.observed_s < (bound.product_s or 0)] == []


def test_what_is_below_is_flagged_and_comes_out_invalid_with_the_reason(bounds: list[tuple[Row, Bound]]) -> None:
    found = {str(row.id): (row, reason) for row, _, reason in below(bounds)}
    assert set(found) == BELOW
    for row, reason in found.values():
        assert row.flag is not None
        said = "a verify step" if row.metric == "spec_speedup" else "measurement_invalid: observed 0."
        assert reason.startswith(said), row.id
    assert "138 GB of weights do not fit the 77 GB" in found["m0177"][1]


def test_a_figure_that_is_twice_too_good_is_found() -> None:
    """24 tokens/s become 240: the same rows, ten times as fast, would be below their floors."""
    for name in ("m0012", "m0119", "m0256", "m0051"):
        row = BY_ID[name]
        assert bound_of(changed(name, value=10 * row.value)).ratio == pytest.approx(bound_of(row).ratio / 10)
        assert bound_of(changed(name, value=10 * row.value)).ratio < 1
    assert reason_of(BY_ID["m0012"], bound_of(BY_ID["m0012"])) == "measurement_invalid does not fire"


def test_one_decode_step_by_hand() -> None:
    # Llama 2 7B in bf16, batch 1 with 105 tokens cached, one A100: 32 layers of 4 x 4,096^2 + 3 x 4,096 x 11,008
    # weights and a head of 32,000 x 4,096 are 6,607,077,376 x 2 bytes, norms (2 x 32 + 1) x 4,096 x 2 and one gathered
    # row of 8,192; 32 layers keep 2 x 4,096 x 2 bytes a token: 105 read and 1 written. 40 MB stay in the last cache.
    read = 2 * 6_607_077_376 + 65 * 4096 * 2 + 8192 + 106 * 32 * 2 * 4096 * 2
    row = BY_ID["m0012"]
    cache = row.hardware_spec.cache_bytes or 0
    expected_s = (read - cache) / row.hardware_spec.memory_bandwidth_bytes_per_s
    assert bound_of(row).floor_s == pytest.approx(expected_s, rel=1e-6)
    assert bound_of(row).observed_s == 1 / 104.9


def test_a_full_server_by_hand() -> None:
    # Llama 3.1 8B in fp8 with an fp8 cache, one H200, 2,048 tokens in and 128 out: one of the prompt, 127 of decode
    # steps that see 2,049 to 2,175 tokens, 2,112 on average. The flops decide: 2 x 6,979,321,856 weights of layers for
    # 2,048 + 127 tokens, 2 x 525,336,576 of the head for 128; attention is 4 x 32 heads x 128 in 32 layers for each of
    # 2,048 x 2,049 / 2 + 127 x 2,112 pairs.
    row = BY_ID["m0125"]
    linear = 2 * 6_979_321_856 * (2048 + 127) + 2 * 525_336_576 * 128
    attention = 4 * 32 * 32 * 128 * (2048 * 2049 // 2 + 127 * 2112)
    flops_s = (linear + attention) / row.hardware_spec.ceiling_flops_per_s["fp8"]
    assert bound_of(row).floor_s == pytest.approx(flops_s, rel=1e-6)
    # A token of cache is 32 x 2 x 8 x 128 = 65,536 bytes; head and embedding take a byte an element here.
    free = row.hardware_spec.memory_bytes - (6_979_321_856 + 2 * 525_336_576)
    assert largest_batch(row, 2112) == pytest.approx(free / (65_536 * 2112), rel=1e-3)


def test_speculation_gains_no_more_than_its_tokens() -> None:
    # Acceptance 0.75, seven drafted: (1 - 0.75^8) / 0.25 = 3.600 tokens a verify step; 3.4 is possible, 3.7 is not.
    assert bound_of(BY_ID["m0058"]).ratio == pytest.approx(3.59955 / 3.4, rel=1e-5)
    assert bound_of(changed("m0058", value=3.7)).ratio < 1


def test_the_bound_free_of_sharding_is_the_lower_one(bounds: list[tuple[Row, Bound]]) -> None:
    for row, bound in bounds:
        if bound.product_s is not None:
            assert bound.floor_s <= bound.product_s * (1 + 1e-9), row.id


@pytest.fixture(scope="module")
def compared() -> list[Step]:
    return steps()[0]


def test_what_is_reachable_is_as_near_as_the_page_says(compared: list[Step]) -> None:
    """Median and 90th percentile; the goals are 15 % and 35 %, and 7 % for a sweep."""
    count, middle, most = summary(step.off() for step in compared)
    assert count > 150
    assert middle < 0.15
    assert most < 0.37
    count, middle, most = summary(step.off(fit) for step, fit in left_out(compared))
    assert count > 110
    assert middle < 0.15
    assert most < 0.37
    assert summary(off for sweep in sweeps(compared) for off in sweep.off)[1] < 0.07


def test_no_observed_figure_decides_what_is_compared() -> None:
    for row in [row for row in rows() if row.phase == "decode"][::5]:
        before, after = step_of(row), step_of(Row({**row.data, "value": 3 * row.value}))
        if isinstance(before, Step):
            assert isinstance(after, Step), row.id
            assert after.reachable_s == before.reachable_s, row.id
        else:
            assert after == before, row.id


def test_a_model_left_out_decides_nothing_of_its_own_scale(compared: list[Step]) -> None:
    tested = "openai/gpt-oss-120b"
    worse = [
        Step(s.row, s.observed_s * 9, s.decode_s, s.prompts_s, s.layers, s.assumed) if s.row.family == tested else s
        for s in compared
    ]
    for found in (compared, worse):
        scales = {step.pair: fit.scale for step, fit in left_out(found) if step.row.family == tested}
        assert scales == {step.pair: fit.scale for step, fit in left_out(compared) if step.row.family == tested}


def test_prompts_and_causes_name_rows_that_are_there() -> None:
    assert {name for names in CAUSES for name in names} <= set(BY_ID)
    assert sum(len(ratios) for ratios in prompts().values()) > 50
