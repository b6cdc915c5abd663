"""The engine comes first: whatever becomes of the ring's folder, the real scheduler goes on to its end."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from books import ring_of
from mounts import in_tmpfs, private_mounts
from scenarios import Scenario, drive
from witness import identity_gap

from rooflens.adapters.vllm import patch

pytestmark = pytest.mark.engine
# Two engines in one process, which still say it once. With "fill" the file system is full from the first ring on.
ENGINES = """
import json, os, sys
sys.path.insert(0, sys.argv[1])
import scenarios
from compare import differences
from rooflens.adapters.vllm import patch, register
from rooflens.ring_folder import default_folder
from witness import identity_gap

def full_from_now_on(*args):
    scheduler, filler = build(*args), os.open(default_folder().parent / "filler", os.O_CREAT | os.O_WRONLY)
    try:
        while True:
            os.write(filler, bytes(4096))
    except OSError as error:
        told["full"] = error.strerror
    return scheduler

register()
build, told = scenarios.build, {"generated": [], "gaps": [], "rings": []}
if "fill" in sys.argv:
    scenarios.build = full_from_now_on
for number in range(2):
    witness = scenarios.drive(scenarios.Scenario("any", requests=48, seed=number, abort_every=9))
    terms, capture = witness.close(), getattr(witness.scheduler, patch.CAPTURE)
    told["generated"].append(terms["generated"])
    told["gaps"].append(identity_gap(terms))
    if capture is not None:
        (path,) = default_folder().glob("*.ring")
        size = path.stat()
        told["rings"].append([capture.failures, size.st_size, size.st_blocks * 512])
        patch.detach(witness.scheduler)
        told["differences"] = differences(witness, path)
        path.unlink()
print("told " + json.dumps(told))
"""


def drive_engines(
    folder: Path, *options: str, size: str | None = None, **more: Any
) -> tuple[dict[str, Any], list[str]]:
    """What two engines with rings in ``folder``, in a tmpfs of ``size``, told, and the warnings of rooflens."""
    command = [sys.executable, "-P", "-c", ENGINES, str(Path(__file__).parent), *options]
    if size is not None:
        command = in_tmpfs(f"size={size}", folder.parent, command)
    environment = {**os.environ, "ROOFLENS_DIR": str(folder), "VLLM_LOGGING_LEVEL": "WARNING"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300, **more)
    assert done.returncode == 0, (done.returncode, done.stdout, done.stderr)  # not killed by SIGBUS either
    lines = [*done.stdout.splitlines(), *done.stderr.splitlines()]
    (told,) = [json.loads(line.removeprefix("told ")) for line in lines if line.startswith("told ")]
    assert min(told["generated"]) > 500, "both engines came to their end"
    assert told["gaps"] == [0, 0]
    return told, [line for line in lines if "rooflens" in line]


def test_a_tmpfs_without_room_costs_one_warning(tmp_path: Path) -> None:
    """Where no mount is allowed, a limit on the size of files takes its place."""
    folder = tmp_path / "rings"
    if private_mounts() is None:
        limit = (65536, resource.getrlimit(resource.RLIMIT_FSIZE)[1])
        told, said = drive_engines(folder, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit))
    else:
        told, said = drive_engines(folder, size="64k")
    assert told["rings"] == []
    assert len(said) == 1, said
    assert "WARNING" in said[0]
    assert f"{folder} is full" in said[0]


def test_a_tmpfs_that_fills_up_later_costs_nothing(tmp_path: Path) -> None:
    """All of the ring's room was taken when it was made: no write of it fails, and none raises SIGBUS."""
    if private_mounts() is None:
        return  # that rings have no holes is shown below, for any file system
    told, said = drive_engines(tmp_path / "rings", "fill", size="20m")
    assert told["full"] == "No space left on device"
    assert (told["differences"], said) == ([], [])
    assert len(told["rings"]) == 2
    for failures, size, allocated in told["rings"]:
        assert failures == 0
        assert allocated >= size


def test_a_ring_has_no_holes(hook: None, rings: Path) -> None:
    path = ring_of(drive(Scenario("any", requests=8)), rings)
    assert path.stat().st_blocks * 512 >= path.stat().st_size > 1 << 20


def make_hostile(kind: str, folder: Path) -> Path:
    """A folder in which there must be, or can be, no ring."""
    if kind == "in /proc":  # where not even root makes folders
        return Path("/proc/rooflens-rings")
    if kind == "link":
        (folder.parent / "elsewhere").mkdir(mode=0o700)
        folder.symlink_to(folder.parent / "elsewhere")
    elif kind == "open to all":
        folder.mkdir()
        folder.chmod(0o777)
    else:
        folder.write_text("in the way")
    return folder


@pytest.mark.parametrize("kind", ["link", "open to all", "file", "in /proc"])
def test_an_unfit_folder_costs_one_warning(
    kind: str, hook: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_hostile(kind, tmp_path / "rings")
    monkeypatch.setenv("ROOFLENS_DIR", str(folder))
    monkeypatch.setattr(patch, "_warned", False)
    said: list[str] = []
    monkeypatch.setattr(patch.log, "warning", lambda text, *values, **_: said.append(text % values))
    for seed in range(2):
        witness = drive(Scenario("any", requests=8, seed=seed))
        assert getattr(witness.scheduler, patch.CAPTURE) is None
        assert witness.terms["generated"] > 50
        assert identity_gap(witness.close()) == 0
    assert len(said) == 1
    assert str(folder) in said[0]
    assert "\n" not in said[0]
    assert list(tmp_path.rglob("*.ring")) == []
