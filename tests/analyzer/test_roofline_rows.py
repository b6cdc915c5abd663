"""Rows that stand for several steps, and a roofline that is compiled once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_windows import CONFIG, H100, INFO, ROOFLINE, info_with, merged, steps

from rooflens.analyzer.arch import find_model
from rooflens.analyzer.precision import choose_precision
from rooflens.analyzer.roofline import Roofline, analyse, analyse_engine
from rooflens.arch_records import Deployment
from rooflens.records import RooflensError, StepTable

COLUMNS = ("floor_s", "memory_s", "compute_s", "serial_floor_s", "link_s", "weight_bytes", "kv_read_bytes",
           "kv_write_bytes", "flops", "observed_s")  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(
    decode=st.integers(1, 512),
    context=st.integers(0, 50_000),
    prefill=st.sampled_from([0, 1, 300, 8000]),
    together=st.integers(2, 60),
    tensor_parallel=st.sampled_from([1, 4]),
    shared=st.booleans(),
)
def test_n_equal_steps_in_one_row_are_n_times_the_step(
    decode: int, context: int, prefill: int, together: int, tensor_parallel: int, shared: bool
) -> None:
    roofline = Roofline.of(info_with(tensor_parallel=tensor_parallel), H100)
    held = (context + 16) // 16 + decode if shared else decode * (context // 16 + 1) + prefill // 16 + 1
    table = steps(together, decode, context, prefill, kv_blocks_used=held)
    one, row = roofline.analyse(table), roofline.analyse(merged(table, together))
    for name in COLUMNS:
        assert getattr(row, name)[0] == pytest.approx(together * getattr(one, name)[0], rel=1e-9), name
    assert row.mbu[0] == pytest.approx(one.mbu[0])
    assert row.bound[0] == one.bound[0]
    for name, seconds in row.group_s.items():
        assert seconds[0] == pytest.approx(together * one.group_s[name][0])


def test_what_ended_in_a_row_of_several_does_not_undo_its_shared_prefixes() -> None:
    table = steps(20, decode=8, context=1000, kv_blocks_used=70, finished_requests=np.arange(20) % 2)
    row = ROOFLINE.analyse(merged(table, 20))
    assert row.kv_read_bytes[0] == pytest.approx(20 * 70 * 16 * 131072)


def test_contexts_beside_an_empty_pool_are_read_whole() -> None:
    row = merged(steps(20, decode=8, context=1000, kv_blocks_used=0), 20)
    assert ROOFLINE.analyse(row).kv_read_bytes[0] == 20 * 8 * 1000 * 131072


def test_compiled_once_is_the_same_as_every_time() -> None:
    arch = find_model("meta-llama-3.1-8b")
    precision = choose_precision(arch, "fp8", "fp8")
    roofline = Roofline(arch, H100, precision, Deployment(tensor=2), 16)
    for table in (steps(5), steps(50, decode=np.arange(50), prefill=100)):
        once, again = roofline.analyse(table), analyse(table, arch, H100, precision, Deployment(tensor=2), 16)
        for name in COLUMNS:
            np.testing.assert_array_equal(getattr(once, name), getattr(again, name))
        assert once.notes == again.notes
    assert (roofline.arch, roofline.hardware, roofline.deployment) == (arch, H100, Deployment(tensor=2))


def test_an_engine_that_cannot_be_modelled_is_refused_when_it_is_compiled() -> None:
    table = steps(3)
    assert analyse_engine(table, INFO, H100).floor_s[0] == ROOFLINE.analyse(table).floor_s[0]
    for change in ({"model_config": None}, {"pipeline_parallel": 33}, {"model_config": CONFIG | {"hidden_size": 0}}):
        with pytest.raises(RooflensError):
            Roofline.of(replace(INFO, **change), H100)


def test_rows_with_and_without_a_resolution_may_stand_together() -> None:
    one = steps(1)
    row = merged(steps(10), 10)
    names = row.columns.keys() & one.columns.keys()
    both = {n: np.concatenate((one[n], row[n])) for n in names} | {"resolution_steps": np.array([1, 10])}
    floor_s = ROOFLINE.analyse(StepTable(both)).floor_s
    assert floor_s[1] == pytest.approx(10 * floor_s[0])
