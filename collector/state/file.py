"""One JSON file of state: read whole or not at all, changed by one process at a time, never torn and never lost."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from rooflens.collector.state.lock import Busy, locked
from rooflens.collector.state.place import ELSEWHERE, opened, said
from rooflens.collector.state.words import values
from rooflens.records import RooflensError

LARGEST_BYTES = 1 << 20
ASIDE = ".writing-"  # before the name of the file that is written
DAMAGED = ".damaged"
MOST_DAMAGED = 8  # files that are set aside beside one; more would fill the folder of whoever never looks
LOCK_PATIENCE_S = 0.2

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Format(Generic[Value]):
    """How a value stands in a file: an object with the number ``schema`` and what ``dump`` makes of the value.

    ``parse`` is the inverse, ValueError or RooflensError for what it did not write. ``older`` turns the object of an
    older schema, by its number, into one of this; a file of one that is not named there is begun anew.
    """

    schema: int
    parse: Callable[[Mapping[str, Any]], Value]
    dump: Callable[[Value], Mapping[str, Any]]
    empty: Callable[[], Value]
    older: Mapping[int, Callable[[Mapping[str, Any]], Mapping[str, Any]]]


@dataclass(frozen=True, slots=True)
class Outcome(Generic[Value]):
    """What a file holds, None where nothing; in ``problem`` one line on what is wrong with it.

    ``saved`` is whether a change was written. Neither saved nor with a problem: another process was writing, so that
    the change is to be tried again.
    """

    value: Value | None = None
    problem: str | None = None
    saved: bool = False


class NewerFile(RooflensError):
    """The file was written by a later release: it is neither used nor touched."""


class DamagedFile(RooflensError):
    """The file is none of those that were written here: it is set aside with the next write."""


class StateFile(Generic[Value]):
    """The file ``name`` in ``folder``; never raises."""

    def __init__(self, folder: Path, name: str, form: Format[Value]) -> None:
        self.folder, self.name, self._form = folder, name, form

    @property
    def path(self) -> Path:
        """Where it is."""
        return self.folder / self.name

    def read(self) -> Outcome[Value]:
        """What it holds. Waits for no writer: they put a whole file in its place."""
        try:
            with opened(self.folder, create=False) as folder:
                return Outcome(None if folder is None else self._value(folder))
        except DamagedFile as error:
            return Outcome(problem=f"{error}; what is written next sets it aside and begins anew")
        except RooflensError as error:
            return Outcome(problem=str(error))
        except OSError as error:
            return Outcome(problem=f"{self.path} cannot be read: {said(error)}; check its owner and mode")

    def change(self, change: Callable[[Value], Value], patience_s: float = LOCK_PATIENCE_S) -> Outcome[Value]:
        """Put ``change`` of what it holds in its place, on disk when this returns.

        A file that is damaged is set aside before, which is the outcome's problem although it was saved.
        """
        try:
            with opened(self.folder, create=True) as folder:
                assert folder is not None
                with locked(folder, self.name, patience_s):
                    return self._changed(folder, change)
        except Busy:
            return Outcome()
        except RooflensError as error:
            return Outcome(problem=str(error))
        except OSError as error:
            return Outcome(problem=f"{self.path} could not be written: {said(error)}; {ELSEWHERE}")

    def _changed(self, folder: int, change: Callable[[Value], Value]) -> Outcome[Value]:
        held, problem = None, None
        try:
            held = self._value(folder)
        except DamagedFile as error:
            problem = f"{error}: set aside as {self._set_aside(folder)}"
        value = change(self._form.empty() if held is None else held)
        words = json.dumps({**self._form.dump(value), "schema": self._form.schema}, allow_nan=False).encode()
        if len(words) > LARGEST_BYTES:
            raise RooflensError(
                f"{self.path} was not written: more than {LARGEST_BYTES} bytes; remove it to begin anew"
            )
        self._put(folder, words)
        return Outcome(value, problem, saved=True)

    def _value(self, folder: int) -> Value | None:
        """What it holds, None where it is missing; RooflensError for what cannot be used."""
        words = self._words(folder)
        if words is None:
            return None
        try:
            data = values(words)
            if not isinstance(data, dict):
                raise ValueError("it is no object")
            if isinstance(schema := data.get("schema"), bool) or not isinstance(schema, int):
                raise ValueError("it names no schema")
            if schema > self._form.schema:
                raise NewerFile(
                    f"{self.path} was written by a later release (schema {str(schema)[:20]}, this one knows "
                    f"{self._form.schema}): left alone; upgrade rooflens, or {ELSEWHERE}"
                )
            if schema < self._form.schema:
                if schema not in self._form.older:
                    raise ValueError(f"schema {str(schema)[:20]} of an older release is read no more")
                data = self._form.older[schema](data)
            return self._form.parse(data)
        except NewerFile:
            raise
        except UnicodeDecodeError:
            raise DamagedFile(f"{self.path} is not used: it is not text") from None
        except json.JSONDecodeError as error:
            raise DamagedFile(f"{self.path} is not used: no JSON in line {error.lineno}") from None
        except (ValueError, RooflensError) as error:
            raise DamagedFile(f"{self.path} is not used: {error}") from None

    def _words(self, folder: int) -> bytes | None:
        try:
            descriptor = os.open(
                self.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder
            )  # a pipe in its place would be waited for
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise RooflensError(f"{self.path} is not used: it is a symbolic link; remove it") from None
            raise
        try:
            facts = os.fstat(descriptor)
            if not stat.S_ISREG(facts.st_mode):
                raise RooflensError(f"{self.path} is not used: it is no file; remove it")
            if facts.st_uid != os.geteuid() or facts.st_mode & 0o022:
                raise RooflensError(f"{self.path} is not used: others may have written it; remove it")
            with open(descriptor, "rb", closefd=False) as file:
                words = file.read(LARGEST_BYTES + 1)
        finally:
            os.close(descriptor)
        if len(words) > LARGEST_BYTES:
            raise DamagedFile(f"{self.path} is not used: longer than {LARGEST_BYTES} bytes")
        return words

    def _set_aside(self, folder: int) -> str:
        """Give the file another name, which is returned; RooflensError where too many are aside already."""
        for number in range(MOST_DAMAGED):
            name = f"{self.name}{DAMAGED}{number or ''}"
            if not os.access(name, os.F_OK, dir_fd=folder, follow_symlinks=False):
                os.rename(self.name, name, src_dir_fd=folder, dst_dir_fd=folder)
                return name
        raise RooflensError(f"{self.path} is not used: {MOST_DAMAGED} damaged ones are beside it; remove them")

    def _put(self, folder: int, words: bytes) -> None:
        """Write aside, sync, rename, sync the folder; only the holder of the lock uses this name."""
        aside = f"{ASIDE}{self.name}"
        with suppress(FileNotFoundError):
            os.unlink(aside, dir_fd=folder)  # of a process that was killed
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            with open(os.open(aside, flags, 0o600, dir_fd=folder), "wb") as file:
                file.write(words)
                file.flush()
                os.fsync(file.fileno())
            os.rename(aside, self.name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with suppress(OSError):
                os.unlink(aside, dir_fd=folder)
            raise
        os.fsync(folder)
