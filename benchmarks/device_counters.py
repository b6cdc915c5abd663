"""What sampling the counters of eight devices costs: processor time of the probe's process against wall time.

The devices are played by the NVML double of tests/nvml_double, which the real nvidia-ml-py loads: so this is the cost
of rooflens and of the binding, the double's own work included; what a driver adds is its own. Run by hand;
``--json FILE`` writes the figures down.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from nvml_fixture import build, loaded  # noqa: E402

from rooflens.collector.nvml import NvmlProbe  # noqa: E402

GOAL_RATIO = 0.01
QUANTITIES = (
    "gr=100 sm=92 occ=31 tensor=9 dram=71 pcie_tx=120 pcie_rx=60 nvl_tx=30 nvl_rx=40 gpu_util=100 "
    "sm_clk=1980 mem_clk=3201 power_w=430 temp=51 mem_used=130000000000 throttle=4"
)


def played(devices: int) -> str:
    """Devices that all have GPM, each with two processes."""
    lines = [f"device {index}\nproc {index} {1000 + index}\nproc {index} 99" for index in range(devices)]
    return "\n".join([*lines, f"at 0 * {QUANTITIES}", ""])


def measure(devices: int, samples: int, period_s: float) -> dict[str, Any]:
    """Processor seconds of ``samples`` samples that are taken a period apart, and the wall time of each."""
    folder = Path(tempfile.mkdtemp())
    with loaded(build(folder), folder) as double:
        double.play(played(devices))
        del os.environ["NVMLSIM_CLOCK"]  # the double then goes by the real clock
        probe = NvmlProbe(period_s=period_s)
        probe.sample()
        walls, told = [], 0
        wall_s, cpu_s = time.monotonic(), time.process_time()
        for number in range(1, samples + 1):
            time.sleep(max(0.0, wall_s + number * period_s - time.monotonic()))
            start_s = time.perf_counter()
            found = probe.sample()
            walls.append(time.perf_counter() - start_s)
            told += len(found.samples)
            assert found.problems == (), found.problems
        cpu_s, wall_s = time.process_time() - cpu_s, time.monotonic() - wall_s
        probe.close()
    assert told == devices * samples, "a window is missing"
    assert found.samples[0].dram_ratio is not None, "the counters were not read"
    return {
        "devices": devices,
        "period_s": period_s,
        "samples": samples,
        "cpu_s": cpu_s,
        "wall_s": wall_s,
        "core_ratio": cpu_s / wall_s,
        "sample_median_s": sorted(walls)[len(walls) // 2],
        "sample_max_s": max(walls),
    }


def main() -> int:
    """Measure at the usual period and at the fastest; 1 where the goal is missed at the usual one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--devices", type=int, default=8)
    parser.add_argument("--samples", type=int, default=30)
    options = parser.parse_args()
    rows = [measure(options.devices, options.samples, period_s) for period_s in (1.0, 0.25)]
    for row in rows:
        print(
            f"{row['devices']} devices every {row['period_s']:g} s: {row['core_ratio']:.2%} of a core, "
            f"{row['sample_median_s'] * 1e3:.2f} ms a sample (longest {row['sample_max_s'] * 1e3:.2f} ms)"
        )
    if options.json:
        about = {"python": platform.python_version(), "machine": platform.machine(), "goal_ratio": GOAL_RATIO}
        options.json.write_text(json.dumps({"about": about, "rows": rows}, indent=1) + "\n")
    return 0 if rows[0]["core_ratio"] < GOAL_RATIO else 1


if __name__ == "__main__":
    sys.exit(main())
