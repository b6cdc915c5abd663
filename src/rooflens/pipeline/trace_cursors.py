"""How far the trace of each ring has come, and when that may be said: not while older steps are on their way."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rooflens.collector.state.cursors import Cursors


class TraceCursors:
    """The cursors of the rings of one trace; several threads may use them.

    A cursor stands for all steps up to it. While the steps from before the sidecar are taken from a ring, those of now
    are handed over beside them: the cursor then moves only once the writer has written a step that was handed over
    after the last of the older ones. ``place`` is where the trace goes: the same ring has a cursor in each.
    """

    def __init__(self, cursors: Cursors | None, place: str) -> None:
        self._cursors, self._place = cursors, place
        self._lock = threading.Lock()
        self._put: dict[str, int] = {}  # of each ring the last sequence that was handed over now
        self._older: set[str] = set()  # rings of which older steps are being taken
        self._taken: set[str] = set()  # those are handed over; of now nothing was since
        self._from: dict[str, int] = {}  # the written sequence from which on the cursor moves

    @property
    def kept(self) -> bool:
        """Whether there is anything that outlives the sidecar."""
        return self._cursors is not None

    @property
    def problem(self) -> str | None:
        """What hinders keeping them, in one line."""
        return self._cursors.problem if self._cursors is not None else None

    def get(self, run: str) -> int | None:
        """The last sequence of this run that is safe in the trace; None where none is known."""
        return self._cursors.get(self._id(run)) if self._cursors is not None else None

    def follow(self, run: str) -> None:
        """This run is a ring's: its cursor is kept."""
        with self._lock:
            self._put.setdefault(run, 0)

    def older(self, run: str) -> None:
        """Steps from before the sidecar are to be taken from this ring."""
        self.follow(run)
        with self._lock:
            self._older.add(run)

    def older_taken(self, run: str, last: int) -> None:
        """All of them are handed over, up to sequence ``last``."""
        with self._lock:
            self._older.discard(run)
            if self._put[run]:
                self._taken.add(run)
            else:
                self._from[run] = last

    def put(self, run: str, last: int) -> None:
        """Steps of now were handed over, up to ``last``."""
        with self._lock:
            if run in self._put:
                self._put[run] = last
                if run in self._taken:
                    self._taken.discard(run)
                    self._from[run] = last

    def written(self, last: Mapping[str, int]) -> None:
        """The writer has put all that it was handed of these runs up to these sequences into files; on its thread."""
        if self._cursors is None:
            return
        with self._lock:
            safe = {
                run: sequence
                for run, sequence in last.items()
                if run in self._put and run not in self._older | self._taken and sequence >= self._from.get(run, 0)
            }
        for run, sequence in safe.items():
            self._cursors.set(self._id(run), sequence)
        if safe:
            self._cursors.flush()

    def end(self) -> None:
        """Nothing more is handed over: what is written now is all there was."""
        with self._lock:
            self._taken.clear()
            self._from.clear()

    def _id(self, run: str) -> str:
        return f"{self._place}\n{run}"
