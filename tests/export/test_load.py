"""rooflens.load: the tables, the filters, SQL, and bounds worked out anew."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from export.made import BEGIN_UNIX_S, made_trace
from recorded_rings import HARDWARE, unpacked

import rooflens
from rooflens.pipeline import read_ring


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpacked("vllm-a", tmp_path_factory.mktemp("ring"))


def test_a_ring_as_tables(ring: Path) -> None:
    trace, recording = rooflens.load(ring, hardware=str(HARDWARE)), read_ring(ring)
    assert len(trace) == len(recording.steps) == 371
    assert [facts.label for facts in trace.engines] == ["m/0@host-a"]
    assert trace.steps.column("engine").unique().to_pylist() == ["m/0@host-a"]
    assert trace.steps.column("observed_s").to_pylist() == recording.steps["observed_s"].tolist()
    assert trace.steps.column("device_s").null_count == 371
    assert [row["name"] for row in trace.events.to_pylist()] == ["idle_spins"] * 2
    assert (trace.findings.num_rows, trace.counters.num_rows, trace.problems) == (0, 0, ())
    assert "uuid" in trace.counters.column_names
    assert repr(trace) == f"<rooflens.Trace of 1 engines at {ring}>"


def test_without_hardware_a_ring_has_no_bounds_until_it_is_named(ring: Path) -> None:
    trace = rooflens.load(ring)
    assert trace.steps.column("floor_s").null_count == 371
    floors = trace.analyze(hardware=str(HARDWARE)).steps.column("floor_s")
    assert floors.to_pylist() == rooflens.load(ring, hardware=str(HARDWARE)).steps.column("floor_s").to_pylist()
    assert floors.null_count == 0


def test_cells_keep_every_second_of_the_steps(ring: Path) -> None:
    trace = rooflens.load(ring, hardware=str(HARDWARE))
    total_s = sum(trace.steps.column("observed_s").to_pylist())
    for width_s in (1.0, 10.0, None):
        cells = trace.cells(width_s)
        assert sum(cells.column("observed_s").to_pylist()) == pytest.approx(total_s)
        assert sum(cells.column("steps").to_pylist()) == 371
    begins = np.array(trace.cells(10.0).column("start_unix_s").to_pylist())
    assert (begins % 10 == 0).all()


def test_sql_sees_the_tables_and_nothing_else(ring: Path, tmp_path: Path) -> None:
    trace = rooflens.load(ring)
    assert trace.sql("SELECT count(*) AS n FROM steps WHERE kind = 2").to_pylist() == [{"n": 27}]
    assert trace.sql("SELECT name, count(*) AS n FROM events GROUP BY 1").to_pylist() == [
        {"name": "idle_spins", "n": 2}
    ]
    (tmp_path / "secret.csv").write_text("a\n1\n")
    for query in (f"SELECT * FROM '{tmp_path}/secret.csv'", "SELECT nothing FROM steps"):
        with pytest.raises(rooflens.RooflensError) as told:
            trace.sql(query)
        assert "\n" not in str(told.value)


def test_the_filters_of_a_trace(tmp_path: Path) -> None:
    place = made_trace(tmp_path / "trace")
    assert len(rooflens.load(place)) == 200
    assert len(rooflens.load([place], engine="*/1@*")) == 100
    assert len(rooflens.load(place, from_="2027-01-15T08:00:01Z")) == 100
    assert len(rooflens.load(place, from_=datetime(2027, 1, 15, 8, 0, 1, tzinfo=UTC))) == 100
    assert len(rooflens.load(place, from_=datetime(2027, 1, 15, 8, 0, 1))) == 100  # UTC where it has no zone
    assert len(rooflens.load(place, to=BEGIN_UNIX_S + 0.5)) == 50
    assert len(rooflens.load(place, from_="-480ms")) == 50
    assert len(rooflens.load(place, where="sequence <= 10")) == 20
    trace = rooflens.load(place)
    assert [row["name"] for row in trace.findings.to_pylist()] == ["kv_pressure"]
    assert [row["name"] for row in trace.events.to_pylist()] == ["sleep"]
    assert trace.sql("SELECT engine, count(*) AS n FROM steps GROUP BY 1 ORDER BY 1").to_pylist() == [
        {"engine": "llama/0@host-1", "n": 100}, {"engine": "llama/1@host-1", "n": 100}
    ]  # fmt: skip


def test_other_hardware_and_what_would_be(tmp_path: Path) -> None:
    trace = rooflens.load(made_trace(tmp_path / "trace"))
    slower = trace.analyze(hardware="a100-sxm4-80")
    assert {facts.hardware.id for facts in slower.engines if facts.hardware} == {"a100-sxm4-80"}
    floor_s = [sum(each.steps.column("floor_s").to_pylist()) for each in (trace, slower)]
    assert floor_s[0] < floor_s[1]
    low, high = trace.what_if("kv=fp8")["saved_device_s"]
    assert 0 < low <= high


def test_faults_are_one_line(tmp_path: Path, ring: Path) -> None:
    place = made_trace(tmp_path / "trace")
    calls = (
        lambda: rooflens.load([]),
        lambda: rooflens.load(tmp_path / "none"),
        lambda: rooflens.load(place, engine="nobody"),
        lambda: rooflens.load(ring, from_="yesterday"),
        lambda: rooflens.load(ring, to="2001-01-01"),
        lambda: rooflens.load(ring, hardware="no-such-thing"),
        lambda: rooflens.load(ring).analyze(),
        lambda: rooflens.load(ring).cells(-1.0),
        lambda: rooflens.load(ring).what_if("nonsense"),
    )
    for call in calls:
        with pytest.raises(rooflens.RooflensError) as told:
            call()
        assert "\n" not in str(told.value)


def test_the_package_alone_loads_nothing_and_names_what_load_needs() -> None:
    code = (
        "import sys, rooflens; loaded = {n.partition('.')[0] for n in sys.modules};"
        "assert not loaded & {'numpy', 'pyarrow', 'duckdb'}, loaded; assert 'load' in dir(rooflens);"
        "sys.modules['pyarrow'] = None\n"
        "try: rooflens.load('x')\n"
        "except rooflens.RooflensError as error: print(error)"
    )
    run = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "rooflens.load needs pyarrow: pip install 'rooflens[trace]'"
    with pytest.raises(AttributeError):
        _ = rooflens.nothing


def test_without_pandas_it_is_one_line(ring: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(rooflens.RooflensError, match="needs pandas: pip install pandas"):
        rooflens.load(ring).to_pandas()
