"""Which dead rings stay, and that a demo keeps away from those of an engine."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from rooflens.records import RooflensError
from rooflens.ring import STATE, STATE_OFFSET
from rooflens.ring_folder import (
    DEVICE_SUFFIX,
    SUFFIX,
    create_ring,
    default_folder,
    demo_folder,
    host_name,
    list_rings,
    open_folder,
    prune,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    return tmp_path


def dead_ring(folder: Path, rank: int, age_s: int, died: bool, suffix: str = SUFFIX) -> Path:
    """A small ring whose engine is gone."""
    writer, path = create_ring(folder, rank, ((16, 4096),), suffix)
    writer.close()
    if died:
        with path.open("r+b") as file:
            file.seek(STATE_OFFSET + STATE.size)
            file.write(bytes(8))
    os.utime(path, (10**9 - age_s, 10**9 - age_s))
    return path


def pruned(folder: Path, rank: int, suffix: str = SUFFIX) -> None:
    descriptor = open_folder(folder)
    prune(descriptor, rank, suffix)
    os.close(descriptor)


@pytest.mark.parametrize("suffix", [SUFFIX, DEVICE_SUFFIX])
def test_ranks_that_crash_together_all_keep_their_rings(folder: Path, suffix: str) -> None:
    crash = [dead_ring(folder, rank, 0, died=True, suffix=suffix) for rank in range(8)]
    for rank in range(8):
        create_ring(folder, rank, ((16, 4096),), suffix)[0].close()
        pruned(folder, rank, suffix)
    assert set(crash) <= set(list_rings(folder, suffix))
    assert len(list_rings(folder, suffix)) == 16


def test_a_crash_is_kept_rather_than_newer_rings_that_ended_in_order(folder: Path) -> None:
    crash = dead_ring(folder, 0, 1000, died=True)
    ended = []
    for age_s in (400, 300, 200, 100):
        pruned(folder, 0)
        ended.append(dead_ring(folder, 0, age_s, died=False))
    pruned(folder, 0)
    assert set(list_rings(folder)) == {crash, ended[-1]}
    newer = [dead_ring(folder, 0, age_s, died=True) for age_s in (50, 40)]
    pruned(folder, 0)
    assert set(list_rings(folder)) == set(newer)


def test_a_demo_has_a_folder_of_its_own(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROOFLENS_DIR", raising=False)
    assert demo_folder() == default_folder().parent / f"rooflens-{os.getuid()}-demo"
    monkeypatch.setenv("ROOFLENS_DIR", str(folder))
    assert demo_folder() == folder / "demo"
    folder.chmod(0o777)
    with pytest.raises(RooflensError, match="written by other users"):
        demo_folder()


def test_what_a_killed_process_left_of_a_ring_is_removed(folder: Path) -> None:
    """Only where the process is gone and has been for a minute: another PID namespace may still be at work."""
    gone = subprocess.Popen(["true"])
    gone.wait()
    base = f".{host_name()}-0123abcd-0.ring"
    names = {"old": f"{base}.{gone.pid}", "young": f"{base.replace('abcd', 'abce')}.{gone.pid}"}
    names |= {"alive": f"{base}.{os.getpid()}", "other rank": f".{host_name()}-0123abcd-1.ring.{gone.pid}"}
    for name in names.values():
        (folder / name).touch()
        if name != names["young"]:
            os.utime(folder / name, (1, 1))
    writer, path = create_ring(folder, 0, ((16, 4096),))
    assert {p.name for p in folder.iterdir()} == {path.name, names["young"], names["alive"], names["other rank"]}
    writer.close()
