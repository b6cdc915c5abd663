"""Products in blocks are the products."""

from __future__ import annotations

import numpy as np
import pytest

from rooflens.analyzer.products import MOST_MULTIPLY_ADDS, product


@pytest.mark.parametrize(
    ("rows", "features", "steps"), [(1, 7, 9000), (5, 3, 0), (24, 9, 8192), (2, 1, 1), (300, 1000, 3), (0, 4, 5)]
)
def test_blocks_of_steps_make_the_whole(rows: int, features: int, steps: int) -> None:
    chance = np.random.default_rng(1)
    small, long = chance.random((rows, features)), chance.random((features, steps))
    found = product(small, long)
    assert found.shape == (rows, steps)
    np.testing.assert_allclose(found, small @ long)
    np.testing.assert_allclose(product(small, long[:, ::1][:, : steps // 2]), (small @ long)[:, : steps // 2])


def test_what_is_not_known_stays_with_its_step() -> None:
    long = np.ones((3, 20_000))
    long[1, 7] = np.nan
    found = product(np.ones((40, 3)), long)
    assert MOST_MULTIPLY_ADDS < 40 * 3 * 20_000
    assert np.flatnonzero(np.isnan(found).any(axis=0)).tolist() == [7]
