"""The clocks beside each other: what is a jump, what is a suspend, and what only looks like one."""

from __future__ import annotations

import time

import pytest

from rooflens.collector.clock_watch import JUMP_S, READS, SLEW_RATIO, ClockWatch
from rooflens.device_records import ClockJump


class Host:
    """Clocks driven by the test; ``pauses`` are the seconds before each coming monotonic read."""

    def __init__(self) -> None:
        self.monotonic_s, self.suspended_s, self.wall_s = 1000.0, 5.0, 1e9
        self.pauses: list[float] = []

    def pass_(self, seconds: float) -> None:
        self.monotonic_s += seconds
        self.wall_s += seconds

    def monotonic(self) -> float:
        if self.pauses:
            self.pass_(self.pauses.pop(0))
        return self.monotonic_s

    def boottime(self) -> float:
        return self.monotonic_s + self.suspended_s

    def suspend(self, seconds: float) -> None:
        self.suspended_s += seconds
        self.wall_s += seconds

    def watch(self, boottime: bool = True) -> ClockWatch:
        watch = ClockWatch(self.monotonic, self.boottime if boottime else None, lambda: self.wall_s)
        assert watch.look() == ()
        return watch


def seen(jumps: tuple[ClockJump, ...]) -> list[tuple[float, bool]]:
    return [(round(jump.seconds, 6), jump.suspended) for jump in jumps]


def test_clocks_that_go_together_tell_nothing() -> None:
    host = Host()
    watch = host.watch()
    for _ in range(5):
        host.pass_(1.0)
        assert watch.look() == ()


@pytest.mark.parametrize("boottime", [True, False])
@pytest.mark.parametrize("seconds", [0.4, -0.4, 3600.0, -3600.0])
def test_a_wall_clock_that_is_set_is_told_once_with_the_time_since_it_may_have_been(
    seconds: float, boottime: bool
) -> None:
    host = Host()
    watch = host.watch(boottime)
    host.pass_(1.0)
    host.wall_s += seconds
    (jump,) = watch.look()
    assert jump == ClockJump(1001.0, pytest.approx(seconds), False, 1000.0)
    host.pass_(1.0)
    assert watch.look() == ()


def test_a_suspend_is_told_from_a_wall_clock_that_was_set_and_both_may_come_together() -> None:
    host = Host()
    watch = host.watch()
    host.pass_(1.0)
    host.suspend(30.0)
    assert watch.look() == (ClockJump(1001.0, pytest.approx(30.0), True, 1000.0),)
    host.suspend(10.0)
    host.wall_s -= 0.4
    host.pass_(1.0)
    assert seen(watch.look()) == [(10.0, True), (-0.4, False)]


def test_without_a_clock_that_goes_on_a_suspend_looks_like_a_wall_clock_that_was_set() -> None:
    host = Host()
    watch = host.watch(boottime=False)
    host.pass_(1.0)
    host.suspend(30.0)
    assert seen(watch.look()) == [(30.0, False)]


@pytest.mark.parametrize(("seconds", "jumps"), [(0.99 * JUMP_S, 0), (1.02 * JUMP_S, 1)])
def test_a_small_step_is_none(seconds: float, jumps: int) -> None:
    host = Host()
    watch = host.watch()
    host.pass_(1.0)
    host.wall_s += seconds
    assert len(watch.look()) == jumps
    host.pass_(1.0)
    host.suspend(seconds)
    assert len(watch.look()) == jumps


@pytest.mark.parametrize(("ratio", "jumps"), [(0.99 * SLEW_RATIO, 0), (2.0 * SLEW_RATIO, 1)])
def test_what_ntp_may_slew_in_a_long_pause_is_no_jump(ratio: float, jumps: int) -> None:
    host = Host()
    watch = host.watch()
    host.pass_(3600.0)
    host.wall_s += ratio * 3600.0
    assert len(watch.look()) == jumps


def test_a_process_that_is_put_aside_between_two_reads_sees_no_jump() -> None:
    host = Host()
    watch = host.watch()
    host.pauses = [0.0, 0.4, 0.0, 0.4, 0.0, 0.0]  # before the first and the last read of each try
    assert watch.look() == ()
    assert not host.pauses  # the third try was tight, and no other was made
    host.pass_(1.0)
    assert watch.look() == ()


def test_a_look_without_a_tight_read_leaves_the_comparison_to_the_next_one() -> None:
    host = Host()
    watch = host.watch()
    host.wall_s += 0.4
    host.pauses = [0.0, 0.4] * READS
    assert watch.look() == ()
    host.pass_(1.0)
    (jump,) = watch.look()
    assert (round(jump.seconds, 6), jump.since_monotonic_s) == (0.4, 1000.0)


def test_a_first_look_that_was_disturbed_is_no_reference() -> None:
    host = Host()
    host.pauses = [0.0, 0.4] * READS
    watch = host.watch()
    host.wall_s += 0.4
    assert watch.look() == ()
    host.wall_s += 0.4
    assert seen(watch.look()) == [(0.4, False)]


def test_the_clocks_of_this_host_are_readable() -> None:
    watch = ClockWatch()
    assert watch.look() == ()
    set_back = ClockWatch(wall=lambda: time.time() + offset_s)
    offset_s = 0.0
    set_back.look()
    offset_s = 100.0
    assert [round(jump.seconds) for jump in set_back.look()] == [100]
