"""How long an all-reduce between devices takes, by the bytes of its message; one process a device."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import rooflens
from rooflens.calibration_records import Measured

POLL_S = 0.05
Curve = tuple[tuple[int, Measured], ...]


def between(backend: str, devices: int, seconds: float) -> tuple[Curve | None, str | None]:
    """The curve between the first ``devices`` devices, else why it is not known; takes at most ``seconds``.

    ``backend`` is torch.distributed's: nccl for CUDA and ROCm, gloo between processes on a CPU.
    """
    with tempfile.TemporaryDirectory(prefix="rooflens-") as folder:
        processes = _started(backend, devices, Path(folder), seconds)
        try:
            failed = _waited(processes, time.monotonic() + seconds)
        finally:
            for process in processes:
                process.kill()
                process.wait()
        said = Path(folder, "0.out").read_text(encoding="utf-8", errors="replace").strip().splitlines()
        if failed:
            why = Path(folder, "0.err").read_text(encoding="utf-8", errors="replace").strip().splitlines()
            return None, f"all_reduce between {devices} devices is not known: {failed}{': ' if why else ''}" + (
                why[-1][:120] if why else ""
            )
    try:
        return tuple((size, Measured(**value)) for size, value in json.loads(said[-1])), None
    except (ValueError, TypeError, IndexError):
        return None, f"all_reduce between {devices} devices is not known: its process said nothing of it"


def _started(backend: str, devices: int, folder: Path, seconds: float) -> list[subprocess.Popen[bytes]]:
    package = str(Path(rooflens.__file__).parents[1])  # that this one was imported from, installed or not
    paths = [package, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    found = []
    for rank in range(devices):
        command = [sys.executable, "-P", "-m", "rooflens.collector.calibrate.all_reduce_rank"]
        command += [backend, str(rank), str(devices), str(folder / "meet"), str(seconds)]
        with open(folder / f"{rank}.out", "wb") as out, open(folder / f"{rank}.err", "wb") as err:
            found.append(subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=err))
    return found


def _waited(processes: Sequence[subprocess.Popen[bytes]], deadline_s: float) -> str | None:
    """Until all have ended; what went wrong, in words."""
    while time.monotonic() < deadline_s:
        codes = [process.poll() for process in processes]
        if any(codes):  # None and 0 are both false
            return "a process failed"
        if all(code == 0 for code in codes):
            return None
        time.sleep(POLL_S)
    return "no time was left"
