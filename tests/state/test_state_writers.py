"""Several processes that write one file at the same moment, some of them killed: nothing is lost, nothing is torn."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest
from mounts import in_tmpfs, private_mounts
from state.made_state import NAME, words_in, writer

from rooflens.collector.state.key import StateKey
from rooflens.collector.state.learned import MOST_KEYS, LearnedFiles, held

ROUNDS = 150


def test_two_writers_lose_nothing_and_a_reader_sees_whole_files(tmp_path: Path) -> None:
    """A third one is killed again and again meanwhile: each word that it said was written is there."""
    folder = tmp_path / "kind"
    both = [writer(folder, name, ROUNDS) for name in ("first", "second")]
    said, killed, reads = set[str](), 0, 0
    while any(each.poll() is None for each in both):
        victim = writer(folder, f"victim{killed}", 10_000)
        assert victim.stdout is not None
        lines = [victim.stdout.readline() for _ in range(5 + 3 * killed % 7)]
        victim.kill()
        lines += victim.communicate()[0].splitlines()
        said |= {f"victim{killed} {line.strip()}" for line in lines if line.strip().isdigit()}
        killed += 1
        outcome = words_in(folder).read()
        assert outcome.problem is None
        reads += len(outcome.value or ())
    assert [each.wait() for each in both] == [0, 0]
    for each in both:
        each.communicate()
    outcome = words_in(folder).read()
    found = list(outcome.value or ())
    assert outcome.problem is None
    assert killed
    assert reads
    assert {f"{name} {number}" for name in ("first", "second") for number in range(ROUNDS)} | said <= set(found)
    assert len(found) == len(set(found))
    assert words_in(folder).change(lambda words: words).saved
    assert sorted(os.listdir(folder)) == [NAME, f"{NAME}.lock"], "what the killed left is removed by the next"


def test_a_writer_that_holds_the_lock_keeps_nobody_for_long(tmp_path: Path) -> None:
    file = words_in(tmp_path / "kind")
    assert file.change(lambda words: ("a",)).saved
    with (tmp_path / "kind" / f"{NAME}.lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        outcome = file.change(lambda words: ("b",), patience_s=0.0)
        assert (outcome.saved, outcome.problem) == (False, None), "busy is no fault"
        assert file.read().value == ("a",), "to read waits for nobody"
    assert file.change(lambda words: ("b",), patience_s=0.0).saved


def test_a_change_that_fails_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = words_in(tmp_path / "kind")
    assert file.change(lambda words: ("a",)).saved

    def no_room(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", no_room)
        outcome = file.change(lambda words: (*words, "b"))
    assert (outcome.saved, file.read().value) == (False, ("a",))
    assert "could not be written: no space left on device; give --state" in (outcome.problem or "")
    assert sorted(os.listdir(tmp_path / "kind")) == [NAME, f"{NAME}.lock"]
    assert "more than 1048576 bytes" in (file.change(lambda words: ("b" * (1 << 20),)).problem or "")
    assert file.read().value == ("a",)


FILLER = """
import os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from state.made_state import words_in
folder = Path(sys.argv[2]) / "kind"
file = words_in(folder)
outcome = file.change(lambda words: ("a",))
if not outcome.saved:
    print(outcome.problem)
    raise SystemExit
with open(folder.parent / "full", "wb", buffering=0) as full:
    try:
        while True:
            full.write(bytes(4096))
    except OSError:
        pass
print(file.change(lambda words: (*words, "b" * 100)).problem)
os.unlink(folder.parent / "full")
print(file.change(lambda words: (*words, "c")).value)
"""


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("size=64k", ["could not be written: no space left on device; give --state", "('a', 'c')"]),
        ("ro", ["read-only file system; give --state"]),
    ],
)
def test_a_disk_that_is_full_or_only_to_read(tmp_path: Path, options: str, expected: list[str]) -> None:
    if private_mounts() is None:
        pytest.skip("this kernel grants no mount namespace of one's own")
    tests = str(Path(__file__).resolve().parents[1])
    command = in_tmpfs(options, tmp_path, [sys.executable, "-c", FILLER, tests, str(tmp_path)])
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(lines) == len(expected)
    assert all(words in line for words, line in zip(expected, lines, strict=True)), lines


def keyed(folder: Path) -> LearnedFiles[tuple[str, ...]]:
    return LearnedFiles(folder, lambda data: tuple(data["words"]), lambda words: {"words": words}, tuple)


def key(number: int, version: str = "1.0") -> StateKey:
    return StateKey("machine", "made-up", version, f"{number:016x}")


def test_the_oldest_keys_make_way(tmp_path: Path) -> None:
    files = keyed(tmp_path)
    for number in range(MOST_KEYS + 2):
        path = files.file(key(number)).path
        assert files.file(key(number)).change(lambda words: (*words, "a")).saved
        os.utime(path, (number, number))
    with (files.folder / f"{key(1).file_name}.lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        files.make_way()
    kept = held(files.folder)
    assert len(kept.sizes) == MOST_KEYS + 1
    assert [files.file(key(number)).read().value for number in range(3)] == [None, ("a",), ("a",)]
    assert not (files.folder / f"{key(0).file_name}.lock").exists()
    assert files.file(key(0)).change(lambda words: (*words, "b")).value == ("b",)


def test_a_key_finds_its_other_versions_and_nothing_else(tmp_path: Path) -> None:
    files = keyed(tmp_path)
    for each, word in ((key(1, "1.0"), "old"), (key(1, "1.1"), "new"), (key(2, "1.0"), "other")):
        assert files.file(each).change(lambda words, word=word: (*words, word)).saved  # type: ignore[misc]
    assert files.other_versions(key(1, "1.1")) == {"1.0": ("old",)}
    assert files.other_versions(key(1, "1.2")) == {"1.0": ("old",), "1.1": ("new",)}
    os.rename(files.file(key(2)).path, files.file(key(1)).path)
    assert "it is of another configuration" in (files.file(key(1)).read().problem or "")
    assert files.other_versions(key(1, "1.1")) == {}
