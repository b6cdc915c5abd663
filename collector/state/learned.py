"""What was learned of engines, a file for each key: bounded in number and in size, the oldest make way."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from rooflens.collector.state.file import DAMAGED, Format, Outcome, StateFile
from rooflens.collector.state.key import StateKey, key_data, key_from_data
from rooflens.collector.state.lock import SUFFIX as LOCK_SUFFIX
from rooflens.collector.state.lock import Busy, locked
from rooflens.collector.state.place import opened
from rooflens.records import RooflensError

SUBFOLDER = "learned"
SCHEMA = 1
# A host runs a handful of configurations; each change of one makes another, of which the old ones are of no more use.
MOST_KEYS = 64
MOST_BYTES = 16 << 20

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Held:
    """How much a folder holds: its files by name with their bytes, the oldest first; damaged ones beside them."""

    sizes: Mapping[str, int]
    damaged: int = 0

    @property
    def total_bytes(self) -> int:
        """Of all files that are used."""
        return sum(self.sizes.values())


class LearnedFiles(Generic[Value]):
    """The files below the state folder ``folder``; ``parse`` and ``dump`` turn their rows into a value and back."""

    def __init__(
        self,
        folder: Path,
        parse: Callable[[Mapping[str, Any]], Value],
        dump: Callable[[Value], Mapping[str, Any]],
        empty: Callable[[], Value],
    ) -> None:
        self.folder = folder / SUBFOLDER
        self._parse, self._dump, self._empty = parse, dump, empty

    def file(self, key: StateKey) -> StateFile[Value]:
        """The file of this key, which need not be there; one that holds another key is damaged."""
        named = key_data(key)

        def parse(data: Mapping[str, Any]) -> Value:
            if data.get("key") != named:
                raise ValueError("it is of another configuration")
            return self._parse(data)

        form = Format(SCHEMA, parse, lambda value: {"key": named, **self._dump(value)}, self._empty, {})
        return StateFile(self.folder, key.file_name, form)

    def other_versions(self, key: StateKey) -> dict[str, Value]:
        """What is held of the same configuration under other versions of the engine; what cannot be used is left out.

        RooflensError, one line, where the folder is unfit.
        """
        read = (self._read(name) for name in held(self.folder).sizes if name.startswith(f"{key.lineage}-"))
        return {
            there.engine_version: outcome.value
            for there, outcome in read
            if there is not None and outcome.value is not None and there != key and there.lineage == key.lineage
        }

    def everything(self) -> Iterator[tuple[StateKey | None, Outcome[Value]]]:
        """Each file's key, None where it cannot be used, and what it holds. RooflensError where the folder is unfit."""
        return map(self._read, held(self.folder).sizes)

    def _read(self, name: str) -> tuple[StateKey | None, Outcome[Value]]:
        """A file of this name, whose key it tells itself."""
        found: StateKey | None = None

        def parse(data: Mapping[str, Any]) -> Value:
            nonlocal found
            key = key_from_data(data.get("key"))
            if key.file_name != name:
                raise ValueError("it is of another configuration")
            value = self._parse(data)
            found = key
            return value

        outcome = StateFile(self.folder, name, Format(SCHEMA, parse, self._dump, self._empty, {})).read()
        return found, outcome

    def make_way(self) -> None:
        """Remove the oldest files beyond MOST_KEYS and MOST_BYTES, each with its lock; one in use is passed over."""
        there = held(self.folder)
        names, total = list(there.sizes), there.total_bytes
        while len(names) > MOST_KEYS or total > MOST_BYTES:
            name = names.pop(0)
            total -= there.sizes[name]
            with suppress(OSError, RooflensError, Busy), opened(self.folder, create=False) as folder:
                if folder is not None:
                    with locked(folder, name, patience_s=0.0):
                        os.unlink(name, dir_fd=folder)
                        os.unlink(f"{name}{LOCK_SUFFIX}", dir_fd=folder)


def held(folder: Path) -> Held:
    """What is in a folder of state that may not be there; RooflensError, one line, where it is unfit."""
    found: list[tuple[float, str, int]] = []
    damaged = 0
    with opened(folder, create=False) as descriptor:
        for name in os.listdir(descriptor) if descriptor is not None else ():
            damaged += DAMAGED in name
            if not name.endswith(".json") or name.startswith("."):
                continue
            with suppress(OSError):
                facts = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
                if stat.S_ISREG(facts.st_mode):
                    found.append((facts.st_mtime, name, facts.st_size))
    return Held({name: size for _, name, size in sorted(found)}, damaged)
