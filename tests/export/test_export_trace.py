"""`rooflens export trace` from end to end: sources, filters, limits, and one clear line for bad input."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import numpy as np
import pytest
from export import read_back
from export.made import BEGIN_UNIX_S, decode_rows, facts_of, made_trace
from recorded_rings import unpacked

from rooflens.cli import main
from rooflens.cli.recorded.steps_in import StepsIn, Wanted
from rooflens.collector.trace.file import write_file
from rooflens.collector.trace.schema import to_arrow
from rooflens.records import StepTable
from rooflens.trace_records import TraceRows


def exported(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["export", "trace", *arguments])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_a_trace_with_its_events_and_findings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace, place = made_trace(tmp_path / "trace"), tmp_path / "t.json"
    code, out, err = exported(capsys, str(trace), "-o", str(place))
    assert code == 0
    assert err.splitlines() == ["rooflens: 2 steps left out: they tell no time, or stand beside too many others"]
    assert "198 steps of 2 engines, 2 events; " in out
    events, slices = read_back.chrome(place.read_bytes())
    read_back.well_formed(slices)
    assert {each.track[0] for each in slices} == {f"llama/{n}@host-1 (vllm, 0.32.0, h100-sxm5-80)" for n in "01"}
    assert [(e["ph"], e["name"]) for e in events if e["ph"] in "ibe"] == [
        ("i", "sleep"), ("b", "kv_pressure"), ("e", "kv_pressure")
    ]  # fmt: skip
    assert sum(each.name == "decode" for each in slices) == 198  # of two steps the time is not known


@pytest.mark.parametrize(
    ("options", "steps"),
    [
        (["--engine", "*/1@*"], 100),
        (["--from", "2027-01-15T08:00:01Z"], 100),
        (["--to", f"{BEGIN_UNIX_S + 0.5}"], 50),
        (["--from", "-480ms"], 50),
        (["--where", "sequence <= 10 AND observed_s > 0"], 18),
    ],
)
def test_only_what_is_asked_for(
    options: list[str], steps: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = exported(capsys, str(made_trace(tmp_path / "trace")), "--format", "csv", *options)
    assert code == 0
    assert len(read_back.table(out.encode())) == steps


def test_bounds_of_other_hardware_are_worked_out_anew(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = str(made_trace(tmp_path / "trace"))
    floors = []
    for options in ([], ["--hardware", "h100-sxm5-80"], ["--hardware", "a100-sxm4-80"]):
        _, out, _ = exported(capsys, trace, "--format", "csv", *options)
        floors.append([float(row["floor_s"]) for row in read_back.table(out.encode())])
    assert floors[0] == pytest.approx(floors[1], rel=1e-6)
    assert all(slower > faster for faster, slower in zip(floors[0], floors[2], strict=True))


def test_a_condition_is_on_the_bounds_that_are_worked_out_anew(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The floor is 63 ms on an H100, as it was captured, and 103 ms on an A100."""
    trace = str(made_trace(tmp_path / "trace"))
    where = ("--format", "csv", "--where", "floor_s < 0.08")
    counts = []
    for options in ([], ["--hardware", "h100-sxm5-80"], ["--hardware", "a100-sxm4-80"]):
        _, out, _ = exported(capsys, trace, *where, *options)
        counts.append(len(read_back.table(out.encode())) if out else 0)
    assert counts == [200, 200, 0]


def test_a_first_step_of_many_seconds_is_drawn_whole(tmp_path: Path) -> None:
    """Its output is the first time of the recording, but it began long before; so did a later one elsewhere."""
    for engine, (end_s, busy_s) in enumerate([(0.5, 2.9), (1.5, 9.0)]):
        facts = facts_of(str(engine))
        one = decode_rows(facts).steps.take(slice(1, 2))
        long = {"unix_s": np.array([BEGIN_UNIX_S + end_s]), "observed_s": np.array([busy_s])}
        table = to_arrow(TraceRows(facts, StepTable({**one.columns, **long})))
        write_file(tmp_path / "steps" / "date=2027-01-15" / "hour=08" / f"{engine}.parquet", table, [facts])
    _, slices = read_back.chrome(read_back.exported([str(tmp_path)], tmp_path / "t.json"))
    drawn = sorted((each.end - each.begin) / read_back.US for each in slices if each.name == "decode")
    assert drawn == pytest.approx([2.9, 9.0])


def test_a_ring_and_a_trace_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ring = str(unpacked("embedded", tmp_path))
    code, out, _ = exported(capsys, str(made_trace(tmp_path / "trace")), ring, "--format", "csv")
    assert code == 0
    assert {row["model_name"] for row in read_back.table(out.encode())} == {"llama", "embedded-llama"}


def test_passes_of_a_feed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = {"schema": "dynamo.fpm.trace.v1", "capture_mode": "full", "source": {"component": "decode"}}
    scheduled = {"num_prefill_requests": 0, "sum_prefill_tokens": 0, "var_prefill_length": 0.0,
                 "sum_prefill_kv_tokens": 0, "num_decode_requests": 2, "sum_decode_kv_tokens": 300,
                 "var_decode_kv_tokens": 0.0}  # fmt: skip
    message = {"version": 1, "worker_id": "w", "dp_rank": 0, "scheduled_requests": scheduled, "wall_time": 0.02}
    lines = [
        json.dumps(
            record | {"observed_at_unix_ms": (BEGIN_UNIX_S + at / 10) * 1e3, "fpm": message | {"counter_id": at}}
        )
        for at in range(1, 6)
    ]
    path = tmp_path / "passes.jsonl"
    path.write_text("\n".join(lines) + "\n")
    code, out, err = exported(capsys, str(path), "--format", "csv")
    assert code == 0, err
    rows = read_back.table(out.encode())
    assert [row["observed_s"] for row in rows][-4:] == ["0.02"] * 4
    assert {row["context_tokens"] for row in rows} == {"300"}


