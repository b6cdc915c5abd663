"""The roof of this machine's CPU, for the bytes that each pass of a model reads where they are known.

As a program: measures, and prints the device as one line of JSON; the argument is the number of bytes, 0 for unknown.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rooflens.calibration_records import Calibration
from rooflens.cli.calibrations import Calibrations
from rooflens.cli.embedded import THREAD_VARIABLES
from rooflens.collector.ring_file import RingFile
from rooflens.model_records import HardwareSpec
from rooflens.records import EngineInfo, RooflensError
from rooflens.ring_folder import list_rings

STEP_ROOF_S = 6.0
# A model beyond so many last-level caches is read from memory: more bytes would take longer and say the same.
CACHES, LARGEST_BYTES, MEMORY_SHARE = 8, 2 << 30, 0.25
MEASURING = (
    "measuring this machine for some seconds ('rooflens calibrate' measures more, once, and keeps it); an engine that "
    "runs on it is disturbed, and disturbs the roof"
)
MOST_RINGS = 16  # that are asked what their models read


def read_bytes_of(info: EngineInfo | None) -> int | None:
    """Bytes of weights that one pass of this engine reads; None where its model is not known, or is cut up."""
    from rooflens.analyzer.arch import arch_from_config
    from rooflens.analyzer.operators import works
    from rooflens.analyzer.precision import precision_of

    if info is None or info.model_config is None or info.tensor_parallel != 1:
        return None
    try:
        arch = arch_from_config(dict(info.model_config), info.model_name or "model")
        rows = works(arch, precision_of(info, arch))
    except RooflensError:
        return None
    return round(sum(row.weight_bytes.get(name, 0.0) for row in rows for name in ("passes", "head_passes")))


def read_bytes_here(config: Mapping[str, Any] | None, folders: Iterable[Path]) -> int | None:
    """Bytes that a pass of the named model reads, else of the engines that are recorded now where they agree."""
    if config is not None:
        return read_bytes_of(EngineInfo(instance="", engine="", model_config=config))
    found = {read_bytes_of(info) for info in _live(folders)}
    return found.pop() if len(found) == 1 else None


def _live(folders: Iterable[Path]) -> Iterable[EngineInfo | None]:
    for folder in folders:
        try:
            rings = list_rings(folder)[:MOST_RINGS]
        except RooflensError:
            continue
        for path in rings:
            try:
                file = RingFile(path)
            except RooflensError:
                continue
            try:
                if file.live():
                    yield file.info()
            except RooflensError:
                continue
            finally:
                file.close()


def roof_here(
    calibrations: Calibrations, read_bytes: int | None, threads: Callable[[], int | None] = lambda: None
) -> tuple[HardwareSpec, Calibration | None]:
    """This machine's roof for a pass of ``read_bytes``, and the calibration that it is from; else it is measured now.

    A calibration through torch says what is reachable below a roof that is measured now. ``threads`` is asked, as what
    ``measured`` takes, only then. RooflensError for a file that is no calibration of this machine.
    """
    from rooflens.analyzer.calibrated import hardware_of
    from rooflens.analyzer.measured_cpu import makes_roof

    calibration = calibrations.of_cpu()
    if calibration is not None and makes_roof(calibration):
        return hardware_of(calibration, read_bytes), calibration
    return measured(read_bytes, threads()), calibration


def measured(read_bytes: int | None, threads: int | None = None) -> HardwareSpec:
    """This machine's roof; RooflensError if it cannot be measured. Takes six seconds, ten where no bytes are known.

    A process of its own measures: with as many threads as asked for (default: all), whatever NumPy was told here, and
    its memory is given back.
    """
    print(MEASURING, file=sys.stderr, flush=True)
    told = {} if threads is None else dict.fromkeys(THREAD_VARIABLES, str(threads))
    own = {name for name in THREAD_VARIABLES if os.environ.get(name) == "1"}  # set for turns of a loop, see sidecar.py
    environment = {name: value for name, value in os.environ.items() if name not in own} | told
    command = [sys.executable, "-P", "-m", "rooflens.cli.this_cpu", str(read_bytes or 0)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise RooflensError("this machine could not be measured")
    return _from_json(json.loads(done.stdout))


def _from_json(data: dict[str, Any]) -> HardwareSpec:
    lists = {name: tuple(value) for name, value in data.items() if isinstance(value, list)}
    curve = tuple((int(size), float(rate)) for size, rate in data["read_curve"])
    return HardwareSpec(**{**data, **lists, "read_curve": curve})


def measure(read_bytes: int) -> HardwareSpec:
    """Measure in this process."""
    from rooflens.cli.report import progress
    from rooflens.collector import cpu_roof
    from rooflens.collector.step_roof import measure_step_roof

    if not read_bytes:
        return cpu_roof.measure_cpu(progress=progress)
    far = CACHES * cpu_roof.last_level_cache_bytes(cpu_roof.usable_cores())
    room = int(MEMORY_SHARE * cpu_roof.memory_available_bytes())
    return measure_step_roof(min(read_bytes, far, LARGEST_BYTES, room), STEP_ROOF_S)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it reaches the whole group, and is the parent's to act on
    print(json.dumps(asdict(measure(int(sys.argv[1])))))
