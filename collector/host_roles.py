"""Which processes of this host belong to an engine, and as what: by its process tree and by the titles vLLM gives.

vLLM (0.9 and newer, where setproctitle is installed) titles its processes VLLM::EngineCore, VLLM::EngineCore_DP1,
VLLM::Worker_TP0 and VLLM::APIServer_0; VLLM_PROCESS_NAME_PREFIX changes the word before the colons.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePath

from rooflens.device_records import ProcessRole

ENGINE_TITLE, WORKER_TITLE, SERVER_TITLES = "::EngineCore", "::Worker", ("::APIServer", "::DPSupervisor")
# Processes of Python and torch that stand in a tree and do no work of its own.
HELPERS = ("multiprocessing.resource_tracker", "multiprocessing.forkserver", "compile_worker")
SPAWNED = ("multiprocessing.spawn", "--multiprocessing-fork")
# `vllm serve`, or a module of it that serves, is named within the first words of a command.
COMMAND_WORDS = 4
MOST_ANCESTORS = 64


@dataclass(frozen=True, slots=True)
class Seen:
    """One process: ``command`` are its arguments, which a title replaces; empty where they may not be read."""

    pid: int
    parent_pid: int
    command: tuple[str, ...]

    @property
    def title(self) -> str:
        """The first word, or all of a title."""
        return self.command[0] if self.command else ""

    @property
    def is_helper(self) -> bool:
        """Whether it is one of HELPERS."""
        return any(helper in word for helper in HELPERS for word in self.command)

    @property
    def is_python(self) -> bool:
        """Whether it runs Python, as far as its arguments tell."""
        return PurePath(self.title).name.startswith(("python", "vllm")) or "::" in self.title

    @property
    def is_server(self) -> bool:
        """Whether it is an API server, or what starts several of them."""
        if self.title_has(*SERVER_TITLES):
            return True
        words = self.command[:COMMAND_WORDS]
        serves = any(PurePath(word).name == "vllm" for word in words) and "serve" in words
        return self.is_python and (serves or any(word.startswith("vllm.entrypoints") for word in words))

    def title_has(self, *parts: str) -> bool:
        """Whether its title has one of these."""
        return any(part in self.title for part in parts)


def roles_of(engine_pid: int, processes: Mapping[int, Seen]) -> dict[ProcessRole, tuple[int, ...]]:
    """The processes of one engine by role, sorted; empty where the engine core itself is not among ``processes``.

    API servers that several engine cores share belong to each of them.
    """
    engine = processes.get(engine_pid)
    if engine is None:
        return {}
    children: dict[int, list[Seen]] = {}
    for process in processes.values():
        children.setdefault(process.parent_pid, []).append(process)
    servers = {process.pid: process for process in _ancestors(engine, processes)}
    for server in tuple(servers.values()):
        servers |= {each.pid: each for each in children.get(server.pid, ()) if each.title_has(*SERVER_TITLES)}
    workers = [process for process in _descendants(engine_pid, children) if not process.is_helper]
    titled = [process for process in workers if process.title_has(WORKER_TITLE)]
    if not workers:
        titled = _siblings(engine, children)
    found = {
        ProcessRole.ENGINE_CORE: (engine_pid,),
        ProcessRole.API_SERVER: tuple(sorted(servers.keys() - {engine_pid})),
        ProcessRole.WORKER: tuple(sorted(process.pid for process in titled or workers)),
    }
    return {role: pids for role, pids in found.items() if pids}


def _ancestors(engine: Seen, processes: Mapping[int, Seen]) -> Iterator[Seen]:
    """The servers above an engine core, nearest first: whoever made it, whatever its name, and those of vLLM above."""
    below, nearest = engine, True
    for _ in range(MOST_ANCESTORS):
        above = processes.get(below.parent_pid)
        if above is None or above.pid == below.pid:
            return
        if above.is_helper:
            below = above
            continue
        made = nearest and above.is_python and _was_made(engine, above)
        if not (made or above.is_server):
            return
        yield above
        below, nearest = above, False


def _was_made(engine: Seen, above: Seen) -> bool:
    """Whether an engine core is a process of its own that ``above`` made, and not one that a user started from it."""
    forked = bool(engine.command) and engine.command == above.command
    spawned = any(mark in word for mark in SPAWNED for word in engine.command)
    return forked or spawned or engine.title_has(ENGINE_TITLE)


def _descendants(pid: int, children: Mapping[int, list[Seen]]) -> Iterator[Seen]:
    waiting, seen = [pid], {pid}
    while waiting:
        for process in children.get(waiting.pop(), ()):
            if process.pid not in seen:
                seen.add(process.pid)
                waiting.append(process.pid)
                yield process


def _siblings(engine: Seen, children: Mapping[int, list[Seen]]) -> list[Seen]:
    """Workers beside an engine core, where its parent has no second one that they could be of."""
    beside = children.get(engine.parent_pid, ())
    cores = [process for process in beside if process.title_has(ENGINE_TITLE)]
    if engine.parent_pid <= 1 or [process.pid for process in cores] != [engine.pid]:
        return []
    return [process for process in beside if process.title_has(WORKER_TITLE)]
