"""Files of a trace that are damaged, newer, foreign, copied or overlapping: a line each, and the rest is read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from made_traces import START_UNIX_S, facts_of, made_table, place_of, written

from rooflens.collector.trace.cells import cells_of
from rooflens.collector.trace.file import metadata_of
from rooflens.collector.trace.files import TraceFiles, find_trace, is_trace
from rooflens.collector.trace.scan import counters_of, events_of, parts_of
from rooflens.records import RooflensError
from rooflens.trace_records import METADATA_KEY, Cells, TraceFilter

ALL = TraceFilter()
HOUR_S = 3600.0


def cells(folder: Path | str, chosen: TraceFilter = ALL) -> Cells:
    return cells_of(find_trace([str(folder)], chosen), chosen, 10.0)


def rows_of(found: Cells) -> float:
    return float(found.columns["rows"].sum())


def sequences(files: TraceFiles, chosen: TraceFilter = ALL) -> list[int]:
    return [n for part in parts_of(files, chosen, ["requests"]) for n in part.table.column("sequence").to_pylist()]


def test_a_file_that_is_cut_off_is_a_line_and_the_rest_is_read(tmp_path: Path) -> None:
    written(tmp_path, made_table(facts_of(), 100), facts_of())
    other = facts_of("1")
    broken = written(tmp_path, made_table(other, 100), other, "01-a")
    broken.write_bytes(broken.read_bytes()[:-100])
    found = cells(tmp_path)
    assert rows_of(found) == 100
    assert found.problems == (f"{broken}: cut off or damaged: no Parquet footer can be read",)


def test_damage_inside_a_file_is_a_line_and_its_group_is_read_without_it(tmp_path: Path) -> None:
    written(tmp_path, made_table(facts_of(), 100), facts_of())
    other = facts_of("1")
    broken, table = place_of(tmp_path, "01-a"), made_table(other, 100)
    pq.write_table(table.replace_schema_metadata(metadata_of([other], table)), broken)  # of before there was a checksum
    data = bytearray(broken.read_bytes())
    data[4 : len(data) // 2] = bytes(len(data) // 2 - 4)
    broken.write_bytes(data)
    found = cells(tmp_path)
    assert rows_of(found) == 100
    assert len(found.problems) == 1
    assert found.problems[0].startswith(f"{broken}: cannot be read: ")
    problems: list[str] = []
    kept = list(parts_of(find_trace([str(tmp_path)], ALL), ALL, problems=problems))
    assert sum(len(part.steps) for part in kept) == 100
    assert [line.partition(": ")[0] for line in problems] == [str(broken)]
    with pytest.raises(RooflensError, match="cannot be read"):
        list(parts_of(find_trace([str(tmp_path)], ALL), ALL))


def test_foreign_and_newer_files_are_lines_and_what_is_half_written_is_ignored(tmp_path: Path) -> None:
    table, facts = made_table(facts_of(), 100), facts_of()
    path = written(tmp_path, table, facts)
    pq.write_table(table, path.with_name("foreign.parquet"))
    said = json.loads(metadata_of([facts], table)[METADATA_KEY]) | {"schema": 99}
    pq.write_table(table.replace_schema_metadata({METADATA_KEY: json.dumps(said)}), path.with_name("newer.parquet"))
    path.with_name(".01-a.parquet.77.writing").write_bytes(b"PAR1")
    path.with_name(".hidden.parquet").write_bytes(b"PAR1")
    found = cells(tmp_path)
    assert rows_of(found) == 100
    lines = sorted(found.problems)
    assert len(lines) == 2
    assert "no trace of rooflens" in lines[0]
    assert "upgrade rooflens" in lines[1]


def test_versions_of_the_schema_are_read_together(tmp_path: Path) -> None:
    facts = [facts_of(str(number)) for number in range(3)]
    tables = [made_table(each, 100, seed) for seed, each in enumerate(facts)]
    older = tables[1].drop_columns(["reachable_s", "keyframe_contexts", "waiting"])
    newer = tables[2].append_column("steam_pressure", pa.array(np.ones(100)))
    written(tmp_path, tables[0], facts[0])
    for name, table, each, version in (("01-a", older, facts[1], 0), ("02-a", newer, facts[2], 1)):
        said = json.loads(metadata_of([each], table)[METADATA_KEY]) | {"schema": version}
        pq.write_table(table.replace_schema_metadata({METADATA_KEY: json.dumps(said)}), place_of(tmp_path, name))
    found = cells(tmp_path)
    assert found.problems == ()
    by_engine = [found.columns["engine"] == number for number in range(3)]
    assert [found.columns["rows"][mine].sum() for mine in by_engine] == [100, 100, 100]
    assert np.isnan(found.columns["reachable_s"][by_engine[1]]).all()
    assert np.isnan(found.columns["waiting_of_s"][by_engine[1]]).all()
    assert np.nansum(found.columns["reachable_s"][by_engine[2]]) > 0
    where = TraceFilter(where="steam_pressure > 0")
    assert rows_of(cells(tmp_path, where)) == 100
    assert len(sequences(find_trace([str(tmp_path)], where), where)) == 100


def test_copies_are_read_once(tmp_path: Path) -> None:
    path = written(tmp_path, made_table(facts_of(), 100), facts_of())
    path.with_name("copy.parquet").write_bytes(path.read_bytes())
    gapped = made_table(facts_of("1"), 100).filter(pa.array([n != 50 for n in range(100)]))
    other = written(tmp_path, gapped, facts_of("1"), "01-a")
    (tmp_path / "backup").mkdir()
    (tmp_path / "backup" / "moved.parquet").write_bytes(other.read_bytes())
    files = find_trace([str(tmp_path / "steps"), str(tmp_path / "backup"), str(path)], ALL)
    assert len(files.files) == 2
    assert files.problems == ("2 files hold only what others hold too: left out",)
    assert rows_of(cells_of(files, ALL, 10.0)) == 199


def test_files_that_overlap_give_each_step_once(tmp_path: Path) -> None:
    facts = facts_of()
    table = made_table(facts, 300)
    keep = [pa.array([a <= n <= b and n % 7 != skip for n in range(1, 301)]) for a, b, skip in
            ((1, 150, 0), (100, 250, 1), (50, 300, 2))]  # fmt: skip
    for number, mask in enumerate(keep):
        written(tmp_path, table.filter(mask), facts, f"0{number}-a")
    files = find_trace([str(tmp_path)], ALL)
    assert files.problems == ("2 files share steps with earlier ones: each step is read once",)
    wanted = sorted({n for mask in keep for n, kept in enumerate(mask.to_pylist(), 1) if kept})
    assert sorted(sequences(files)) == wanted
    found = cells_of(files, ALL, 10.0)
    assert rows_of(found) == len(wanted)
    whole = table.filter(pc.is_in(table.column("sequence"), pa.array(wanted)))
    assert found.columns["query_tokens"].sum() == pc.sum(whole.column("query_tokens")).as_py()


def test_a_step_that_is_twice_in_one_file_is_read_once(tmp_path: Path) -> None:
    table = made_table(facts_of(), 100)
    written(tmp_path, pa.concat_tables([table, table.slice(90)]), facts_of())
    files = find_trace([str(tmp_path)], ALL)
    assert files.problems == ("1 file repeats steps: each step is read once",)
    assert rows_of(cells_of(files, ALL, 10.0)) == 100
    assert sorted(sequences(files)) == list(range(1, 101))


def test_a_clock_that_jumps_back_inside_a_file_loses_nothing(tmp_path: Path) -> None:
    table = made_table(facts_of(), 200)
    moved = pc.if_else(
        pc.greater(table.column("sequence"), 100), pc.subtract(table.column("unix_s"), 60.0), table["unix_s"]
    )
    table = table.set_column(table.column_names.index("unix_s"), "unix_s", moved)
    written(tmp_path, table, facts_of())
    found = cells(tmp_path)
    assert rows_of(found) == 200
    assert found.columns["first_unix_s"].min() < START_UNIX_S
    before = TraceFilter(to_unix_s=START_UNIX_S)
    assert sequences(find_trace([str(tmp_path)], before), before) == list(range(101, 201))


def test_hours_outside_the_period_are_not_opened(tmp_path: Path) -> None:
    written(tmp_path, made_table(facts_of(), 100), facts_of())
    late = made_table(facts_of("1"), 100, start_unix_s=START_UNIX_S + HOUR_S)
    written(tmp_path, late, facts_of("1"), hour="13")
    place_of(tmp_path, hour="14").parent.mkdir(parents=True)
    place_of(tmp_path, hour="14").write_bytes(b"no Parquet at all")
    files = find_trace([str(tmp_path)], TraceFilter(to_unix_s=START_UNIX_S + HOUR_S))
    assert ([file.url for file in files.files], files.problems) == ([str(place_of(tmp_path))], ())
    assert files.labels == ("llama/0@host-1",)
    both = find_trace([str(tmp_path)], TraceFilter(from_unix_s=START_UNIX_S + 1.0))
    assert (len(both.files), len(both.problems)) == (2, 1)


def test_parts_are_bounded_and_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rooflens.collector.trace.scan.PART_ROWS", 64)
    for hour in ("13", "12"):
        facts = facts_of(hour)
        start = START_UNIX_S + (int(hour) - 12) * HOUR_S
        written(tmp_path, made_table(facts, 150, start_unix_s=start), facts, hour=hour)
    chosen = TraceFilter(where="requests > 10")
    parts = list(parts_of(find_trace([str(tmp_path)], chosen), chosen, ["observed_s"]))
    assert [part.facts.engine for part in parts] == ["12"] * 3 + ["13"] * 3
    assert all(len(part.steps) == part.table.num_rows <= 64 for part in parts)
    assert parts[0].table.column_names == ["facts", "run", "sequence", "unix_s", "observed_s"]
    assert parts[0].steps.has("sequence")


def test_events_and_counters_beside_are_given_by_their_period(tmp_path: Path) -> None:
    facts = facts_of()
    written(tmp_path, made_table(facts, 100), facts)
    times = pa.array([START_UNIX_S + 1, START_UNIX_S + 2])
    events = pa.table({"facts": [facts.digest] * 2, "run": [facts.run] * 2, "unix_s": times})
    counters = pa.table({"host": ["host-1", "host-2"], "end_unix_s": times})
    for name, table in (("events", events), ("counters", counters)):
        path = tmp_path / name / place_of(tmp_path).relative_to(tmp_path / "steps")
        path.parent.mkdir(parents=True)
        pq.write_table(table.replace_schema_metadata(metadata_of([facts], table)), path)
    chosen = TraceFilter(from_unix_s=START_UNIX_S + 1.5)
    for place in (tmp_path, tmp_path / "steps" / "host=host-1", place_of(tmp_path)):
        files = find_trace([str(place)], chosen)
        assert [(found[facts.digest], rows.num_rows) for found, rows in events_of(files, chosen)] == [(facts, 1)]
        assert [rows.num_rows for rows in counters_of(files, chosen)] == [1]
    mine = TraceFilter(engines=("0",))
    kept = list(counters_of(find_trace([str(tmp_path)], mine), mine))
    assert [rows.column("host").to_pylist() for rows in kept] == [["host-1"]]


def test_what_is_a_trace_is_told_from_other_recordings(tmp_path: Path) -> None:
    written(tmp_path / "trace", made_table(facts_of(), 10), facts_of())
    (tmp_path / "rings").mkdir()
    (tmp_path / "rings" / "a.ring").write_bytes(b"")
    trace = str(tmp_path / "trace")
    for place in (trace, f"{trace}/steps", f"{trace}/steps/host=*", str(place_of(tmp_path / "trace")), "s3://b/t"):
        assert is_trace(place), place
    for place in (str(tmp_path / "rings"), str(tmp_path / "rings" / "a.ring"), str(tmp_path / "none"), "http://h:8000"):
        assert not is_trace(place), place
    for place in (f"{trace}/steps/host=*", f"{trace}/steps/*/*/*/*.parquet", f"file://{trace}"):
        assert find_trace([place], ALL).rows == 10, place


class Refusing(MemoryFileSystem):  # type: ignore[misc]
    """A store that lets nobody read what is marked so."""

    protocol = "refusing"
    store: dict[str, Any] = {}  # noqa: RUF012 - as fsspec has it
    pseudo_dirs = [""]  # noqa: RUF012

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.removeprefix("refusing://")))

    def _open(self, path: str, mode: str = "rb", **words: Any) -> Any:
        if "secret" in path and "r" in mode:
            raise PermissionError(13, "Permission denied", path)
        return super()._open(path, mode, **words)

    def find(self, path: str, **words: Any) -> Any:
        if "locked" in path:
            raise PermissionError("Access Denied")
        return super().find(path, **words)


@pytest.fixture
def store() -> Iterator[Any]:
    fsspec.register_implementation("refusing", Refusing, clobber=True)
    filesystem = fsspec.filesystem("refusing")
    yield filesystem
    filesystem.store.clear()


def test_an_object_store_is_read_and_what_it_refuses_is_a_line(tmp_path: Path, store: Any) -> None:
    path = written(tmp_path, made_table(facts_of(), 100), facts_of())
    below = path.relative_to(tmp_path)
    store.pipe(f"/bucket/t/{below}", path.read_bytes())
    store.pipe(f"/bucket/t/{below.with_name('secret.parquet')}", path.read_bytes())
    store.pipe(f"/bucket/locked/{below}", path.read_bytes())
    found = cells("refusing://bucket/t")
    assert rows_of(found) == 100
    assert found.problems == (f"refusing:///bucket/t/{below.with_name('secret.parquet')}: permission denied",)
    assert len(sequences(find_trace(["refusing://bucket/t/steps/*"], ALL))) == 100
    local = cells(tmp_path)
    for name, column in local.columns.items():
        assert np.array_equal(column, found.columns[name], equal_nan=True), name
    with pytest.raises(RooflensError, match="Access Denied"):
        cells("refusing://bucket/locked")
    with pytest.raises(RooflensError, match="there is nothing here"):
        cells("refusing://bucket/none")
    with pytest.raises(RooflensError, match="nosuchstore"):
        cells("nosuchstore://bucket/t")
