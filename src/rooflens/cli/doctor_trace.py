"""What `rooflens doctor` says of the folder in which a sidecar keeps its trace, where ROOFLENS_TRACE names one."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path

from rooflens.cli.doctor_checks import Check, Machine, Standing
from rooflens.cli.units import binary_text

VARIABLE = "ROOFLENS_TRACE"
NAME = "trace"
HOURS = re.compile(r"date=(\d{4}-\d\d-\d\d)/hour=(\d\d)$")


def check_trace(_machine: Machine) -> Iterator[Check]:
    """Where the trace is, how much is in it and of when, and whether this user may write there."""
    named = os.environ.get(VARIABLE)
    if not named:
        return
    if "://" in named:
        from rooflens.collector.trace.store import shown

        yield Check(NAME, Standing.NOTE, f"{shown(named)}: an object store is not looked into from here")
        return
    folder = Path(named).expanduser()
    if not os.path.lexists(folder):
        yield Check(NAME, Standing.NOTE, f"{folder} is not there yet: a sidecar makes it")
        return
    if not folder.is_dir() or not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        why = "this user may not write there" if folder.is_dir() else "it is no folder"
        yield Check(NAME, Standing.BROKEN, f"{folder}: {why}", f"set {VARIABLE} to another folder, or mend this one")
        return
    yield Check(NAME, Standing.OK, f"{folder}: {_held(folder)}")


def _held(folder: Path) -> str:
    count = size = 0
    hours = set()
    for place, _, names in os.walk(folder):
        found = [name for name in names if name.endswith(".parquet") and not name.startswith(".")]
        count += len(found)
        size += sum(os.lstat(os.path.join(place, name)).st_size for name in found)
        if found and (hour := HOURS.search(place)):
            hours.add(f"{hour[1]} {hour[2]}:00")
    if not count:
        return "no file yet"
    files = f"{count:,} file{'' if count == 1 else 's'}, {binary_text(size)}"
    return f"{files}, {_period(min(hours), max(hours))} UTC" if hours else files


def _period(first: str, last: str) -> str:
    end = datetime.strptime(last, "%Y-%m-%d %H:%M") + timedelta(hours=1)  # of the last hour
    same_day = first[:10] == f"{end:%Y-%m-%d}"
    return f"{first} to {f'{end:%H:%M}' if same_day else f'{end:%Y-%m-%d %H:%M}'}"


TRACE_CHECKS: tuple[Callable[[Machine], Iterator[Check]], ...] = (check_trace,)
