"""Connections shut at their deadline, by one thread for all of them."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from rooflens.adapters.scrape.deadlines import Deadlines


def watchers() -> int:
    return sum(thread.name == "scrape deadlines" for thread in threading.enumerate())


@pytest.mark.parametrize("order", [(0.05, 30.0), (30.0, 0.05)])
def test_the_one_that_is_due_is_shut_and_no_other(order: tuple[float, float]) -> None:
    deadlines, pairs = Deadlines(), [socket.socketpair() for _ in order]
    try:
        for (near, far), after_s in zip(pairs, order, strict=True):
            deadlines.watch(near, time.monotonic() + after_s)
            far.settimeout(10)
        ends = dict(zip(order, pairs, strict=True))
        assert ends[0.05][1].recv(1) == b"", "shut down"
        ends[30.0][0].sendall(b"x")
        assert ends[30.0][1].recv(1) == b"x"
    finally:
        for end in (end for pair in pairs for end in pair):
            end.close()


def test_what_was_let_go_stays_open_and_one_thread_is_enough() -> None:
    deadlines, before = Deadlines(), watchers()
    for _ in range(50):
        near, far = socket.socketpair()
        with near, far:
            deadlines.let_go(deadlines.watch(near, time.monotonic() + 0.001))
    near, far = socket.socketpair()
    with near, far:
        number = deadlines.watch(near, time.monotonic() + 0.1)
        deadlines.let_go(number)
        deadlines.let_go(number)
        time.sleep(0.2)
        near.sendall(b"x")
        assert far.recv(1) == b"x"
    assert watchers() - before <= 1
