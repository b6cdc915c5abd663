"""The roof of an engine whose every pass reads the same bytes on this CPU, robust against others that use it."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from rooflens.collector.cpu_roof import (
    BLAS_KERNELS,
    ID,
    KERNELS,
    WORDS,
    Clock,
    Vector,
    filled,
    load_average,
    memory_total_bytes,
    usable_cores,
)
from rooflens.model_records import DISTURBED, HardwareSpec

LEAST_BYTES = 1 << 20
ROW = 1024  # elements; a piece is cut in rows, since a product with a vector needs a matrix
PIECE_BYTES = (
    16 << 20
)  # read in a millisecond: shorter than a slice of the scheduler, far longer than starting a thread
READ_SHARE = 0.6  # of the time goes to reading, the rest to multiplying
GEMM_SIZES = (384, 512, 768, 1024)  # below 20 ms each on one core, so that some run undisturbed
BUSY_SHARE = 0.5  # a one-minute load above this part of the cores means that others used the machine
BUSY = DISTURBED + " (load {load:.1f} on {cores} cores): each part counts at its fastest pass"


def measure_step_roof(read_bytes: int, seconds: float, clock: Clock = time.perf_counter) -> HardwareSpec:
    """How fast ``read_bytes`` can be read over and over, and fp32 matrices multiplied, as a HardwareSpec.

    An engine reads its weights in every pass, so what a cache keeps of them from pass to pass is in this rate, and
    no bytes need to be excepted for it: ``cache_bytes`` is None. That holds however large a cache the machine claims,
    of which a virtual machine may own little. The array is read in pieces, in turn, and each piece counts at its
    fastest pass, so that a neighbour must be there at every pass of a piece to be taken for a slower memory. Takes
    about ``seconds``, a little more where one pass takes long.
    """
    load, cores = load_average(), len(usable_cores())
    size = max(LEAST_BYTES, read_bytes // (4 * ROW) * 4 * ROW)
    data = filled(size // 4, cores)
    start_s = clock()
    bytes_per_s, how = _best_read(data, cores, start_s + READ_SHARE * seconds, clock)
    flops_per_s = _best_product(start_s + seconds, clock)
    flags = [
        f"read {data.nbytes / 1e6:,.0f} MB over and over by {how}, {cores} cores usable; "
        "what caches keep from pass to pass counts as read"
    ]
    if load > cores * BUSY_SHARE:
        flags.append(BUSY.format(load=load, cores=cores))
    return HardwareSpec(
        id=ID,
        name="this machine's CPU",
        vendor="unknown",
        memory_bytes=memory_total_bytes(),
        memory_bandwidth_bytes_per_s=bytes_per_s,
        peak_flops_per_s={"fp32": flops_per_s},
        ceiling_flops_per_s={"fp32": flops_per_s},
        read_curve=((data.nbytes, bytes_per_s),),
        origin="measured",
        source="measured on this machine by rooflens.collector.step_roof",
        flags=tuple(flags),
    )


def _best_read(data: Vector, threads: int, deadline_s: float, clock: Clock) -> tuple[float, str]:
    """(bytes a second, by what) of the fastest kernel and number of threads; each piece at its fastest pass."""
    rows = data.reshape(-1, ROW)
    pieces = np.array_split(rows, max(1, data.nbytes // PIECE_BYTES))
    variants = [(kernel, count) for kernel in KERNELS for count in sorted({1, threads})]
    best_s = {variant: [float("inf")] * len(pieces) for variant in variants}
    with ThreadPoolExecutor(threads) as pool:
        for turn in range(1_000_000):
            for kernel, count in variants:
                if turn and clock() >= deadline_s:
                    break
                times = best_s[kernel, count]
                for number, piece in enumerate(pieces):
                    started_s = clock()
                    _read(piece, kernel, count, pool)
                    times[number] = min(times[number], clock() - started_s)
            if clock() >= deadline_s:
                break
    (kernel, count), times = min(best_s.items(), key=lambda item: sum(item[1]))
    own = ", which may add the BLAS's threads" if kernel in BLAS_KERNELS else ""
    return data.nbytes / max(sum(times), 1e-9), f"{WORDS[kernel]} in {count} thread{'s' if count > 1 else ''}{own}"


def _read(piece: Vector, kernel: str, count: int, pool: ThreadPoolExecutor) -> None:
    if count == 1:
        KERNELS[kernel](piece.reshape(-1))
        return
    parts = [part.reshape(-1) for part in np.array_split(piece, count)]
    list(pool.map(KERNELS[kernel], parts))


def _best_product(deadline_s: float, clock: Clock) -> float:
    """The fastest fp32 matrix product, in operations a second, with the BLAS's own threads."""
    best = 0.0
    matrices = [np.ones((size, size), dtype=np.float32) for size in GEMM_SIZES]
    targets = [np.empty_like(matrix) for matrix in matrices]
    for turn in range(1_000_000):
        for matrix, target in zip(matrices, targets, strict=True):
            if turn and clock() >= deadline_s:
                return best
            started_s = clock()
            np.matmul(matrix, matrix, out=target)
            best = max(best, 2 * len(matrix) ** 3 / max(clock() - started_s, 1e-9))
    return best
