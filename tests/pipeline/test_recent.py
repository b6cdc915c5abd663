"""The last steps of an engine: what comes in pieces is kept and analysed as if it had come at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rooflens.analyzer.arch import known_models
from rooflens.analyzer.hardware import find_hardware
from rooflens.analyzer.roofline import Roofline
from rooflens.collector.tables import empty_table
from rooflens.collector.windows import last_rows
from rooflens.model_records import StepAnalysis
from rooflens.pipeline.analysed import columns_of
from rooflens.pipeline.recent import SPARE_ROWS, GrowingColumns, RecentSteps
from rooflens.records import EngineInfo, StepKind, StepTable

CONFIGS = {row["id"]: row["config"] for row in known_models()}
MOST = 20


def roofline(model: str, block_tokens: int | None = 16) -> Roofline:
    facts = EngineInfo("i", "vllm", model_name=model, model_config=CONFIGS[model], block_tokens=block_tokens)
    return Roofline.of(facts, find_hardware("h100-sxm5-80"))


LLAMA = roofline("meta-llama-3-8b")


def rows_of_a_page(sequences: Sequence[int], without: Sequence[str] = (), steps: int = 50, hits: int = 1) -> StepTable:
    """Intervals of a page, each with figures of its own; ``hits`` is by how much prefixes are shared."""
    number = np.array(sequences, dtype=np.int64)
    batch = 8 + number % 7
    context = batch * (900 + number)
    columns = {
        "sequence": number,
        "kind": np.where(number % 5 == 0, StepKind.MIXED, StepKind.DECODE).astype(np.int64),
        "output_monotonic_s": number.astype(np.float64),
        "observed_s": 0.5 + 0.01 * (number % 11),
        "query_tokens": batch * steps,
        "prefill_tokens": np.where(number % 5 == 0, 64, 0),
        "sampled_rows": batch * steps,
        "requests": batch * steps,
        "context_tokens": context * steps,
        "causal_pairs": (context + batch) * steps,
        "prefill_pairs": np.zeros(len(number), dtype=np.int64),
        "kv_blocks_used": 1 + context // (16 * hits),
        "preempted": number % 3,
        "resolution_steps": np.full(len(number), steps),
    }
    return StepTable({name: column for name, column in columns.items() if name not in without})


def same(found: StepAnalysis | None, wanted: StepAnalysis | None) -> None:
    assert (found is None) == (wanted is None)
    if found is None or wanted is None:
        return
    columns = columns_of(wanted)
    assert columns_of(found).keys() == columns.keys()
    for place, column in columns_of(found).items():
        assert column.dtype == columns[place].dtype, place
        np.testing.assert_allclose(column, columns[place], rtol=1e-12, err_msg=str(place))
    for entry in fields(StepAnalysis):
        if not isinstance(getattr(wanted, entry.name), np.ndarray | dict):
            assert getattr(found, entry.name) == getattr(wanted, entry.name), entry.name


def same_steps(found: StepTable, wanted: StepTable) -> None:
    assert found.columns.keys() == wanted.columns.keys()
    for name in wanted.columns:
        mask = wanted.where(name)
        assert found.where(name).tolist() == mask.tolist(), name
        assert found[name][mask].tolist() == wanted[name][mask].tolist(), name


def whole(tables: Sequence[StepTable], most: int = MOST) -> StepTable:
    """What is kept of tables that follow each other, each put behind what was kept of those before."""
    kept = empty_table()
    for table in tables:
        kept = last_rows([last_rows([kept, table], max(most, len(table)))], most)
    return kept


class Counted:
    """Analyses, and remembers how many rows each time."""

    def __init__(self, roof: Roofline) -> None:
        self.roof, self.rows = roof, list[int]()

    def __call__(self, steps: StepTable) -> StepAnalysis:
        self.rows.append(len(steps))
        return self.roof.analyse_all(steps)


def test_one_new_row_is_analysed_alone() -> None:
    recent, analyse, tables = RecentSteps(empty_table(), MOST), Counted(LLAMA), [rows_of_a_page([n]) for n in range(50)]
    for at, table in enumerate(tables):
        own = recent.add(table, analyse, LLAMA.stand_alone)
        assert own is not None
        assert len(own.modelled) == 1
        same(recent.analysis, LLAMA.analyse_all(whole(tables[: at + 1])))
        same_steps(recent.steps, whole(tables[: at + 1]))
    assert analyse.rows == [1] * len(tables)


def test_what_was_handed_out_stays_as_it_was() -> None:
    recent, handed = RecentSteps(empty_table(), MOST), []
    for number in range(MOST + 2 * SPARE_ROWS):
        recent.add(rows_of_a_page([number]), LLAMA.analyse_all, LLAMA.stand_alone)
        handed.append((number, recent.steps, recent.analysis))
    for number, steps, analysis in handed[::3]:
        wanted = rows_of_a_page(range(max(0, number - MOST + 1), number + 1))
        assert steps["sequence"].tolist() == wanted["sequence"].tolist()
        same(analysis, LLAMA.analyse_all(wanted))


@pytest.mark.parametrize("column", ["prefill_pairs", "kv_blocks_used", "context_tokens", "observed_s", "kind"])
def test_a_column_appears_and_vanishes_between_rows(column: str) -> None:
    recent, tables = RecentSteps(empty_table(), MOST), list[StepTable]()
    for number in range(2 * MOST):
        tables.append(rows_of_a_page([number], [column] if number % 9 in (0, 1, 5) else []))
        own = recent.add(tables[-1], Once(LLAMA), LLAMA.stand_alone)
        kept = whole(tables)
        same_steps(recent.steps, kept)
        same(recent.analysis, Once(LLAMA)(kept))
        assert own is None or len(own.modelled) == 1


class Once:
    """Analyses as an engine does: None for a table without a column that is needed."""

    def __init__(self, roof: Roofline) -> None:
        self.roof = roof

    def __call__(self, steps: StepTable) -> StepAnalysis | None:
        try:
            return self.roof.analyse_all(steps)
        except Exception:
            return None


def test_other_facts_are_taken_for_all_rows() -> None:
    other = roofline("qwen3-30b-a3b" if "qwen3-30b-a3b" in CONFIGS else sorted(CONFIGS)[0])
    recent = RecentSteps(empty_table(), MOST)
    for number in range(10):
        recent.add(rows_of_a_page([number]), LLAMA.analyse_all, LLAMA.stand_alone)
    recent.analyse_anew(other.analyse_all)
    same(recent.analysis, other.analyse_all(rows_of_a_page(range(10))))
    for number in range(10, 14):
        recent.add(rows_of_a_page([number]), other.analyse_all, other.stand_alone)
        same(recent.analysis, other.analyse_all(rows_of_a_page(range(number + 1))))


def test_single_steps_depend_on_those_beside_them_and_are_analysed_together() -> None:
    recent, analyse = RecentSteps(empty_table(), MOST), Counted(LLAMA)
    for number in range(MOST):
        recent.add(rows_of_a_page([number], steps=1, hits=3), analyse, LLAMA.stand_alone)
        same(recent.analysis, LLAMA.analyse_all(rows_of_a_page(range(number + 1), steps=1, hits=3)))
    assert analyse.rows == list(range(1, MOST + 1))
    assert not LLAMA.stand_alone(rows_of_a_page([1], steps=1))
    assert roofline("meta-llama-3-8b", None).stand_alone(rows_of_a_page([1], steps=1))


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 70), st.sampled_from([1, 50]), st.booleans()), min_size=1, max_size=8))
def test_pieces_of_any_length_give_what_they_give_together(pieces: list[tuple[int, int, bool]]) -> None:
    recent, tables, at = RecentSteps(empty_table(), MOST), list[StepTable](), 0
    for rows, steps, told in pieces:
        tables.append(rows_of_a_page(range(at, at + rows), () if told else ("prefill_pairs",), steps))
        at += rows
        own = recent.add(tables[-1], LLAMA.analyse_all, LLAMA.stand_alone)
        assert own is not None
        assert len(own.modelled) == rows
        same_steps(recent.steps, whole(tables))
        assert recent.analysis is not None
        assert len(recent.analysis.modelled) == len(recent.steps)
        assert recent.analysis.observed_s.tolist() == recent.steps["observed_s"].tolist()


def test_a_column_of_another_type_is_not_squeezed_into_the_one_before() -> None:
    growing: GrowingColumns[str] = GrowingColumns({"a": np.arange(3)}, 4)
    assert not growing.add({"a": np.array([0.5])})
    assert growing.add({"a": np.array([7, 8])})
    assert growing.last(9)["a"].tolist() == [1, 2, 7, 8]
    added: dict[str, Any] = {"b": np.array([1])}
    assert not growing.add(added)
