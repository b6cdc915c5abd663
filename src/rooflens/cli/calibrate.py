"""What this machine really reaches: its memory at every size, products, attention, launches, all-reduces.

A datasheet's peak is no ceiling: large reads reach a part of it, small ones less, and a power cap lowers the clocks.
This measures one device within a minute and keeps the result, by which analyze, sidecar, top and predict then say what
is reachable. GPUs are measured through torch where that is installed, the CPU through NumPy. A device that others use
is refused, since a roof that is measured beside them is what they leave.

examples:
  rooflens calibrate                         (the GPU that torch sees first, else the CPU)
  rooflens calibrate --device cpu --seconds 20
  rooflens calibrate --device cuda:1 --force (others use it: measure what they leave)
  rooflens calibrate --show                  (what is kept of this machine)
  rooflens calibrate --output here.json      (a file that other verbs take as a calibration)

The exit code is 0 where something was measured, or is kept and holds; 1 of --show where nothing is, or it is out of
date; a fault is 2.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rooflens.calibration_records import Calibration, Ceiling, MachineIdentity
from rooflens.cli.apart import Unanswered
from rooflens.cli.bar import Bar
from rooflens.cli.embedded import THREAD_VARIABLES
from rooflens.cli.output import json_text, one_line, printable
from rooflens.model_records import HardwareSpec
from rooflens.records import RooflensError

USUAL_S, LONGEST_S = 30.0, 60.0
EXIT_NOTHING = 1  # --show found nothing that holds
DEVICES = "cpu, torch-cpu, cuda, cuda:N or N"
DEVICE = re.compile(r"cpu|torch-cpu|(cuda|rocm)(:[0-9]{1,4})?|[0-9]{1,4}")
SIGNALLED = 128  # and the signal's number: the exit code of a shell


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `rooflens calibrate`."""
    add = parser.add_argument
    add("--device", metavar="NAME", help=f"{DEVICES} (default: the first GPU that torch sees, else the CPU)")
    add("--seconds", type=float, metavar="S", default=USUAL_S,
        help="how long it may take, at most 60; less makes the spread larger (default: 30)")  # fmt: skip
    add("--force", action="store_true", help="measure although others use the device; the result says so")
    add("--output", metavar="FILE", help="write here (default: where it is found again for this machine)")
    add("--show", action="store_true", help="measure nothing, print what is kept of this machine")
    add("--json", action="store_true", help="a JSON array with one object a device, in SI units, null for not known")


def run(args: argparse.Namespace) -> int:
    """Measure and keep, or show what is kept."""
    if not 0 < args.seconds <= LONGEST_S:
        raise RooflensError(f"--seconds {args.seconds:g} is not above 0 and at most {LONGEST_S:g}")
    if args.show:
        given = [name for name in ("force", "output") if getattr(args, name)]
        if given:
            raise RooflensError(f"--{given[0]} says nothing with --show, which measures nothing")
        return _show(args)
    device, output = _device(args.device), None if args.output is None else _writable(args.output)
    folder = None if output else _kept_below(device)  # a fault is said before anything is measured
    calibration = _measured(device, args)
    problem = None
    if output:
        path: Path | None = write(calibration, output)
    else:
        path, problem = _kept(calibration, folder)
    if args.json:
        print(json_text([as_json(calibration, path, problem)]))
    else:
        print("\n".join(_lines(calibration, path, problem)))
    return 0


def _measured(device: str | None, args: argparse.Namespace) -> Calibration:
    from rooflens.cli.identities import machine_here
    from rooflens.collector.calibrate import calibrate, without_torch

    with suppress(Unanswered):  # a driver that hangs tells of no device
        if device is None and (line := without_torch(lambda: machine_here()[0])) is not None:
            print(one_line(f"rooflens: {line}"), file=sys.stderr, flush=True)
    _with_all_threads()
    bar = Bar()
    with _ended_in_order():
        try:
            return calibrate(device, args.seconds, bar.tell, args.force)
        finally:
            bar.end()


def _with_all_threads() -> None:
    """A processor is measured with all its cores, whatever this shell tells the programs that it starts."""
    told = [name for name in (*THREAD_VARIABLES, "BLIS_NUM_THREADS") if os.environ.get(name)]
    if told and "numpy" not in sys.modules:  # which reads them when it is loaded, and never again
        for name in told:
            del os.environ[name]
        print(f"rooflens: {', '.join(told)} not followed: all cores are measured", file=sys.stderr, flush=True)


