"""Where a calibration is written to: nothing but a file is replaced, and what cannot be written is known before."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from rooflens.collector.calibrate import place


def test_a_file_is_replaced_whole_and_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "here.json"
    for words in ("first", "second"):
        place.check(path)
        place.put(path, words)
        assert path.read_text() == words
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["here.json"]


def test_a_symbolic_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    link, end = tmp_path / "link.json", tmp_path / "far" / "end.json"
    link.symlink_to(end)  # to a file that is not there yet
    for words in ("first", "second"):
        place.check(link)
        place.put(link, words)
        assert link.is_symlink()
        assert end.read_text() == words
    assert os.listdir(tmp_path / "far") == ["end.json"]


def test_a_pipe_is_written_to_and_stays_one(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        place.check(pipe)
        place.put(pipe, "words")
        assert os.read(reader, 64) == b"words"
    finally:
        os.close(reader)
    assert stat.S_ISFIFO(pipe.lstat().st_mode)
    assert os.listdir(tmp_path) == ["pipe"]


def test_a_device_is_written_to_and_stays_one() -> None:
    before = os.lstat(os.devnull)
    place.check(Path(os.devnull))
    place.put(Path(os.devnull), "words")
    assert os.path.samestat(before, os.lstat(os.devnull))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("", "Is a directory"),
        ("file/here.json", "Not a directory"),
        ("x" * 300, "File name too long"),
        ("a\0b", "Invalid argument"),
        ("round", "Too many levels of symbolic links"),
    ],
)
def test_what_cannot_be_written_is_known_before(tmp_path: Path, name: str, expected: str) -> None:
    (tmp_path / "file").write_text("kept")
    (tmp_path / "round").symlink_to("round")
    for attempt in (place.check, lambda path: place.put(path, "words")):
        with pytest.raises(OSError, match=expected):
            attempt(tmp_path / name)
    assert sorted(os.listdir(tmp_path)) == ["file", "round"]


def test_a_long_name_that_can_be_is_written(tmp_path: Path) -> None:
    place.put(tmp_path / ("x" * 250), "words")
    assert os.listdir(tmp_path) == ["x" * 250]


def test_a_missing_folder_is_judged_by_the_one_that_would_hold_it(tmp_path: Path) -> None:
    missing = tmp_path / "a" / "b" / "here.json"
    place.check(missing, with_folders=True)
    with pytest.raises(OSError, match="No such file"):
        place.check(missing)
    assert os.listdir(tmp_path) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="Not a directory"):
        place.check(tmp_path / "file" / "b" / "here.json", with_folders=True)


def test_what_a_killed_process_left_is_removed_and_what_is_being_written_is_not(tmp_path: Path) -> None:
    old, new, other = (tmp_path / name for name in (".writing-old", ".writing-new", "other.json"))
    for path in (old, new, other):
        path.write_text("")
    for path in (old, other):
        os.utime(path, (0, 0))
    place.sweep(tmp_path)
    assert sorted(os.listdir(tmp_path)) == [".writing-new", "other.json"]
