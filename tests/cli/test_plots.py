"""A panel in characters and in a picture: what is written where, at any width, and the file's own text."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rooflens.cli.panels import Curve, Mark, Panel
from rooflens.cli.plot_file import check_picture, draw
from rooflens.cli.plot_text import LEAST_COLUMNS, ROWS, plot_lines
from rooflens.records import RooflensError

SVG = "{http://www.w3.org/2000/svg}"
# Slope one on both axes: from the lower left corner to the upper right one.
DIAGONAL = Panel(
    "A title",
    "batch",
    "tokens/s",
    (Curve("floor", ((1, 10.0), (16, 160.0), (256, 2560.0))), Curve("asked", ((16, 160.0),), "points")),
    (Mark("knee: batch 16", 16), Mark("largest batch that fits: 256", 256)),
    binary=True,
)


def body(lines: list[str]) -> list[str]:
    """The rows between the axes, without their labels."""
    return [line.split("|", 1)[1] for line in lines[2 : 2 + ROWS]]


def test_a_diagonal_runs_from_corner_to_corner() -> None:
    lines = plot_lines(DIAGONAL, 80)
    rows = body(lines)
    assert rows[-1].startswith("*")
    assert rows[0].endswith("*")
    steps = [row.index("*") for row in rows if "*" in row]
    assert steps == sorted(steps, reverse=True)  # rises to the right


def test_labels_legend_and_marks_are_written() -> None:
    lines = plot_lines(DIAGONAL, 80)
    text = "\n".join(lines)
    assert lines[0] == "A title"
    assert lines[1].strip() == "tokens/s"
    assert lines[2].lstrip().startswith("2,560|")
    assert lines[1 + ROWS].lstrip().startswith("10|")
    for words in ("* floor", "o asked", "A knee: batch 16", "B largest batch that fits: 256"):
        assert words in text
    axis, ticks = lines[2 + ROWS], lines[3 + ROWS]
    # 16 is in the middle of 1 to 256 on a logarithmic axis, and so is the point that was asked for.
    assert axis.index("A") == pytest.approx((axis.index("+") + 1 + axis.rindex("B")) / 2, abs=1)
    assert ticks.split()[-1] == "256"
    (row,) = (line for line in lines[2 : 2 + ROWS] if "o" in line)
    assert row.index("o") == axis.index("A")


@given(st.integers(1, 400))
def test_no_line_is_wider_than_the_terminal(columns: int) -> None:
    drawing = plot_lines(DIAGONAL, columns)
    legend = 2 + ROWS + 2  # its words are as long as they are
    assert max(len(line) for line in drawing[:legend]) <= max(columns, LEAST_COLUMNS)
    assert all(line.isascii() for line in drawing)


value = st.floats(1e-9, 1e18)


@given(st.lists(st.tuples(value, value), min_size=1, max_size=5), st.lists(value, max_size=3), st.booleans())
def test_anything_above_zero_can_be_drawn(points: list[tuple[float, float]], marks: list[float], binary: bool) -> None:
    found = tuple(sorted(points))
    panel = Panel("t", "x", "y", (Curve("c", found),), tuple(Mark("m", x) for x in marks), binary)
    assert len(plot_lines(panel, 80)) == 2 + ROWS + 2 + 1 + 1 + len(marks)


def test_zero_has_no_logarithm_and_is_left_out() -> None:
    panel = Panel("t", "x", "y", (Curve("gone", ((0.0, 1.0),)), Curve("kept", ((0.0, 1.0), (2.0, 3.0)))))
    text = "\n".join(plot_lines(panel, 60))
    assert "kept" in text
    assert "gone" not in text
    assert [curve.points for curve in panel.shown()] == [((2.0, 3.0),)]


def texts(file: Path) -> set[str]:
    return {"".join(node.itertext()).strip() for node in ET.parse(file).iter(f"{SVG}text")}


def test_the_text_of_an_svg_is_text(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    file = tmp_path / "plot.svg"
    draw((DIAGONAL, DIAGONAL), "Two panels", str(file))
    words = texts(file)
    assert {"Two panels", "A title", "batch", "tokens/s", "floor", "asked", "knee: batch 16"} <= words
    assert "largest batch that fits: 256" in words
    assert {"1", "16", "256"} <= words  # ticks of a binary axis
    first = file.read_bytes()
    draw((DIAGONAL, DIAGONAL), "Two panels", str(file))
    assert file.read_bytes() == first  # nothing of the day or of chance in it


def test_a_png_is_one(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    file = tmp_path / "plot.png"
    draw((DIAGONAL,), "One", str(file))
    assert file.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("plot.gif", "--plot 'plot.gif' must end in .svg or .png, or be - for the terminal"),
        ("plot", "must end in .svg or .png"),
        ("/no/such/folder/plot.svg", "the folder '/no/such/folder' is not there"),
    ],
)
def test_a_file_that_cannot_be_is_refused_before_any_work(name: str, message: str) -> None:
    with pytest.raises(RooflensError) as fault:
        check_picture(name)
    assert message in str(fault.value)