@contextmanager
def _ended_in_order() -> Iterator[None]:
    """SIGTERM ends the block as an exception does, so that what it began is cleared away."""

    def end(number: int, _frame: object) -> None:
        raise SystemExit(SIGNALLED + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _device(name: str | None) -> str | None:
    """What calibrate calls the device; a bare number is a GPU, and so is ROCm's for torch."""
    if name is None:
        return None
    word = name.strip().casefold()
    if not DEVICE.fullmatch(word):
        raise RooflensError(f"--device {word or repr(name)}: give one of {DEVICES}")
    return f"cuda:{word}" if word.isdecimal() else word.replace("rocm", "cuda")


def _kept_below(device: str | None) -> Path:
    """The folder to keep it in; RooflensError where nothing can be kept."""
    from rooflens.collector.calibrate import check_folder, state_folder

    if device == "torch-cpu":
        raise RooflensError("--device torch-cpu measures torch, which is no roof of this processor: give --output FILE")
    folder = state_folder(os.environ)
    check_folder(folder)
    return folder


def _kept(calibration: Calibration, folder: Path | None) -> tuple[Path | None, str | None]:
    """The file that it is kept in; (None, why) where a better one is, which stays."""
    from rooflens.collector.calibrate import find, lacking, save, why_better

    if folder is None:
        raise ValueError("no folder to keep it in")
    if (lack := lacking(calibration)) is not None:
        why = next((flag for flag in calibration.flags if flag.startswith(f"{lack} ")), "no time for them")
        raise RooflensError(f"not kept, for it holds no {lack} ({why}): give more --seconds")
    at = find(calibration.identity, folder, calibration.measured_unix_s, calibration.versions)
    better = None if at.calibration is None else why_better(at.calibration, calibration, calibration.measured_unix_s)
    if at.calibration is None or better is None:
        return save(calibration, folder), None
    day = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(at.calibration.measured_unix_s))
    both = "--output FILE keeps both, and this one replaces it once that file is removed"
    return None, f"not kept: the one of {day} stays, for {better}; {both}: {at.path}"


def _show(args: argparse.Namespace) -> int:
    """Print what is kept of each device of this machine, and why it is not used where it is not."""
    from rooflens.collector.calibrate import find, load, state_folder, versions_here

    folder, held = state_folder(os.environ), True
    objects: list[Mapping[str, Any]] = []
    texts: list[str] = []
    for identity in _chosen(args.device):
        at = find(identity, folder, time.time(), versions_here())
        kept = at.calibration
        held = held and kept is not None
        if kept is None and at.path is not None:
            try:
                kept = load(at.path)
            except RooflensError:
                kept = None
        if kept is None or at.path is None:
            problem = at.problem or f"{identity.name} was never calibrated: rooflens calibrate"
            objects.append({"identity": asdict(identity), "problem": problem})
            texts.append(f"{identity.name}\n  {problem}")
            continue
        objects.append(as_json(kept, at.path, at.problem))
        texts.append("\n".join(_lines(kept, at.path, at.problem)))
    print(json_text(objects) if args.json else printable("\n\n".join(texts)))
    return 0 if held else EXIT_NOTHING


def _chosen(device: str | None) -> list[MachineIdentity]:
    """The devices that are asked for; without a name the GPUs, else the CPU, as a measurement would choose."""
    from rooflens.collector.calibrate import identities_here

    cpu, *others = identities_here()
    name = _device(device)
    if name is None:
        return [*others, cpu]
    if name == "torch-cpu":
        raise RooflensError("--device torch-cpu is never kept: look into the file that --output wrote")
    if name == "cpu":
        return [cpu]
    number = name.partition(":")[2]
    if int(number or 0) >= len(others):
        raise RooflensError(f"--device {device}: the drivers of this machine show {len(others)} such devices")
    return [others[int(number or 0)]]


def _writable(name: str) -> Path:
    """The file to write to; RooflensError where that cannot be, before anything is measured."""
    from rooflens.collector.calibrate import place

    if not name:
        raise RooflensError("--output is empty: give the name of a file")
    try:
        place.check(Path(name))
    except OSError as error:
        raise _not_written(name, error) from None
    return Path(name)


def write(calibration: Calibration, path: Path) -> Path:
    """Write it to ``path``, in the place of an older file; RooflensError where that cannot be."""
    from rooflens.collector.calibrate import place, words_of

    try:
        place.put(path, words_of(calibration))
    except OSError as error:
        raise _not_written(str(path), error) from None
    return path


def _not_written(name: str, error: OSError) -> RooflensError:
    return RooflensError(f"--output {name}: {(error.strerror or 'cannot be written').lower()}: give another file")


def roofs(calibration: Calibration) -> tuple[HardwareSpec | None, tuple[Ceiling, ...]]:
    """The hardware that was measured, None for a device that is not known, and every ceiling of it."""
    from rooflens.analyzer.calibrated import CPU, hardware_of
    from rooflens.analyzer.ceilings import ceilings_of
    from rooflens.analyzer.hardware import find_hardware

    try:
        cpu = calibration.identity.kind == CPU
        hardware = hardware_of(calibration) if cpu else find_hardware(calibration.identity.name)
    except RooflensError:
        return None, ()
    return hardware, ceilings_of(hardware, calibration, calibration.clocks_hz.get("sm"))


def as_json(calibration: Calibration, path: Path | None, problem: str | None) -> Mapping[str, Any]:
    """The calibration with its file and ceilings; ``problem`` is why it is not used, null if it is."""
    from rooflens.analyzer.calibrated import THIS_CPU
    from rooflens.cli.calibrate_text import pass_roofs

    hardware, ceilings = roofs(calibration)
    known = None if hardware is None else hardware.id

    beside = {
        "path": None if path is None else str(path),
        "problem": problem,
        "hardware": known,
        "ceilings": [asdict(one) for one in ceilings],
        "pass_roofs": pass_roofs(calibration) if known == THIS_CPU else [],
    }
    return asdict(calibration) | beside


def _lines(calibration: Calibration, path: Path | None, problem: str | None) -> list[str]:
    from rooflens.cli.calibrate_text import lines

    hardware, ceilings = roofs(calibration)
    found = lines(calibration, hardware, ceilings)
    if path is not None:
        found.append(f"file      {path}")
    if problem is not None:
        found.append(f"warning   {problem}")
    return [one_line(line) for line in found]
