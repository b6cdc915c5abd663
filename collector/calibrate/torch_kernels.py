"""What is measured of a device through torch: plain reads, weights, attention, and what a launch costs.

Each call rotates over enough buffers that none of them is in the device's last cache when its turn comes, as an engine
reads its layers. On a device the turns are captured in a graph, as engines capture their decode steps, so that the
host's time between launches is not taken for the device's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from rooflens.collector.calibrate.rounds import Lazy, Quantity, Race, Sampled, Timed, Timer

SIZES_BYTES = tuple(2 << 20 << step for step in (0, 2, 4, 6, 8))  # 2 MiB to 512 MiB
ELEMENT_BYTES = 2  # bf16
L2_MULTIPLE, FEWEST_BUFFERS, MOST_BUFFERS = 4, 2, 512
BATCHES = (1, 8)  # rows that a weight is multiplied with: a decode step of one sequence, and of a few
SEQUENCES = (1, 16)
HEADS, KV_HEADS, HEAD_SIZE = 32, 8, 128
TOKEN_BYTES = 2 * KV_HEADS * HEAD_SIZE * ELEMENT_BYTES
GRAPH_LAUNCHES = 256


@dataclass(slots=True)
class Bench:
    """A device through torch: ``pool`` are random bf16 values to read, ``cache_bytes`` its last cache."""

    torch: Any
    device: Any
    timer: Timer
    pool: Any
    cache_bytes: int
    problems: list[str] = field(default_factory=list)

    @property
    def graphs(self) -> bool:
        """Whether launches can be captured."""
        return bool(self.device.type == "cuda")

    def captured(self, turns: Callable[[], object]) -> Callable[[], object]:
        """The same work as one graph; as it is where there are no graphs, or where it cannot be captured."""
        if not self.graphs:
            return turns
        cuda = self.torch.cuda
        try:
            stream = cuda.Stream()
            stream.wait_stream(cuda.current_stream())
            with cuda.stream(stream):
                turns()  # what a library sets up at first use cannot be captured
            cuda.current_stream().wait_stream(stream)
            graph = cuda.CUDAGraph()
            with cuda.graph(graph):
                turns()
        except Exception as error:
            said = f"not captured in a graph, so the host's launches are in it: {type(error).__name__}"
            if said not in self.problems:
                self.problems.append(said)
            return turns
        replay: Callable[[], object] = graph.replay
        return replay

    def buffers(self, size_bytes: int) -> list[Any]:
        """Flat views of so many bytes of the pool, enough of them that the cache holds none until its next turn."""
        elements = size_bytes // ELEMENT_BYTES
        wanted = max(FEWEST_BUFFERS, -(-L2_MULTIPLE * self.cache_bytes // size_bytes))
        count = min(self.pool.numel() // elements, wanted, MOST_BUFFERS)
        return [self.pool[number * elements : (number + 1) * elements] for number in range(count)]


def event_timer(torch: Any) -> Timer:
    """Seconds between two events on the device's own clock around all the calls."""

    def seconds(call: Callable[[], object], calls: int) -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(calls):
            call()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / 1e3

    return seconds


def memory_quantities(bench: Bench) -> list[Quantity]:
    """``copies``, ``reads`` and ``attention`` at all sizes that the pool holds, by the bytes that one kernel reads."""
    sizes = [size for size in SIZES_BYTES if size <= bench.pool.numel() * ELEMENT_BYTES]
    found = []
    for size in sizes:
        found += [
            Quantity("reads", size, Lazy(partial(_weights, bench, size))),
            Quantity("copies", size, Lazy(partial(_plain_reads, bench, size))),
            Quantity("attention", size, Lazy(partial(_attention, bench, size))),
        ]
    return found


def launch_quantities(bench: Bench) -> list[Quantity]:
    """``launch_s``, and ``graph_launch_s`` where there are graphs."""
    one = bench.torch.zeros(1, device=bench.device)

    def many() -> None:
        for _ in range(GRAPH_LAUNCHES):
            one.add_(1)

    def in_graph() -> Callable[[], Sampled]:
        timed = Timed(bench.captured(many), None, bench.timer)

        def share() -> Sampled:
            found = timed()
            return Sampled(found.typical / GRAPH_LAUNCHES, found.best / GRAPH_LAUNCHES)

        return share

    found = [Quantity("launch_s", None, Timed(lambda: one.add_(1), None, bench.timer), less_is_better=True)]
    if bench.graphs:
        found.append(Quantity("graph_launch_s", None, Lazy(in_graph), less_is_better=True))
    return found


def _timed(bench: Bench, turns: Callable[[], object], read_bytes: int) -> Timed:
    return Timed(bench.captured(turns), float(read_bytes), bench.timer)


def _plain_reads(bench: Bench, size: int) -> Race:
    """A sum and a search for the largest: which of them reads faster differs from device to device."""
    torch, views = bench.torch, bench.buffers(size)
    # As fp32 words: a sum of bf16 is bound by its conversions on some devices. What the words mean is of no interest.
    words = [view.view(torch.float32) for view in views]
    out = torch.empty((), dtype=torch.float32, device=bench.device)

    def summed() -> None:
        for view in words:
            torch.sum(view, dim=0, out=out)

    def largest() -> None:
        for view in words:
            torch.amax(view, dim=0, out=out)

    return Race([_timed(bench, turns, size * len(words)) for turns in (summed, largest)])


def _weights(bench: Bench, size: int) -> Race:
    """A few rows times each of the square matrices of this size, as a linear layer of a decode step."""
    return Race([_rows(bench, size, rows) for rows in BATCHES])


def _rows(bench: Bench, size: int, rows: int) -> Timed:
    torch, side = bench.torch, int((size // ELEMENT_BYTES) ** 0.5)
    matrices = [view.view(side, side).t() for view in bench.buffers(size)]  # (outputs, inputs), as layers keep them
    row = torch.ones((rows, side), dtype=torch.bfloat16, device=bench.device)
    out = torch.empty_like(row)

    def turns() -> None:
        for matrix in matrices:
            torch.mm(row, matrix, out=out)

    return _timed(bench, turns, size * len(matrices))


def _attention(bench: Bench, size: int) -> Race:
    return Race([_decode(bench, size, count) for count in SEQUENCES])


def _decode(bench: Bench, size: int, sequences: int) -> Timed:
    """One new token of each sequence over its keys and values, which are ``size`` bytes together."""
    torch, tokens = bench.torch, size // TOKEN_BYTES // sequences
    shape = (2, sequences, KV_HEADS, tokens, HEAD_SIZE)
    caches = [view[: 2 * sequences * KV_HEADS * tokens * HEAD_SIZE].view(shape) for view in bench.buffers(size)]
    query = torch.ones((sequences, HEADS, 1, HEAD_SIZE), dtype=torch.bfloat16, device=bench.device)
    attend = torch.nn.functional.scaled_dot_product_attention

    def turns() -> None:
        for keys, values in caches:
            attend(query, keys, values, enable_gqa=True)

    return _timed(bench, turns, TOKEN_BYTES * tokens * sequences * len(caches))
