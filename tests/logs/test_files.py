"""Bytes into lines: packed, cut off, endless, junk; what is odd is one line, and memory is bounded."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rooflens.adapters.logs import files as log_files
from rooflens.adapters.logs.files import (
    BOMB,
    CUT_OFF,
    DAMAGED,
    LONGEST_LINE_BYTES,
    UTF_16,
    LineCutter,
    LogFiles,
    files_in,
    sets_of,
    unpacked,
)
from rooflens.records import RooflensError


def cut(*chunks: bytes) -> tuple[list[str], LineCutter]:
    cutter = LineCutter()
    lines = [line for chunk in chunks for line in cutter.take(chunk)]
    return lines + list(cutter.end()), cutter


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\r\n\0"), min_size=1), max_size=20), st.data())
def test_lines_are_the_same_however_they_are_cut(lines: list[str], data: st.DataObject) -> None:
    whole = "\n".join(lines).encode()
    if whole[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return
    places = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    chunks = [whole[a:b] for a, b in zip([0, *places], [*places, len(whole)], strict=True)]
    assert cut(*chunks)[0] == lines


@given(st.lists(st.binary(max_size=300), max_size=12))
def test_nothing_in_a_file_raises(chunks: list[bytes]) -> None:
    lines, cutter = cut(*chunks)
    assert cutter.bytes == sum(map(len, chunks))
    assert all("\n" not in line and "\0" not in line for line in lines)


@given(st.binary(max_size=400))
def test_whatever_calls_itself_gzip_is_read_or_named(junk: bytes) -> None:
    said: list[str] = []
    list(unpacked(iter([b"\x1f\x8b" + junk[:10], junk[10:]]), said.append))
    assert set(said) <= {DAMAGED, CUT_OFF}


def test_carriage_returns_and_nul_bytes_end_and_leave_no_mark() -> None:
    lines, _ = cut(b"a\r\nb\r", b"\nc\rd\0\0\0e\n", b"\0" * 4096 + b"f")
    assert [line for line in lines if line] == ["a", "b", "c", "de", "f"]


def test_a_line_that_never_ends_is_cut_and_passed_over_in_bounded_memory() -> None:
    cutter = LineCutter()
    found: list[str] = []
    for _ in range(64):
        found += cutter.take(b"x" * (1 << 20))
        assert len(cutter._rest) <= LONGEST_LINE_BYTES + 1
    found += cutter.take(b"tail\nnext\n")
    assert [len(line) for line in found] == [LONGEST_LINE_BYTES, 4]
    assert found[1] == "next"
    assert cutter.long_lines == 1
    assert "lines longer than" in cutter.problems[0]


def test_a_long_line_within_one_piece_is_cut_and_the_next_is_read() -> None:
    lines, cutter = cut(b"a\n" + b"y" * (3 * LONGEST_LINE_BYTES) + b"\nb\n" + b"z" * (2 * LONGEST_LINE_BYTES), b"z\nc")
    assert [line[:1] for line in lines] == ["a", "y", "b", "z", "c"]
    assert max(map(len, lines)) == LONGEST_LINE_BYTES
    assert cutter.long_lines == 2


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-16"])
def test_utf_16_is_read_as_such_and_said(encoding: str) -> None:
    text = "Decode batch. #running-req: 8\nnext line of it\n".encode(encoding)
    lines, cutter = cut(text[:33], text[33:])
    assert [line.lstrip("\ufeff") for line in lines] == ["Decode batch. #running-req: 8", "next line of it"]
    assert cutter.problems == (UTF_16,)


def test_binary_junk_is_said() -> None:
    _, cutter = cut(bytes(range(1, 256)) * 100)
    assert "are no text" in cutter.problems[0]


def read(*paths: Path) -> tuple[list[str], list[str]]:
    files = LogFiles(paths)
    return list(files), list(files.problems)


def test_packed_files_of_several_members_are_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.log.gz"
    path.write_bytes(gzip.compress(b"one\ntwo\n") + gzip.compress(b"three\n") + b"\0" * 512)
    assert read(path) == (["one", "two", "three"], [])


def test_packed_files_that_are_cut_off_or_damaged_are_read_as_far_as_they_go(tmp_path: Path) -> None:
    path = tmp_path / "a.log.gz"
    whole = gzip.compress(b"".join(f"line {i}\n".encode() for i in range(50_000)))
    path.write_bytes(whole[: len(whole) // 2])
    lines, problems = read(path)
    assert len(lines) > 1000
    assert lines[0] == "line 0"
    assert problems == [CUT_OFF]
    path.write_bytes(whole[: len(whole) // 2] + b"\xff" * 64 + whole[len(whole) // 2 + 64 :])
    lines, problems = read(path)
    assert lines[0] == "line 0"
    assert problems == [DAMAGED]


def test_a_bomb_is_left_at_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_files, "BOMB_BYTES", 4 << 20)
    packer = zlib.compressobj(9, wbits=31)
    packed = b"".join(packer.compress(b"\0" * (1 << 20)) for _ in range(64)) + packer.flush()
    said: list[str] = []
    pieces = [len(piece) for piece in unpacked(iter([packed]), said.append)]
    assert said == [BOMB]
    assert sum(pieces) < 48 << 20
    assert max(pieces) <= log_files.CHUNK_BYTES


@pytest.mark.parametrize(
    ("magic", "name"), [(b"\x28\xb5\x2f\xfd", "zstd"), (b"\xfd7zXZ\x00", "xz"), (b"BZh9", "bzip2")]
)
def test_other_packings_are_named(magic: bytes, name: str) -> None:
    with pytest.raises(RooflensError, match=f"packed with {name}: unpack it first"):
        list(unpacked(iter([magic + b"rest"]), lambda _: None))


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(RooflensError, match="no such file"):
        read(tmp_path / "none")


def test_progress_is_told_over_all_files(tmp_path: Path) -> None:
    told: list[float] = []
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(b"x\n" * 1000)
    list(LogFiles([tmp_path / "a", tmp_path / "b"], told.append))
    assert told == [0.5, 1.0]


def test_rotated_files_are_one_log_the_oldest_first() -> None:
    names = ["s.log", "s.log.10.gz", "s.log.1", "s.log.2.gz", "t.log-20260702.gz", "t.log", "t.log-20260701", "other"]
    found = [[part.name for part in parts] for parts in sets_of([Path(name) for name in names])]
    assert found == [
        ["s.log.10.gz", "s.log.2.gz", "s.log.1", "s.log"],
        ["t.log-20260701", "t.log-20260702.gz", "t.log"],
        ["other"],
    ]


def test_of_a_folder_files_that_may_be_logs_are_taken(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("x")
    (tmp_path / ".hidden").write_text("x")
    (tmp_path / "empty").write_text("")
    (tmp_path / "folder").mkdir()
    assert [path.name for path in files_in(tmp_path)] == ["a.log"]


@given(st.text(min_size=1, max_size=40))
def test_any_name_has_a_place(name: str) -> None:
    assert len(sets_of([Path(name.replace("/", "_").replace("\0", "_"))])) == 1
