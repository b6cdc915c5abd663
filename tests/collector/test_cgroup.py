"""What control groups allow, in both versions, on a host and in a container."""

from __future__ import annotations

from pathlib import Path

import pytest

from rooflens.collector import cpu_facts
from rooflens.collector.calibrate.identity import identity_of_cpu
from rooflens.collector.cgroup import core_quota, memory_left_bytes

MIB = 1 << 20
UNLIMITED_BYTES = 9223372036854771712  # what version 1 says where nothing limits


def put(root: Path, **files: str) -> None:
    for name, words in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(words)


def at(root: Path, folder: str, **files: object) -> None:
    for name, words in files.items():
        path = root / "sys/fs/cgroup" / folder / name.replace("_DOT_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{words}\n")


def test_nothing_limits_where_there_are_none(tmp_path: Path) -> None:
    assert (memory_left_bytes(tmp_path), core_quota(tmp_path)) == (None, None)
    put(tmp_path, proc__self__cgroup="0::/user.slice/session\n")
    at(tmp_path, "user.slice", memory_DOT_max="max", memory_DOT_current=5 * MIB, cpu_DOT_max="max 100000")
    assert (memory_left_bytes(tmp_path), core_quota(tmp_path)) == (None, None)


def test_the_tightest_of_those_above_it_limits(tmp_path: Path) -> None:
    put(tmp_path, proc__self__cgroup="0::/pod/engine\n")
    at(tmp_path, "pod", memory_DOT_max=100 * MIB, memory_DOT_current=90 * MIB, cpu_DOT_max="150000 100000")
    at(tmp_path, "pod", memory_DOT_stat=f"anon 7\ninactive_file {30 * MIB}")
    at(tmp_path, "pod/engine", memory_DOT_max=64 * MIB, memory_DOT_current=4 * MIB, cpu_DOT_max="800000 100000")
    assert memory_left_bytes(tmp_path) == 40 * MIB
    assert core_quota(tmp_path) == 1.5
    at(tmp_path, "pod", memory_DOT_current=200 * MIB)
    assert memory_left_bytes(tmp_path) == 0


def test_a_container_sees_its_own_as_the_top(tmp_path: Path) -> None:
    put(tmp_path, proc__self__cgroup="5:cpuacct,cpu:/docker/1234\n4:memory:/docker/1234\n1:name=systemd:/\n")
    limit, used = "memory_DOT_limit_in_bytes", "memory_DOT_usage_in_bytes"
    at(tmp_path, "memory", **{limit: 64 * MIB, used: 16 * MIB})
    at(tmp_path, "cpu", cpu_DOT_cfs_quota_us=200000, cpu_DOT_cfs_period_us=100000)
    assert (memory_left_bytes(tmp_path), core_quota(tmp_path)) == (48 * MIB, 2.0)
    at(tmp_path, "memory", **{limit: UNLIMITED_BYTES})
    at(tmp_path, "cpu", cpu_DOT_cfs_quota_us=-1)
    assert (memory_left_bytes(tmp_path) or 0) > 1 << 60
    assert core_quota(tmp_path) is None


@pytest.mark.parametrize("words", ["", "x", "::", "0::", "0::../../..", "\x00"])
def test_words_that_nobody_writes_limit_nothing(tmp_path: Path, words: str) -> None:
    put(tmp_path, proc__self__cgroup=words)
    assert (memory_left_bytes(tmp_path), core_quota(tmp_path)) == (None, None)


def test_memory_and_cores_are_what_they_leave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_facts.os, "sched_getaffinity", lambda _pid: set(range(8)))
    put(tmp_path, proc__meminfo="MemAvailable:  1024000 kB\n", proc__self__cgroup="0::/\n")
    assert cpu_facts.memory_available_bytes(tmp_path) == 1000 * MIB
    assert cpu_facts.usable_core_count(tmp_path) == identity_of_cpu(tmp_path).units == 8
    at(tmp_path, "", memory_DOT_max=64 * MIB, memory_DOT_current=0, cpu_DOT_max="150000 100000")
    assert cpu_facts.memory_available_bytes(tmp_path) == 64 * MIB
    assert cpu_facts.usable_core_count(tmp_path) == identity_of_cpu(tmp_path).units == 2
    at(tmp_path, "", cpu_DOT_max="1000 100000")
    assert cpu_facts.usable_core_count(tmp_path) == 1
