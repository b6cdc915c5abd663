"""The roof of this machine: read from a made-up /sys, measured briefly, and high enough to be a roof."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from rooflens.collector.cpu_roof import last_level_cache_bytes, measure_cpu, read_sizes

MIB = 1 << 20


def machine(root: Path, last_level: str, memory_kib: int = 8 << 20) -> Path:
    """A /sys and /proc of two dies: each core has its own last-level cache."""
    for core in (0, 1):
        for index, (level, size) in enumerate((("1", "32K"), ("2", "512K"), ("3", last_level))):
            folder = root / f"sys/devices/system/cpu/cpu{core}/cache/index{index}"
            folder.mkdir(parents=True)
            for name, text in (("level", level), ("size", size), ("shared_cpu_list", str(core))):
                (folder / name).write_text(f"{text}\n")
    (root / "proc").mkdir()
    (root / "proc/meminfo").write_text(f"MemTotal: {memory_kib} kB\nMemAvailable: {memory_kib // 2} kB\n")
    return root


def test_caches_of_all_dies_count_once_each(tmp_path: Path) -> None:
    root = machine(tmp_path, "32M")
    assert last_level_cache_bytes([0], root) == 32 * MIB
    assert last_level_cache_bytes([0, 1], root) == 64 * MIB
    assert last_level_cache_bytes([0, 1], tmp_path / "nowhere") == 32 * MIB


def test_sizes_reach_beyond_the_cache_where_memory_allows() -> None:
    assert read_sizes(32 * MIB, 24 << 30) == [MIB, 8 * MIB, 32 * MIB, 128 * MIB, 256 * MIB]
    assert read_sizes(32 * MIB, 256 * MIB)[-1] == 64 * MIB
    assert read_sizes(1 << 30, 64 << 30)[-1] == 4 << 30


def test_a_short_measurement(tmp_path: Path) -> None:
    root = machine(tmp_path, "1M")
    lines: list[str] = []
    spec = measure_cpu(seconds=0.5, progress=lines.append, root=root)
    assert (spec.id, spec.origin, spec.memory_bytes) == ("this-cpu", "measured", 8 << 30)
    assert spec.memory_bandwidth_bytes_per_s > 1e8
    assert spec.peak_flops_per_s["fp32"] > 1e8
    assert [size for size, _ in spec.read_curve] == sorted({size for size, _ in spec.read_curve})
    assert len(lines) == len(spec.read_curve) + 3


def test_memory_too_small_for_the_cache_is_said(tmp_path: Path) -> None:
    root = machine(tmp_path, "64M", memory_kib=128 << 10)
    spec = measure_cpu(seconds=0.2, root=root)
    assert any("too small" in flag for flag in spec.flags)
    assert not any("others used" in flag for flag in spec.flags)


def test_a_busy_machine_is_said(tmp_path: Path) -> None:
    root = machine(tmp_path, "1M")
    (root / "proc/loadavg").write_text("250.75 100.00 50.00 3/400 1234\n")
    assert any("load 250.8" in flag for flag in measure_cpu(seconds=0.2, root=root).flags)


def test_a_workload_of_the_same_kind_stays_below_the_roof(tmp_path: Path) -> None:
    # A matrix-vector product over a matrix of the largest size read may come close to the roof, not far above it: a
    # roof of one slow kernel fails every time, one that another tenant slowed down fails once.
    root = machine(tmp_path, "8M")
    assert any(fastest_product_in_roofs(root) < 1.3 for _attempt in range(5))


def fastest_product_in_roofs(root: Path) -> float:
    """Bytes per second of the best of five matrix-vector products, in units of the roof measured just before."""
    spec = measure_cpu(seconds=1.0, root=root)
    matrix = np.ones((spec.read_curve[-1][0] // 4096, 1024), dtype=np.float32)
    vector = np.ones(1024, dtype=np.float32)
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        matrix @ vector
        seconds.append(time.perf_counter() - start)
    return matrix.nbytes / min(seconds) / spec.memory_bandwidth_bytes_per_s
