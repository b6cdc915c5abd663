"""This very processor, calibrated: twice the same within the spread that is told, and refused while others use it."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from rooflens.calibration_records import Calibration, Measured
from rooflens.collector.calibrate import (
    calibrate,
    cpu,
    find,
    identity_of_cpu,
    is_stale,
    load,
    run,
    save,
    versions_here,
)
from rooflens.collector.calibrate.rounds import Rounds
from rooflens.model_records import DISTURBED
from rooflens.records import RooflensError

QUIET: Callable[[], str | None] = lambda: None  # noqa: E731
ROUNDS = 12
MARGIN = 0.25  # of the median: what a neighbour that comes or goes between two measurements may make of it
TRIES = 3  # and one that stays makes more of it


class CountedRounds:
    """A clock by which warming up takes no time and every round one second, however slow this machine is today."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    def round_over(self) -> None:
        self.now_s += 1.0


Values = dict[tuple[str, object], Measured]


def measured_by_rounds() -> Values:
    """All quantities, with sizes as for a measurement of half a second, by a fixed number of rounds."""
    counted = CountedRounds()
    with ThreadPoolExecutor(2) as pool:
        quantities = cpu.quantities(0.5, time.perf_counter, pool)
        outcome = Rounds(counted, lambda _words: None, counted.round_over).run(quantities, ROUNDS - 0.5)
    assert outcome.problems == []
    found = {(field, key): value for field, values in outcome.measured.items() for key, value in values.items()}
    assert len(found) == len(quantities)
    return found


def agree(first: Measured, second: Measured) -> bool:
    """Whether the medians lie no further apart than the wider spread, and the margin, allow."""
    spread = max(one.spread_ratio * one.median for one in (first, second))
    return abs(first.median - second.median) <= spread + MARGIN * max(first.median, second.median)


def test_two_calibrations_agree_within_their_spread() -> None:
    def disagree() -> list[tuple[str, object]]:
        first, second = measured_by_rounds(), measured_by_rounds()
        return [key for key in first if not agree(first[key], second[key])]

    # The spread is the span of eight in ten rounds of one measurement: a memory that is half as fast for the whole of
    # one of them, and not of the other, is outside of it.
    assert any(not disagree() for _try in range(TRIES))


def test_what_is_measured_makes_sense() -> None:
    found = measured_by_rounds()
    for (field, _key), value in found.items():
        assert value.count == ROUNDS
        assert value.spread_ratio >= 0
        assert value.best <= value.median if field == "launch_s" else value.best >= value.median
    assert {key for field, key in found if field == "products"} == {"fp32", "fp64"}
    sizes = sorted(int(str(key)) for field, key in found if field == "reads")
    assert sizes[0] == 64 << 10
    assert sizes[-1] == 38 << 20  # 80 MB for each second of half a one
    assert found["launch_s", None].best < 0.001


def test_sizes() -> None:
    mib = 1 << 20
    assert cpu.read_sizes(mib, mib * 8) == [64 << 10, 256 << 10, mib]
    assert cpu.read_sizes(3 * mib, 32 * mib) == [64 << 10, 256 << 10, mib, 3 * mib]
    assert cpu.read_sizes(1 << 30, 32 * mib)[-9:] == [(4 << n) * mib for n in range(9)]  # from a quarter of the cache
    assert cpu.read_sizes(762 * mib, 480 * mib)[-5:] == [16 * mib, 64 * mib, 128 * mib, 256 * mib, 762 * mib]
    assert cpu.largest_bytes(0.0001) == mib


def test_the_finer_sizes_come_last_and_are_the_first_to_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "last_level_cache_bytes", lambda *_: 8 << 20)
    with ThreadPoolExecutor(2) as pool:
        found = cpu.quantities(1.0, time.perf_counter, pool)
    finer = [one for one in found if one.finer]
    assert {one.key for one in finer} == {2 << 20, 8 << 20}
    assert {one.field for one in finer} == {"reads", "copies"}
    assert found[-len(finer) :] == finer


def test_much_time_reads_four_caches_and_little_memory_less(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "meminfo").write_text("MemAvailable: 40000000 kB\n")
    assert cpu.largest_bytes(30.0, tmp_path) == 128 << 20  # of the 32 MiB that are taken where /sys does not say
    assert cpu.flags(128 << 20, tmp_path) == []
    (tmp_path / "proc" / "meminfo").write_text("MemAvailable: 80000 kB\n")
    assert cpu.largest_bytes(30.0, tmp_path) == 19 << 20
    assert cpu.flags(19 << 20, tmp_path) == [
        "not as much was read as four last-level caches hold: the slowest rate may be a cache's"
    ]


def test_threads_that_were_limited_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    assert "the threads of NumPy were limited: OPENBLAS_NUM_THREADS=1" in cpu.flags(1 << 50)


def test_the_clock_of_the_cores(tmp_path: Path) -> None:
    for core in cpu.usable_cores():
        folder = tmp_path / f"sys/devices/system/cpu/cpu{core}/cpufreq"
        folder.mkdir(parents=True)
        (folder / "scaling_cur_freq").write_text("3100000\n")
    clock = cpu.CoreClock(tmp_path)
    assert clock.clocks_hz() == {}
    clock.look()
    assert clock.clocks_hz() == {"core": 3.1e9}
    virtual = cpu.CoreClock(tmp_path / "none")
    virtual.look()
    assert virtual.clocks_hz() == {}


