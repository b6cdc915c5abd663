"""A condition is one expression over the columns of a step; whatever else is typed is refused in one line."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_traces import facts_of, made_table, written

from rooflens.collector.trace.cells import cells_of, cells_of_table
from rooflens.collector.trace.condition import COLUMN_TYPES, checked
from rooflens.collector.trace.files import find_trace
from rooflens.collector.trace.scan import parts_of
from rooflens.records import RooflensError
from rooflens.trace_records import TraceFilter

TABLE = made_table(facts_of(), 20)
SIGNS = "( ) ' \" ; -- /* */ , . * = < > + % ? $1 [ ] { } \\ \n \0 é ::int"
SQL = "select from where and or not union copy null limit case when then end as in between attach set 1 x 1e999"
WORDS = [*list(COLUMN_TYPES)[:12], *SIGNS.split(" "), *SQL.split(), "read_csv('/etc/passwd')", "glob('*')", "order by"]


@pytest.mark.parametrize(
    "where",
    ["kind = 1", "kind IN (1, 2) AND requests > 8", "observed_s > 2 * floor_s -- slow", "keyframe_contexts IS NOT NULL",
     "steps.requests > 3", "list_sum(keyframe_queries) > 8 OR length(run) = 16",
     "REQUESTS BETWEEN 2 AND 8 IS NOT FALSE", "hour(to_timestamp(unix_s)) >= 8",
     "greatest(abs(-requests), 2) ** 2 > 9", "run ~ '^0' AND run NOT LIKE '%f'",
     "run LIKE '0%'", '"context_tokens" / requests > 100'],
)  # fmt: skip
def test_a_condition_over_columns_stands(where: str) -> None:
    assert checked(where) == where


def test_no_condition_is_none() -> None:
    assert checked(None) is None
    assert checked("  ") is None


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("kind = decode", "kind = 1 is decode; all: 0 prefill, 1 decode, 2 mixed"),
        ("kind IN ('MIXED', 'x')", "kind = 2 is mixed"),
        ("kind = 1; DROP TABLE steps", "one condition over the columns"),
        ("kind = 1) OR (1 = 1", "syntax error"),
        ("kind = 1 ORDER BY 1", "one condition over the columns"),
        ("kind, run", "one condition over the columns"),
        ("1 FROM read_csv('/etc/passwd')", "one condition over the columns"),
        ("(SELECT count(*) FROM read_csv('/etc/passwd')) > 0", "a query cannot stand"),
        ("EXISTS (FROM glob('/*'))", "a query cannot stand"),
        ("count(*) OVER () > 1", "a window cannot stand"),
        ("requests > ?", "a ? cannot stand"),
        ("*", "a * cannot stand"),
        ("sum(requests) > 1", "aggregates"),
        ("requests > 'many'", "many"),
        ("x" * 5000, "at most 4000 characters"),
        ("random() < 0.5", "random() cannot stand here"),
        ("current_setting('threads') = 1", "current_setting() cannot stand here"),
        ("unix_s < epoch(now())", "now() cannot stand here"),
        ("current_date > '2026-01-01'", "no column 'current_date'"),
        ("length(repeat('ab', 1000000000)) > requests", "repeat() cannot stand here"),
        ("list_sum(range(100000000)) > requests", "range() cannot stand here"),
        ("list_sum([x + 1 for x in keyframe_queries]) > 3", "a lambda cannot stand"),
        ("rowid < 5", "no column 'rowid'"),
        ("engine = 0", "no column 'engine': --engine is for that"),
        ("steps.host = 'a'", "no column 'host': --engine is for that"),
        ("hour = 3", "no column 'hour': --from and --to is for that"),
        ("kind", "is a value of type BIGINT, no condition: compare it"),
        ("observed_s", "is a value of type DOUBLE, no condition"),
    ],
)
def test_what_is_no_condition_is_refused_in_one_line(where: str, said: str) -> None:
    with pytest.raises(RooflensError, match=r"^--where: ") as refused:
        checked(where)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_misspelt_column_is_told_with_those_near_it() -> None:
    with pytest.raises(RooflensError, match="no column 'requets'; near it: requests"):
        checked("requets > 3")
    assert checked('"context_tokens@w1024" > 3', ["context_tokens@w1024"])
    with pytest.raises(RooflensError, match="no column 'context_tokens@w1024'"):
        checked('"context_tokens@w1024" > 3')


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(WORDS), min_size=1, max_size=8).map(" ".join) | st.text(max_size=40))
def test_any_text_is_a_condition_or_one_line(where: str) -> None:
    """And what is taken for a condition sums a part of the rows, or says in one line why it cannot."""
    said = None
    try:
        checked(where)
        cells = cells_of_table(TABLE, facts_of(), TraceFilter(where=where), 3600.0)
    except RooflensError as refused:
        said = str(refused)
    assert "\n" not in said if said is not None else 0 < cells.columns["rows"].sum() <= 20


def test_a_condition_that_fails_over_a_value_is_one_line(tmp_path: Path) -> None:
    chosen = TraceFilter(where="facts::INTEGER = 1")
    table = TABLE.set_column(0, "facts", pa.array([facts_of().digest] * 20))
    written(tmp_path, table, facts_of())
    files = find_trace([str(tmp_path)], chosen)
    for run in (lambda: cells_of(files, chosen), lambda: list(parts_of(files, chosen)),
                lambda: cells_of_table(table, facts_of(), chosen)):  # fmt: skip
        with pytest.raises(RooflensError, match=r"^--where: facts::INTEGER = 1: Conversion Error"):
            run()


def test_columns_in_any_case_are_read(tmp_path: Path) -> None:
    chosen = TraceFilter(where="REQUESTS > 100")
    written(tmp_path, TABLE, facts_of())
    files = find_trace([str(tmp_path)], chosen)
    rows = sum(len(part.steps) for part in parts_of(files, chosen, ["observed_s"]))
    assert rows == cells_of(files, chosen).columns["rows"].sum() > 0


def test_a_division_by_nothing_is_the_condition_s_fault_and_says_so(tmp_path: Path) -> None:
    chosen = TraceFilter(where="requests % waiting = 0")
    written(tmp_path, TABLE, facts_of())
    with pytest.raises(RooflensError, match=r"^--where: requests % waiting = 0: Division by zero") as refused:
        cells_of(find_trace([str(tmp_path)], chosen), chosen)
    assert "SET" not in str(refused.value)


def test_a_condition_reads_no_file(tmp_path: Path) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text("a\n1\n")
    for text in (f"(SELECT max(a) FROM '{secret}') = 1", f"1 IN (FROM read_csv('{secret}'))", f"read_text('{secret}')"):
        with pytest.raises(RooflensError, match=r"^--where: "):
            checked(text)
