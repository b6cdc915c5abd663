"""Calibrations as a machine would have measured them, from a law that a test knows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rooflens.calibration_records import Calibration, MachineIdentity, Measured

MIB = 1 << 20
CPU_IDENTITY = MachineIdentity("cpu", "made CPU", "0123456789abcdef", None, 16 << 30, 8, 32 * MIB)
H100_IDENTITY = MachineIdentity("cuda", "NVIDIA H100 80GB HBM3", "0123456789abcdef", "GPU-made")
UNIX_S = 1_790_000_000.0  # 2026-09-21


def measured(median: float, best: float | None = None, spread_ratio: float = 0.04) -> Measured:
    """Seven runs around ``median``."""
    return Measured(median, median if best is None else best, spread_ratio, 7)


def reads_by(latency_s: float, bytes_per_s: float, sizes: tuple[int, ...]) -> tuple[tuple[int, Measured], ...]:
    """(bytes, bytes/s) of reads that take ``latency_s`` and then ``bytes_per_s``; the best are 5 % faster."""
    rates = [(size, size / (latency_s + size / bytes_per_s)) for size in sizes]
    return tuple((size, measured(rate, 1.05 * rate)) for size, rate in rates)


def cpu_calibration(**changes: Any) -> Calibration:
    """16 and 32 MiB are read from a cache, 128 MiB and more from memory at 20 GB/s, at best at 24."""
    made = Calibration(
        identity=CPU_IDENTITY,
        measured_unix_s=UNIX_S,
        took_s=30.0,
        versions={"rooflens": "0", "numpy": "2.0.0"},
        reads=(
            (16 * MIB, measured(80e9, 90e9)),
            (32 * MIB, measured(60e9, 70e9)),
            (128 * MIB, measured(20e9, 24e9)),
            (512 * MIB, measured(19e9, 23e9)),
        ),
        copies=((128 * MIB, measured(22e9, 25e9)),),
        attention=reads_by(20e-6, 10e9, (MIB, 4 * MIB, 16 * MIB)),
        products={"fp32": measured(400e9, 500e9)},
        launch_s=measured(2e-6),
    )
    return replace(made, **changes)


def h100_calibration(**changes: Any) -> Calibration:
    """An H100 whose reads take 5 us and 80 % of its 3.35 TB/s, bf16 products 70 % of their peak."""
    made = Calibration(
        identity=H100_IDENTITY,
        measured_unix_s=UNIX_S,
        took_s=30.0,
        versions={"rooflens": "0", "torch": "2.11.0"},
        clocks_hz={"sm": 1.755e9, "memory": 2.619e9},
        reads=reads_by(5e-6, 0.8 * 3.35e12, tuple((1 << power) * MIB for power in range(1, 11))),
        attention=reads_by(15e-6, 0.6 * 3.35e12, tuple((1 << power) * MIB for power in range(8))),
        products={"bf16": measured(0.7 * 989.4e12, 0.75 * 989.4e12)},
        launch_s=measured(8e-6),
        graph_launch_s=measured(1.5e-6),
        all_reduce_s={2: ((8192, measured(20e-6)), (8 * MIB, measured(60e-6)))},
    )
    return replace(made, **changes)
