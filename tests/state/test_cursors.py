"""Cursors of the trace: never backwards, bounded, and of several processes."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from rooflens.collector.state import cursors as cursors_module
from rooflens.collector.state.cursors import Cursors

RING = "host-0123abcd-0.ring"


def test_a_cursor_outlives_its_process(tmp_path: Path) -> None:
    first = Cursors(tmp_path / "state")
    assert first.get(RING) is None
    first.set(RING, 7)
    assert first.get(RING) == 7
    assert Cursors(tmp_path / "state").get(RING) is None  # it is not safe before it is flushed
    first.flush()
    assert (first.problem, Cursors(tmp_path / "state").get(RING)) == (None, 7)
    assert "host" not in (tmp_path / "state" / "trace" / "cursors.json").read_text()


def test_a_cursor_never_goes_back(tmp_path: Path) -> None:
    first, second = Cursors(tmp_path), Cursors(tmp_path)
    first.set(RING, 9)
    first.set(RING, 4)
    first.flush()
    second.set(RING, 5)
    second.set("another", 1)
    second.flush()
    assert [(each.get(RING), each.get("another")) for each in (second, Cursors(tmp_path))] == [(9, 1)] * 2


def test_rings_that_moved_longest_ago_make_way(tmp_path: Path) -> None:
    assert cursors_module.MOST_RINGS == 4096
    cursors = Cursors(tmp_path)
    for number in range(4097):
        cursors.set(f"{number}", number + 1)
        if number == 4000:
            cursors.flush()
            cursors.set("0", 2)  # it moved again
    cursors.flush()
    kept = Cursors(tmp_path)
    assert (kept.get("0"), kept.get("1"), kept.get("2"), kept.get("4096")) == (2, None, 3, 4097)
    assert len(json.loads((tmp_path / "trace" / "cursors.json").read_text())["cursors"]) == 4096


@settings(max_examples=40)
@given(st.lists(st.tuples(st.text(max_size=4), st.integers(0, 2**62)), max_size=20))
def test_any_name_of_a_ring_will_do(tmp_path_factory: object, moves: list[tuple[str, int]]) -> None:
    folder = tmp_path_factory.mktemp("state")  # type: ignore[attr-defined]
    cursors, highest = Cursors(folder), dict[str, int]()
    for ring, sequence in moves:
        cursors.set(ring, sequence)
        highest[ring] = max(sequence, highest.get(ring, 0))
    cursors.flush()
    again = Cursors(folder)
    assert {ring: again.get(ring) for ring in highest} == highest