class Ticking:
    """A clock that goes on by a little each time that it is read."""

    def __init__(self, tick_s: float) -> None:
        self._ticks: Iterator[float] = (number * tick_s for number in itertools.count())
        self.now_s = 0.0

    def __call__(self) -> float:
        self.now_s = next(self._ticks)
        return self.now_s


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else uses the processor, whoever does; and little is read and multiplied, since no clock stops it."""
    monkeypatch.setattr(run.busy, "cpu_busy", QUIET)
    monkeypatch.setattr(run.busy, "cpu_use", QUIET)
    monkeypatch.setattr(cpu, "largest_bytes", lambda *_arguments: 1 << 20)
    monkeypatch.setattr(cpu, "PRODUCT_SIZES", (32, 64))
    monkeypatch.setattr(cpu, "ATTENTION_BYTES", (128 << 10,))


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("seconds", [2.0, 10.0, 1000.0])
def test_the_time_is_kept_and_told(seconds: float) -> None:
    clock, told = Ticking(0.0005), []  # type: tuple[Ticking, list[tuple[str, float]]]
    found = calibrate("cpu", seconds, lambda words, ratio: told.append((words, ratio)), clock=clock)
    assert found.took_s <= clock.now_s <= min(seconds, run.ENOUGH_S)
    ratios = [ratio for _, ratio in told]
    assert ratios[0] == 0.0
    assert ratios == sorted(ratios)
    assert (ratios[-1], told[-1][0]) == (1.0, "done")
    assert max(ratios[:-1]) > 0.85
    assert not [flag for flag in found.flags if flag.startswith(DISTURBED)]
    assert found.products["fp32"].count >= 5


@pytest.mark.usefixtures("quiet")
def test_a_calibration_is_kept_and_found_again(tmp_path: Path) -> None:
    found = calibrate("cpu", 5.0, clock=Ticking(0.0005))
    assert found.identity == identity_of_cpu()
    assert set(found.versions) == {"rooflens", "python", "numpy"}
    for curve in (found.reads, found.copies, found.attention):
        assert [size for size, _ in curve] == sorted({size for size, _ in curve})
    assert load(save(found, tmp_path)) == found
    again = find(identity_of_cpu(), tmp_path, time.time(), versions_here())
    assert again.calibration == found
    assert again.problem is None
    assert is_stale(found, time.time(), versions_here()) is None


def calibrated(**more: bool) -> Calibration:
    return calibrate("cpu", 3.0, clock=Ticking(0.0005), **more)


@pytest.mark.usefixtures("quiet")
def test_a_busy_processor_is_refused_unless_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run.busy, "cpu_busy", lambda: "others use 1.5 of 2 cores: cc1 (process 7) 1.0")
    with pytest.raises(RooflensError) as caught:
        calibrated()
    assert str(caught.value) == (
        "this processor is in use: others use 1.5 of 2 cores: cc1 (process 7) 1.0; "
        "stop that, or measure what it leaves with --force"
    )
    found = calibrated(force=True)
    assert found.flags[0] == f"{DISTURBED}: others use 1.5 of 2 cores"  # whose that was is nobody's business later
    values = [one for curve in (found.reads, found.copies, found.attention) for _, one in curve]
    assert min(one.spread_ratio for one in (*values, *found.products.values())) >= 0.1


@pytest.mark.usefixtures("quiet")
def test_what_it_says_of_itself_can_be_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1\t\x1b[31m2\n")
    monkeypatch.setattr(run, "versions_of_numpy", lambda: {"numpy": "2.0\x07"})
    found = calibrated()
    assert "the threads of NumPy were limited: OMP_NUM_THREADS=1 ?[31m2" in found.flags
    assert load(save(found, tmp_path)) == found


@pytest.mark.usefixtures("quiet")
def test_a_machine_without_an_id_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (run.NAMELESS in calibrated().flags) is (identity_of_cpu().machine is None)
    monkeypatch.setattr(run, "identity_of_cpu", lambda: replace(identity_of_cpu(), machine=None))
    assert run.NAMELESS in calibrated().flags


@pytest.mark.usefixtures("quiet")
def test_too_little_memory_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_arguments: object, **_more: object) -> None:
        raise MemoryError("unable to allocate")

    monkeypatch.setattr(cpu, "_Data", none)
    with pytest.raises(RooflensError, match="not enough memory to measure cpu: free some, or give less --seconds"):
        calibrated()


@pytest.mark.usefixtures("quiet")
def test_others_who_come_while_it_measures_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    uses = iter([run.busy.CpuUse(0.0, 0.0, 0.0, 0.0), run.busy.CpuUse(1e3, 0.0, 0.0, 10.0)])
    monkeypatch.setattr(run.busy, "cpu_use", lambda: next(uses))
    assert [flag for flag in calibrated().flags if flag.startswith(f"{DISTURBED}: 100.0 of ")]


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf")])
def test_a_time_that_is_none(seconds: float) -> None:
    with pytest.raises(RooflensError, match="give a time above 0"):
        calibrate("cpu", seconds)


@pytest.mark.usefixtures("quiet")
def test_a_time_in_which_nothing_can_be_measured() -> None:
    with pytest.raises(RooflensError, match=r"nothing of cpu could be measured: .*; give more --seconds"):
        calibrate("cpu", 0.01, clock=Ticking(0.005))


@pytest.mark.parametrize("device", ["cuda", "cuda:0", "torch-cpu"])
def test_a_device_without_torch(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(RooflensError, match=rf"{device} is measured through torch, which does not load here"):
        calibrate(device)


@pytest.mark.usefixtures("quiet")
def test_without_torch_it_is_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "find_spec", lambda _name: None)
    assert calibrate(None, 3.0, clock=Ticking(0.0005)).identity == identity_of_cpu()
