"""What the control groups of this process allow it: memory and processor time; both versions of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from rooflens.collector.proc_files import first_line, lines_of

MOUNT = "sys/fs/cgroup"
VERSION_2 = ""  # its one hierarchy names no controllers


def memory_left_bytes(root: Path = Path("/")) -> int | None:
    """What the tightest of them leaves; page cache that can be dropped counts as left. None where none limits."""
    found = []
    for folder in _folders(VERSION_2, root):
        found.append(_left(folder, "memory.max", "memory.current", "inactive_file"))
    for folder in _folders("memory", root):
        found.append(_left(folder, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"))
    return min((left for left in found if left is not None), default=None)


def core_quota(root: Path = Path("/")) -> float | None:
    """Cores' worth of processor time that the tightest of them allows; None where none limits."""
    found = []
    for folder in _folders(VERSION_2, root):
        quota, _, period = first_line(folder / "cpu.max").partition(" ")
        found.append(_cores(quota, period))
    for folder in _folders("cpu", root):
        found.append(_cores(first_line(folder / "cpu.cfs_quota_us"), first_line(folder / "cpu.cfs_period_us")))
    return min((cores for cores in found if cores is not None), default=None)


def _folders(controller: str, root: Path) -> Iterator[Path]:
    """That of this process and those above it, which limit it too.

    In a container the path may be the host's, which is not there: what the container sees as the top is its own.
    """
    for line in lines_of(root / "proc/self/cgroup"):
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if controller not in names.split(",") or not path.startswith("/"):
            continue
        top = root / MOUNT / controller
        inside = PurePosixPath(os.path.normpath(path).lstrip("/") or ".")
        yield from (top / one for one in (inside, *inside.parents))


def _left(folder: Path, limit: str, used: str, cached: str) -> int | None:
    most, now = first_line(folder / limit), first_line(folder / used)
    if not most.isdigit():
        return None
    words = [line.split() for line in lines_of(folder / "memory.stat")]
    dropped = sum(int(word[1]) for word in words if len(word) == 2 and word[0] == cached and word[1].isdigit())
    return max(0, int(most) - (int(now) if now.isdigit() else 0) + dropped)


def _cores(quota: str, period: str) -> float | None:
    """A quota of -1 or max limits nothing."""
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() and int(period) else None
