"""The processor time of an engine's processes through psutil as a probe: engine core, API servers and workers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from rooflens.collector.host_roles import Seen, roles_of
from rooflens.device_records import ProcessRole, ProcessSample
from rooflens.protocols import Probed

# Processes come and go seldom; to look for them costs more than to read those that are known.
TREE_S = 10.0
# Linux counts processor time in hundredths of a second: a shorter window is mostly rounding.
SHORTEST_WINDOW_S = 0.2
# To read each thread of a process with more would cost more than it tells.
MOST_THREADS = 512

NO_LIBRARY = "psutil is not installed, so the processor time of engines is not known: pip install 'rooflens[sidecar]'"


@dataclass(frozen=True, slots=True)
class Usage:
    """Processor seconds of one process since it began, in all and by thread; ``threads`` is None where not told."""

    total_s: float
    threads: dict[int, float] | None


class HostProbe:
    """Samples of the engines that are watched, one for each engine and role, from the last call to this one.

    A process counts from the second call that sees it, and no longer where it ended in between: ``cores`` is of those
    that were there all along. It is known by its pid and start, so a pid that is given anew is another process.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._watched: frozenset[int] = frozenset()
        self._tree_due_s = float("-inf")
        self._began: dict[int, float] = {}  # of each engine's process: when it started
        self._roles: dict[int, dict[ProcessRole, tuple[Any, ...]]] = {}  # psutil's processes by engine
        self._last: dict[tuple[int, float], Usage] = {}  # by pid and start
        self._last_s: float | None = None
        self._unseen: tuple[str, ...] = ()
        self._problems: tuple[str, ...] = ()

    def watch(self, engine_pids: frozenset[int]) -> None:
        """The engine cores to look after from now on, as this process namespace numbers them."""
        if engine_pids != self._watched:
            self._watched, self._tree_due_s = engine_pids, float("-inf")

    def sample(self) -> Probed:
        """Their processor time since the last call; never raises."""
        try:
            import psutil
        except Exception:
            return Probed(problems=(NO_LIBRARY,) if self._watched else ())
        try:
            return self._sample(psutil)
        except Exception as error:
            words = " ".join(f"{type(error).__name__} {error}".split())[:120]
            return Probed(problems=(f"the processes of this host cannot be read ({words}): please report it",))

    def _sample(self, psutil: Any) -> Probed:
        now_s, last_s = self._clock(), self._last_s
        if last_s is not None and now_s - last_s < SHORTEST_WINDOW_S:
            return Probed(problems=self._problems)
        if now_s >= self._tree_due_s:
            self._tree_due_s = now_s + TREE_S
            self._look(psutil)
        problems = list(self._unseen)
        usage = dict(self._usages(psutil, problems))
        samples = () if last_s is None else tuple(self._samples(usage, last_s, now_s))
        self._last, self._last_s, self._problems = usage, now_s, tuple(problems)
        return Probed(processes=samples, problems=self._problems)

    def _look(self, psutil: Any) -> None:
        """Find the processes of every engine anew."""
        self._began = {pid: began for pid, began in self._began.items() if pid in self._watched}
        self._roles, self._unseen = {}, ()
        if not self._watched:
            return
        handles = {process.pid: process for process in psutil.process_iter()}
        processes = {pid: seen for pid, handle in handles.items() if (seen := _seen(psutil, handle)) is not None}
        unseen = []
        for pid in sorted(self._watched):
            handle = handles.get(pid) if pid in processes else None
            if handle is None or not _may_be_engine(psutil, handle, processes[pid]):
                if pid not in self._began:
                    unseen.append(pid)
            elif self._began.setdefault(pid, handle.create_time()) == handle.create_time():
                roles = roles_of(pid, processes)
                self._roles[pid] = {role: tuple(handles[each] for each in pids) for role, pids in roles.items()}
        if unseen:  # the lines reach who may not know the processes of this host: no pid is in them
            whose = "the process of an engine is" if len(unseen) == 1 else f"the processes of {len(unseen)} engines are"
            self._unseen = (
                f"{whose} not seen here, so the processor time is not known: let the sidecar share the process "
                "namespace (docker run --pid=container:NAME, or shareProcessNamespace)",
            )

    def _usages(self, psutil: Any, problems: list[str]) -> Iterator[tuple[tuple[int, float], Usage]]:
        """What every process has used by now; each is read once, whichever engines share it."""
        for role, process in {
            process.pid: (role, process)
            for roles in self._roles.values()
            for role, members in roles.items()
            for process in members
        }.values():
            try:
                if not process.is_running():
                    raise psutil.NoSuchProcess(process.pid)
                times = process.cpu_times()
            except psutil.AccessDenied:
                whose = role.value.replace("_", " ")
                line = f"no permission for the processor time of an engine ({whose}): run as its user, or as root"
                if line not in problems:
                    problems.append(line)
                continue
            except psutil.Error:  # it ended, and with an engine core its engine
                self._tree_due_s = float("-inf")
                self._roles.pop(process.pid, None)
                continue
            yield (process.pid, process.create_time()), Usage(times.user + times.system, _threads(psutil, process))

    def _samples(self, usage: dict[tuple[int, float], Usage], last_s: float, now_s: float) -> Iterator[ProcessSample]:
        span_s = now_s - last_s
        for engine_pid, roles in self._roles.items():
            for role, members in roles.items():
                keys = [(process.pid, process.create_time()) for process in members]
                pairs = [(self._last[key], usage[key]) for key in keys if key in self._last and key in usage]
                if not pairs:
                    continue
                busiest_s = [_busiest_s(then, now) for then, now in pairs]
                told = [each for each in busiest_s if each is not None]
                yield ProcessSample(
                    engine_pid,
                    role,
                    last_s,
                    now_s,
                    cores=sum(max(now.total_s - then.total_s, 0.0) for then, now in pairs) / span_s,
                    processes=len(pairs),
                    busiest_cores=min(max(told) / span_s, 1.0) if len(told) == len(pairs) else None,
                )


def _seen(psutil: Any, handle: Any) -> Seen | None:
    """A process as roles_of sees it; None where it has ended."""
    try:
        parent_pid = handle.ppid()
    except psutil.Error:
        return None
    try:
        command = tuple(handle.cmdline())
    except psutil.AccessDenied:
        command = ()
    except psutil.Error:
        return None
    return Seen(handle.pid, parent_pid, command)


def _may_be_engine(psutil: Any, handle: Any, seen: Seen) -> bool:
    """False for what is no Python: the engine has this pid in a process namespace of its own, and not here."""
    if seen.is_python:
        return True
    try:
        return "python" in handle.exe()
    except psutil.AccessDenied:
        return True
    except psutil.Error:
        return False


def _threads(psutil: Any, process: Any) -> dict[int, float] | None:
    """Processor seconds by thread; None where there are too many, or they may not be read."""
    try:
        if process.num_threads() > MOST_THREADS:
            return None
        return {thread.id: thread.user_time + thread.system_time for thread in process.threads()}
    except psutil.Error:
        return None


def _busiest_s(then: Usage, now: Usage) -> float | None:
    """Processor seconds of the busiest thread between two readings; a thread that is new began in between."""
    if then.threads is None or now.threads is None:
        return None
    spent = (total_s - then.threads.get(thread, 0.0) for thread, total_s in now.threads.items())
    return max(spent, default=0.0)
