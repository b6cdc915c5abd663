"""What is said while nobody reads: nothing waits for it, and what is lost is counted."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rooflens.cli.voice import MOST_LINES, Voice

PATIENCE_S = 60.0


def test_lines_come_in_order_and_each_is_one(capfd: pytest.CaptureFixture[str]) -> None:
    voice = Voice()
    for line in ("a ring\nof\x1b[2J another name", "\N{GREEK SMALL LETTER ALPHA}"):
        voice.say(line)
    voice.close()
    assert capfd.readouterr().out == "a ring?of?[2J another name\n\N{GREEK SMALL LETTER ALPHA}\n"


def test_what_nobody_takes_is_dropped_and_counted() -> None:
    said: list[str] = []
    taken, begun = threading.Event(), threading.Event()

    def write(text: str) -> None:
        begun.set()
        assert taken.wait(PATIENCE_S)
        said.append(text)

    voice = Voice(write)
    voice.say("first")
    assert begun.wait(PATIENCE_S)
    for number in range(MOST_LINES + 1003):
        voice.say(f"{number}")
    taken.set()
    voice.close()
    assert said == ["first\n", *(f"{n}\n" for n in range(MOST_LINES)), "1,003 lines dropped: nobody read them\n"]


def test_whoever_stopped_reading_is_passed_over() -> None:
    said: list[str] = []

    def write(text: str) -> None:
        if not said:
            said.append("")
            raise BrokenPipeError
        said.append(text)

    voice = Voice(write)
    voice.say("lost")
    voice.say("heard")
    voice.close()
    assert said == ["", "heard\n"]


def test_a_sidecar_goes_on_and_ends_while_nobody_reads_what_it_says(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    words = ["-P", "-c", "import sys; from rooflens.cli import main; sys.exit(main())", "sidecar", str(tmp_path)]
    with subprocess.Popen([sys.executable, *words, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            lines = (line.split() for line in process.stdout)
            address = next(words[1] for words in lines if words[0] == b"metrics").decode().removesuffix("/metrics")
            fill(process.pid)
            (tmp_path / "damaged.ring").write_bytes(b"something to say")
            wait_for(lambda: any("damaged.ring" in line for line in health(address)["problems"]))
            told = health(address)["snapshot_number"]
            wait_for(lambda: health(address)["snapshot_number"] > told + 1)
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_S) == 0
        finally:
            process.kill()


def fill(pid: int) -> None:
    """Leave no room in the pipe that the process writes to."""
    pipe = os.open(f"/proc/{pid}/fd/1", os.O_WRONLY | os.O_NONBLOCK)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(pipe, b"x")
    os.close(pipe)


def health(address: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{address}/healthz", timeout=PATIENCE_S) as answer:
        found: dict[str, Any] = json.loads(answer.read())
        return found


def wait_for(so: Callable[[], bool]) -> None:
    """Until it is so; a turn of the loop is a second."""
    pause = threading.Event()
    for _ in range(200):
        if so():
            return
        pause.wait(0.1)
    raise AssertionError("it never came to be so")
