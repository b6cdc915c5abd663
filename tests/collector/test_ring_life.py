"""The life of a ring: made in a fit folder only, as large as there is room for, outliving its engine, cleared away."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from mounts import in_tmpfs, private_mounts

from rooflens.adapters.recorder import Recorder
from rooflens.cli import main
from rooflens.collector.raw_slots import read_raw
from rooflens.collector.ring_file import RingFile
from rooflens.collector.ring_source import RingSource
from rooflens.pipeline import DIED, LIVE, read_ring
from rooflens.records import RooflensError
from rooflens.ring_folder import KEPT_DEAD_RINGS, SIZES, create_ring, default_folder, list_rings, open_folder

PATIENCE_S = 60.0

ENGINE = """
import sys, time
from pathlib import Path
from rooflens.adapters.recorder import Recorder
recorder = Recorder("victim", folder=Path(sys.argv[1]), strict=True, block_tokens=16)
context, hang_at = 0, int(sys.argv[2])
while True:
    with recorder.step(contexts=[context, context + 5]) as step:
        if context == hang_at:
            print("hangs", flush=True)
            time.sleep(1000)
        step.generated_tokens = 2
    context += 1
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    return tmp_path


@pytest.fixture
def hanging(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """An engine in another process that hangs in its step 301."""
    command = [sys.executable, "-c", ENGINE, str(folder), "300"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "hangs\n"
        yield child
        child.kill()


def test_a_hanging_engine_is_seen_and_after_a_kill_all_is_read(
    folder: Path, hanging: subprocess.Popen[str], capsys: pytest.CaptureFixture[str]
) -> None:
    (path,) = list_rings(folder)
    time.sleep(0.05)
    recording = read_ring(path)
    assert recording.ending == LIVE
    assert recording.in_flight is not None
    assert recording.in_flight_s is not None
    assert (recording.in_flight.ordinal, recording.in_flight.requests) == (301, 2)
    assert 0.05 <= recording.in_flight_s < PATIENCE_S

    hanging.send_signal(signal.SIGKILL)
    hanging.wait()
    recording = read_ring(path)
    assert recording.ending == DIED
    assert recording.in_flight is not None
    assert recording.in_flight.ordinal == 301
    assert recording.steps["sequence"].tolist() == list(range(1, 301))
    assert recording.steps["context_tokens"].tolist() == [2 * n + 5 for n in range(300)]
    assert recording.steps.has("causal_pairs")
    assert (recording.lost_steps, recording.torn_steps, recording.doubted_frames) == (0, 0, 0)
    assert read_raw(path).steps == 300
    assert main(["analyze", str(path)]) == 0
    assert "gone (died, or was killed) in step 301 (2 sequences, 2 tokens), which began at 2" in capsys.readouterr().out


def test_a_kill_at_any_moment_leaves_whole_steps(folder: Path) -> None:
    for delay_s in (0.0, 0.013, 0.05):
        command = [sys.executable, "-c", ENGINE, str(folder), "-1"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            wait_for(lambda: any(RingFile(p).live() and RingFile(p).state().sequence > 100 for p in list_rings(folder)))
            time.sleep(delay_s)
            child.kill()
        recording = read_ring(list_rings(folder)[0])
        assert recording.ending == DIED
        sequence = recording.steps["sequence"].tolist()
        assert sequence == list(range(sequence[0], sequence[0] + len(sequence)))
        assert recording.torn_steps <= 1  # the slot that was being written
        assert recording.doubted_frames == 0


def wait_for(condition: object) -> None:
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        if callable(condition) and condition():
            return
        time.sleep(0.01)
    raise AssertionError("it did not come about")


def test_dead_rings_beyond_two_are_removed_and_live_ones_kept(folder: Path, hanging: subprocess.Popen[str]) -> None:
    (alive,) = list_rings(folder)
    mine = Recorder("mine", folder=folder, strict=True)
    dead = []
    for number in range(5):
        recorder = Recorder("dead", folder=folder, strict=True)
        recorder.close()
        assert recorder.path is not None
        os.utime(recorder.path, (number, number))
        dead.append(recorder.path)
    last = Recorder("last", folder=folder, strict=True)
    left = set(list_rings(folder))
    assert {alive, mine.path, last.path} <= left
    assert left & set(dead) == set(dead[-KEPT_DEAD_RINGS:])
    other = folder / "otherhost-0123abcd-0.ring"
    other.write_bytes(b"")
    foreign = folder / "mine.ring"
    foreign.write_bytes(b"")
    Recorder("one more", folder=folder, strict=True).close()
    assert other.exists()
    assert foreign.exists()
    mine.close()
    last.close()


def test_a_reader_in_the_writers_process_does_not_drop_its_lock(folder: Path) -> None:
    recorder = Recorder("test", folder=folder, strict=True)
    assert recorder.path is not None
    RingFile(recorder.path).close()
    RingSource(recorder.path).close()
    code = "import sys; from pathlib import Path; from rooflens.collector.ring_file import RingFile; "
    code += "ring = RingFile(Path(sys.argv[1])); print(ring.live(), ring.holder())"
    held, over = RingFile(recorder.path), f"True {os.getpid()}\n"
    assert held.holder() == os.getpid()
    for expected in (over, "False None\n"):
        run = subprocess.run(
            [sys.executable, "-c", code, str(recorder.path)], capture_output=True, text=True, check=True
        )
        assert run.stdout == expected
        recorder.close()


@pytest.mark.skipif(sys.platform != "linux", reason="PID namespaces are Linux's")
def test_the_holder_of_a_ring_is_told_in_the_numbers_of_who_asks(folder: Path) -> None:
    """An engine in a container is process 1 there; who reads its ring from outside must not take it for init."""
    code = "import os, sys, time; from pathlib import Path; from rooflens.adapters.recorder import Recorder; "
    code += "r = Recorder('x', folder=Path(sys.argv[1]), strict=True); print(os.getpid(), flush=True); time.sleep(100)"
    command = ["unshare", "--pid", "--fork", "--kill-child", sys.executable, "-c", code, str(folder)]
    if subprocess.run(["unshare", "--pid", "--fork", "true"], capture_output=True, check=False).returncode:
        command = [sys.executable, "-c", code, str(folder)]  # not allowed here: at least the numbers are the same
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            own = int(process.stdout.readline())
            (path,) = list_rings(folder)
            ring = RingFile(path)
            found = ring.holder()
            assert ring.header.pid == own
            assert found is not None
            assert str(folder) in Path(f"/proc/{found}/cmdline").read_text()
            assert (found == own) == (command[0] != "unshare")
            ring.close()
        finally:
            process.kill()


def test_a_forked_child_sees_that_its_parent_died(folder: Path) -> None:
    code = textwrap.dedent("""
        import os, sys, time
        from pathlib import Path
        from rooflens.adapters.recorder import Recorder
        from rooflens.collector.ring_file import RingFile
        recorder = Recorder("parent", folder=Path(sys.argv[1]), strict=True)
        alive, tell = os.pipe()
        if os.fork():
            os._exit(0)
        os.close(tell)
        os.read(alive, 1)
        print(RingFile(recorder.path).live(), flush=True)
    """)
    run = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=True)
    assert run.stdout == "False\n"


# Folders that are unfit, and those that are not.


def test_a_folder_is_made_private(tmp_path: Path) -> None:
    recorder = Recorder("test", folder=tmp_path / "a" / "b", strict=True)
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700
    recorder.close()


def test_a_link_to_a_folder_is_refused(folder: Path) -> None:
    (folder / "real").mkdir(mode=0o700)
    (folder / "link").symlink_to(folder / "real")
    for create in (True, False):
        with pytest.raises(RooflensError, match="symbolic link"):
            open_folder(folder / "link", create)


def test_a_file_in_the_folders_place_is_refused(folder: Path) -> None:
    (folder / "file").write_text("")
    with pytest.raises(RooflensError, match="no folder"):
        create_ring(folder / "file", 0)


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770])
def test_a_folder_that_others_may_write_to_is_refused(folder: Path, mode: int) -> None:
    folder.chmod(mode)
    for create in (True, False):
        with pytest.raises(RooflensError, match="written by other users"):
            open_folder(folder, create)


