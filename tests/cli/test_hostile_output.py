"""The command line where output cannot be written, paths are odd, and rings hold what should not reach a terminal."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rooflens.cli import main
from rooflens.cli.output import json_text, printable
from rooflens.ring import STATE_OFFSET
from rooflens.ring_folder import create_ring
from rooflens.ring_writer import RingWriter, pack_cold

CONFIG = {"hidden_size": 64, "time_step_limit": [0.0, math.inf]}
COMMAND = f"{sys.executable} -m rooflens"


@pytest.fixture
def ring(tmp_path: Path) -> tuple[RingWriter, Path]:
    """A ring whose facts no adapter cleaned."""
    tmp_path.chmod(0o700)
    writer, path = create_ring(tmp_path, 0, ((8, 4096),))
    writer.set_info({
        "instance": "i", "engine": "e\x1b[31m", "pod": "p\x07\n", "device": "d\ud800", "model_name": "m\x9b",
        "model_config": CONFIG, "kv_blocks": "4096", "tensor_parallel": "2", "start_unix_s": math.inf,
    })  # fmt: skip
    for number in range(1, 4):
        writer.commit(number * 10**9, number * 10**9 + 10**6, 0, 0, 0, 0, 0, 0, 0, pack_cold(1, 1, *[0] * 17))
    writer.event("odd\x1b[2J", {"jump": math.nan})
    writer.close()
    return writer, path


def test_nothing_that_a_terminal_obeys_is_printed(
    ring: tuple[RingWriter, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    for words in ([], ["--hardware", "h100-sxm5-80"]):
        assert main(["analyze", str(ring[1]), *words]) == 0
        told = capsys.readouterr().out
        assert told == printable(told)
        assert "e?[31m" in told
    assert main(["analyze", str(ring[1]), "--hardware", "x\x1b[31m"]) == 2
    told = capsys.readouterr().err
    assert "\x1b" not in told


def test_what_is_infinite_is_null_in_json(ring: tuple[RingWriter, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", str(ring[1]), "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["engine"]["model_config"]["time_step_limit"] == [0.0, None]
    assert "kv_blocks" not in found["engine"]
    assert json_text({"a": (1, math.nan, -math.inf), "b": True}) == '{"a": [1, null, null], "b": true}'


def test_a_damaged_state_is_said(ring: tuple[RingWriter, Path], capsys: pytest.CaptureFixture[str]) -> None:
    raw = bytearray(ring[1].read_bytes())
    raw[STATE_OFFSET + 4] ^= 1
    ring[1].write_bytes(raw)
    assert main(["analyze", str(ring[1])]) == 0
    told = capsys.readouterr().out
    assert "3 steps" in told
    assert "warning   the ring's state is damaged" in told


def test_steps_that_cannot_be_read_are_not_steps_not_made(
    ring: tuple[RingWriter, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    raw = bytearray(ring[1].read_bytes())
    slots = len(raw) - 4096 - 8 * 128
    raw[slots : slots + 8 * 128] = bytes(8 * 128)
    ring[1].write_bytes(raw)
    assert main(["analyze", str(ring[1])]) == 0
    assert "no step can be read: 0 lost, 4 torn" in capsys.readouterr().out


def test_a_file_name_with_ends_of_lines_is_told_in_one(
    ring: tuple[RingWriter, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    odd = ring[1].rename(tmp_path / "a\nwarning   made up.ring")
    (tmp_path / "b\nok       made up.ring").write_bytes(b"x")
    for words in (["analyze", str(odd)], ["analyze", str(tmp_path)], ["doctor", str(tmp_path)]):
        main(words)
        told = capsys.readouterr()
        assert "?warning   made up" in told.out or "?ok       made up" in told.out
        lines = (told.out + told.err).splitlines()
        assert [line for line in lines if line.startswith(("warning   made", "ok       made"))] == []


@pytest.mark.parametrize("place", ["x" * 5000, "/proc/self/mem"])
def test_an_odd_path_is_one_line(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", place]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("rooflens: ")
    assert told.err.count("\n") == 1


@pytest.mark.parametrize(
    ("where", "said"),
    [
        (">&-", "rooflens: standard output is closed: there is nowhere to write to\n"),
        (">/dev/full", "rooflens: cannot read or write: no space left on device\n"),
        ("--json >/dev/full", "rooflens: cannot read or write: no space left on device\n"),
        (">/dev/full 2>/dev/full", ""),
        (">&- 2>&-", ""),
    ],
)
def test_output_that_cannot_be_written_is_one_line(ring: tuple[RingWriter, Path], where: str, said: str) -> None:
    run = subprocess.run(
        ["sh", "-c", f"{COMMAND} analyze {ring[1]} {where}"], capture_output=True, text=True, check=False,
        env={**os.environ, "ROOFLENS_DIR": str(ring[1].parent)},
    )  # fmt: skip
    assert (run.returncode, run.stderr) == (2, said)
