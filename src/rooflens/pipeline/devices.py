"""The rings of device times beside the engines' own, and which worker's belong to which engine."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from rooflens.collector.device_reader import DeviceReader
from rooflens.pipeline.ring_reader import said
from rooflens.records import RooflensError, StepTable
from rooflens.ring import RingHeader
from rooflens.ring_folder import DEVICE_SUFFIX, open_folder

Place = tuple[Path, str, int]  # folder, name, inode


class Devices:
    """Workers' rings as they come and go. Device time is an extra: what is wrong with it hinders nothing else."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = tuple(folders)
        self._open: dict[Place, DeviceReader] = {}
        self._passed: dict[Place, str | None] = {}  # dead or unreadable, and why it cannot be read

    @property
    def problems(self) -> tuple[str, ...]:
        """What is wrong with rings of device times, one line each."""
        return tuple(problem for problem in self._passed.values() if problem)

    def read(self) -> None:
        """Look for new rings, and take in what is new in those that are open."""
        here = [place for folder in self._folders for place in _listed(folder)]
        for place in here:
            if place not in self._open and place not in self._passed:
                self._try(place)
        self._passed = {place: why for place, why in self._passed.items() if place in here}
        for place, ring in list(self._open.items()):
            try:
                live = ring.live()
                ring.read()
            except Exception as error:
                live, self._passed[place] = False, said(error, ring.path)
            if not live:
                self._passed.setdefault(place, None)
                del self._open[place]
                ring.close()

    def join(self, engine: RingHeader, steps: StepTable) -> StepTable:
        """The steps of an engine with ``device_s`` where it is clear for every one of its workers."""
        for ring in self._open.values():
            if ring.belongs_to(engine):
                steps = ring.join(steps)
        return steps

    def timed(self, engine: RingHeader) -> bool:
        """Whether a worker of this engine tells device times."""
        return any(ring.belongs_to(engine) for ring in self._open.values())

    def uuids(self, engine: RingHeader) -> tuple[str, ...]:
        """The devices that the workers of an engine name."""
        rings = [ring for ring in self._open.values() if ring.belongs_to(engine)]
        return tuple(dict.fromkeys(uuid for ring in rings for uuid in ring.device_uuids))

    def close(self) -> None:
        """Let go of every ring."""
        for ring in self._open.values():
            ring.close()
        self._open.clear()

    def _try(self, place: Place) -> None:
        path = place[0] / place[1]
        try:
            ring = DeviceReader(path)
        except Exception as error:
            if os.path.lexists(path):
                self._passed[place] = said(error, path)
            return
        if ring.live():
            self._open[place] = ring
        else:
            self._passed[place] = None
            ring.close()


def uuids_beside(folder: Path, engine: RingHeader) -> tuple[str, ...]:
    """The devices that the workers of an engine name whose ring lies in ``folder``, dead or alive."""
    found: dict[str, None] = {}
    for place in _listed(folder):
        with contextlib.suppress(Exception), contextlib.closing(DeviceReader(place[0] / place[1])) as ring:
            if ring.belongs_to(engine):
                found |= dict.fromkeys(ring.device_uuids)
    return tuple(found)


def _listed(folder: Path) -> list[Place]:
    """The rings of device times in a folder; none where it is unfit, which the engines' own rings tell of."""
    try:
        descriptor = open_folder(folder)
    except RooflensError:
        return []
    try:
        with contextlib.suppress(OSError), os.scandir(descriptor) as entries:
            return [(folder, e.name, e.inode()) for e in entries if _is_ring(e.name)]
        return []
    finally:
        os.close(descriptor)


def _is_ring(name: str) -> bool:
    return name.endswith(DEVICE_SUFFIX) and not name.startswith(".")
