"""What this processor reaches through NumPy, with the threads that NumPy takes by itself."""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rooflens.collector.calibrate.rounds import Clock, Lazy, Quantity, Race, Sampled, Timed, Timer, wall_timer
from rooflens.collector.cpu_facts import first_line, last_level_cache_bytes, memory_available_bytes, usable_cores
from rooflens.collector.cpu_roof import KERNELS, MEMORY_MULTIPLE, MEMORY_SHARE, Vector

SMALLEST_BYTES = 64 << 10
SMALLEST_COPY_BYTES = 1 << 20  # below this it is the first caches that are read, from which no engine reads weights
STEP, FINE_STEP = 4, 2  # from one size to the next, and from a part of the last-level cache on
FINE_FROM = 4  # as a part of it: around its edge the rate falls, and the floor between two sizes is that of the smaller
BYTES_A_SECOND_GIVEN = 80_000_000  # of the time: a round reads all sizes a few times, and there are ten rounds or more
ROW = 1024  # elements, for cutting an array in pieces
PIECE_BYTES = 16 << 20  # a millisecond: shorter than a slice of the scheduler, far longer than starting a thread
OFTEN_BYTES = 4 << 20  # less is read several times by each thread, or starting it is what is timed
PRODUCT_TIMES = 3  # in a round: its best is a ceiling, and beside others a round may hold no quiet moment
PRODUCT_SIZES = (512, 1024, 2048, 4096)
LONGEST_PRODUCT_S, PRODUCT_SHARE = 0.05, 1 / 400  # one product, at most, and of the whole time
FORMATS: tuple[tuple[str, type[np.floating[Any]]], ...] = (("fp32", np.float32), ("fp64", np.float64))
# One layer's attention of an engine in NumPy: a cache in blocks, each sequence's blocks anywhere in it.
HEADS, KV_HEADS, HEAD_SIZE, BLOCK_TOKENS = 16, 4, 64, 16
BLOCK = (BLOCK_TOKENS, KV_HEADS, HEAD_SIZE)
BLOCK_BYTES = 2 * BLOCK_TOKENS * KV_HEADS * HEAD_SIZE * 4
ATTENTION_BYTES = (128 << 10, 1 << 20, 8 << 20, 64 << 20)
CACHE_BYTES = 64 << 20  # sequences and layers in turn: what one of them reads, none of the others left in a cache
BETWEEN_BYTES = 8 << 20  # more than a core has of caches for itself
CALLS, TURNS = 13, 9  # in a turn, and turns in a sample
THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "OMP_NUM_THREADS")


def quantities(seconds: float, clock: Clock, pool: ThreadPoolExecutor, root: Path = Path("/")) -> list[Quantity]:
    """All that is measured of a processor, for a measurement of so many seconds; ``pool`` is what plain reads run in.

    ``reads`` and ``copies`` read the same bytes again and again, so they are by the bytes that an engine reads in each
    pass: what caches keep from one pass to the next is in the rate.
    """
    sizes = read_sizes(largest_bytes(seconds, root), last_level_cache_bytes(usable_cores(), root))
    coarse = {*read_sizes(sizes[-1], math.inf)}
    data, cache = _Data(sizes[-1]), _Data(CACHE_BYTES)
    timer = wall_timer(clock)
    between = min(BETWEEN_BYTES, sizes[-1])
    found = [Quantity("launch_s", None, Lazy(partial(_SmallCalls, data, between, clock)), less_is_better=True)]
    longest_s = min(LONGEST_PRODUCT_S, seconds * PRODUCT_SHARE)
    for name, kind in FORMATS:
        found.append(
            Quantity("products", name, Lazy(partial(_products, kind, longest_s, timer)), needed=name == "fp32")
        )
    by_size = []
    for size in sizes:
        finer = size not in coarse
        by_size.append(Quantity("reads", size, Lazy(partial(_weights, data, size, timer)), finer=finer))
        if size >= SMALLEST_COPY_BYTES:
            plain = Lazy(partial(_plain_reads, data, size, pool, clock))
            by_size.append(Quantity("copies", size, plain, finer=finer))
    by_size += [Quantity("attention", size, Lazy(partial(_attention, cache, size, timer))) for size in ATTENTION_BYTES]
    return found + sorted(by_size, key=lambda one: (one.finer, int(one.key or 0)))


