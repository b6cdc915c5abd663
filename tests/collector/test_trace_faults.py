"""What hinders the writer of a trace: one line, rows kept as far as they fit, tried again, and nothing left behind."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest
from mounts import in_tmpfs, private_mounts
from written_traces import BEGIN_UNIX_S, Clock, facts_of, steps_by_run, trace_files, trace_rows

from rooflens.collector.trace.writer import TraceWriter
from rooflens.records import RooflensError
from rooflens.trace_tables import TraceLimits


class Writing:
    """A writer without a thread; ``after`` lets time pass."""

    def __init__(self, place: str, limits: TraceLimits | None = None) -> None:
        self.clock, self.monotonic = Clock(), Clock(1000.0)
        self.writer = TraceWriter(place, limits, self.clock, self.monotonic, threaded=False)
        self.cursors: dict[str, int] = {}
        self.writer.on_written(self.cursors.update)

    def after(self, seconds: float) -> None:
        self.clock.now_s += seconds
        self.monotonic.now_s += seconds
        self.writer.turn()

    @property
    def problem(self) -> str | None:
        return self.writer.state().problem


class Disk:
    """The disk fails with an error number until it is well again: at fsync, where the kernel may say so last."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.error: int | None = None
        real = os.fsync

        def fsync(descriptor: int) -> None:
            if self.error is not None:
                raise OSError(self.error, os.strerror(self.error))
            real(descriptor)

        monkeypatch.setattr(os, "fsync", fsync)


@pytest.mark.parametrize(
    ("number", "said"),
    [(errno.ENOSPC, "no space is left on the disk"), (errno.EIO, "input/output error"), (errno.EROFS, "read-only")],
)
def test_a_disk_that_fails_is_tried_again_until_it_is_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, said: str
) -> None:
    disk, writing = Disk(monkeypatch), Writing(str(tmp_path))
    writing.writer.put(trace_rows(facts_of(), range(1, 11)))
    writing.after(1)
    disk.error = number
    writing.after(60)
    problem = writing.problem
    assert problem is not None
    assert said in problem
    assert "\n" not in problem
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    assert writing.cursors == {}
    assert writing.writer.state().failures == 1
    for _ in range(20):
        writing.after(0.25)
    assert writing.writer.state().failures == 3  # after 1 and 2 more seconds, not every quarter
    writing.writer.put(trace_rows(facts_of(), range(11, 21)))
    disk.error = None
    writing.after(61)
    assert steps_by_run(tmp_path) == {facts_of().run: list(range(1, 21))}
    state = writing.writer.state()
    assert (state.problem, state.dropped_rows, state.oldest_unwritten_s) == (None, 0, None)
    assert writing.cursors == {facts_of().run: 20}


def test_what_cannot_be_written_for_long_goes_oldest_first_and_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, writing = Disk(monkeypatch), Writing(str(tmp_path), TraceLimits(memory_bytes=200_000))
    disk.error = errno.ENOSPC
    for number in range(25):
        writing.writer.put(trace_rows(facts_of(), range(10 * number + 1, 10 * number + 11)))
        writing.after(61)
    disk.error = None
    writing.after(61)
    state = writing.writer.state()
    (kept,) = steps_by_run(tmp_path).values()
    assert kept == list(range(251 - len(kept), 251))
    assert 50 <= len(kept) < 200
    assert state.rows_written + state.dropped_rows == 250


def test_a_later_hour_that_is_written_does_not_move_the_cursor_past_one_that_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing = Writing(str(tmp_path))
    outside = tmp_path / "outside"
    outside.mkdir()
    hours = tmp_path / "steps" / "host=host-1" / "date=2027-01-15"
    hours.mkdir(parents=True)
    (hours / "hour=08").symlink_to(outside)
    writing.writer.put(trace_rows(facts_of(), range(1, 11), BEGIN_UNIX_S))
    writing.writer.put(trace_rows(facts_of(), range(11, 21), BEGIN_UNIX_S + 3600))
    writing.after(60)
    assert [path.parent.name for path in trace_files(tmp_path)] == ["hour=09"]
    assert list(outside.iterdir()) == []
    assert "remove it" in (writing.problem or "")
    assert writing.cursors == {facts_of().run: 0}
    (hours / "hour=08").unlink()
    writing.writer.put(trace_rows(facts_of(), [21], BEGIN_UNIX_S + 3600))
    writing.after(60)
    assert writing.cursors == {facts_of().run: 21}
    assert writing.problem is None