def test_a_setgid_folder_gives_its_group_the_rings(folder: Path) -> None:
    folder.chmod(0o2770)
    writer, path = create_ring(folder, 0)
    assert path.stat().st_mode & 0o777 == 0o640
    assert list_rings(folder) == [path]
    writer.close()


def test_a_ring_that_is_a_link_is_refused(folder: Path) -> None:
    recorder = Recorder("test", folder=folder, strict=True)
    recorder.close()
    assert recorder.path is not None
    link = folder / "link.ring"
    link.symlink_to(recorder.path)
    with pytest.raises(RooflensError, match="symbolic link"):
        RingFile(link)
    os.mkfifo(folder / "fifo.ring")
    with pytest.raises(RooflensError, match="not a file"):
        RingFile(folder / "fifo.ring")


AS_NOBODY = """
import os, sys
from pathlib import Path
from rooflens.ring_folder import create_ring, open_folder
from rooflens.collector.ring_file import RingFile
from rooflens.records import RooflensError
os.setgid(65534); os.setuid(65534)
for act in (lambda: create_ring(Path(sys.argv[1]), 0), lambda: RingFile(Path(sys.argv[2]))):
    try:
        act()
        print("allowed")
    except RooflensError as error:
        print(str(error).replace(sys.argv[1], "FOLDER"))
"""


