"""Records tests/data/profiles/torch-loop.json.gz: a PyTorch loop under torch.profiler's schedule, on the CPU.

PYTHON-WITH-TORCH tests/engines/profile_loop.py TARGET.json
"""

from __future__ import annotations

import sys

import torch
from torch.profiler import ProfilerActivity, profile, schedule

LAYERS, WIDTH, STEPS = 4, 512, 9


def main(target: str) -> None:
    """Some steps of a small network, the fifth on a batch that is four times as large."""
    torch.set_num_threads(1)
    network = torch.nn.Sequential(*(torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU())
                                    for _ in range(LAYERS)))  # fmt: skip
    plan = schedule(wait=0, warmup=1, active=STEPS, repeat=1)
    with torch.inference_mode(), profile(activities=[ProfilerActivity.CPU], schedule=plan) as profiler:
        for number in range(STEPS + 1):
            network(torch.ones(2048 if number == 5 else 512, WIDTH))
            profiler.step()
    profiler.export_chrome_trace(target)


if __name__ == "__main__":
    main(sys.argv[1])
