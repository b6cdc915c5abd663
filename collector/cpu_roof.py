"""The roof of this CPU, measured in at most ten seconds: read bandwidth by size and matrix-multiply rate."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rooflens.collector.cpu_facts import last_level_cache_bytes as last_level_cache_bytes
from rooflens.collector.cpu_facts import load_average as load_average
from rooflens.collector.cpu_facts import memory_available_bytes as memory_available_bytes
from rooflens.collector.cpu_facts import memory_total_bytes as memory_total_bytes
from rooflens.collector.cpu_facts import usable_cores as usable_cores
from rooflens.model_records import DISTURBED, HardwareSpec

Vector = NDArray[np.float32]
Clock = Callable[[], float]
Progress = Callable[[str], None]

ID = "this-cpu"
LONGEST_S = 10.0
SETUP_SHARE = 0.9  # of the time is measured, the rest is for filling the array and the last pass
CACHE_MULTIPLES = (1 / 32, 1 / 4, 1.0, 4.0, 8.0)  # sizes read, in last-level caches: from inside it to far beyond
MEMORY_MULTIPLE = 4.0  # from this size on, a read is taken to come from memory
LARGEST_EXTRA_BYTES = 2 << 30  # a size beyond the needed four caches is left out where it takes long to fill
MEMORY_SHARE = 0.25  # of the available memory may be used for the measurement
BUSY_SHARE = 0.5  # a one-minute load above this part of the cores means that others took some of the roof
BUSY = DISTURBED + " (load {load:.1f} on {cores} cores): the roof may be too low, measure again in quiet"
GEMM_SIZES = (512, 1024, 2048)
READ_SHARE = 0.6  # of the time goes to reading, the rest to multiplying


@dataclass(frozen=True, slots=True)
class ReadPoint:
    """The fastest read found of ``size_bytes``, by which kernel in how many threads of ours."""

    size_bytes: int
    bytes_per_s: float
    kernel: str
    threads: int


# A read is as fast as the best kernel makes it: a roof that one real kernel beats is none. Each reads its whole
# argument once, writes next to nothing and leaves the GIL.
KERNELS: dict[str, Callable[[Vector], object]] = {
    "dot": lambda part: np.dot(part, part),
    "max": lambda part: part.max(),
    "matvec": lambda part: part.reshape(-1, 1024) @ np.ones(1024, dtype=np.float32),
}

WORDS = {"dot": "a dot product", "max": "a search for the maximum", "matvec": "a matrix times a vector"}
BLAS_KERNELS = ("dot", "matvec")


def measure_cpu(
    seconds: float = LONGEST_S,
    progress: Progress | None = None,
    clock: Clock = time.perf_counter,
    root: Path = Path("/"),
) -> HardwareSpec:
    """What this machine reads from memory and multiplies at best, as a HardwareSpec with the id 'this-cpu'.

    ``seconds`` bounds the whole measurement; ``progress`` is called with one line as each part begins; ``root``
    is where /sys and /proc are. The bandwidth is the best pass, over all kernels and numbers of threads, at
    sizes of at least four last-level caches; the rate is the best fp32 matrix product over sizes. On a machine
    that others use at the same time the roof is what was left at the best moment: run again when it is quiet.
    """
    say = progress or (lambda _line: None)
    load = load_average(root)  # before we load the machine ourselves
    start = clock()
    budget = min(seconds, LONGEST_S) * SETUP_SHARE
    cores = usable_cores()
    cache_bytes, memory_bytes, threads = last_level_cache_bytes(cores, root), memory_total_bytes(root), len(cores)
    sizes = read_sizes(cache_bytes, memory_available_bytes(root))
    data = filled(sizes[-1] // 4, threads)
    say(f"reading {len(sizes)} sizes up to {sizes[-1] / 1e6:.0f} MB with up to {threads} threads")
    points = []
    for number, size in enumerate(sizes, start=1):
        deadline = start + budget * READ_SHARE * number / len(sizes)
        points.append(_best_read(data[: size // 4], threads, deadline, clock))
        best = points[-1]
        say(f"  {size / 1e6:.3g} MB: {best.bytes_per_s / 1e9:.1f} GB/s ({_how(best)})")
    say("multiplying fp32 matrices")
    gemm = best_gemm_flops_per_s(start + budget, clock)
    say(f"  {gemm / 1e9:.0f} GFLOP/s")
    spec = _spec(points, gemm, cache_bytes, memory_bytes, threads)
    busy = (BUSY.format(load=load, cores=threads),) if load > threads * BUSY_SHARE else ()
    return replace(spec, flags=spec.flags + busy)


def _spec(
    points: list[ReadPoint], gemm_flops_per_s: float, cache_bytes: int, memory_bytes: int, threads: int
) -> HardwareSpec:
    far = [p for p in points if p.size_bytes >= MEMORY_MULTIPLE * cache_bytes] or points[-1:]
    best = max(far, key=lambda point: point.bytes_per_s)
    flags = [f"read {best.size_bytes / 1e6:,.0f} MB by {_how(best)}, {threads} cores usable"]
    if far[0].size_bytes < MEMORY_MULTIPLE * cache_bytes:
        flags.append("memory was too small to read four times the last-level cache: the bandwidth may be the cache's")
    return HardwareSpec(
        id=ID,
        name="this machine's CPU",
        vendor="unknown",
        memory_bytes=memory_bytes,
        memory_bandwidth_bytes_per_s=best.bytes_per_s,
        peak_flops_per_s={"fp32": gemm_flops_per_s},
        ceiling_flops_per_s={"fp32": gemm_flops_per_s},
        cache_bytes=cache_bytes,
        read_curve=tuple((p.size_bytes, p.bytes_per_s) for p in points),
        origin="measured",
        source="measured on this machine by rooflens.collector.cpu_roof",
        flags=tuple(flags),
    )


def read_sizes(cache_bytes: int, available_bytes: int) -> list[int]:
    """The sizes to read, in bytes, multiples of 4 MiB rounded down but at least 1 MiB, within what memory allows."""
    allowed = max(4 << 20, int(available_bytes * MEMORY_SHARE))
    sizes = []
    for multiple in CACHE_MULTIPLES:
        if multiple > MEMORY_MULTIPLE and cache_bytes * multiple > LARGEST_EXTRA_BYTES:
            continue
        size = min(int(cache_bytes * multiple), allowed)
        unit = 4 << 20 if size >= 4 << 20 else 1 << 20
        sizes.append(max(1 << 20, size // unit * unit))
    return sorted(set(sizes))


def _how(point: ReadPoint) -> str:
    own = ", which may add the BLAS's threads" if point.kernel in BLAS_KERNELS else ""
    return f"{WORDS[point.kernel]} in {point.threads} thread{'s' if point.threads > 1 else ''}{own}"


def filled(elements: int, threads: int) -> Vector:
    """An array whose pages were first written by as many threads as will read it, so that they lie near them."""
    data: Vector = np.empty(elements, dtype=np.float32)
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda piece: piece.fill(1.0), np.array_split(data, threads)))
    return data


def _best_read(data: Vector, threads: int, deadline_s: float, clock: Clock) -> ReadPoint:
    """The fastest pass over ``data`` until the deadline; every kernel and number of threads runs at least once."""
    best = ReadPoint(data.nbytes, 0.0, "", 0)
    with ThreadPoolExecutor(threads) as pool:
        variants = [(name, n) for name in KERNELS for n in sorted({1, threads})]
        for round_number in range(1_000_000):
            for name, parts in variants:
                if round_number and clock() >= deadline_s:
                    return best
                elapsed_s = _timed_pass(data, KERNELS[name], parts, pool, clock)
                if elapsed_s > 0 and data.nbytes / elapsed_s > best.bytes_per_s:
                    best = ReadPoint(data.nbytes, data.nbytes / elapsed_s, name, parts)
    return best


def _timed_pass(
    data: Vector, kernel: Callable[[Vector], object], parts: int, pool: ThreadPoolExecutor, clock: Clock
) -> float:
    """Seconds to read ``data`` once, cut into ``parts``; small data is read often enough to be timed."""
    repeats = max(1, (8 << 20) // data.nbytes)
    rows = data.reshape(-1, 1024)
    pieces = [rows[len(rows) * i // parts : len(rows) * (i + 1) // parts].reshape(-1) for i in range(parts)]

    def read(piece: Vector) -> None:
        for _ in range(repeats):
            kernel(piece)

    start = clock()
    if parts == 1:
        read(pieces[0])
    else:
        list(pool.map(read, pieces))
    return (clock() - start) / repeats


def best_gemm_flops_per_s(deadline_s: float, clock: Clock) -> float:
    """The fastest fp32 matrix product (2 n^3 flops) over the sizes until the deadline, with the BLAS's own threads."""
    best = 0.0
    matrices = {n: np.ones((n, n), dtype=np.float32) for n in GEMM_SIZES}
    for round_number in range(1_000_000):
        for n, matrix in matrices.items():
            if round_number and clock() >= deadline_s:
                return best
            start = clock()
            np.matmul(matrix, matrix)
            elapsed_s = clock() - start
            if elapsed_s > 0:
                best = max(best, 2 * n**3 / elapsed_s)
    return best
