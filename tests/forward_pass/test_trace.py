"""Traces as Dynamo documents them (docs of DYN_FPM_TRACE, 2026), whole, packed, cut off and damaged."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rooflens.adapters.forward_pass.trace import Told, read_trace
from rooflens.cli import main
from rooflens.cli.recorded import Asked, format_of
from rooflens.cli.recorded.forward_pass import is_mine, report
from rooflens.records import RooflensError

# The example of Dynamo's page "Forward Pass Metrics Tracing"; the newer reference page leaves the variances out.
EXAMPLE: dict[str, Any] = {
    "timestamp": 1250,
    "event": {
        "schema": "dynamo.fpm.trace.v1",
        "source": {"namespace": "default", "component": "backend", "producer_id": "4192"},
        "capture_mode": "sampled",
        "observed_at_unix_ms": 1782777601250,
        "fpm": {
            "version": 1,
            "worker_id": "4192",
            "dp_rank": 0,
            "counter_id": 42,
            "wall_time": 0.025,
            "scheduled_requests": {
                "num_prefill_requests": 2,
                "sum_prefill_tokens": 256,
                "var_prefill_length": 100.0,
                "sum_prefill_kv_tokens": 64,
                "num_decode_requests": 3,
                "sum_decode_kv_tokens": 1024,
                "var_decode_kv_tokens": 50.0,
            },
            "queued_requests": {
                "num_prefill_requests": 1,
                "sum_prefill_tokens": 128,
                "var_prefill_length": 0.0,
                "num_decode_requests": 0,
                "sum_decode_kv_tokens": 0,
                "var_decode_kv_tokens": 0.0,
            },
        },
    },
}
IDLE = {"num_prefill_requests": 0, "sum_prefill_tokens": 0, "sum_prefill_kv_tokens": 0, "num_decode_requests": 0}
DECODE = IDLE | {"num_decode_requests": 32, "sum_decode_kv_tokens": 32_000, "var_decode_kv_tokens": 0.0}


def line(number: int, scheduled: dict[str, Any] = DECODE, wall_time: float = 0.01, **more: Any) -> str:
    fpm = EXAMPLE["event"]["fpm"] | {"counter_id": number, "wall_time": wall_time}
    fpm["scheduled_requests"] = {"sum_decode_kv_tokens": 0} | scheduled
    event = EXAMPLE["event"] | {"capture_mode": "full", "observed_at_unix_ms": 1782777600000 + 10 * number, "fpm": fpm}
    return json.dumps({"timestamp": number, "event": event | more})


def kept(tmp_path: Path, *lines: str, packed: bool = False) -> Path:
    path = tmp_path / ("trace.jsonl.gz" if packed else "trace.jsonl")
    data = "".join(f"{each}\n" for each in lines).encode()
    path.write_bytes(gzip.compress(data) if packed else data)
    return path


@pytest.mark.parametrize("packed", [False, True])
def test_the_documented_example_is_a_mixed_pass(tmp_path: Path, packed: bool) -> None:
    told = Told()
    (batch,) = read_trace(kept(tmp_path, json.dumps(EXAMPLE), packed=packed), told)
    assert batch.info is not None
    assert batch.info.instance == "fpm-default/backend/4192-4192-0"
    assert {name: column.tolist() for name, column in batch.steps.columns.items()} == {
        "sequence": [1],
        "kind": [2],
        "unix_s": [1782777601.25],
        "submit_monotonic_s": [1782777601.225],
        "output_monotonic_s": [1782777601.25],
        "observed_s": [0.025],
        "requests": [5],
        "prefill_requests": [2],
        "query_tokens": [259],
        "prefill_tokens": [256],
        "sampled_rows": [3],
        "context_tokens": [1088],
        "causal_pairs": [16576 + 1027],  # (256 * 256 / 2 + 256) / 2 + 64 at least, and 1024 + 3
        "prefill_pairs": [16576],
        "waiting": [1],
        "resolution_steps": [1],
    }
    assert (told.passes, told.sampled, told.wrong) == (1, True, {})


def test_the_event_alone_and_without_variances_is_read(tmp_path: Path) -> None:
    told = Told()
    list(read_trace(kept(tmp_path, json.dumps(json.loads(line(1, IDLE | {"num_decode_requests": 1}))["event"])), told))
    assert (told.passes, told.wrong) == (1, {})


def test_a_file_has_phases_beside_the_floor(tmp_path: Path) -> None:
    lines = [line(n) for n in (1, 2, 3, 6)] + [line(7, IDLE, 0.0)]
    path = kept(tmp_path, *lines, packed=True)
    assert format_of(path) is not None
    data, text = report(path, Asked(hardware="h100-sxm5-80", model="meta-llama-3-8b"))
    engine = data["engines"][0]
    assert (data["format"], data["passes"], data["heartbeats"]) == ("dynamo.fpm.trace.v1", 4, 1)
    assert (engine["lost_steps"], engine["floor_problem"]) == (2, None)
    phase = next(phase for phase in engine["phases"] if phase["name"] == "decode")
    # 15.0 GB of weights and 32,000 tokens of 131,072 bytes at 3.35 TB/s
    assert phase["floor"]["floor_s"] == pytest.approx(4 * (15.0e9 + 32_000 * 131_072) / 3.35e12, rel=0.02)
    assert "decode" in text
    assert "x floor" in text


def test_without_model_and_hardware_the_phases_stand_alone(tmp_path: Path) -> None:
    _, text = report(kept(tmp_path, line(1)), Asked())
    assert "floor     none: the hardware is not known" in text


def test_a_sampled_trace_has_no_lost_steps(tmp_path: Path) -> None:
    data, text = report(kept(tmp_path, line(1), line(900, capture_mode="sampled")), Asked())
    assert data["engines"][0]["lost_steps"] == 0
    assert "sampled, so passes between them are not in it" in text


def test_each_source_and_rank_is_an_engine(tmp_path: Path) -> None:
    other = {"namespace": "default", "component": "prefill", "producer_id": "7"}
    data, _ = report(kept(tmp_path, line(1), line(2, source=other)), Asked())
    assert len(data["engines"]) == 2


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ("{", "no JSON"),
        ("[]", "no record of a forward pass"),
        (line(1, schema="dynamo.fpm.trace.v2"), "schema dynamo.fpm.trace.v2"),
        (line(1, observed_at_unix_ms="now"), "no observed_at_unix_ms"),
        (line(1, fpm={"version": 3}), "version 3"),
        (line(1, fpm=None), "nothing, which is no message"),
        ("x" * (3 << 20), "a line that is too long"),
    ],
    ids=["json", "list", "schema", "time", "version", "none", "long"],
)
def test_a_bad_line_is_counted_and_the_rest_goes_on(tmp_path: Path, bad: str, why: str) -> None:
    data, text = report(kept(tmp_path, line(1), bad, line(2)), Asked())
    assert (data["passes"], data["wrong"]) == (2, {why: 1})
    assert f"1 lines were not read: {why}" in text


def test_a_packed_file_that_was_cut_off_is_read_up_to_there(tmp_path: Path) -> None:
    path = kept(tmp_path, *(line(n) for n in range(1, 2000)), packed=True)
    path.write_bytes(path.read_bytes()[:-2000])
    data, text = report(path, Asked())
    assert 0 < data["passes"] < 1999
    assert "cut off or damaged" in text


def test_the_last_line_may_be_cut_off(tmp_path: Path) -> None:
    path = kept(tmp_path, line(1), line(2))
    path.write_bytes(path.read_bytes()[:-40])
    assert report(path, Asked())[0]["wrong"] == {"cut off": 1}


def test_another_version_alone_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = kept(tmp_path, line(1, schema="dynamo.fpm.trace.v2"))
    assert is_mine(path.read_text())
    with pytest.raises(RooflensError, match=r"schema dynamo.fpm.trace.v2; known is dynamo.fpm.trace.v1"):
        report(path, Asked())
    assert main(["analyze", str(path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_long_file_is_kept_in_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rooflens.adapters.forward_pass.trace.MOST_PASSES", 5)
    data, text = report(kept(tmp_path, *(line(n) for n in range(1, 20))), Asked())
    assert (data["passes"], data["more_than_kept"]) == (5, True)
    assert "only the first 5 passes" in text


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Callable[[bytes], Path]:
    folder = tmp_path_factory.mktemp("traces")

    def write(data: bytes) -> Path:
        path = folder / "trace"
        path.write_bytes(data)
        return path

    return write


@given(data=st.data())
def test_no_damage_raises(scratch: Callable[[bytes], Path], data: st.DataObject) -> None:
    whole = f"{line(1)}\n{json.dumps(EXAMPLE)}\n".encode()
    whole = bytearray(gzip.compress(whole) if data.draw(st.booleans()) else whole)
    for _ in range(data.draw(st.integers(1, 5))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    list(read_trace(scratch(bytes(whole)), Told()))
