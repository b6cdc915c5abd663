"""What Linux says of this machine's processor and memory, read from /proc and /sys."""

from __future__ import annotations

import math
import os
from pathlib import Path

from rooflens.collector.cgroup import core_quota, memory_left_bytes
from rooflens.collector.proc_files import first_line as first_line
from rooflens.collector.proc_files import lines_of as lines_of

FALLBACK_CACHE_BYTES = 32 << 20  # where /sys does not say; large enough for most servers' share of a cache
FALLBACK_MEMORY_BYTES = 1 << 30


def usable_cores() -> list[int]:
    """The numbers of the cores that this process may run on."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))


def usable_core_count(root: Path = Path("/")) -> int:
    """How many cores this process may use at once: fewer than it may run on where a control group limits its time."""
    cores, quota = len(usable_cores()), core_quota(root)
    return cores if quota is None else max(1, min(cores, math.ceil(quota)))


def last_level_cache_bytes(cores: list[int], root: Path = Path("/")) -> int:
    """The last-level caches that these cores reach, each counted once, as /sys lists them; else a server's usual.

    A chip of several dies has a last-level cache on each, and threads on all of them read from all of them.
    """
    return known_cache_bytes(cores, root) or FALLBACK_CACHE_BYTES


def known_cache_bytes(cores: list[int], root: Path = Path("/")) -> int | None:
    """The same, None where /sys does not say."""
    caches: dict[tuple[int, str], int] = {}
    for core in cores:
        for index in root.glob(f"sys/devices/system/cpu/cpu{core}/cache/index*"):
            level, shared = first_line(index / "level"), first_line(index / "shared_cpu_list")
            caches[int(level) if level.isdigit() else 0, shared] = _cache_size_bytes(first_line(index / "size"))
    highest = max((level for level, _ in caches), default=0)
    return sum(size for (level, _), size in caches.items() if level == highest) or None


def _cache_size_bytes(text: str) -> int:
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    digits, unit = (text[:-1], units[text[-1]]) if text and text[-1] in units else (text, 1)
    return int(digits) * unit if digits.isdigit() else 0


def memory_total_bytes(root: Path = Path("/")) -> int:
    """MemTotal of /proc/meminfo; 1 GiB where it is not there."""
    return known_memory_bytes(root) or FALLBACK_MEMORY_BYTES


def known_memory_bytes(root: Path = Path("/")) -> int | None:
    """The same, None where it is not there."""
    return _meminfo_bytes(root, "MemTotal")


def memory_available_bytes(root: Path = Path("/")) -> int:
    """MemAvailable of /proc/meminfo, or what control groups leave where that is less; 1 GiB where it is not there."""
    available, left = _meminfo_bytes(root, "MemAvailable") or FALLBACK_MEMORY_BYTES, memory_left_bytes(root)
    return available if left is None else min(available, left)


def load_average(root: Path = Path("/")) -> float:
    """Processes that ran or wanted to in the last minute, on average; 0 where /proc does not say."""
    word = first_line(root / "proc/loadavg").partition(" ")[0]
    return float(word) if word.replace(".", "", 1).isdigit() else 0.0


def _meminfo_bytes(root: Path, name: str) -> int | None:
    for line in lines_of(root / "proc/meminfo"):
        words = line.split()
        if len(words) >= 2 and words[0] == f"{name}:" and words[1].isdigit():
            return int(words[1]) << 10
    return None
