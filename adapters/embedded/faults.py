"""What can be made to go wrong in the embedded engine, so that it really does."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

NEIGHBOUR_BYTES = 128 << 20  # beyond most caches, so that it takes memory bandwidth


@dataclass(frozen=True, slots=True)
class Faults:
    """``host_delay_s`` is spent on the host before every step, and ``host_delay_steps`` times as long as the last step
    took; ``stall_s`` is how long step ``stall_at_step`` hangs; ``neighbours`` threads stream memory all the while.
    A small pool, a batch cap and long prompts are no faults of the engine but its settings and load.
    """

    host_delay_s: float = 0.0
    host_delay_steps: float = 0.0
    stall_at_step: int | None = None
    stall_s: float = 0.0
    neighbours: int = 0

    def delay_host(self, last_step_s: float) -> None:
        """Spend the host's time, as tokenisation or a slow scheduler would: busily."""
        until = time.perf_counter() + self.host_delay_s + self.host_delay_steps * last_step_s
        while time.perf_counter() < until:
            pass

    def maybe_stall(self, step: int) -> None:
        """Hang if this is the step."""
        if step == self.stall_at_step:
            time.sleep(self.stall_s)


@contextmanager
def noisy_neighbours(count: int, size_bytes: int = NEIGHBOUR_BYTES) -> Iterator[None]:
    """While the block runs, ``count`` threads read and write ``size_bytes`` of memory each, over and over."""
    stop = threading.Event()

    def stream() -> None:
        source = np.ones(size_bytes // 16, dtype=np.float64)
        target = np.empty_like(source)
        while not stop.is_set():
            np.copyto(target, source)  # leaves the interpreter's lock

    threads = [threading.Thread(target=stream, name="noisy-neighbour", daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()
