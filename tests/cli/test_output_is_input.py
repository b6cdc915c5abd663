"""A file that is read is never written over, however either is named; and what cannot be written is named."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from made_traces import facts_of, made_table, written
from recorded_rings import unpacked

from rooflens.cli import main


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(list(arguments)) == 2
    said = capsys.readouterr()
    assert said.err.count("\n") == 1
    return said.err


@pytest.mark.parametrize("how", ["folder", "below", "glob", "link", "hard link", "file URL"])
def test_a_file_of_the_trace_is_no_output(how: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path / "t", made_table(facts_of(), 50), facts_of())
    before, output, source = path.read_bytes(), str(path), str(tmp_path / "t")
    if how == "below":
        source = str(path.parent)
    elif how == "glob":
        source = str(tmp_path / "t" / "steps" / "*" / "*" / "*" / "*.parquet")
    elif how == "file URL":
        source = f"file://{tmp_path}/t"
    elif how in ("link", "hard link"):
        output = str(tmp_path / "x.csv")
        (os.symlink if how == "link" else os.link)(path, output)
    assert "this is what is read" in refused(capsys, "export", "trace", source, "--format", "csv", "-o", output)
    assert path.read_bytes() == before


def test_neither_a_ring_of_a_folder_nor_what_the_report_is_made_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ring = unpacked("embedded", tmp_path)
    page = tmp_path / "x.html"
    page.symlink_to(ring)
    before = ring.read_bytes()
    assert "this is what is read" in refused(capsys, "export", "trace", str(tmp_path), "--format=csv", "-o", str(ring))
    assert "this is what is read" in refused(capsys, "analyze", str(ring), "--html", str(page))
    assert ring.read_bytes() == before


def test_an_earlier_export_in_the_folder_of_the_trace_is_written_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(tmp_path, made_table(facts_of(), 50), facts_of())
    for _ in range(2):
        assert main(["export", "trace", str(tmp_path), "-o", str(tmp_path / "steps.csv")]) == 0
    capsys.readouterr()


@pytest.mark.parametrize("output", ["nowhere/x.csv", "/dev/full"])
def test_what_cannot_be_written_is_named_as_it_was_given(
    output: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(tmp_path / "t", made_table(facts_of(), 50), facts_of())
    place = str(tmp_path / output)
    said = refused(capsys, "export", "trace", str(tmp_path / "t"), "--format", "csv", "-o", place)
    assert said.startswith(f"rooflens: {place}: cannot be written: no ")
    assert ".part" not in said
