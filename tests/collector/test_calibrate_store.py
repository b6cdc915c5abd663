"""The file of a calibration: the same after a round trip, and every kind of bad, foreign or stale file in one line."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from rooflens.calibration_records import Calibration, MachineIdentity, Measured
from rooflens.collector.calibrate.store import (
    find,
    is_stale,
    load,
    path_of,
    save,
    state_folder,
    why_foreign,
)
from rooflens.records import RooflensError

DAY_S = 86400.0
NOW_S = 1_800_000_000.0
IDENTITY = MachineIdentity("cuda", "NVIDIA H200", "0123456789abcdef", "GPU-1111", 150_000_000_000, 132, 50 << 20)
RATE = Measured(2.5e12, 2.75e12, 0.04, 31)
TIME = Measured(2e-5, 1.8e-5, 0.04, 31)
CALIBRATION = Calibration(
    identity=IDENTITY,
    measured_unix_s=NOW_S - DAY_S,
    took_s=29.5,
    versions={"torch": "2.13.0+cu130", "driver": "580.65.06", "numpy": "2.3.5"},
    clocks_hz={"sm": 1.98e9, "memory": 3.2e9},
    reads=((2 << 20, RATE), (512 << 20, RATE)),
    copies=((1 << 30, RATE),),
    attention=((8 << 20, RATE),),
    products={"bf16": RATE, "fp8": RATE},
    launch_s=Measured(4e-6, 3.5e-6, 0.1, 30),
    graph_launch_s=Measured(1e-6, 9e-7, 0.1, 30),
    all_reduce_s={2: ((16384, TIME),), 8: ((16384, TIME), (1 << 20, TIME))},
    flags=("others used the machine: a test",),
)
VERSIONS = {"torch": "2.14.1", "driver": "580.65.06", "numpy": "2.9.0"}


@pytest.fixture
def data() -> dict[str, Any]:
    """A calibration as its file has it."""
    found: dict[str, Any] = json.loads(json.dumps(asdict(CALIBRATION)))
    return found


def test_a_round_trip_loses_nothing(tmp_path: Path) -> None:
    path = save(CALIBRATION, tmp_path / "state")
    assert load(path) == CALIBRATION
    assert path.parent == tmp_path / "state" / "calibrations"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(path.parent) == [path.name]  # nothing is left of writing aside
    least = Calibration(MachineIdentity("cpu", "a CPU"), NOW_S, 0.0)
    assert load(save(least, tmp_path)) == least


def test_saving_again_replaces_and_another_identity_does_not(tmp_path: Path) -> None:
    first = save(CALIBRATION, tmp_path)
    again = replace(CALIBRATION, took_s=1.0)
    assert save(again, tmp_path) == first
    assert load(first).took_s == 1.0
    other = replace(CALIBRATION, identity=replace(IDENTITY, device_uuid="GPU-2222"))
    assert save(other, tmp_path) != first
    assert load(first).took_s == 1.0


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RooflensError, match=r"could not be written to .*Not a directory; set ROOFLENS_STATE_DIR"):
        save(CALIBRATION, tmp_path / "file")


def test_where_state_is_kept() -> None:
    every = {"ROOFLENS_STATE_DIR": "/r", "XDG_STATE_HOME": "/x", "HOME": "/h"}
    assert state_folder(every) == Path("/r")
    assert state_folder({**every, "ROOFLENS_STATE_DIR": ""}) == Path("/x/rooflens")
    assert state_folder({"XDG_STATE_HOME": "relative", "HOME": "/h"}) == Path("/h/.local/state/rooflens")
    with pytest.raises(RooflensError, match="set ROOFLENS_STATE to a folder"):
        state_folder({})


def said(path: Path) -> str:
    """The one line that loading it raises."""
    with pytest.raises(RooflensError) as caught:
        load(path)
    line = str(caught.value)
    assert "\n" not in line
    assert "rooflens calibrate" in line or "check its owner" in line
    return line


NO_JSON = {
    "empty": (b"", "no JSON in line 1"),
    "cut off": (b'{"schema": 1,\n "ident', "no JSON in line 2"),
    "binary": (b"\x80\x81\xff\xfe", "it is not text"),
    "too large": (b" " * (1 << 20) + b"{}", "longer than 1048576 bytes"),
    "nested": (b"[" * 200_000, "nested too deeply"),
    "a list": (b"[]", "the file is no object"),
    "no schema": (b"{}", "it has schema None, this release reads 1"),
    "a later schema": (b'{"schema": 2}', "it has schema 2, this release reads 1"),
    "a true schema": (b'{"schema": true}', "it has schema True, this release reads 1"),
    "NaN": (b'{"schema": 1, "took_s": NaN}', "it holds NaN where a number belongs"),
    "infinity": (b'{"schema": 1, "took_s": -Infinity}', "it holds -Infinity where a number belongs"),
    "a number of 5000 digits": (b'{"schema": 1, "took_s": ' + b"9" * 5000 + b"}", "no calibration"),
}


@pytest.mark.parametrize("case", NO_JSON)
def test_what_is_no_calibration_at_all(tmp_path: Path, case: str) -> None:
    words, expected = NO_JSON[case]
    (tmp_path / "file.json").write_bytes(words)
    assert expected in said(tmp_path / "file.json")


def test_what_is_no_file(tmp_path: Path) -> None:
    assert "no calibration at" in said(tmp_path / "missing.json")
    os.mkfifo(tmp_path / "pipe")  # nobody writes to it: opening it as a file would wait for ever
    assert "is no file" in said(tmp_path / "pipe")
    with pytest.raises(RooflensError, match=r"cannot be read: Is a directory|is no file"):
        load(tmp_path)
    with pytest.raises(RooflensError, match="is no path"):
        load(Path("a\0b"))


POINT = {"median": 1e9, "best": 1e9, "spread_ratio": 0.0, "count": 3}
MOMENT = {"median": 2e-6, "best": 1e-6, "spread_ratio": 0.0, "count": 3}
WRONG: list[tuple[str, Any, str]] = [
    ("identity", None, "identity is no object"),
    ("identity", {"kind": "tpu", "name": "x"}, "identity.kind is none of cpu, cuda, rocm"),
    ("identity", {"kind": "cpu", "name": ""}, "identity.name is no line of text"),
    ("identity", {"kind": "cpu", "name": "x\ny"}, "identity.name is no line of text"),
    ("identity", {"kind": "cpu", "name": "x", "units": 1.5}, "identity.units is no whole number above 0"),
    ("identity", {"kind": "cpu", "name": "x", "machine": 7}, "identity.machine is no line of text"),
    ("measured_unix_s", "today", "measured_unix_s is no number"),
    ("measured_unix_s", True, "measured_unix_s is no number"),
    ("took_s", -1.0, "took_s is out of range"),
    ("took_s", 10**400, "took_s is out of range"),
    ("versions", [], "versions is no object"),
    ("versions", {"torch": 2.1}, "versions.torch is no line of text"),
    ("clocks_hz", {"sm": 0}, "clocks_hz.sm is 0, which is not within 1e+06 and 1e+11"),
    ("measured_unix_s", 2**62, "measured_unix_s is 4.61169e+18, which is not within"),  # no calendar has its year
    ("measured_unix_s", 0, "measured_unix_s is 0, which is not within"),
    ("reads", {}, "reads is no list"),
    ("reads", [1], "reads: a size is no whole number above 0"),
    ("reads", [[0, POINT]], "reads: a size is no whole number above 0"),
    ("reads", [[1, POINT, POINT]], "reads: a size is no whole number above 0"),
    ("reads", [[1, 5.0]], "reads is no object"),
    ("copies", [[2, POINT], [1, POINT]], "copies is not in ascending order of bytes"),
    ("attention", [[1, POINT], [1, POINT]], "attention is not in ascending order of bytes"),
    ("attention", [[1, {**POINT, "median": -5.0}]], "attention.median is out of range"),
    ("attention", [[1, {**POINT, "best": 0}]], "attention.best is 0, which is not within"),
    ("attention", [[1, {**POINT, "spread_ratio": None}]], "attention.spread_ratio is no number"),
    ("attention", [[1, {**POINT, "count": 0}]], "attention.count is no whole number above 0"),
    ("reads", [[1, {**POINT, "median": 5e-324}]], "reads.median is 4.94066e-324, which is not within"),
    ("reads", [[1, {**POINT, "median": 2e9}]], "reads.best is less than its median"),
    ("copies", [[1, {**POINT, "best": 9e18}]], "copies.best is 9e+18, which is not within"),
    ("products", {"fp32": {**POINT, "median": 2e9}}, "products.fp32.best is less than its median"),
    ("launch_s", {**MOMENT, "median": 5e-7}, "launch_s.best is more than its median"),
    ("graph_launch_s", POINT, "graph_launch_s.median is 1e+09, which is not within"),
    ("all_reduce_s", {"2": []}, "all_reduce_s.2 is empty"),
    ("all_reduce_s", {"2": [[8, POINT]]}, "all_reduce_s.median is 1e+09, which is not within"),
    ("products", {"bf16": {}}, "products.bf16.median is no number"),
    ("launch_s", 5e-6, "launch_s is no object"),
    ("all_reduce_s", {"1": []}, "all_reduce_s is for 1 devices"),
    ("all_reduce_s", {"two": []}, "all_reduce_s is for two devices"),
    ("flags", "quiet", "flags is no list"),
    ("flags", [1], "flags is no line of text"),
]


@pytest.mark.parametrize(("field", "value", "expected"), WRONG)
def test_a_wrong_value_is_named(tmp_path: Path, data: dict[str, Any], field: str, value: Any, expected: str) -> None:
    data[field] = value
    (tmp_path / "file.json").write_text(json.dumps(data))
    assert f"is no calibration: {expected}" in said(tmp_path / "file.json")


@pytest.mark.parametrize("field", ["identity", "measured_unix_s", "took_s"])
def test_what_must_be_there(tmp_path: Path, data: dict[str, Any], field: str) -> None:
    del data[field]
    (tmp_path / "file.json").write_text(json.dumps(data))
    assert field in said(tmp_path / "file.json")


def test_a_later_release_may_add_fields(tmp_path: Path, data: dict[str, Any]) -> None:
    data |= {"more": [1]}
    data["identity"]["more"] = data["launch_s"]["more"] = {"a": 1}
    (tmp_path / "file.json").write_text(json.dumps(data))
    assert load(tmp_path / "file.json") == CALIBRATION


def test_it_is_found_by_its_identity_only(tmp_path: Path) -> None:
    path = save(CALIBRATION, tmp_path)
    found = find(IDENTITY, tmp_path, NOW_S, VERSIONS)
    assert (found.calibration, found.path, found.problem) == (CALIBRATION, path, None)
    nothing = find(replace(IDENTITY, device_uuid="GPU-2222"), tmp_path, NOW_S, VERSIONS)
    assert (nothing.calibration, nothing.path, nothing.problem) == (None, None, None)
    assert find(IDENTITY, tmp_path / "none", NOW_S, VERSIONS) == nothing


def test_one_of_this_machine_as_it_was_is_not_used_and_said(tmp_path: Path) -> None:
    save(CALIBRATION, tmp_path)
    (tmp_path / "calibrations" / "broken.json").write_text("")
    found = find(replace(IDENTITY, units=114), tmp_path, NOW_S, VERSIONS)
    assert found.calibration is None
    assert found.problem is not None
    assert (
        "it is of another machine: units is 132 there and 114 here; measure again: rooflens calibrate" in found.problem
    )
    assert find(replace(IDENTITY, units=114, machine=None), tmp_path, NOW_S, VERSIONS).problem is None


@pytest.mark.parametrize(("field", "value"), [("machine", "feedfeedfeedfeed"), ("machine", None), ("units", 4)])
def test_a_foreign_file_in_its_place_is_refused(tmp_path: Path, field: str, value: Any) -> None:
    other = replace(CALIBRATION, identity=replace(IDENTITY, **{field: value}))
    os.rename(save(other, tmp_path), path_of(IDENTITY, tmp_path))
    found = find(IDENTITY, tmp_path, NOW_S, VERSIONS)
    assert found.calibration is None
    assert found.path == path_of(IDENTITY, tmp_path)
    said_there = "not known" if value is None else value
    assert f"is not used: it is of another machine: {field} is {said_there} there" in (found.problem or "")
    assert why_foreign(CALIBRATION, IDENTITY) is None


def test_a_broken_file_in_its_place_is_said(tmp_path: Path) -> None:
    path = save(CALIBRATION, tmp_path)
    path.write_text("{")
    found = find(IDENTITY, tmp_path, NOW_S, VERSIONS)
    assert (found.calibration, found.path) == (None, path)
    assert "no JSON in line 1" in (found.problem or "")


STALE: list[tuple[float, dict[str, str], str | None]] = [
    (NOW_S, {}, None),
    (NOW_S, VERSIONS, None),  # minor releases do not matter
    (NOW_S + 179 * DAY_S - 1, VERSIONS, None),
    (NOW_S + 179 * DAY_S + 1, VERSIONS, "it was measured 180 days ago"),
    (NOW_S - 1.5 * DAY_S, VERSIONS, None),  # clocks of two machines differ
    (NOW_S - 2.5 * DAY_S, VERSIONS, "it is dated ahead of this machine's clock"),
    (NOW_S, {**VERSIONS, "driver": "580.95.05"}, "driver was 580.65.06 and is 580.95.05"),
    (NOW_S, {**VERSIONS, "torch": "3.0.0"}, "torch was 2.13.0+cu130 and is 3.0.0"),
    (NOW_S, {**VERSIONS, "numpy": "1.26.4"}, "numpy was 2.3.5 and is 1.26.4"),
]


@pytest.mark.parametrize(("now_s", "versions", "expected"), STALE)
def test_a_stale_one_is_not_picked_up(
    tmp_path: Path, now_s: float, versions: dict[str, str], expected: str | None
) -> None:
    assert is_stale(CALIBRATION, now_s, versions) == expected
    path = save(CALIBRATION, tmp_path)
    found = find(IDENTITY, tmp_path, now_s, versions)
    assert (found.calibration is None) == (expected is not None)
    assert found.path == path
    assert (found.problem is None) == (expected is None)
    if expected is not None:
        assert found.problem == (
            f"the calibration of NVIDIA H200 is not used: {expected}; measure again: rooflens calibrate"
        )
