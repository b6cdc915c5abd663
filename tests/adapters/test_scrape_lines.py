"""A page read again and again gives what it gives when it is read for the first time."""

from __future__ import annotations

from pathlib import Path

import pytest
from counted_calls import calls_of
from hypothesis import given, settings
from hypothesis import strategies as st

from rooflens.adapters.scrape.lines import Lines
from rooflens.adapters.scrape.names import wanted_names
from rooflens.adapters.scrape.text import read_samples

PAGES = sorted((Path(__file__).resolve().parents[1] / "data" / "metrics_pages").glob("*.txt"))
WANTED = {"w", "wanted_total", "process_start_time_seconds"}
LINES = st.sampled_from(
    [
        "w 1", "w 2", "w  2", "w 2 1700000000", "w 3\r", "w NaN", "w +Inf", "w 1_0", "w infinity", "w 1e400",
        " w 4", "w\t5",
        'w{a="1"} 1', 'w{a="1"} 2', 'w{a="1"}2', 'w{a="2"} 2', 'w {a="1"} 2', 'w{a="1",a="2"} 2', 'w{a="}"} 7', "w{} 1",
        'w{a="1"} 2 {', "w{a=1} 1", "w", "", " ", "wx 1", "wx 2", 'wx{le="1"} 1', 'wx{le="1"} 2', "wx",
        "wx w 1", "{w 1",
        "# HELP w one", "# TYPE w gauge", "# HELP wx one", "#w 1", "wanted_total 1.5", "process_start_time_seconds 1e9",
        "w\u00a05", "w 5\u00a0", "wx\u00a0{w} 5", "w \u0665", "w 0x10", "wx {w} 1",
    ]
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.lists(st.lists(LINES, min_size=1, max_size=3), min_size=1, max_size=14))
def test_whatever_the_lines_become(pages: list[list[str]]) -> None:
    lines = Lines()
    for page in pages:
        text = "\n".join(page)
        assert repr(lines.read(text, WANTED)) == repr(read_samples(text, WANTED))


@settings(max_examples=300, deadline=None)
@given(st.lists(LINES, min_size=3, max_size=6), st.lists(st.tuples(st.integers(0, 5), LINES), max_size=10))
def test_one_line_after_the_other_becomes_another(page: list[str], changes: list[tuple[int, str]]) -> None:
    lines = Lines()
    for at, line in changes:
        page[at % len(page)] = line
        text = "\n".join(page)
        assert repr(lines.read(text, WANTED)) == repr(read_samples(text, WANTED))


@pytest.mark.parametrize("file", PAGES, ids=lambda file: file.stem)
def test_real_pages_that_follow_each_other(file: Path) -> None:
    lines, wanted = Lines(), wanted_names()
    before = file.read_text()
    for text in (before, before, before.replace(" 1.0\n", " 27.0\n"), before.replace("7", "8"), before):
        assert repr(lines.read(text, wanted)) == repr(read_samples(text, wanted))


def test_of_a_line_that_is_as_before_nothing_is_read_again() -> None:
    lines, page = Lines(), "\n".join(f'w{{a="{at}"}} 1.0' for at in range(500))
    lines.read(page, WANTED)
    first = calls_of(lambda: read_samples(page, WANTED))
    assert calls_of(lambda: lines.read(page, WANTED)) < first / 20
    assert calls_of(lambda: lines.read(page.replace('w{a="7"} 1.0', 'w{a="7"} 2.0'), WANTED)) < first / 20


def test_a_page_whose_lines_always_change_is_not_kept_each_time() -> None:
    lines = Lines()
    for at in range(40):
        lines.read(f"w {at} 17\nx{at} 1", WANTED)
    assert lines._lines == []
