"""What was found here, what is missing, and the remedy: installation, rings, engines, pages, devices, counters.

The exit code is 0 when an engine can be watched and nothing that was found is in the way, 1 when something needs
action: a line that is missing or broken. Notes do not count: rooflens works as it is, the engine may do better.

examples:
  rooflens doctor
  rooflens doctor --json
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path

from rooflens.cli.doctor_checks import CHECKS, Check, Machine, Standing
from rooflens.cli.doctor_counters import COUNTER_CHECKS
from rooflens.cli.doctor_hardware import HARDWARE_CHECKS
from rooflens.cli.doctor_install import check_install
from rooflens.cli.doctor_state import STATE_CHECKS
from rooflens.cli.doctor_trace import TRACE_CHECKS
from rooflens.cli.output import json_text, one_line
from rooflens.ring_folder import default_folder

EXIT_OK, EXIT_ACTION = 0, 1
IN_THE_WAY = (Standing.MISSING, Standing.BROKEN)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `rooflens doctor`."""
    add = parser.add_argument
    add("folder", nargs="?", metavar="FOLDER", help="the folder of the rings (default: this user's folder)")
    add("--url", metavar="URL", help="where a sidecar should be (default: ROOFLENS_URL, else http://127.0.0.1:9980)")
    add("--json", action="store_true", help="one JSON object: ok, and the checks with name, standing, found, remedy")


def run(args: argparse.Namespace) -> int:
    """Look at everything, print it, and say by the exit code whether something needs action."""
    machine = Machine(folder=Path(args.folder) if args.folder else default_folder(), sidecar_url=args.url)
    found = list(examine(machine))
    to_do = [check for check in found if check.standing in IN_THE_WAY]
    if args.json:
        print(json_text({"ok": not to_do, "checks": [asdict(check) for check in found]}))
    else:
        print("\n".join(map(one_line, text(found))))
    return EXIT_ACTION if to_do else EXIT_OK


def examine(machine: Machine) -> Iterator[Check]:
    """Every check's answers in order; one that fails itself is an answer as well."""
    for check in (check_install, *CHECKS, *HARDWARE_CHECKS, *COUNTER_CHECKS, *STATE_CHECKS, *TRACE_CHECKS):
        try:
            yield from check(machine)
        except Exception as error:  # a doctor that dies on an odd machine helps nobody
            name = check.__name__.removeprefix("check_")
            yield Check(name, Standing.NOTE, f"could not be looked at: {type(error).__name__}: {error}")


def text(checks: Iterable[Check]) -> list[str]:
    """One line for each answer and one for each remedy, and the sum of it."""
    found = list(checks)
    width = max(len(check.name) for check in found)
    lines = []
    for check in found:
        lines.append(f"{check.standing:<7}  {check.name:<{width}}  {check.found}")
        if check.remedy:
            lines.append(f"{'':<7}  {'':<{width}}  -> {check.remedy}")
    to_do = sum(check.standing in IN_THE_WAY for check in found)
    return [*lines, "", "nothing needs action" if not to_do else f"needs action: {to_do}"]
