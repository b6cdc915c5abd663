"""How fast NumPy multiplies here with as many threads as the environment says; run as a process, prints seconds."""

from __future__ import annotations

import time

import numpy as np

WEIGHT_SHAPE = (1024, 4096)
MATRICES = 8  # 134 MB in all, so that most caches do not hold them
PASSES = 3
ROWS = (1, 8)  # a single sequence, and a batch


def measure_s() -> float:
    """Seconds for one pass of every matrix with one and with several rows; the median of a few."""
    matrices = [np.ones(WEIGHT_SHAPE, dtype=np.float32) for _ in range(MATRICES)]
    passes = []
    for _ in range(PASSES):
        started_s = time.perf_counter()
        for rows in ROWS:
            x = np.ones((rows, WEIGHT_SHAPE[0]), dtype=np.float32)
            for matrix in matrices:
                x @ matrix
        passes.append(time.perf_counter() - started_s)
    return sorted(passes)[PASSES // 2]


if __name__ == "__main__":
    print(measure_s())
