"""The file of a calibration: written for one identity, found again by it, and never believed blindly."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from rooflens.calibration_records import Calibration, MachineIdentity
from rooflens.collector.calibrate import place
from rooflens.collector.calibrate.read_json import parse
from rooflens.collector.calibrate.versions import changed
from rooflens.collector.state.place import state_folder as state_folder  # calibrations are below it
from rooflens.records import RooflensError

SUBFOLDER = "calibrations"
LARGEST_BYTES = 1 << 20
STALE_AFTER_S = 180 * 86400.0
FUTURE_S = 86400.0  # clocks of two machines, or one that was set, may be off by this much
NAME_DIGITS = 24
MOST_LOOKED_AT = 64  # files of a folder, to say why none of them is of this machine
AGAIN = "measure again: rooflens calibrate"


@dataclass(frozen=True, slots=True)
class Found:
    """What a state folder holds for one identity: a calibration to use, or in ``problem`` why there is none.

    ``path`` is that of the file, whether it can be used or not. All three are None where nothing was ever measured.
    """

    calibration: Calibration | None = None
    path: Path | None = None
    problem: str | None = None


def path_of(identity: MachineIdentity, folder: Path) -> Path:
    """The file of this identity below a state folder; the name says nothing but that it is this one."""
    words = json.dumps(asdict(identity), sort_keys=True)
    return folder / SUBFOLDER / f"{hashlib.sha256(words.encode()).hexdigest()[:NAME_DIGITS]}.json"


def save(calibration: Calibration, folder: Path) -> Path:
    """Write it below the state folder ``folder``, readable by its owner only, in place of an older one of the same
    identity; the path. RooflensError where that cannot be written.
    """
    path, words = path_of(calibration.identity, folder), words_of(calibration)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        place.sweep(path.parent)
        place.put(path, words)
    except OSError as error:
        raise _not_written(path, error) from None
    return path


def check_folder(folder: Path) -> None:
    """RooflensError where nothing could be saved below the state folder ``folder``: before anything is measured."""
    path = folder / SUBFOLDER / "any.json"
    try:
        place.check(path, with_folders=True)
    except OSError as error:
        raise _not_written(path, error) from None


def _not_written(path: Path, error: OSError) -> RooflensError:
    if isinstance(error, IsADirectoryError):
        return RooflensError(f"{path} is a folder, where the calibration belongs: remove it")
    return RooflensError(
        f"the calibration could not be written to {path.parent}: {error.strerror or error}; "
        "set ROOFLENS_STATE_DIR to a folder that can be written"
    )


def words_of(calibration: Calibration) -> str:
    """What its file holds; RooflensError for figures that no file of a calibration may hold."""
    try:
        words = json.dumps(asdict(calibration), indent=1, sort_keys=True, allow_nan=False) + "\n"
        parse(words.encode())
    except ValueError as error:
        raise RooflensError(f"what was measured cannot be: {error}; {AGAIN}") from None
    return words


def load(path: Path, own: bool = False) -> Calibration:
    """The calibration in this file; RooflensError, one line, for whatever is wrong with it.

    With ``own`` also for a file that others may have written.
    """
    words = _bounded(path, own)
    try:
        return parse(words)
    except UnicodeDecodeError:
        raise RooflensError(f"{path} is no calibration: it is not text; {AGAIN}") from None
    except json.JSONDecodeError as error:
        raise RooflensError(f"{path} is no calibration: no JSON in line {error.lineno}; {AGAIN}") from None
    except ValueError as error:
        raise RooflensError(f"{path} is no calibration: {error}; {AGAIN}") from None


def _bounded(path: Path, own: bool) -> bytes:
    """What the file holds, if it is a file and no longer than a calibration is."""
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            facts = os.fstat(file.fileno())
            if not stat.S_ISREG(facts.st_mode):
                raise RooflensError(f"{path} is no file; give the path of a calibration, or {AGAIN}")
            if own and (facts.st_uid not in (os.geteuid(), 0) or facts.st_mode & stat.S_IWOTH):
                raise RooflensError(f"{path} is not used: others may have written it; remove it and {AGAIN}")
            words = file.read(LARGEST_BYTES + 1)
    except FileNotFoundError:
        raise RooflensError(f"no calibration at {path}; measure one: rooflens calibrate") from None
    except IsADirectoryError:
        raise RooflensError(f"{path} is no file; give the path of a calibration, or {AGAIN}") from None
    except OSError as error:
        raise RooflensError(f"{path} cannot be read: {error.strerror or error}; check its owner and mode") from None
    except ValueError:  # a null character in the path
        raise RooflensError(f"{str(path)!r} is no path; give that of a calibration") from None
    if len(words) > LARGEST_BYTES:
        raise RooflensError(f"{path} is no calibration: longer than {LARGEST_BYTES} bytes; {AGAIN}")
    return words


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe in its place would be waited for


def why_foreign(calibration: Calibration, identity: MachineIdentity) -> str | None:
    """In which way it is of another machine or device than ``identity``; None if it is of this one."""
    for field in fields(MachineIdentity):
        there, here = getattr(calibration.identity, field.name), getattr(identity, field.name)
        if there != here:
            return f"it is of another machine: {field.name} is {_said(there)} there and {_said(here)} here"
    return None


def lacking(calibration: Calibration) -> str | None:
    """What it has not and every use needs: 'reads' or 'products'; None if it has both."""
    return next((name for name in ("reads", "products") if not getattr(calibration, name)), None)


def _said(value: object) -> str:
    return "not known" if value is None else str(value)


def is_stale(calibration: Calibration, now_unix_s: float, versions: Mapping[str, str]) -> str | None:
    """Why it may no longer hold, in words: its age, a date ahead of now, another driver, or another major release
    of what it was measured through (``versions``: versions_here()); None if it holds.
    """
    age_s = now_unix_s - calibration.measured_unix_s
    if age_s > STALE_AFTER_S:
        return f"it was measured {age_s / 86400:.0f} days ago"
    if age_s < -FUTURE_S:
        return "it is dated ahead of this machine's clock"
    return changed(calibration.versions, versions)


def find(identity: MachineIdentity, folder: Path, now_unix_s: float, versions: Mapping[str, str]) -> Found:
    """The calibration of this identity below the state folder ``folder``, if there is one that still holds.

    Never raises: a file that cannot be read, is of another machine or is stale comes back as ``problem``, one line.
    """
    path = path_of(identity, folder)
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return Found(problem=_changed_machine(identity, path.parent))
    except OSError as error:  # a folder that this user may not look into holds what nobody knows
        return Found(problem=f"{path.parent}: {(error.strerror or str(error)).lower()}; check its owner and mode")
    try:
        calibration = load(path, own=True)
    except RooflensError as error:
        return Found(path=path, problem=str(error))
    foreign = why_foreign(calibration, identity)
    if foreign is not None:
        return Found(path=path, problem=f"{path} is not used: {foreign}; {AGAIN}")
    if (lack := lacking(calibration)) is not None:
        return Found(path=path, problem=f"the calibration of {identity.name} is not used: it holds no {lack}; {AGAIN}")
    stale = is_stale(calibration, now_unix_s, versions)
    if stale is not None:
        return Found(path=path, problem=f"the calibration of {identity.name} is not used: {stale}; {AGAIN}")
    return Found(calibration, path)


def _changed_machine(identity: MachineIdentity, folder: Path) -> str | None:
    """That this very machine was calibrated as something else, such as with fewer cores; None if it never was."""
    if identity.machine is None:
        return None
    try:
        files = sorted(folder.glob("*.json"))[:MOST_LOOKED_AT]
    except OSError:
        return None
    for path in files:
        try:
            other = load(path)
        except RooflensError:
            continue
        there = other.identity
        if (there.kind, there.machine, there.device_uuid) == (identity.kind, identity.machine, identity.device_uuid):
            return f"{path} is not used: {why_foreign(other, identity)}; {AGAIN}"
    return None
