"""Products of small matrices with long ones, on one core whatever the linear algebra library would like to do.

OpenBLAS wakes its threads for any product of more than 2^18 multiply-adds. They wait for each other by spinning, which
takes cores from the engine that is watched, and on a busy machine makes the product a hundred times slower.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]
MOST_MULTIPLY_ADDS = 1 << 18  # OpenBLAS, interface/gemm.c: SMP_THRESHOLD_MIN x GEMM_MULTITHREAD_THRESHOLD
LEAST_ROWS = 2  # one row would be a product with a vector, whose threshold is far lower


def product(small: Matrix, long: Matrix) -> Matrix:
    """``small`` (rows, features) @ ``long`` (features, steps), shape (rows, steps)."""
    rows, steps = len(small), long.shape[1]
    if rows >= LEAST_ROWS and small.size * steps <= MOST_MULTIPLY_ADDS:
        found: Matrix = np.matmul(small, long)
        return found
    padded = small if rows >= LEAST_ROWS else np.vstack([small, np.zeros((LEAST_ROWS - rows, small.shape[1]))])
    found = np.empty((len(padded), steps))
    columns = max(1, MOST_MULTIPLY_ADDS // max(padded.size, 1))
    for start in range(0, steps, columns):
        part = slice(start, start + columns)
        np.matmul(padded, long[:, part], out=found[:, part])
    return found[:rows]
