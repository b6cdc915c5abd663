"""How far the trace of each ring has come: the last step that is safely in a file which has its final name."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rooflens.collector.state.file import Format, StateFile

SUBFOLDER, NAME = "trace", "cursors.json"
SCHEMA = 1
MOST_RINGS = 4096  # those that moved longest ago make way; a ring is a run of an engine, so months of restarts fit
DIGITS = 24
PATIENCE_S = 2.0  # the trace has a thread of its own, which may wait
LARGEST = 2**63

Table = dict[str, int]  # by a digest of the ring's identity, those that moved last at the end


class Cursors:
    """The cursors below the state folder ``folder``, which need not be there yet; several processes may write.

    Nothing here raises: ``problem`` is one line on what hinders it, None while nothing does.
    """

    def __init__(self, folder: Path) -> None:
        self._file = cursors_file(folder)
        found = self._file.read()
        self._held: Table = found.value or {}
        self._moved: Table = {}
        self.problem = found.problem

    def get(self, ring_id: str) -> int | None:
        """The last sequence of this ring that is safe, None where none is known."""
        name = _digest(ring_id)
        return self._moved.get(name, self._held.get(name))

    def set(self, ring_id: str, sequence: int) -> None:
        """The steps of this ring up to ``sequence`` are safe; a smaller one than before changes nothing."""
        name = _digest(ring_id)
        _move(self._moved, {name: max(sequence, self._held.get(name, 0))})

    def flush(self) -> None:
        """Put what was set since the last time on disk. What cannot be is kept for the next."""
        if not self._moved:
            return
        moved = dict(self._moved)
        outcome = self._file.change(lambda held: _merged(held, moved), PATIENCE_S)
        if outcome.saved:
            self._held, self._moved = outcome.value or {}, {}
        if outcome.saved or outcome.problem is not None:
            self.problem = outcome.problem


def cursors_file(folder: Path) -> StateFile[Table]:
    """The file of the cursors below the state folder ``folder``."""
    return StateFile(folder / SUBFOLDER, NAME, FORM)


def _digest(ring_id: str) -> str:
    """A ring's identity may hold the name of a host, which is nobody's business here."""
    return hashlib.sha256(ring_id.encode("utf-8", "surrogatepass")).hexdigest()[:DIGITS]


def _merged(held: Table, moved: Mapping[str, int]) -> Table:
    found = dict(held)
    _move(found, moved)
    return found


def _move(table: Table, moved: Mapping[str, int]) -> None:
    for name, sequence in moved.items():
        table[name] = max(sequence, table.pop(name, 0))
    for name in list(table)[: max(0, len(table) - MOST_RINGS)]:
        del table[name]


def _parse(data: Mapping[str, Any]) -> Table:
    rows = data.get("cursors")
    if not isinstance(rows, dict):
        raise ValueError("it holds no cursors")
    for name, sequence in rows.items():
        if isinstance(sequence, bool) or not isinstance(sequence, int) or not 0 <= sequence < LARGEST:
            raise ValueError(f"the cursor of {name[:DIGITS]!r} is no sequence number")
    return rows


FORM: Format[Table] = Format(SCHEMA, _parse, lambda table: {"cursors": table}, dict, {})
