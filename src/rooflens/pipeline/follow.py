"""Which rings there are: new ones are found every turn, those that cannot be read are said once."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rooflens.collector.ring_file import RingFile
from rooflens.live_records import SourceHealth, SourceKind, State
from rooflens.pipeline.ring_reader import RingReader, said
from rooflens.records import RooflensError
from rooflens.ring import RingHeader
from rooflens.ring_folder import SUFFIX, open_folder

CLOCK_STEP_S = 5.0  # the wall clock may be set meanwhile
FACTS_PATIENCE_S = 5.0  # an engine writes its facts right after it made its ring
Place = tuple[Path, str, int]  # folder, name, inode: another file of the same name is another run
Run = tuple[int, int, int]  # device, inode, and when it was made: one ring, whatever folders and names lead to it
Wanted = Callable[[Path], bool]
Stamp = tuple[int, int]  # change time in nanoseconds, size in bytes


@dataclass(slots=True)
class _Bad:
    """A file that could not be read; it is tried again when ``stamp`` (its change time and size) differs."""

    stamp: Stamp
    problem: str


class Follower:
    """The rings of some folders as engines come and go.

    What was recorded before the sidecar is passed over, so that nothing is counted twice across its restarts: a ring
    that was there is read from its live end, or not at all if its engine was dead already; one that is made later
    is read from its start. Rings that are not ``wanted`` are as if they were not there; the answer may change.
    ``failures`` counts rings that could not be opened.
    """

    def __init__(self, folders: Sequence[Path], from_start: bool = False, wanted: Wanted | None = None) -> None:
        self.failures = 0
        self._wanted = wanted
        self._folders = tuple(folders)
        self._from_start = from_start
        self._started_s, self._started_unix_s = time.monotonic(), time.time()
        self._runs: dict[Place, Run] = {}  # every name of the rings below
        self._open: dict[Run, RingReader] = {}
        self._done: set[Run] = set()  # dead before we came, or read to the end
        self._read: set[Run] = set()  # counted as far as they could be read; never again from the start
        self._bad: dict[Place, _Bad] = {}
        self._unfit: dict[Path, str] = {}
        self._passed: list[Path] = []

    @property
    def problems(self) -> tuple[str, ...]:
        """What is wrong with folders and with files in them, one line each."""
        return (*self._unfit.values(), *(bad.problem for bad in self._bad.values()))

    def readers(self) -> list[RingReader]:
        """Look for new rings; all that are to be read now, the oldest first."""
        here = {place for folder in self._folders for place in self._look_into(folder)}
        self._runs = {place: run for place, run in self._runs.items() if place in here}
        named = {*self._runs.values(), *self._open}
        self._done &= named
        self._read &= named
        return sorted(self._open.values(), key=lambda ring: (ring.created_unix_s, ring.run))

    def passed(self) -> list[Path]:
        """Rings that were passed over since the last call, for their engines were dead already."""
        passed, self._passed = self._passed, []
        return passed

    def drop(self, ring: RingReader) -> None:
        """The engine is gone and its ring was read to the end, or as far as it can be read."""
        for run in [run for run, known in self._open.items() if known is ring]:
            del self._open[run]
            ring.close()
            if ring.problem is None:
                self._done.add(run)
                continue
            for place in [place for place, its in self._runs.items() if its == run]:
                with contextlib.suppress(OSError):
                    status = os.lstat(place[0] / place[1])
                    self._bad[place] = _Bad((status.st_ctime_ns, status.st_size), ring.problem)

    def health(self) -> list[SourceHealth]:
        """How the open rings and the unreadable ones are doing."""
        bad = [
            SourceHealth(name, SourceKind.RING, State.UNREACHABLE, problem=bad.problem)
            for (_, name, _), bad in self._bad.items()
        ]
        return [ring.health() for ring in self._open.values()] + bad

    def close(self) -> None:
        """Let go of every ring."""
        for ring in self._open.values():
            ring.close()
        self._open.clear()

    def _look_into(self, folder: Path) -> set[Place]:
        here, unknown = self._listed(folder)
        for place in [place for place in self._bad if place[0] == folder and place not in here]:
            del self._bad[place]
        for place, stamp in unknown.items():
            known = self._bad.get(place)
            if known is None or known.stamp != stamp:
                self._try(place, stamp)
        # What is in a folder that is unfit for now is not known: nothing of it is forgotten, nor counted anew.
        return here if folder not in self._unfit else here | {place for place in self._runs if place[0] == folder}

    def _listed(self, folder: Path) -> tuple[set[Place], dict[Place, Stamp]]:
        """Every ring of the folder, and the stamps of those that are not open and not done with."""
        here: set[Place] = set()
        unknown: dict[Place, Stamp] = {}
        self._unfit.pop(folder, None)
        try:
            descriptor = open_folder(folder)
        except RooflensError as error:
            if os.path.lexists(folder):  # one that is missing may be made by the first engine
                self._unfit[folder] = str(error)
            return here, unknown
        try:
            with os.scandir(descriptor) as entries:
                for entry in entries:
                    if not entry.name.endswith(SUFFIX) or entry.name.startswith("."):
                        continue
                    if self._wanted is not None and not self._wanted(folder / entry.name):
                        continue
                    place = (folder, entry.name, entry.inode())
                    here.add(place)
                    run = self._runs.get(place)
                    if run not in self._open and run not in self._done:
                        with contextlib.suppress(FileNotFoundError):
                            status = entry.stat(follow_symlinks=False)
                            unknown[place] = (status.st_ctime_ns, status.st_size)
        except OSError as error:
            self._unfit[folder] = f"ring folder {folder}: {os.strerror(error.errno or 0).lower()}"
        finally:
            os.close(descriptor)
        return here, unknown

    def _try(self, place: Place, stamp: Stamp) -> None:
        folder, name, inode = place
        path = folder / name
        self._bad.pop(place, None)
        try:
            run, header, live, told = _looked_at(path)
            self._runs[place] = run
            if run in self._open or run in self._done:
                return  # under another name or in another folder
            created_s, created_unix_s = header.created_monotonic_ns / 1e9, header.created_unix_ns / 1e9
            if live and not told and time.monotonic() - created_s < FACTS_PATIENCE_S:
                return  # it is being made: the next turn knows more
            # Of the dead both clocks: the monotonic one began anew if the ring is from before a boot.
            after_us = created_unix_s >= self._started_unix_s - CLOCK_STEP_S or live
            made_later = (self._from_start or (after_us and created_s >= self._started_s)) and run not in self._read
            if not live and not made_later:
                self._done.add(run)
                self._passed.append(path)
                return
            self._read.add(run)
            self._open[run] = RingReader(path, f"{path}#{inode}", from_start=made_later)
        except Exception as error:
            if not os.path.lexists(path):
                return
            self.failures += 1
            self._bad[place] = _Bad(stamp, said(error, path))


def _looked_at(path: Path) -> tuple[Run, RingHeader, bool, bool]:
    """Which ring it is, its header, whether its writer lives, and whether the engine's facts are there.

    RooflensError if it is no ring that can be read.
    """
    file = RingFile(path)
    try:
        status = os.lstat(path)
        run = (status.st_dev, status.st_ino, file.header.created_unix_ns)
        return run, file.header, file.live(), file.facts() is not None
    finally:
        file.close()