def test_another_users_folder_and_ring_are_refused() -> None:
    """As root: another owner's folder is refused for writing; as another user: root's folder and ring are."""
    if os.geteuid() != 0:
        with pytest.raises(RooflensError, match="belongs to user 0"):
            create_ring(Path("/usr"), 0)
        return
    with tempfile.TemporaryDirectory() as name:
        base, theirs, ours = Path(name), Path(name, "theirs"), Path(name, "ours")
        base.chmod(0o755)
        theirs.mkdir(mode=0o700)
        os.chown(theirs, 65534, 65534)
        with pytest.raises(RooflensError, match="belongs to user 65534"):
            create_ring(theirs, 0)
        assert list_rings(theirs) == []  # root may read it
        ours.mkdir(mode=0o755)
        recorder = Recorder("test", folder=ours, strict=True)
        command = [sys.executable, "-c", AS_NOBODY, str(ours), str(recorder.path)]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stderr
        writing, reading = run.stdout.splitlines()
        assert writing.startswith("ring folder FOLDER belongs to user 0")
        assert "permission denied" in reading
        recorder.close()


# Folders without room.

FILL = """
import os, sys
from pathlib import Path
from rooflens.adapters.recorder import Recorder
from rooflens.records import RooflensError
folder = Path(sys.argv[1])
try:
    recorder = Recorder("test", folder=folder / "rings", strict=True)
except RooflensError as error:
    print("refused:", str(error).split(":")[-1].strip(), [p.name for p in (folder / "rings").iterdir()])
    raise SystemExit
slots = os.stat(recorder.path).st_size
with open(folder / "filler", "wb", buffering=0) as filler:
    try:
        while filler.write(bytes(4096)):
            pass
    except OSError as error:
        print("full:", error.strerror)
for number in range(66000):  # once around the slots
    with recorder.step(contexts=[number]):
        pass
for number in range(200):  # and around the arena
    with recorder.step(contexts=range(number, number + 15000)):
        pass
print("alive", slots, recorder.failures)
"""


def in_small_tmpfs(tmp_path: Path, size: str) -> str:
    """What FILL says in a tmpfs of ``size``."""
    target = tmp_path / "small"
    target.mkdir()
    command = in_tmpfs(f"size={size}", target, [sys.executable, "-c", FILL, str(target)])
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, (run.returncode, run.stderr)
    return run.stdout


def ring_bytes(size: tuple[int, int]) -> int:
    return 4096 + 2 * 128 * 1024 + size[0] * 128 + size[1]


def test_a_full_tmpfs_never_kills_the_engine(tmp_path: Path) -> None:
    """The ring takes its room at once: writes into a full file system then neither fail nor raise SIGBUS."""
    if private_mounts() is None:
        return  # no mount is allowed here: the limit on file sizes below proves the refusal
    assert in_small_tmpfs(tmp_path, "20m") == f"full: No space left on device\nalive {ring_bytes(SIZES[0])} 0\n"


def test_a_small_tmpfs_gets_a_smaller_ring(tmp_path: Path) -> None:
    if private_mounts() is None:
        return
    assert in_small_tmpfs(tmp_path, "5m") == f"full: No space left on device\nalive {ring_bytes(SIZES[1])} 0\n"


def test_a_tiny_tmpfs_is_refused_and_left_clean(tmp_path: Path) -> None:
    if private_mounts() is None:
        return
    assert in_small_tmpfs(tmp_path, "64k") == "refused: not even the smallest ring fits, set ROOFLENS_DIR []\n"


@pytest.mark.parametrize(("limit", "expected"), [(5 << 20, SIZES[1]), (1 << 20, SIZES[2])])
def test_a_limit_on_file_sizes_gives_a_smaller_ring(folder: Path, limit: int, expected: tuple[int, int]) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        writer, path = create_ring(folder, 0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert path.stat().st_size == ring_bytes(expected)
    assert path.stat().st_blocks * 512 >= ring_bytes(expected)  # no hole in it
    writer.close()


def test_no_room_at_all_is_refused_and_left_clean(folder: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (65536, before[1]))
    try:
        with pytest.raises(RooflensError, match="is full"):
            create_ring(folder, 0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(folder.iterdir()) == []


def test_the_default_folder_is_named_or_private(tmp_path: Path) -> None:
    assert default_folder({"ROOFLENS_DIR": str(tmp_path)}) == tmp_path
    assert default_folder({}).name == f"rooflens-{os.getuid()}"


def test_a_ring_read_for_weeks_keeps_few_anchors(folder: Path) -> None:
    """Every keyframe holds one; those of earlier reads say nothing of later steps."""
    recorder = Recorder("test", folder=folder, strict=True)
    assert recorder.path is not None
    source = RingSource(recorder.path)
    for turn in range(30):
        for number in range(10):  # no two alike, so that each is a keyframe
            with recorder.step(contexts=[1000 * turn + number, 7 * number]) as step:
                step.generated_tokens = 2
        batch = source.read()
        assert abs(batch.steps["unix_s"][-1] - time.time()) < PATIENCE_S
    assert len(source._anchors) < 30
    source.close()
    recorder.close()