class _Data:
    """One array that all sizes are read from the beginning of; its pages are first written when they are needed."""

    def __init__(self, largest: int) -> None:
        self._all, self._written = np.empty(largest // 4, dtype=np.float32), 0

    def first(self, size_bytes: int) -> Vector:
        """So many bytes of it, written by as many threads as will read them, so that the pages lie near them."""
        count = size_bytes // 4
        if count > self._written:
            pieces = np.array_split(self._all[self._written : count], len(usable_cores()))
            with ThreadPoolExecutor(len(pieces)) as pool:
                list(pool.map(lambda piece: piece.fill(1.0), pieces))
            self._written = count
        return self._all[:count]


def largest_bytes(seconds: float, root: Path = Path("/")) -> int:
    """How much to read at most: four last-level caches, as far as memory and time allow."""
    wanted = int(MEMORY_MULTIPLE * last_level_cache_bytes(usable_cores(), root))
    allowed = min(memory_available_bytes(root) * MEMORY_SHARE, seconds * BYTES_A_SECOND_GIVEN)
    return max(SMALLEST_COPY_BYTES, min(wanted, int(allowed)) >> 20 << 20)


def read_sizes(largest: int, cache_bytes: float) -> list[int]:
    """From 64 KiB in steps of four to ``largest``, of two from a quarter of the last-level cache; none close below."""
    sizes, size = [], SMALLEST_BYTES
    while size <= largest / 2:
        sizes.append(size)
        size *= FINE_STEP if size * FINE_STEP >= cache_bytes / FINE_FROM else STEP
    return [*sizes, largest]


def flags(largest: int, root: Path = Path("/")) -> list[str]:
    """What bounds the measurement, in words."""
    found = []
    if largest < MEMORY_MULTIPLE * last_level_cache_bytes(usable_cores(), root):
        found.append("not as much was read as four last-level caches hold: the slowest rate may be a cache's")
    told = [f"{name}={os.environ[name]}" for name in THREAD_VARIABLES if os.environ.get(name)]
    if told:
        found.append(f"the threads of NumPy were limited: {', '.join(told)}")
    return found


class CoreClock:
    """The mean clock of the usable cores, round by round, where /sys tells it (a virtual machine's does not)."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._files = [root / f"sys/devices/system/cpu/cpu{n}/cpufreq/scaling_cur_freq" for n in usable_cores()]
        self._seen_hz: list[float] = []

    def look(self) -> None:
        """Once more."""
        words = [first_line(file) for file in self._files]
        found = [int(word) * 1e3 for word in words if word.isdigit() and int(word)]
        if found:
            self._seen_hz.append(sum(found) / len(found))

    def clocks_hz(self) -> dict[str, float]:
        """The median, as Calibration has it."""
        return {"core": float(np.median(self._seen_hz))} if self._seen_hz else {}


def _weights(whole: _Data, size: int, timer: Timer) -> Timed:
    """A matrix of ``size`` bytes that one vector is multiplied with, as a layer is at batch 1."""
    data = whole.first(size)
    rows = 1 << ((data.size.bit_length() - 1) // 2)
    matrix = data[: data.size // rows * rows].reshape(rows, -1)
    vector, out = np.ones((1, rows), dtype=np.float32), np.empty((1, matrix.shape[1]), dtype=np.float32)
    return Timed(lambda: np.matmul(vector, matrix, out=out), float(matrix.nbytes), timer)


class _PlainRead:
    """Reads an array by one kernel in so many threads; at best each of its pieces is read at its fastest.

    So a neighbour must be there at every pass over a piece to be taken for a slower memory.
    """

    def __init__(self, data: Vector, kernel: str, threads: int, pool: ThreadPoolExecutor, clock: Clock) -> None:
        rows = data.reshape(-1, ROW)
        self._bytes, self._kernel, self._pool, self._clock = data.nbytes, KERNELS[kernel], pool, clock
        self._repeats = max(1, OFTEN_BYTES // data.nbytes)
        pieces = np.array_split(rows, max(1, data.nbytes // PIECE_BYTES))
        self._pieces = [[part.reshape(-1) for part in np.array_split(piece, threads)] for piece in pieces]
        self._fastest_s = [float("inf")] * len(pieces)

    def __call__(self) -> Sampled:
        took_s = 0.0
        for number, parts in enumerate(self._pieces):
            start_s = self._clock()
            if len(parts) == 1:
                self._read(parts[0])
            else:
                list(self._pool.map(self._read, parts))
            piece_s = max(self._clock() - start_s, 1e-9) / self._repeats
            self._fastest_s[number] = min(self._fastest_s[number], piece_s)
            took_s += piece_s
        return Sampled(self._bytes / took_s, self._bytes / sum(self._fastest_s))

    def _read(self, part: Vector) -> None:
        for _ in range(self._repeats):
            self._kernel(part)


def _plain_reads(whole: _Data, size: int, pool: ThreadPoolExecutor, clock: Clock) -> Race:
    data, counts = whole.first(size), sorted({1, len(usable_cores())}, reverse=True)
    return Race([_PlainRead(data, kernel, count, pool, clock) for count in counts for kernel in KERNELS])


def _products(kind: type[np.floating[Any]], most_s: float, timer: Timer) -> Race:
    """Square products of growing size, as long as one of them is short enough to find a quiet moment for."""
    random = np.random.default_rng(0)
    ways: list[Timed] = []
    longest_s = 0.0
    for size in PRODUCT_SIZES:
        if longest_s * 8 > most_s:
            break
        left, right = (random.random((size, size)).astype(kind) for _ in range(2))
        product = _product(left, right)
        product()
        longest_s = timer(product, 1)
        ways.append(Timed(product, 2.0 * size**3, timer))
    return Race(ways, PRODUCT_TIMES)


def _product(left: NDArray[Any], right: NDArray[Any]) -> Callable[[], object]:
    out = np.empty_like(left)
    return lambda: np.matmul(left, right, out=out)


def _attention(whole: _Data, size: int, timer: Timer) -> Timed:
    """One new token's attention over ``size`` bytes of a paged cache: each call over other blocks than the last."""
    cache, blocks = whole.first(CACHE_BYTES).reshape(2, -1, *BLOCK), size // BLOCK_BYTES
    order = np.random.default_rng(0).permutation(cache.shape[1])
    tables = [order[start : start + blocks] for start in range(0, len(order) - blocks + 1, blocks)]
    query = np.ones((KV_HEADS, HEADS // KV_HEADS, HEAD_SIZE), dtype=np.float32)
    turn = 0

    def attend() -> NDArray[np.float32]:
        nonlocal turn
        table, turn = tables[turn % len(tables)], turn + 1
        keys, values = (cache[part, table].reshape(-1, KV_HEADS, HEAD_SIZE) for part in (0, 1))
        scores = query @ keys.transpose(1, 2, 0) / np.float32(HEAD_SIZE**0.5)
        scores -= scores.max(axis=-1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=-1, keepdims=True)
        mixed: NDArray[np.float32] = scores @ values.transpose(1, 0, 2)
        return mixed

    return Timed(attend, float(size), timer)


class _SmallCalls:
    """One of the small calls that an engine in NumPy makes between its products, as it meets them.

    The weights that were read just before have taken its code and data out of the nearer caches: in a loop of its own
    the same call is several times as fast, which no engine ever sees.
    """

    def __init__(self, whole: _Data, size: int, clock: Clock) -> None:
        self._weights, self._clock = whole.first(size).reshape(-1, ROW), clock
        self._vector, self._product = (np.ones(count, dtype=np.float32) for count in (ROW, len(self._weights)))
        self._row, self._cosine = (np.ones((1, count), dtype=np.float32) for count in (ROW, ROW // 2))

    def __call__(self) -> Sampled:
        times = []
        for _ in range(TURNS):
            np.matmul(self._weights, self._vector, out=self._product)
            start_s = self._clock()
            self._turn()
            times.append(max(self._clock() - start_s, 1e-9) / CALLS)
        return Sampled(statistics.median(times), min(times))

    def _turn(self) -> NDArray[np.float32]:
        """A norm and a rotation of one row, as a layer has them: thirteen calls."""
        x, cosine = self._row, self._cosine
        x = x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + np.float32(1e-5))
        first, second = np.split(x, 2, axis=-1)
        return np.concatenate((first * cosine - second * cosine, second * cosine + first * cosine), axis=-1)