def test_steps_of_a_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = ("INFO 11-30 10:00:0{at} [core.py:578] Iteration({at}): 0 context requests, 0 context tokens, 8 generation "
            "requests, 8 generation tokens, iteration elapsed time: 13.50 ms")  # fmt: skip
    path = tmp_path / "vllm.log"
    path.write_text("".join(f"{line.format(at=at)}\n" for at in range(1, 6)))
    code, out, err = exported(capsys, str(path), "--format", "csv")
    assert code == 0, err
    rows = read_back.table(out.encode())
    assert [row["observed_s"] for row in rows] == ["0.0135"] * 5
    assert {row["requests"] for row in rows} == {"8"}


def test_a_file_that_is_full_ends_whole_with_the_way_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace, place = str(made_trace(tmp_path / "trace")), tmp_path / "t.json.gz"
    code, _, err = exported(capsys, trace, "-o", str(place), "--limit", "20kB")
    assert code == 2
    assert "--limit is reached" in err.splitlines()[-1]
    assert "(the rest" not in err  # of two engines, written one after another, no time tells what is missing
    steps = [each for each in read_back.chrome(gzip.decompress(place.read_bytes()))[1] if each.name == "decode"]
    assert f"stopped after {len(steps):,} of 200 steps, before one of 2027-01-15T08:00:0" in err
    assert 20 < len(steps) < 198
    one = [trace, "--engine", "*/1@*", "--format", "csv"]
    _, _, err = exported(capsys, *one[:3], "--format", "chrome", "--limit", "20kB")
    cut = err.split("(the rest: --from ")[1].split(")")[0]
    written = int(err.split("stopped after ")[1].split()[0])
    _, rest, _ = exported(capsys, *one, "--from", cut)
    assert len(read_back.table(rest.encode())) == 100 - 1 - written  # the first has no time


def one_line(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    code, out, err = exported(capsys, *arguments)
    assert code == 2
    assert out == ""
    assert len(err.splitlines()) == 1, err
    return err


def test_what_cannot_be_done_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ring, trace = str(unpacked("embedded", tmp_path)), str(made_trace(tmp_path / "trace"))
    assert "which format? name a file" in one_line(capsys, ring)
    assert "its name tells no format" in one_line(capsys, ring, "-o", str(tmp_path / "t.txt"))
    assert "this is what is read" in one_line(capsys, ring, "-o", ring, "--format", "csv")
    assert "is a folder" in one_line(capsys, ring, "-o", str(tmp_path), "--format", "csv")
    assert "no such file" in one_line(capsys, ring, "-o", str(tmp_path / "none" / "t.csv"))
    assert "no engine matches nobody: there are " in one_line(capsys, ring, "--format", "csv", "--engine", "nobody")
    assert "no engine matches nobody: there are " in one_line(capsys, trace, "--format", "csv", "--engine", "nobody")
    assert "no steps in the period" in one_line(capsys, ring, "--format", "csv", "--to", "2001-01-01")
    assert "no steps where requests > 99 in" in one_line(capsys, ring, "--format", "csv", "--where", "requests > 99")
    assert "--where" in one_line(capsys, ring, "--format", "csv", "--where", "SELECT 1; DROP")
    assert "the period is empty" in one_line(capsys, trace, "--format", "csv", "--from", "-1s", "--to", "-2s")
    assert "this-cpu" in one_line(capsys, trace, "--format", "csv", "--hardware", "this-cpu")
    assert "did you mean --format" in one_line(capsys, ring, "--fromat", "csv")
    result = tmp_path / "result.json"
    result.write_text('{"backend": "vllm", "completed": 1}')
    assert "rooflens: " in one_line(capsys, str(result), "--format", "csv")


def test_nothing_is_left_of_a_file_that_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ring = str(unpacked("embedded", tmp_path))
    before = set(os.listdir(tmp_path))

    def full(self: StepsIn, columns: object = None) -> object:
        raise OSError(28, "No space left on device", "t.json")

    monkeypatch.setattr(StepsIn, "tables", full)
    assert "no space left on device" in one_line(capsys, ring, "-o", str(tmp_path / "t.json"))
    assert set(os.listdir(tmp_path)) == before


def test_a_damaged_file_is_a_line_and_the_rest_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = made_trace(tmp_path / "trace")
    (trace / "steps" / "broken.parquet").write_bytes(b"PAR1 cut off")
    code, out, err = exported(capsys, str(trace), "--format", "csv")
    assert code == 0
    assert len(read_back.table(out.encode())) == 200
    assert len(err.splitlines()) == 1
    assert "broken.parquet" in err


def test_memory_holds_a_part_at_a_time(tmp_path: Path) -> None:
    source = StepsIn([str(made_trace(tmp_path / "trace"))], Wanted(), lambda words, ratio: None)
    tables = source.tables(["requests"])
    facts, table = next(tables)
    assert table.column_names == ["facts", "run", "sequence", "unix_s", "requests"]
    assert facts.label in {each.label for each in source.facts}
    assert source.rows == 200
