"""One process of an all-reduce that is measured: a program, whose arguments are backend, rank, number of ranks, a file
to meet at and the seconds to wait for the others. Rank 0 prints what it measured as one line of JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import timedelta
from functools import partial

from rooflens.calibration_records import Measured
from rooflens.collector.calibrate.rounds import Sampled, measured, wall_timer
from rooflens.collector.calibrate.torch_kernels import event_timer

SIZES_BYTES = (16 << 10, 256 << 10, 4 << 20, 64 << 20)  # of a decode step at batch 1 to a prefill of thousands
ROUNDS = 15
CALLS = 4


def measure(backend: str, rank: int, devices: int, meet: str, seconds: float) -> list[tuple[int, Measured]]:
    """As one of the ranks; rounds of all sizes in turn."""
    import torch
    import torch.distributed as ranks

    device = torch.device("cpu")
    if backend == "nccl":
        device = torch.device("cuda", rank)
        torch.cuda.set_device(device)
    ranks.init_process_group(
        backend, init_method=f"file://{meet}", rank=rank, world_size=devices, timeout=timedelta(seconds=seconds)
    )
    timer = event_timer(torch) if backend == "nccl" else wall_timer(time.perf_counter)
    messages = [torch.zeros(size // 2, dtype=torch.bfloat16, device=device) for size in SIZES_BYTES]
    samples: list[list[Sampled]] = [[] for _ in messages]
    for number in range(ROUNDS + 1):
        for message, found in zip(messages, samples, strict=True):
            ranks.barrier()
            took_s = timer(partial(ranks.all_reduce, message), CALLS) / CALLS
            if number:  # the first round sets up connections
                found.append(Sampled(took_s, took_s))
    ranks.destroy_process_group()
    return [(size, measured(found, less_is_better=True)) for size, found in zip(SIZES_BYTES, samples, strict=True)]


def main(arguments: Sequence[str]) -> None:
    """As a process."""
    backend, rank, devices, meet, seconds = arguments
    found = measure(backend, int(rank), int(devices), meet, float(seconds))
    if int(rank) == 0:
        print(json.dumps([(size, asdict(value)) for size, value in found]))


if __name__ == "__main__":
    main(sys.argv[1:])
