"""A log that is followed: absent, written piece by piece, renamed, truncated, replaced; from its live end on."""

from __future__ import annotations

import gzip
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from logs.log_lines import CONFIG, FITS, POOL, vllm

from rooflens.adapters.logs import tail as tails
from rooflens.adapters.logs.follow import UNKNOWN, LogFeed
from rooflens.adapters.logs.tail import FOLDER, GONE, IS_PACKED, NOT_THERE, Tail
from rooflens.live_records import SourceKind, State
from rooflens.protocols import Batch

PATIENCE_S = 30.0


def text(tail: Tail) -> str:
    return b"".join(piece.data for piece in tail.read() if piece.old_s is None).decode()


def test_from_the_live_end_on(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text("before\n")
    tail = Tail(path)
    (piece,) = tail.read(head_bytes=3)
    assert (tail.head, piece.data) == (b"bef", b"before\n")
    assert piece.old_s is not None
    with path.open("a") as file:
        file.write("af")
        file.flush()
        assert text(tail) == "af"
        file.write("ter\n")
    assert text(tail) == "ter\n"


def test_a_file_that_comes_later_is_read_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    tail = Tail(path)
    assert tail.read() == []
    assert tail.problem == NOT_THERE
    path.write_text("first\n")
    assert text(tail) == "first\n"
    assert tail.problem is None


def test_a_renamed_file_is_read_to_its_end_then_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text("")
    tail = Tail(path)
    tail.read()
    with path.open("a") as file:
        path.rename(tmp_path / "a.log.1")
        file.write("last of the old\n")
    path.write_text("first of the new\n")
    assert text(tail) == "last of the old\n"
    assert text(tail) == "first of the new\n"


@pytest.mark.parametrize("again", ["short\n", "as long as it was, or longer: other words\n"])
def test_a_file_that_was_truncated_is_read_anew(tmp_path: Path, again: str) -> None:
    path = tmp_path / "a.log"
    path.write_text("")
    tail = Tail(path)
    tail.read()
    with path.open("a") as file:
        file.write("what was there before it\n")
    assert text(tail) == "what was there before it\n"
    with path.open("r+") as file:  # copytruncate: the same file
        file.truncate(0)
        file.write(again)
    pieces = tail.read()
    assert b"".join(piece.data for piece in pieces).decode() == again
    assert pieces[0].begins


def test_a_file_that_goes_and_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text("x\n")
    tail = Tail(path)
    tail.read()
    path.unlink()
    assert text(tail) == ""
    assert tail.problem == GONE
    path.write_text("back\n")
    assert text(tail) == "back\n"


def test_what_cannot_be_followed_is_named(tmp_path: Path) -> None:
    folder = Tail(tmp_path)
    folder.read()
    assert folder.problem == FOLDER
    packed = tmp_path / "a.log.gz"
    packed.write_bytes(gzip.compress(b"x"))
    tail = Tail(packed)
    tail.read()
    assert tail.problem == IS_PACKED
    assert not tail.open
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    looping = Tail(loop)
    assert looping.read() == []
    assert looping.problem is not None


def test_a_pipe_is_read_as_it_flows(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    tail = Tail(path)
    assert tail.read() == []
    with path.open("w") as file:
        file.write("through it\n")
        file.flush()
        assert text(tail) == "through it\n"
    tail.close()


def test_a_big_file_is_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tails, "READ_BYTES", 1000)
    path = tmp_path / "a.log"
    path.write_text("")
    tail = Tail(path)
    tail.read()
    path.write_text("y" * 2500)
    assert [len(text(tail)) for _ in range(4)] == [1000, 1000, 500, 0]


@pytest.fixture
def follow() -> Iterator[Callable[[Path], LogFeed]]:
    begun: list[LogFeed] = []

    def started(path: Path) -> LogFeed:
        feed = LogFeed(path, period_s=0.01)
        begun.append(feed)
        feed.start()
        return feed

    yield started
    for feed in begun:
        feed.close()


def until(act: Callable[[], object]) -> None:
    """Until it is so."""
    for _ in range(round(PATIENCE_S / 0.01)):
        if act():
            return
        threading.Event().wait(0.01)
    raise AssertionError("it did not come to be")


def now(rate: float, running: int = 8) -> str:
    line = vllm(0, rate, running)
    head, _, rest = line.partition("INFO ")
    return f"{head}INFO {time.strftime('%m-%d %H:%M:%S')}{rest[14:]}\n"


def steps_of(batches: list[Batch]) -> int:
    return sum(len(batch.steps) for batch in batches)


def test_a_feed_tells_facts_of_the_head_and_steps_of_the_live_end(
    tmp_path: Path, follow: Callable[[Path], LogFeed], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rooflens.adapters.logs.follow.SETTLE_S", 0.0)
    monkeypatch.setattr(tails, "LATEST_BYTES", 2048)
    path = tmp_path / "a.log"
    noise = "INFO: nothing of an engine\n" * 4000
    path.write_text("\n".join([CONFIG, POOL, FITS, ""]) + noise + now(100.0))
    feed = follow(path)
    until(lambda: feed.health().state is State.LIVE)
    until(feed.read)
    before = feed.read()
    assert steps_of(before) == 0, "what was written before is counted by nobody"
    assert before[0].info is not None
    assert before[0].info.model_name == "Meta-Llama-3-8B-Instruct"
    assert before[0].progress is not None
    assert before[0].progress.load is not None
    assert before[0].progress.load.running == 8
    time.sleep(1.1)  # stamps are whole seconds: lines closer together are of several writers
    found: list[Batch] = []
    with path.open("a") as file:
        file.write(now(200.0))

    def read() -> int:
        found.extend(feed.read())
        return steps_of(found)

    until(read)
    assert steps_of(found) == 1
    assert feed.failures == 0
    assert feed.kind is SourceKind.LOG


def test_a_feed_of_an_absent_file_says_so_and_waits(tmp_path: Path, follow: Callable[[Path], LogFeed]) -> None:
    path = tmp_path / "a.log"
    feed = follow(path)
    until(lambda: NOT_THERE in (feed.health().problem or ""))
    assert feed.health().state is State.UNREACHABLE
    assert feed.read() == []
    path.write_text(now(100.0))
    until(feed.read)
    assert feed.health().problem is None


def test_a_log_of_something_else_is_said(tmp_path: Path, follow: Callable[[Path], LogFeed]) -> None:
    path = tmp_path / "a.log"
    feed = follow(path)
    path.write_text("GET / 200\n" * 2000)
    until(lambda: UNKNOWN in (feed.health().problem or ""))


def test_a_line_that_takes_the_reader_down_is_one_line(
    tmp_path: Path, follow: Callable[[Path], LogFeed], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise ValueError("odd")

    monkeypatch.setattr("rooflens.adapters.logs.rows.LogEngines.take", fails)
    path = tmp_path / "a.log"
    feed = follow(path)
    path.write_text(now(100.0))
    until(lambda: "please report it" in (feed.health().problem or ""))
    assert feed.failures == 1
    assert feed.health().state is State.UNREACHABLE


def test_an_engine_that_falls_silent_while_it_had_requests_may_be_gone(
    tmp_path: Path, follow: Callable[[Path], LogFeed], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rooflens.adapters.logs.follow.QUIET_S", 0.2)
    path = tmp_path / "a.log"
    feed = follow(path)
    path.write_text(now(100.0))
    until(lambda: "has the engine ended?" in (feed.health().problem or ""))
    with path.open("a") as file:
        file.write(now(0.0, running=0))
    until(lambda: feed.health().state is State.LIVE)
    progress = feed.read()[0].progress
    assert progress is not None
    assert progress.idle_s is not None
