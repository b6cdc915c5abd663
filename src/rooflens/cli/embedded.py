"""Starts the embedded engine as a process of its own and follows it to its end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rooflens.records import RooflensError

Say = Callable[[str], None]
Order = Mapping[str, Any]

THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
PROBE_S = 60.0
GRACE_S = 3.0  # of steps that take a tenth of a second


@dataclass(frozen=True, slots=True)
class Outcome:
    """Where the ring is, how many bytes of weights a pass reads, and why they are few where they are."""

    ring: Path
    weight_bytes: int
    why_smaller: str | None


Began = Callable[[Outcome], None]


def use_threads(threads: int) -> None:
    """Tell a NumPy that is loaded later in this process how many threads its matrix products may use."""
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, str(threads)))


def _environment(threads: int) -> dict[str, str]:
    return {**os.environ, **dict.fromkeys(THREAD_VARIABLES, str(threads))}


def best_threads(say: Say) -> int:
    """One thread, or one less than there are cores: whichever multiplies faster at this moment.

    A core is left to what watches the engine. On a machine that others use, threads that wait for one another are
    slower than one alone.
    """
    cores = len(os.sched_getaffinity(0))
    if cores <= 2:
        return 1
    seconds = {threads: _probe_s(threads) for threads in (1, cores - 1)}
    best = min(seconds, key=lambda threads: seconds[threads])
    worse = next(threads for threads in seconds if threads != best)
    times = seconds[worse] / seconds[best]
    say(f"matrix products in {best} of {cores} threads, {times:.1f} times as fast as in {worse}")
    return best


def _probe_s(threads: int) -> float:
    command = [sys.executable, "-P", "-m", "rooflens.adapters.embedded.probe"]
    try:
        done = subprocess.run(
            command, env=_environment(threads), capture_output=True, text=True, timeout=PROBE_S, check=True
        )
        return float(done.stdout)
    except subprocess.CalledProcessError as error:
        raise RooflensError(f"the embedded engine does not run: {_last_line(error.stderr)}") from None
    except subprocess.TimeoutExpired:
        raise RooflensError("this machine is too busy for the demo: a one-second probe took a minute") from None


def carry_out(
    order: Order,
    threads: int,
    say: Say,
    tick: Say,
    began: Began = lambda _outcome: None,
    until_signal: bool = False,
) -> Outcome:
    """Run the engine as ordered; RooflensError with its last words if it fails.

    ``say`` gets what a reader should keep, ``tick`` a line twice a second that replaces the one before. ``began`` is
    called when the ring is there, before the load. With ``until_signal`` SIGINT and SIGTERM end the engine in order
    before its load is over, and a second one is a KeyboardInterrupt.
    """
    command = [sys.executable, "-P", "-m", "rooflens.adapters.embedded", json.dumps(order)]
    outcome, phase = None, None
    with (
        contextlib.ExitStack() as stack,
        subprocess.Popen(
            command, env=_environment(threads), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as child,
    ):
        try:
            if until_signal:
                stack.enter_context(_ended_by_signals(child))
            for line in child.stdout or ():
                told = json.loads(line)
                if "ring" in told:
                    outcome = Outcome(Path(told["ring"]), told["weight_bytes"], told["why_smaller"])
                    began(outcome)
                    say(f"the engine reads {outcome.weight_bytes / 1e6:,.0f} MB of weights a step")
                elif "phase" in told:
                    if told["phase"] != phase:
                        phase = told["phase"]
                        say(f"  load: {phase}")
                    tick(f"  load {told['phase']}: {told['gone_s']:.0f} s, {told['steps']:,} steps")
            words = (child.stderr.read() if child.stderr else "").strip()
        except BaseException:
            _end(child)
            raise
    if child.returncode or outcome is None:
        raise RooflensError(f"the embedded engine ended with {child.returncode}: {_last_line(words)}")
    return outcome


def _end(child: subprocess.Popen[str]) -> None:
    """Ask it to end; one that hangs in a step is not waited for."""
    child.terminate()
    try:
        child.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        child.kill()


@contextlib.contextmanager
def _ended_by_signals(child: subprocess.Popen[str]) -> Iterator[None]:
    """Pass the first SIGTERM or SIGINT on to the engine, and go on reading what it says to its end."""
    had: list[int] = []

    def end(number: int, _frame: object) -> None:
        if had:
            raise KeyboardInterrupt
        had.append(number)
        child.terminate()

    kept = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["without a word"])[-1]
