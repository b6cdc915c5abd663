"""The lengths of one step a read, for a trace: those that a reader of every step's lengths gets, at no further cost."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from recorded_rings import NAMES, unpacked

from rooflens.collector.lengths import Lengths
from rooflens.collector.ring_source import RingSource
from rooflens.protocols import Keyframe


@pytest.mark.parametrize("name", NAMES)
def test_each_read_has_the_lengths_of_one_of_its_last_steps(tmp_path: Path, name: str) -> None:
    path = unpacked(name, tmp_path)
    lengths: dict[int, Lengths] = {}
    whole = RingSource(path)
    steps = whole.read(lambda row, found: lengths.update({row: found})).steps
    last = len(steps) - 1
    for count in (1, 7, 100, len(steps)):
        source = RingSource(path, after=int(steps["sequence"][-count]) - 1 if count < len(steps) else 0)
        batch = source.read()
        if batch.keyframe is None:
            assert count < len(steps), "only where no keyframe of the ring's own came with them"
            continue
        found = batch.keyframe
        assert found.row == len(batch.steps) - 1
        np.testing.assert_array_equal(found.contexts, lengths[last].contexts)
        np.testing.assert_array_equal(found.queries, lengths[last].queries)
        assert found.contexts.sum() == batch.steps["context_tokens"][found.row]
        assert found.queries.sum() == batch.steps["query_tokens"][found.row]


def test_a_read_without_steps_has_none(tmp_path: Path) -> None:
    source = RingSource(unpacked("embedded", tmp_path))
    assert source.read().keyframe is not None
    assert source.read().keyframe is None


def test_it_moves_with_its_table() -> None:
    frame = Keyframe(3, np.array([5]), np.array([1]))
    moved = frame.moved(4)
    assert moved is not None
    assert (moved.row, frame.moved(-4)) == (7, None)
