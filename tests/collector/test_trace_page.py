"""Every example of docs/trace.md runs on a trace, and says what the trace holds."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb
import pytest
from written_traces import BEGIN_UNIX_S, Clock, facts_of, trace_rows

from rooflens.collector.trace.writer import TraceWriter
from rooflens.device_records import CounterSource, DeviceFacts, DeviceSample
from rooflens.findings import Code, Finding, Severity, Status
from rooflens.trace_records import TraceCounters, TraceEvents

PAGE = (Path(__file__).parents[2] / "docs" / "trace.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace of two engines, of which one has columns over a span, in two hours."""
    place: Path = tmp_path_factory.mktemp("page")
    clock, monotonic = Clock(), Clock(1000.0)
    writer = TraceWriter(str(place / "trace"), None, clock, monotonic, threaded=False)
    for hour in range(2):
        moment = BEGIN_UNIX_S + 3600 * hour
        for engine in ("0", "1"):
            writer.put(trace_rows(facts_of(engine, "node/1"), range(100 * hour + 1, 100 * hour + 51), moment))
        finding = Finding(Code.KV_PRESSURE, Severity.WARNING, Status.FIRING, "the pool is full")
        writer.put(TraceEvents(facts_of("0", "node/1"), (), ((moment, finding),)))
        sample = DeviceSample("GPU-1", CounterSource.NVML, 1.0, 2.0, power_w=300.0)
        writer.put(TraceCounters("node/1", DeviceFacts("GPU-1", CounterSource.NVML), ((moment, sample),)))
        monotonic.now_s += 61
        writer.turn()
    return place


@pytest.fixture(autouse=True)
def _there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


def test_the_sql_of_the_page() -> None:
    steps, facts, findings = (duckdb.sql(text).fetchall() for text in blocks("sql"))
    assert [count for _, count, _, _ in steps] == [100, 100]
    assert all(11 < observed_ms < 11.1 and floor_ms > 0 for _, _, observed_ms, floor_ms in steps)
    assert sorted(facts) == sorted((facts_of(name, "node/1").digest, "llama", name) for name in "01")
    assert [row[1:] for row in findings] == [("kv_pressure", "firing", "the pool is full", None)] * 2


@pytest.mark.parametrize(("number", "said"), [(0, "observed_s"), (1, "run"), (2, "200 {")])
def test_the_python_of_the_page(number: int, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(blocks("python")[number], "docs/trace.md", "exec"), {})
    assert said in capsys.readouterr().out


@pytest.mark.parametrize("table", ["steps", "events", "counters"])
def test_readers_take_the_whole_folder_of_each_table(table: str) -> None:
    import pandas
    import polars
    import pyarrow.parquet as pq

    rows = {"steps": 200, "events": 2, "counters": 2}[table]
    assert len(pandas.read_parquet(f"trace/{table}")) == rows
    assert polars.scan_parquet(f"trace/{table}/**/*.parquet", hive_partitioning=True).collect().height == rows
    found = pq.read_table(f"trace/{table}")
    assert (found.num_rows, set(found.column("host").to_pylist())) == (rows, {"node/1"})
    counted = duckdb.sql(f"SELECT count(*), any_value(host) FROM read_parquet('trace/{table}/**/*.parquet')")
    assert counted.fetchall() == [(rows, "node/1")]


def test_the_example_has_as_many_languages_as_it_says() -> None:
    assert (len(blocks("sql")), len(blocks("python"))) == (3, 3)
