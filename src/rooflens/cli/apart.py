"""Questions to drivers, answered in a process of their own: one that hangs or crashes takes nobody with it."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from rooflens.records import RooflensError

DEADLINE_S = 10.0  # a driver that loads takes seconds for its first answer
LOOK_S = 0.1  # how soon an end that somebody asks for is seen
KILLED_S = 1.0  # a process that waits inside the kernel cannot be killed, and is left behind


class Unanswered(RooflensError):
    """No answer, for the reason in its one line; ``crashed`` is whether the library ended the process."""

    def __init__(self, line: str, crashed: bool = False) -> None:
        super().__init__(line)
        self.crashed = crashed


def ask(module: str, whose: str, ended: Callable[[], bool] = lambda: False, deadline_s: float = DEADLINE_S) -> Any:
    """What ``told()`` of this module returns, as JSON carries it, from a process that ends after ``deadline_s``.

    ``whose`` is what is asked, for the line of the Unanswered that is raised instead of waiting, or where ``ended``
    becomes true.
    """
    words = [sys.executable, "-P", "-m", module]
    nothing = subprocess.DEVNULL
    try:
        child = subprocess.Popen(words, stdin=nothing, stdout=subprocess.PIPE, stderr=nothing)
    except OSError as error:
        raise Unanswered(f"{whose} cannot be asked: no process can be started ({error.strerror})") from None
    answer, until_s = None, time.monotonic() + deadline_s
    try:
        while answer is None and time.monotonic() < until_s and not ended():
            with suppress(subprocess.TimeoutExpired):
                answer, _ = child.communicate(timeout=LOOK_S)
    finally:
        if answer is None:
            _let_go(child)
    if answer is None:
        if ended():
            raise Unanswered(f"{whose} was not waited for")
        raise Unanswered(f"{whose} has not answered within {deadline_s:g} s: it hangs")
    if child.returncode < 0:
        raise Unanswered(f"{whose} crashes ({signal.Signals(-child.returncode).name})", crashed=True)
    try:
        return json.loads(answer)
    except ValueError:
        raise Unanswered(f"{whose} cannot be asked: its process ended with {child.returncode}") from None


def answer(told: Callable[[], Any]) -> None:
    """The other side: write what ``told`` returns, and end without the last words of any library."""
    signal.alarm(round(2 * DEADLINE_S))  # whoever asked may be gone
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    with os.fdopen(os.dup(1), "w") as out:
        os.dup2(2, 1)  # some libraries print
        json.dump(told(), out)
    os._exit(0)


def _let_go(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    with suppress(subprocess.TimeoutExpired):
        child.wait(KILLED_S)
    if child.stdout is not None:
        child.stdout.close()
