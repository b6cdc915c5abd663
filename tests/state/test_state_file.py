"""A file of state: what was written is read again, and nothing that stands in its place does any harm."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from state.made_state import FORM, NAME, words_in

from rooflens.collector.state import place
from rooflens.collector.state.file import LARGEST_BYTES, MOST_DAMAGED, StateFile
from rooflens.records import RooflensError

GOOD = json.dumps({"words": ["a", "b"], "schema": 2}).encode()


def put(folder: Path, words: bytes) -> Path:
    folder.mkdir(mode=0o700, exist_ok=True)
    path = folder / NAME
    path.write_bytes(words)
    path.chmod(0o600)
    return path


def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    folder = tmp_path / "state" / "kind"
    file = words_in(folder)
    assert file.read().value is None
    assert not (tmp_path / "state").exists(), "reading makes nothing"
    assert file.change(lambda words: (*words, "a")).value == ("a",)
    outcome = words_in(folder).change(lambda words: (*words, "b"))
    assert (outcome.saved, outcome.problem, words_in(folder).read().value) == (True, None, ("a", "b"))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert sorted(os.listdir(folder)) == [NAME, f"{NAME}.lock"]
    assert {stat.S_IMODE((folder / name).stat().st_mode) for name in os.listdir(folder)} == {0o600}


DAMAGED = {
    "empty": (b"", "no JSON in line 1"),
    "cut off": (GOOD[:-4], "no JSON in line 1"),
    "binary": (b"\x80\x81\xff", "it is not text"),
    "nested": (b"[" * 100_000, "nested too deeply"),
    "a list": (b"[]", "it is no object"),
    "no schema": (b"{}", "it names no schema"),
    "a true schema": (b'{"schema": true}', "it names no schema"),
    "NaN": (b'{"schema": 2, "words": [NaN]}', "it holds NaN where a number belongs"),
    "other contents": (b'{"schema": 2, "words": 3}', "it holds no words"),
    "an older schema": (b'{"schema": 1, "words": []}', "schema 1 of an older release is read no more"),
    "too long": (b" " * LARGEST_BYTES + GOOD, "longer than 1048576 bytes"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_what_is_damaged_is_set_aside_and_said(tmp_path: Path, case: str) -> None:
    words, expected = DAMAGED[case]
    path = put(tmp_path / "kind", words)
    outcome = words_in(path.parent).read()
    assert (outcome.value, outcome.problem) == (None, f"{path} is not used: {outcome.problem.split(': ', 1)[1]}")  # type: ignore[union-attr]
    assert expected in (outcome.problem or "")
    outcome = words_in(path.parent).change(lambda held: (*held, "new"))
    assert (outcome.value, outcome.saved) == (("new",), True)
    assert (outcome.problem or "").endswith(f"set aside as {NAME}.damaged")
    assert (path.parent / f"{NAME}.damaged").read_bytes() == words
    assert words_in(path.parent).read().value == ("new",)


def test_not_more_are_set_aside_than_somebody_can_miss(tmp_path: Path) -> None:
    for number in range(MOST_DAMAGED):
        put(tmp_path / "kind", f"{number}".encode())
        assert words_in(tmp_path / "kind").change(lambda held: held).saved
    path = put(tmp_path / "kind", b"the last")
    outcome = words_in(path.parent).change(lambda held: held)
    assert not outcome.saved
    assert "8 damaged ones are beside it; remove them" in (outcome.problem or "")
    assert path.read_bytes() == b"the last"
    kept = sorted(each.read_text() for each in path.parent.glob("*.damaged*"))
    assert kept == [f"{number}" for number in range(MOST_DAMAGED)]


@given(st.one_of(st.binary(max_size=64), st.tuples(st.integers(0, len(GOOD)), st.binary(max_size=3))))
def test_no_damage_raises_or_is_lost(
    tmp_path_factory: pytest.TempPathFactory, damage: bytes | tuple[int, bytes]
) -> None:
    words = damage if isinstance(damage, bytes) else GOOD[: damage[0]] + damage[1] + GOOD[damage[0] + 1 :]
    path = put(tmp_path_factory.mktemp("state") / "kind", words)
    before = words_in(path.parent).read()
    assert (before.value is None) == (before.problem is not None)
    after = words_in(path.parent).change(lambda held: (*held, "new"))
    if after.saved:
        assert after.value == (*(before.value or ()), "new")
        assert before.value is not None or (path.parent / f"{NAME}.damaged").read_bytes() == words
    else:
        assert "later release" in (after.problem or "")
        assert path.read_bytes() == words


def test_a_file_of_a_later_release_is_left_alone(tmp_path: Path) -> None:
    path = put(tmp_path / "kind", b'{"schema": 3, "letters": []}')
    for outcome in (words_in(path.parent).read(), words_in(path.parent).change(lambda held: held)):
        assert (outcome.value, outcome.saved) == (None, False)
        assert "written by a later release (schema 3, this one knows 2): left alone" in (outcome.problem or "")
    assert path.read_bytes() == b'{"schema": 3, "letters": []}'


def test_a_file_of_an_older_release_is_brought_up(tmp_path: Path) -> None:
    path = put(tmp_path / "kind", b'{"schema": 1, "word": "a"}')
    form = replace(FORM, older={1: lambda data: {"words": [data["word"]]}})
    file = StateFile(path.parent, NAME, form)
    assert file.read().value == ("a",)
    assert (file.change(lambda held: (*held, "b")).problem, words_in(path.parent).read().value) == (None, ("a", "b"))


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("not to be touched")
    folder = tmp_path / "kind"
    folder.mkdir(mode=0o700)
    for name in (NAME, f".writing-{NAME}"):
        (folder / name).symlink_to(precious)
    outcome = words_in(folder).change(lambda held: held)
    assert "it is a symbolic link; remove it" in (outcome.problem or "")
    (folder / NAME).unlink()
    assert words_in(folder).change(lambda held: held).saved
    (folder / f"{NAME}.lock").unlink()
    (folder / f"{NAME}.lock").symlink_to(precious)
    assert not words_in(folder).change(lambda held: held).saved
    assert precious.read_text() == "not to be touched"


def test_a_folder_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "kind").symlink_to(tmp_path / "elsewhere")
    outcome = words_in(tmp_path / "kind").change(lambda held: held)
    assert "a symbolic link or what is no folder is in its place; give --state" in (outcome.problem or "")
    assert os.listdir(tmp_path / "elsewhere") == []


def test_a_link_of_another_user_on_the_way_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "large").mkdir(mode=0o700)
    link = tmp_path / "state"
    link.symlink_to(tmp_path / "large")
    assert words_in(link / "kind").change(lambda held: held).saved, "one of one's own is"
    lstat = os.lstat

    def planted(path: Path) -> os.stat_result:
        found = lstat(path)
        return os.stat_result((*found[:4], 4711, *found[5:])) if Path(path) == link else found

    monkeypatch.setattr(place.os, "lstat", planted)
    for outcome in (words_in(link / "kind").read(), words_in(link / "kind").change(lambda held: held)):
        assert f"{link} is a link of another user" in (outcome.problem or "")


def test_what_others_may_have_written_is_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(tmp_path / "kind", GOOD)
    path.chmod(0o622)
    assert "others may have written it; remove it" in (words_in(path.parent).read().problem or "")
    path.chmod(0o600)
    path.parent.chmod(0o770)
    assert "other users can write to it" in (words_in(path.parent).read().problem or "")
    path.parent.chmod(0o700)
    assert words_in(path.parent).read().value == ("a", "b")
    me = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    assert f"it belongs to user {me}" in (words_in(path.parent).read().problem or "")


def test_something_else_in_its_place(tmp_path: Path) -> None:
    folder = tmp_path / "kind"
    folder.mkdir(mode=0o700)
    os.mkfifo(folder / NAME)  # to open it would wait for whoever writes to it
    assert "it is no file; remove it" in (words_in(folder).read().problem or "")
    (folder / NAME).unlink()
    (folder / NAME).mkdir()
    assert "it is no file; remove it" in (words_in(folder).change(lambda held: held).problem or "")
    (tmp_path / "file").write_text("")
    for outcome in (words_in(tmp_path / "file").read(), words_in(tmp_path / "file" / "k").change(lambda held: held)):
        assert "no folder" in (outcome.problem or "")
    assert "invalid argument" in (words_in(Path("a\0b")).read().problem or "")


def test_where_state_is_kept() -> None:
    every = {"ROOFLENS_STATE": "/s", "ROOFLENS_STATE_DIR": "/r", "XDG_STATE_HOME": "/x", "HOME": "/h"}
    assert place.state_folder(every) == Path("/s")
    with pytest.raises(RooflensError, match="no HOME to keep state below: set ROOFLENS_STATE"):
        place.state_folder({"XDG_STATE_HOME": "x"})