def test_at_the_end_many_that_cannot_be_written_keep_no_other_back(tmp_path: Path) -> None:
    writing = Writing(str(tmp_path))
    (tmp_path / "steps").mkdir()
    for number in range(5):
        (tmp_path / "steps" / f"host=a{number}").touch()
        writing.writer.put(trace_rows(facts_of(host=f"a{number}"), [1], bounds=False))
    writing.writer.put(trace_rows(facts_of("1", "z"), [1], bounds=False))
    writing.writer.close()
    assert steps_by_run(tmp_path) == {facts_of("1").run: [1]}
    assert (writing.writer.state().dropped_rows, writing.writer.state().failures) == (5, 5)


def test_a_folder_that_vanishes_is_made_again(tmp_path: Path) -> None:
    writing = Writing(str(tmp_path / "trace"))
    shutil.rmtree(tmp_path / "trace")
    writing.writer.put(trace_rows(facts_of(), [1]))
    writing.after(60)
    assert steps_by_run(tmp_path / "trace") == {facts_of().run: [1]}


def test_a_mount_that_vanishes_is_waited_for(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as other:
        assert os.stat(other).st_dev != os.stat(tmp_path).st_dev
        place = tmp_path / "trace"
        place.symlink_to(other)
        writing = Writing(str(place))
        place.unlink()
        place.mkdir()
        writing.writer.put(trace_rows(facts_of(), [1]))
        writing.after(60)
        assert "not mounted any more" in (writing.problem or "")
        assert list(place.iterdir()) == []
        place.rmdir()
        place.symlink_to(other)
        writing.after(60)
        assert steps_by_run(Path(other)) == {facts_of().run: [1]}
        assert writing.problem is None


@pytest.mark.parametrize("name", ["file", "file/below"])
def test_a_file_in_place_of_the_folder_is_said_at_once(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RooflensError, match="it is no folder; give --trace another place"):
        TraceWriter(str(tmp_path / name))


def test_a_folder_without_permission_is_said_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write everywhere
    with pytest.raises(RooflensError, match="may not write there; give --trace another folder"):
        TraceWriter(str(tmp_path))


def test_the_group_may_read_what_is_written_and_nobody_else(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        writing = Writing(str(tmp_path / "trace"))
        writing.writer.put(trace_rows(facts_of(), [1]))
        writing.after(60)
    finally:
        os.umask(before)
    modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "trace").rglob("*")}
    assert modes == {0o750, 0o640}


def test_the_end_waits_no_longer_than_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stuck, free = threading.Event(), threading.Event()

    def fsync(_: int) -> None:
        stuck.set()
        free.wait()

    writer = TraceWriter(str(tmp_path), TraceLimits(period_s=0.05))
    monkeypatch.setattr(os, "fsync", fsync)
    writer.put(trace_rows(facts_of(), [1]))
    assert stuck.wait(30)
    writer.put(trace_rows(facts_of(), [2]))  # and the loop goes on
    writer.close(timeout_s=0.01)
    assert "not all was written within 0.01 s" in (writer.state().problem or "")
    free.set()


FULL_DISK = """
import sys
from written_traces import facts_of, steps_by_run, trace_rows
from rooflens.collector.trace.writer import TraceWriter
from pathlib import Path
place = Path(sys.argv[1])
ballast = place / "ballast"
ballast.write_bytes(b"x" * (1 << 20))
size = 1 << 20
try:
    with ballast.open("ab") as file:
        while True:
            size += file.write(b"x" * 4096)
            file.flush()
except OSError:
    pass
from written_traces import Clock
clock, monotonic = Clock(), Clock(1000.0)
writer = TraceWriter(str(place / "trace"), None, clock, monotonic, threaded=False)
writer.put(trace_rows(facts_of(), range(1, 2001)))
monotonic.now_s += 61
writer.turn()
problem = writer.state().problem
ballast.unlink()
monotonic.now_s += 61
writer.turn()
print(problem, writer.state().problem, steps_by_run(place / "trace")[facts_of().run] == list(range(1, 2001)), sep="|")
"""


def test_a_real_disk_that_is_full_and_gets_room(tmp_path: Path) -> None:
    if private_mounts() is None:
        return  # no mount is allowed here: the disks above that say so are proof enough
    command = [sys.executable, "-c", FULL_DISK, str(tmp_path)]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    run = subprocess.run(
        in_tmpfs("size=2m", tmp_path, command), capture_output=True, text=True, env=env, check=False, timeout=120
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip().endswith("no space is left on the disk; it is tried again|None|True")
