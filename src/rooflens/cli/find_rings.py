"""Which rings a verb looks at, and what to say where there are none."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from rooflens.adapters.facts import DISABLE_VARIABLE, disabled
from rooflens.adapters.vllm import excluded
from rooflens.records import RooflensError
from rooflens.ring_folder import DEVICE_SUFFIX, FOLDER_VARIABLE, SUFFIX, default_folder, list_rings


def rings_at(places: Sequence[str], root: Path = Path("/")) -> list[Path]:
    """The rings that ``places`` name, each a ring or a folder of them; without places those of the default folder.

    RooflensError with the next step where there are none. ``root`` is where /proc is.
    """
    if not places:
        return _in_default_folder(root)
    found: list[Path] = []
    for place in places:
        path = Path(place)
        if path.suffix == DEVICE_SUFFIX:
            raise RooflensError(f"{path} holds a worker's device times, no steps: name the engine's {SUFFIX} file")
        if not path.is_dir():
            found.append(path)
            continue
        rings = list_rings(path)
        if not rings:
            raise RooflensError(f"no ring in {path}: {next_step(root)}")
        found += rings
    return found


def _in_default_folder(root: Path) -> list[Path]:
    folder = default_folder()
    try:
        rings = list_rings(folder)
    except RooflensError:
        if folder.exists() or folder.is_symlink():
            raise
        rings = []
    if not rings:
        raise RooflensError(f"no ring in {folder}: {next_step(root)}")
    return rings


def next_step(root: Path = Path("/")) -> str:
    """What is in the way of a recording, as far as running engines tell, else how to begin one."""
    for pid, environment in _engines(root):
        if excluded(environment):
            named = environment["VLLM_PLUGINS"][:80]
            return (
                f"vLLM (process {pid}) was started with VLLM_PLUGINS={named!r}, which leaves rooflens out: "
                "add rooflens to it and restart"
            )
        if disabled(environment):
            return f"vLLM (process {pid}) was started with {DISABLE_VARIABLE} set: unset it and restart"
        if environment.get(FOLDER_VARIABLE) != os.environ.get(FOLDER_VARIABLE):
            where = environment.get(FOLDER_VARIABLE, "its default folder")
            return f"vLLM (process {pid}) writes to {where}: name that folder"
    if disabled(os.environ):
        return f"{DISABLE_VARIABLE} is set here, so an engine started from this shell records nothing: unset it"
    return (
        "install rooflens into the environment of vLLM and restart it, or name the ring or its folder, or try "
        "'rooflens demo'"
    )


def _is_vllm(words: Sequence[bytes]) -> bool:
    """Whether a command line is `vllm serve`, `python -m vllm...` or a process that vLLM named itself."""
    if words[0].startswith(b"VLLM::"):
        return True
    programs = {os.path.basename(word) for word in words[:2]}
    return b"vllm" in programs or any(a == b"-m" and b.startswith(b"vllm") for a, b in pairwise(words))


def _engines(root: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """Running processes of vLLM whose environment may be read, by pid."""
    for folder in sorted((root / "proc").glob("[0-9]*"), key=lambda path: int(path.name)):
        try:
            command = (folder / "cmdline").read_bytes()
            if not _is_vllm(command.split(b"\0")):
                continue
            environment = (folder / "environ").read_bytes()
        except (OSError, ValueError):
            continue
        pairs = (item.partition(b"=") for item in environment.split(b"\0") if item)
        yield int(folder.name), {name.decode("utf-8", "replace"): v.decode("utf-8", "replace") for name, _, v in pairs}
