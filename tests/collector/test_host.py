"""Processor time by role: real processes with vLLM's titles, a clock that the test moves, and trees written down."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rooflens.collector import host
from rooflens.collector.host import HostProbe
from rooflens.collector.host_roles import Seen, roles_of
from rooflens.device_records import ProcessRole, ProcessSample

CORE, SERVER, WORKER = ProcessRole.ENGINE_CORE, ProcessRole.API_SERVER, ProcessRole.WORKER
TICKS_S = 0.05  # what the kernel's rounding of two readings, user and system, comes to at most

# A process that does what its lines say, answers each with its pid and processor time, and ends with its input.
SOURCE = """
import json, os, subprocess, sys, threading, time

def burn(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass

children = []
for line in sys.stdin:
    order = json.loads(line)
    answer = None
    if order[0] == "burn":
        burn(order[1])
    elif order[0] == "thread":
        thread = threading.Thread(target=burn, args=order[1:])
        thread.start()
        thread.join()
    elif order[0] == "hold":
        threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
    elif order[0] == "spawn":
        children.append(subprocess.Popen(order[1:], executable=os.environ["PYTHON"], text=True,
                                         stdin=subprocess.PIPE, stdout=subprocess.PIPE))
        answer = children[-1].pid
    elif order[0] == "to":
        child = children[order[1]]
        child.stdin.write(json.dumps(order[2]) + chr(10))
        child.stdin.flush()
        answer = json.loads(child.stdout.readline())
    elif order[0] == "end":
        children[order[1]].communicate()
    times = os.times()
    print(json.dumps([answer, os.getpid(), times.user + times.system]), flush=True)
for child in children:
    child.communicate()
"""


class Tree:
    """A process and those it made, reached by the path of their places."""

    def __init__(self, folder: Path, *command: str) -> None:
        self.script = folder / "vllm"
        self.script.write_text(SOURCE)
        environment = {**os.environ, "PYTHON": sys.executable, "PYTHONHOME": sys.base_prefix}
        self.root = subprocess.Popen(
            self._command(command), executable=sys.executable, env=environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def _command(self, command: tuple[str, ...]) -> list[str]:
        """Its name, the script, and what else stands behind it."""
        return [command[0], str(self.script), *command[1:]]

    def ask(self, path: tuple[int, ...], *order: Any) -> Any:
        assert self.root.stdin is not None
        assert self.root.stdout is not None
        wrapped: Any = order
        for place in reversed(path):
            wrapped = ("to", place, wrapped)
        self.root.stdin.write(json.dumps(wrapped) + "\n")
        self.root.stdin.flush()
        answer = json.loads(self.root.stdout.readline())
        for _ in path:
            answer = answer[0]
        return answer

    def spawn(self, path: tuple[int, ...], *command: str) -> int:
        return int(self.ask(path, "spawn", *self._command(command))[0])

    def used_s(self, path: tuple[int, ...], *order: Any) -> float:
        """Processor seconds that an order took by the process's own account."""
        before = self.ask(path, "nothing")[2]
        return float(self.ask(path, *order)[2] - before)

    def close(self) -> None:
        self.root.communicate(timeout=60)


class Engine:
    """API server, engine core, two workers and Python's resource tracker, watched by a probe."""

    def __init__(self, folder: Path) -> None:
        self.tree = Tree(folder, "python3", "serve", "model")
        self.core = self.tree.spawn((), "VLLM::EngineCore")
        self.workers = [self.tree.spawn((0,), f"VLLM::Worker_TP{rank}") for rank in range(2)]
        self.tracker = self.tree.spawn((0,), "python3", "-c", "from multiprocessing.resource_tracker import main")
        for path in ((0,), (0, 0), (0, 1), (0, 2)):
            self.tree.ask(path, "nothing")  # it runs, and its first seconds of imports are over
        self.now_s = 100.0
        self.probe = HostProbe(clock=lambda: self.now_s)
        self.probe.watch(frozenset([self.core]))

    def samples(self, after_s: float = 1.0) -> dict[ProcessRole, ProcessSample]:
        self.now_s += after_s
        probed = self.probe.sample()
        assert probed.problems == ()
        assert {sample.engine_pid for sample in probed.processes} <= {self.core}
        return {sample.role: sample for sample in probed.processes}


class GivenAnew:
    """This test's own process under the pid of one that ended."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._own = psutil.Process()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    made = Engine(tmp_path)
    yield made
    made.tree.close()


class TestRealProcesses:
    def test_processor_time_by_role_and_the_busiest_thread(self, engine: Engine) -> None:
        assert engine.samples() == {}
        core_s = engine.tree.used_s((0,), "burn", 0.3)
        thread_s = engine.tree.used_s((0,), "thread", 0.1)
        worker_s = [engine.tree.used_s((0, rank), "burn", 0.1 + 0.1 * rank) for rank in range(2)]
        engine.tree.ask((0, 2), "burn", 0.2)  # the tracker, which is none's
        found = engine.samples(2.0)
        assert set(found) == {CORE, SERVER, WORKER}
        core, worker, server = found[CORE], found[WORKER], found[SERVER]
        assert (core.start_monotonic_s, core.end_monotonic_s) == (101.0, 103.0)
        assert (core.processes, worker.processes, server.processes) == (1, 2, 1)
        assert core.cores * 2.0 == pytest.approx(core_s + thread_s, abs=TICKS_S)
        assert worker.cores * 2.0 == pytest.approx(sum(worker_s), abs=TICKS_S)
        assert core.busiest_cores is not None
        assert core.busiest_cores * 2.0 == pytest.approx(core_s, abs=TICKS_S)
        assert worker.busiest_cores is not None
        assert worker.busiest_cores * 2.0 == pytest.approx(worker_s[1], abs=TICKS_S)
        assert server.cores * 2.0 <= 0.2
        # Nothing ran since; and no thread is busier than one core, whatever the clock.
        engine.tree.used_s((0,), "burn", 0.3)
        busy = engine.samples(0.2)
        assert busy[CORE].busiest_cores == 1.0

    def test_processes_come_and_go(self, engine: Engine) -> None:
        engine.samples()
        engine.tree.spawn((0,), "VLLM::Worker_TP2")
        engine.tree.ask((0, 3), "burn", 0.2)
        assert engine.samples()[WORKER].processes == 2  # looked for every ten seconds
        came = engine.samples(host.TREE_S)[WORKER]
        assert (came.processes, came.cores) == (2, pytest.approx(0.0, abs=TICKS_S))
        used_s = engine.tree.used_s((0, 3), "burn", 0.2)
        stayed = engine.samples()[WORKER]
        assert (stayed.processes, stayed.cores) == (3, pytest.approx(used_s, abs=TICKS_S))
        engine.tree.ask((0, 0), "burn", 0.1)
        engine.tree.ask((0,), "end", 0)
        assert engine.samples()[WORKER].processes == 2
        assert engine.samples()[WORKER].processes == 2

    def test_an_engine_that_ends_is_no_problem_and_its_pid_is_not_taken_for_it(
        self, engine: Engine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        engine.samples()
        assert CORE in engine.samples()
        engine.tree.ask((), "end", 0)
        assert engine.samples() == {}
        assert engine.samples(host.TREE_S) == {}
        another = GivenAnew(engine.core)
        monkeypatch.setattr(psutil, "process_iter", lambda: [another])
        assert engine.samples(host.TREE_S) == {}
        assert engine.samples() == {}
        # Whoever names the pid afresh means the process that has it now.
        engine.probe.watch(frozenset())
        engine.samples()
        engine.probe.watch(frozenset([engine.core]))
        engine.samples()
        assert CORE in engine.samples()

    def test_two_engines_share_an_api_server_that_is_read_once(
        self, engine: Engine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        second = engine.tree.spawn((), "VLLM::EngineCore_DP1")
        engine.tree.ask((1,), "nothing")
        engine.probe.watch(frozenset([engine.core, second]))
        engine.now_s += 1.0
        assert engine.probe.sample().processes == ()
        read: list[int] = []
        cpu_times = psutil.Process.cpu_times
        monkeypatch.setattr(psutil.Process, "cpu_times", lambda self: read.append(self.pid) or cpu_times(self))
        engine.now_s += 1.0
        found = {(sample.engine_pid, sample.role): sample for sample in engine.probe.sample().processes}
        assert set(found) == {(engine.core, role) for role in (CORE, SERVER, WORKER)} | {
            (second, CORE),
            (second, SERVER),
        }
        assert found[engine.core, SERVER].cores == found[second, SERVER].cores
        assert sorted(read) == sorted([engine.tree.root.pid, engine.core, second, *engine.workers])

    def test_no_permission_is_a_line_and_the_others_go_on(
        self, engine: Engine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        engine.samples()
        cpu_times = psutil.Process.cpu_times

        def refused(self: psutil.Process) -> Any:
            if self.pid == engine.core:
                raise psutil.AccessDenied(self.pid)
            return cpu_times(self)

        monkeypatch.setattr(psutil.Process, "cpu_times", refused)
        engine.now_s += 1.0
        probed = engine.probe.sample()
        assert {sample.role for sample in probed.processes} == {SERVER, WORKER}
        assert probed.problems == (
            "no permission for the processor time of an engine (engine core): run as its user, or as root",
        )
        monkeypatch.undo()
        engine.samples()
        assert CORE in engine.samples()

    def test_threads_that_are_not_told(self, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(host, "MOST_THREADS", 1)
        engine.tree.ask((0,), "hold")
        engine.samples()
        found = engine.samples()
        assert found[CORE].busiest_cores is None
        assert found[SERVER].busiest_cores is not None
        monkeypatch.undo()

        def refused(self: psutil.Process) -> Any:
            raise psutil.AccessDenied(self.pid)

        monkeypatch.setattr(psutil.Process, "threads", refused)
        assert all(sample.busiest_cores is None for sample in engine.samples().values())

    def test_a_window_that_is_mostly_rounding_is_none(self, engine: Engine) -> None:
        engine.samples()
        assert engine.samples(0.1) == {}
        assert engine.samples(0.15)[CORE].start_monotonic_s == 101.0

    def test_a_process_that_is_not_here_or_no_python_is_said(self, engine: Engine) -> None:
        ended = subprocess.Popen([sys.executable, "-c", ""])
        ended.wait()
        with subprocess.Popen(["sleep", "600"]) as other:
            engine.probe.watch(frozenset([engine.core, ended.pid, other.pid]))
            engine.now_s += 1.0
            first = engine.probe.sample()
            engine.now_s += 1.0
            probed = engine.probe.sample()
            other.kill()
        assert first.problems == probed.problems
        (line,) = probed.problems
        assert line.startswith("the processes of 2 engines are not seen here, so the processor time is not known: let")
        assert not any(str(pid) in line for pid in (ended.pid, other.pid)), "it is published"
        assert {sample.engine_pid for sample in probed.processes} == {engine.core}
        engine.probe.watch(frozenset())
        engine.now_s += 1.0
        assert engine.probe.sample().problems == ()


def test_without_engines_nothing_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "process_iter", lambda: pytest.fail("looked at every process"))
    now_s = iter(range(0, 1000, 20))
    probe = HostProbe(clock=lambda: float(next(now_s)))
    for _ in range(3):
        assert probe.sample().processes == probe.sample().problems == ()


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psutil", None)
    probe = HostProbe()
    assert probe.sample().problems == ()
    probe.watch(frozenset([1]))
    assert probe.sample().problems == (host.NO_LIBRARY,)


def test_whatever_goes_wrong_is_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> Any:
        raise OSError("[Errno 5]\nInput/output error")

    monkeypatch.setattr(psutil, "process_iter", broken)
    probe = HostProbe()
    probe.watch(frozenset([1]))
    assert probe.sample().problems == (
        "the processes of this host cannot be read (OSError [Errno 5] Input/output error): please report it",
    )


SPAWN = ("/venv/bin/python3", "-c", "from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=5)")
FORKSERVER = ("python3", "-c", "from multiprocessing.forkserver import main")
COMPILER = ("python3", "torch/compile_worker/__main__.py")
TRACKER = ("python3", "-m", "multiprocessing.resource_tracker")
SERVE = ("/venv/bin/python3", "/venv/bin/vllm", "serve", "model")


def tree(*processes: tuple[int, int, tuple[str, ...]]) -> dict[int, Seen]:
    return {pid: Seen(pid, parent, command) for pid, parent, command in processes}


ROLES = {
    "without titles, spawned": (
        tree((10, 1, SERVE), (20, 10, SPAWN), (21, 20, SPAWN), (22, 20, TRACKER)),
        {CORE: (20,), SERVER: (10,), WORKER: (21,)},
    ),
    "without titles, forked": (
        tree((10, 1, ("python3", "app.py")), (20, 10, ("python3", "app.py")), (21, 20, ("python3", "app.py"))),
        {CORE: (20,), SERVER: (10,), WORKER: (21,)},
    ),
    "by a fork server": (
        tree((10, 1, SERVE), (11, 10, FORKSERVER), (20, 11, ("VLLM::EngineCore",))),
        {CORE: (20,), SERVER: (10,)},
    ),
    "the server is the container's first process": (
        tree((1, 0, SERVE), (20, 1, ("VLLM::EngineCore",))),
        {CORE: (20,), SERVER: (1,)},
    ),
    "several servers under one that starts them": (
        tree((10, 1, SERVE), (11, 10, ("VLLM::APIServer_0",)), (12, 10, ("VLLM::APIServer_1",)),
             (20, 10, ("VLLM::EngineCore_DP0",)), (30, 10, ("VLLM::EngineCore_DP1",))),
        {CORE: (20,), SERVER: (10, 11, 12)},
    ),
    "started as a module": (
        tree((10, 1, ("python3", "-m", "vllm.entrypoints.openai.api_server")), (20, 10, ("VLLM::EngineCore",)),
             (9, 10, ("python3", "app.py"))),
        {CORE: (20,), SERVER: (10,)},
    ),
    "a module above the server": (
        tree((9, 1, ("python3", "-m", "vllm.entrypoints.cli")), (10, 9, ("VLLM::APIServer_0",)),
             (20, 10, ("VLLM::EngineCore",))),
        {CORE: (20,), SERVER: (9, 10)},
    ),
    "titled workers and what else they made": (
        tree((20, 1, ("VLLM::EngineCore",)), (21, 20, ("VLLM::Worker_TP0",)), (22, 21, ("nvcc",)), (23, 20, ("sh",))),
        {CORE: (20,), WORKER: (21,)},
    ),
    "another prefix": (
        tree((10, 1, ("A::APIServer_0",)), (20, 10, ("A::EngineCore",)), (21, 20, ("A::Worker_TP0",))),
        {CORE: (20,), SERVER: (10,), WORKER: (21,)},
    ),
    "shells and inits serve nothing": (
        tree((1, 0, ("tini", "--", "vllm", "serve", "m")), (5, 1, ("sh", "-c", "vllm serve m")), (10, 5, SERVE),
             (20, 10, ("VLLM::EngineCore",))),
        {CORE: (20,), SERVER: (10,)},
    ),
    "in one process, started by another script": (
        tree((10, 1, ("python3", "runner.py")), (20, 10, ("python3", "offline.py"))),
        {CORE: (20,)},
    ),
    "its server is gone": (tree((1, 0, ("systemd",)), (20, 1, ("VLLM::EngineCore",))), {CORE: (20,)}),
    "workers beside it": (
        tree((10, 2, SERVE), (20, 10, ("VLLM::EngineCore",)), (21, 10, ("VLLM::Worker_0",)), (2, 1, ("bash",))),
        {CORE: (20,), SERVER: (10,), WORKER: (21,)},
    ),
    "workers beside two": (
        tree((10, 1, SERVE), (20, 10, ("VLLM::EngineCore_DP0",)), (30, 10, ("VLLM::EngineCore_DP1",)),
             (21, 10, ("VLLM::Worker_0",))),
        {CORE: (20,), SERVER: (10,)},
    ),
    "compilers of its workers": (
        tree((20, 1, ("VLLM::EngineCore",)), (21, 20, SPAWN), (22, 21, COMPILER)),
        {CORE: (20,), WORKER: (21,)},
    ),
    "arguments that may not be read": (tree((10, 1, ()), (20, 10, ()), (21, 20, ())), {CORE: (20,), WORKER: (21,)}),
    "it is not there": (tree((10, 1, SERVE)), {}),
}  # fmt: skip


@pytest.mark.parametrize("case", ROLES)
def test_roles(case: str) -> None:
    processes, roles = ROLES[case]
    assert roles_of(20, processes) == roles


@given(
    st.lists(
        st.tuples(
            st.integers(0, 12),
            st.integers(0, 12),
            st.sampled_from([SERVE, SPAWN, FORKSERVER, ("VLLM::EngineCore",), ("VLLM::Worker",), ("::APIServer",), ()]),
        ),
        max_size=14,
    )
)
def test_any_table_of_processes_has_roles(processes: list[tuple[int, int, tuple[str, ...]]]) -> None:
    """Tables are read while they change: parents may be missing, or each other's."""
    table = tree(*processes)
    found = roles_of(3, table)
    assert (CORE in found) == (3 in table)
    for role, pids in found.items():
        assert len(set(pids)) == len(pids)
        assert set(pids) <= table.keys()
        assert role is CORE or 3 not in pids
