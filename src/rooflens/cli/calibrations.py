"""Which calibration a verb uses: the stored one of this machine, or the file that its user named."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rooflens.analyzer.calibrated import CPU, THIS_CPU, fits
from rooflens.calibration_records import Calibration, MachineIdentity
from rooflens.model_records import HardwareSpec
from rooflens.records import RooflensError

if TYPE_CHECKING:
    import argparse

NONE = "none"


def add_calibration_option(
    parser: argparse._ActionsContainer, usual: str = "what is kept of the devices of this machine"
) -> None:
    """The option --calibration of a verb that can use one; ``usual`` says what it does without."""
    words = "what is reachable follows from this file of 'rooflens calibrate', of this machine, or from no calibration"
    parser.add_argument("--calibration", metavar="FILE|none", help=f"{words} (default: {usual})")


class Calibrations:
    """Finds calibrations of this machine's devices; every line about them is said once, on standard error.

    ``option`` is the value of --calibration: a path, 'none', or None for what is kept.
    """

    def __init__(self, option: str | None) -> None:
        self._option = option
        self._drivers: tuple[tuple[MachineIdentity, ...], Mapping[str, str]] | None = None
        self._kept: dict[MachineIdentity, Calibration | None] = {}
        self._said: set[str] = set()

    def of_cpu(self) -> Calibration | None:
        """That of this machine's CPU; None where there is none to use. RooflensError for a file of anything else."""
        found = self._of_file()
        if found is not None:
            if found.identity.kind != CPU:
                raise RooflensError(f"--calibration {self._option}: it is of {found.identity.name}, not of this CPU")
            return found
        return next(iter(self._stored(self._here("cpu")[:1])), None) if self._looks() else None

    def of_device(self, hardware: HardwareSpec | None, uuids: Iterable[str] = ()) -> Calibration | None:
        """That of a device of this machine that is such ``hardware``, of those in ``uuids`` where any are named.

        ``hardware`` is None where nobody knows it: then a file can be of nothing. Of several the one that reads
        slowest, since the devices of an engine wait for each other. None where there is none to use; RooflensError for
        a file that is of other hardware, or of none of the devices that are named.
        """
        from rooflens.pipeline.engine_calibration import calibration_of_engine

        named = tuple(uuids)
        kept = self.of_devices(hardware)
        found = calibration_of_engine(kept, named, here=True)
        if found is None and kept and self._option is not None:
            raise RooflensError(
                f"--calibration {self._option}: it is of {kept[0].identity.device_uuid}, the engine runs on "
                f"{', '.join(named)}: calibrate one of these"
            )
        return found

    def of_devices(self, hardware: HardwareSpec | None) -> tuple[Calibration, ...]:
        """Those of all devices of this machine that are such ``hardware``; RooflensError as of_device has it."""
        found = self._of_file()
        if found is not None:
            if hardware is None:
                raise RooflensError(f"--calibration {self._option}: the hardware is not known: give --hardware ID too")
            if not fits(found.identity, hardware):
                raise RooflensError(
                    f"--calibration {self._option}: it is of {found.identity.name}, not of {hardware.id}"
                )
            return (found,)
        if hardware is None or hardware.id == THIS_CPU or not self._looks():
            return ()
        return self._stored(one for one in self._here() if one.kind != CPU and fits(one, hardware))

    def _looks(self) -> bool:
        """Whether what is kept is wanted, and anything is: a driver is not woken for nothing."""
        from rooflens.collector.calibrate.store import SUBFOLDER, state_folder

        if self._option is not None:
            return False
        try:
            return any(name.endswith(".json") for name in os.listdir(state_folder(os.environ) / SUBFOLDER))
        except (RooflensError, FileNotFoundError, NotADirectoryError):
            return False
        except OSError:  # nobody knows what it holds: what looks for a file in it says why
            return True

    def _here(self, *kinds: str) -> list[MachineIdentity]:
        from rooflens.collector.calibrate.identity import identity_of_cpu

        return [identity_of_cpu()] if kinds == (CPU,) else list(self._machine()[0])

    def _versions(self, kind: str) -> Mapping[str, str]:
        """Those that matter to a calibration of such a device; a CPU's has none of a driver, which stays unasked."""
        from rooflens.collector.calibrate.versions import installed_here

        return installed_here() if kind == CPU else self._machine()[1]

    def _machine(self) -> tuple[tuple[MachineIdentity, ...], Mapping[str, str]]:
        """What the drivers say, once; a driver that hangs or crashes is one line, and there is the CPU only."""
        from rooflens.cli.apart import Unanswered
        from rooflens.cli.identities import machine_here
        from rooflens.collector.calibrate.identity import identity_of_cpu
        from rooflens.collector.calibrate.versions import installed_here

        if self._drivers is None:
            try:
                self._drivers = machine_here()
            except Unanswered as error:
                self._say(f"no calibration of a device is used: {error}")
                self._drivers = ((identity_of_cpu(),), installed_here())
        return self._drivers

    def _stored(self, identities: Iterable[MachineIdentity]) -> tuple[Calibration, ...]:
        from rooflens.collector.calibrate.store import find, state_folder

        folder, usable = state_folder(os.environ), []
        for identity in identities:
            if identity not in self._kept:
                at = find(identity, folder, time.time(), self._versions(identity.kind))
                self._kept[identity] = at.calibration
                if at.problem is not None:
                    self._say(at.problem)
            if (kept := self._kept[identity]) is not None:
                usable.append(kept)
        return tuple(usable)

    def _of_file(self) -> Calibration | None:
        """The calibration in the file that was named: of this machine, else RooflensError; a stale one is said."""
        from rooflens.collector.calibrate.store import is_stale, lacking, load, why_foreign

        if self._option is None or self._option.strip().casefold() == NONE:
            return None
        found = load(Path(self._option))
        here = self._here(*((CPU,) if found.identity.kind == CPU else ()))
        if found.identity not in here:
            alike = [each for each in here if each.kind == found.identity.kind] or here
            raise RooflensError(
                f"--calibration {self._option}: {why_foreign(found, alike[0])}; measure this one: rooflens calibrate"
            )
        if (lack := lacking(found)) is not None:
            raise RooflensError(f"--calibration {self._option}: it holds no {lack}: measure again: rooflens calibrate")
        if (stale := is_stale(found, time.time(), self._versions(found.identity.kind))) is not None:
            self._say(f"--calibration {self._option} is used although {stale}; measure again: rooflens calibrate")
        return found

    def _say(self, line: str) -> None:
        from rooflens.cli.output import one_line

        if line not in self._said:
            self._said.add(line)
            print(one_line(f"rooflens: {line}"), file=sys.stderr, flush=True)
