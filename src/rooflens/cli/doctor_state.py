"""What `rooflens doctor` says of the state folder: where it is, how much was learned, and what cannot be used."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from rooflens.cli.doctor_checks import Check, Machine, Standing, counted
from rooflens.records import RooflensError

MOST_SAID = 3  # files that cannot be used
NAME = "state"


def check_state(_machine: Machine) -> Iterator[Check]:
    """Where a sidecar keeps what it learns, and what is kept there."""
    from rooflens.collector.state.cursors import cursors_file
    from rooflens.collector.state.learned import SUBFOLDER, held
    from rooflens.collector.state.place import state_folder

    try:
        folder = state_folder(os.environ)
        there = held(folder / SUBFOLDER)
    except RooflensError as error:
        yield _said(str(error))
        return
    told, problems = _learned(folder) if there.sizes else ("nothing learned yet", [])
    cursors = cursors_file(folder).read()
    problems += [cursors.problem] if cursors.problem else []
    if cursors.value:
        told += f"; cursors of {counted(len(cursors.value), 'ring')}"
    yield Check(NAME, Standing.OK if there.sizes or cursors.value else Standing.NOTE, f"{folder}: {told}")
    yield from map(_said, problems[:MOST_SAID])
    if there.damaged:
        yield Check(NAME, Standing.NOTE, f"{counted(there.damaged, 'damaged file')} set aside in {folder / SUBFOLDER}",
                    "look at them, and remove them")  # fmt: skip


def _learned(folder: Path) -> tuple[str, list[str]]:
    """How much was learned, in words, and what is wrong with files that cannot be used."""
    from rooflens.collector.state.learned import held
    from rooflens.pipeline.memory import learned_files

    files = learned_files(folder)
    read = list(files.everything())
    keys = [key for key, _ in read if key is not None]
    windows = sum(
        usual.windows for _, outcome in read if outcome.value for usual in outcome.value.baseline.regimes.values()
    )
    engines = sorted({f"{key.engine} {key.engine_version}" for key in keys})
    more = f" and {len(engines) - 4} more" if len(engines) > 4 else ""
    size = held(files.folder).total_bytes
    told = f"{counted(len(keys), 'configuration')} ({', '.join(engines[:4])}{more}), " if keys else ""
    told += f"{counted(windows, 'window')} in {size / 1e3:,.0f} kB"
    return told, [outcome.problem for _, outcome in read if outcome.problem]


def _said(problem: str) -> Check:
    """A line of a fault, whose next step stands behind its last semicolon."""
    fault, _, remedy = problem.rpartition("; ")
    return Check(NAME, Standing.NOTE, fault or remedy, remedy if fault else None)


STATE_CHECKS: tuple[Callable[[Machine], Iterator[Check]], ...] = (check_state,)
