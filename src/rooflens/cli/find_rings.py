"""Which rings a verb looks at, and what to say where there are none."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from rooflens.adapters.facts import DISABLE_VARIABLE, disabled
from rooflens.adapters.vllm import excluded
from rooflens.collector.ring_file import RingFile
from rooflens.records import RooflensError
from rooflens.ring_folder import DEVICE_SUFFIX, FOLDER_VARIABLE, SUFFIX, default_folder, demo_place, list_rings

LOG_LINE = "rooflens records every step of this engine in ..."
PAGE_WAY = "name its metrics page once it is up, which needs nothing: rooflens top --url http://HOST:PORT/metrics"
BEGIN = (
    "'rooflens demo' shows it at work; of a server that is up name the page (rooflens top --url "
    "http://HOST:PORT/metrics) or log (rooflens sidecar --log FILE); for single steps of vLLM, SGLang install rooflens "
    "into its environment and start it"
)
SERVER_FILES = re.compile(rb"(^|/)vllm/entrypoints/|^vllm\.entrypoints\.")
CLIENTS = (b"chat", b"complete", b"collect-env")  # verbs of vllm without an engine
MOST_PARENTS = 8


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
        if not os.path.isdir(path):  # Path.is_dir raises for a name that is too long
            found.append(path)
            continue
        rings = list_rings(path)
        if not rings:
            raise RooflensError(f"no ring in {path}: {next_step(root, (path,))}")
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


def next_step(root: Path = Path("/"), looked_in: Collection[Path] = ()) -> str:
    """What is in the way of a recording, as far as running engines tell, else how to begin one.

    ``looked_in`` are the folders without a ring (default: this user's).
    """
    running = running_engine(root, looked_in or (default_folder(),))
    if running is not None:
        return running
    if disabled(os.environ):
        return f"{DISABLE_VARIABLE} is set here, so an engine started from this shell records nothing: unset it"
    return f"{_demos()}{BEGIN}"


def _demos() -> str:
    """Where demos have left their rings, if they have: no verb looks there by itself."""
    if (running := running_demo()) is not None:
        return f"a demo runs: rooflens top {running}; else "
    place = demo_place()
    with suppress(RooflensError):
        if list_rings(place):
            return f"demos have left rings: rooflens analyze {place}; else "
    return ""


def running_demo() -> Path | None:
    """The folder of the rings of a demo that runs now."""
    place = demo_place()
    with suppress(RooflensError):
        return place if any_live(list_rings(place)) else None
    return None


def not_recorded(rings: Sequence[Path], root: Path = Path("/")) -> str | None:
    """Why an engine that runs holds none of ``rings``; None where one of them is live or no engine runs."""
    return None if any_live(rings) else running_engine(root, {ring.parent for ring in rings})


def any_live(rings: Sequence[Path]) -> bool:
    """Whether an engine holds one of ``rings`` now."""
    return any(_live(ring) for ring in rings)


def _live(ring: Path) -> bool:
    try:
        file = RingFile(ring)
    except RooflensError:
        return False
    try:
        return file.live()
    finally:
        file.close()


def running_engine(root: Path, looked_in: Collection[Path]) -> str | None:
    """Why a vLLM that runs now records nothing in these folders, the surest cause first; None where none runs."""
    engines = engine_processes(root)
    if (told_not_to := told_not_to_record(engines)) is not None:
        return told_not_to
    for pid, environment in engines.items():
        if environment and (where := default_folder(environment)) not in looked_in:
            return f"vLLM (process {pid}) writes to {where}: name that folder"
    for pid in engines:
        return (
            f"vLLM (process {pid}) runs but records nothing here: {PAGE_WAY}; for single steps install rooflens into "
            f"its environment and restart it with VLLM_PLUGINS unset or naming rooflens, {DISABLE_VARIABLE} unset and "
            f"{FOLDER_VARIABLE} as it is here; once it records, its log says '{LOG_LINE}'"
        )
    return None


def told_not_to_record(engines: Mapping[int, Mapping[str, str]]) -> str | None:
    """Which of these processes was started so that the hook does nothing, and the remedy; None where none was."""
    for pid, environment in engines.items():
        if excluded(environment):
            named = environment["VLLM_PLUGINS"][:80]
            return (
                f"vLLM (process {pid}) was started with VLLM_PLUGINS={named!r}, which leaves rooflens out: "
                "add rooflens to it and restart"
            )
        if disabled(environment):
            return f"vLLM (process {pid}) was started with {DISABLE_VARIABLE} set: unset it and restart"
    return None


def _is_vllm(words: Sequence[bytes]) -> bool:
    """Whether a command line is `vllm serve`, `python -m vllm...`, its file, or a process that vLLM named itself."""
    if words[0].startswith(b"VLLM::"):
        return True
    if any(os.path.basename(a) == b"vllm" and b in CLIENTS for a, b in pairwise(words)):
        return False
    programs = {os.path.basename(word) for word in words[:2]}
    module = any(a == b"-m" and (b == b"vllm" or b.startswith(b"vllm.")) for a, b in pairwise(words))
    return b"vllm" in programs or module or any(SERVER_FILES.search(word) for word in words[:4])


def engine_processes(root: Path) -> dict[int, dict[str, str]]:
    """Running processes of vLLM by pid, each with the environment that it or a parent was started with.

    The title that vLLM gives a process is written over its command line and its environment (setproctitle), so an
    engine core shows neither; it inherited both from the server above it. The environment is empty where none of
    them may be read.
    """
    folders = sorted((root / "proc").glob("[0-9]*"), key=lambda path: int(path.name))
    return {int(folder.name): _environment(folder) for folder in folders if _shows_vllm(folder)}


def _shows_vllm(process: Path) -> bool:
    try:
        return _is_vllm((process / "cmdline").read_bytes().split(b"\0"))
    except OSError:
        return False


def _environment(process: Path) -> dict[str, str]:
    """What the process was started with; where its title hides it, what the nearest parent was that shows it."""
    for _ in range(MOST_PARENTS):
        with suppress(OSError):
            raw = (process / "environ").read_bytes()
            pairs = (item.partition(b"=") for item in raw.split(b"\0") if b"=" in item)
            if found := {name.decode("utf-8", "replace"): v.decode("utf-8", "replace") for name, _, v in pairs}:
                return found
        try:
            parent = (process / "stat").read_text(errors="replace").rpartition(")")[2].split()[1]
        except (OSError, IndexError):
            break
        process = process.with_name(parent)
        if parent == "1" and not _shows_vllm(process):  # an orphan: what init was started with says nothing of it
            break
    return {}
