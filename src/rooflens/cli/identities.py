"""Whose calibrations are this machine's: the identities that its drivers tell, asked in a process of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from rooflens.calibration_records import MachineIdentity
from rooflens.cli import apart

MODULE = "rooflens.cli.identities"
WHOSE = "a driver's library (NVML or amdsmi)"


def machine_here() -> tuple[tuple[MachineIdentity, ...], Mapping[str, str]]:
    """The identities of this machine, its CPU's first, and the versions that matter to calibrations.

    Raises apart.Unanswered where a driver hangs or crashes.
    """
    said = apart.ask(MODULE, WHOSE)
    return tuple(MachineIdentity(**each) for each in said["identities"]), said["versions"]


def told() -> dict[str, Any]:
    """The same from inside this process, which goes down with its driver."""
    from rooflens.collector import calibrate

    return {
        "identities": [asdict(identity) for identity in calibrate.identities_here()],
        "versions": calibrate.versions_here(),
    }


if __name__ == "__main__":
    apart.answer(told)
