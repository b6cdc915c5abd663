"""Machines for the tests of `rooflens doctor`, and how its answers are looked up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rooflens.cli.doctor_checks import Check, Machine, Standing


def machine(root: Path, **where: Any) -> Machine:
    return Machine(**{"root": root, "folder": root / "rings", "ports": (), **where})


def named(checks: list[Check], name: str) -> list[tuple[Standing, str, str | None]]:
    return [(check.standing, check.found, check.remedy) for check in checks if check.name == name]


def one(checks: list[Check], name: str) -> tuple[Standing, str, str | None]:
    (found,) = named(checks, name)
    return found
