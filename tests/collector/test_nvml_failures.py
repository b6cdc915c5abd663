"""Each function that the probe calls fails in turn, with each kind of failure, and comes back.

So do the library, the driver and whole devices. Beside a failing device a sound one loses nothing.
"""

from __future__ import annotations

import builtins
import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from nvml_fixture import Double, loaded

from rooflens.collector.nvml import NvmlProbe, library
from rooflens.collector.nvml.failures import ABSENT
from rooflens.device_records import DeviceSample, Throttle
from rooflens.protocols import Probed

FAILING, SOUND = (f"GPU-00000000-0000-0000-0000-{index:012d}" for index in range(2))
CODES = {"NotSupported": 3, "NoPermission": 4, "Timeout": 10, "GpuIsLost": 15, "Unknown": 999}
STEADY = """device 0 c2c=1
device 1 c2c=1
at 0 * gr=90 sm=40 occ=20 tensor=8 dram=50 pcie_tx=3 pcie_rx=2 nvl_tx=5 nvl_rx=6 c2c_tx=7 c2c_rx=8 gpu_util=90
at 0 * sm_clk=1500 mem_clk=3000 power_w=300 temp=60 mem_used=1000 throttle=4
proc 0 1
"""
# A device of each sort, so that every way of the probe is walked once: whole, without GPM, divided.
ALL_SORTS = STEADY + "device 2 gpm=0 power_field=0\ndevice 3\nmig 3 0\nfail 2 nvmlDeviceGetFieldValues 3\n"
OF_NO_DEVICE = {
    "nvmlInitWithFlags",
    "nvmlShutdown",
    "nvmlDeviceGetCount_v2",
    "nvmlSystemGetDriverVersion",
    "nvmlGpmSampleAlloc",
    "nvmlGpmSampleFree",
}
# Failures that need no line: another function answers, or what failed frees something.
ANSWERED_OTHERWISE = {
    "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetTemperatureV",
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlShutdown",
    "nvmlGpmSampleFree",
}
MIG_MODE = "nvmlDeviceGetMigMode"  # most devices have none
LONG_AFTER_S = 100.0
FIGURES = [field.name for field in fields(DeviceSample) if not field.name.endswith("monotonic_s")]


def binding() -> Any:
    """nvidia-ml-py, which is not there where only the tests of engines run."""
    import pynvml

    return pynvml


def played(double: Double, profile: str, seconds: list[float]) -> Iterator[tuple[float, Probed]]:
    double.play(profile)
    probe = NvmlProbe(clock=double.clock)
    for second in seconds:
        double.clock.at(second)
        yield second, probe.sample()
    probe.close()


def rates(sample: DeviceSample) -> dict[str, Any]:
    """What a sample tells, without what depends on when its window was and for how long."""
    span_s = sample.span_s
    found = {name: getattr(sample, name) for name in FIGURES}
    found["energy_j"] = None if sample.energy_j is None else sample.energy_j / span_s
    found["throttled_s"] = {reason: round(s / span_s, 6) for reason, s in sample.throttled_s.items()}
    return {name: round(value, 9) if isinstance(value, float) else value for name, value in found.items()}


def functions_called(double: Double) -> list[str]:
    """Every function of the library that the probe calls in a run over devices of all sorts."""
    list(played(double, ALL_SORTS, [0, 1, 2, 12]))
    return sorted(double.functions())


def test_the_functions_that_fail_below_are_all_that_are_called(double: Double) -> None:
    """A count to notice when the walk no longer comes by all of them: those named in the sources are all in it."""
    called = functions_called(double)
    folder = Path(library.__file__).parent
    text = "".join(path.read_text() for path in folder.glob("*.py"))
    plain = {name.removesuffix("_v2").removesuffix("_v3").removesuffix("WithFlags") for name in called}
    named = {word.strip('"(),.[]') for word in text.split() if word.strip('"(),.[]').startswith("nvml")}
    named = {name for name in named if hasattr(binding(), name) and callable(getattr(binding(), name))}
    named = {name for name in named if name[4].isupper()}
    fallbacks = {"nvmlDeviceGetCurrentClocksThrottleReasons", "nvmlDeviceGetTemperature"}
    assert {name for name in named if name not in plain and not name.startswith("pynvml")} <= fallbacks
    assert len(called) >= 28


def scenario(function: str, code: int, from_s: float, to_s: float) -> str:
    who = "*" if function in OF_NO_DEVICE else "0"
    return f"{STEADY}fail {who} {function} {code} {from_s} {to_s}\n"


SECONDS: list[float] = [*range(16), *range(20, int(LONG_AFTER_S) + 8, 8)]


@pytest.mark.parametrize("from_s", [0.0, 8.5], ids=["from the start", "later"])
@pytest.mark.parametrize("kind", CODES)
def test_each_function_fails_and_returns(double: Double, kind: str, from_s: float) -> None:
    code = CODES[kind]
    ((_, _), (_, healthy)) = played(double, STEADY, [0, 1])
    well = {sample.uuid: rates(sample) for sample in healthy.samples}
    silent = []
    functions = functions_called(double)
    for function in functions:
        where = f"{function}, {kind} from {from_s:g} s"
        lines: set[str] = set()
        ends = {FAILING: 0.0, SOUND: 0.0}
        last: Probed | None = None
        for second, found in played(double, scenario(function, code, from_s, from_s + 5), SECONDS):
            assert not [line for line in found.problems if "please report" in line], where
            lines.update(found.problems)
            told = [line for line in found.problems if FAILING in line]
            assert len(told) <= 1, f"{where}: {told}"
            assert len(set(found.problems)) == len(found.problems), where
            for sample in found.samples:
                assert sample.start_monotonic_s >= ends[sample.uuid], f"{where}: windows overlap at {second}"
                ends[sample.uuid] = sample.end_monotonic_s
                for name, value in rates(sample).items():
                    expected = (well[sample.uuid][name], None) if sample.uuid == FAILING else (well[SOUND][name],)
                    if name == "throttled_s":
                        expected = (*expected, {}, WITHOUT_A_VERSION)
                    if function not in OF_NO_DEVICE or sample.uuid == FAILING:
                        assert value in (*expected, *fallback(function, name)), f"{where}: {name} at {second}"
            if function not in OF_NO_DEVICE and second >= 1:
                sound = [sample for sample in found.samples if sample.uuid == SOUND]
                assert [s.end_monotonic_s for s in sound] == [second], f"{where}: the sound device at {second}"
            last = found
        assert last is not None
        assert last.problems == (), where
        assert {sample.uuid: rates(sample) for sample in last.samples} == well, where
        assert {facts.uuid: facts.pids for facts in last.devices} == {FAILING: (1,), SOUND: ()}, where
        if not lines:
            silent.append(function)
    if from_s == 0:
        expected_silent = ANSWERED_OTHERWISE | NOT_CALLED | ({MIG_MODE} if code in ABSENT else set())
        assert set(silent) == expected_silent & set(functions)


# Functions that these two devices need none of: those of slices, and what stands in for a field that is not told.
NOT_CALLED = {
    "nvmlDeviceGetMaxMigDeviceCount",
    "nvmlDeviceGetMigDeviceHandleByIndex",
    "nvmlDeviceGetGpuInstanceId",
    "nvmlGpmMigSampleGet",
    "nvmlDeviceGetPowerUsage",
    "nvmlDeviceGetTotalEnergyConsumption",
    "nvmlDeviceGetPcieThroughput",
}


# Where most fields of accumulated times are depends on the driver's version.
WITHOUT_A_VERSION = {Throttle.POWER_CAP: 1.0, Throttle.SYNC_BOOST: 0.0}


def fallback(function: str, name: str) -> tuple[Any, ...]:
    """Other values that a figure may have while a function fails: from the slower call for PCIe, or by link fields."""
    if function.startswith("nvmlGpm") and name.startswith("pcie"):
        return (3145728.0, 2097152.0, 3146000.0, 2097000.0)
    return ()


def test_what_fails_in_one_call_leaves_the_others(double: Double) -> None:
    profile = scenario("nvmlGpmMetricsGet", 4, 2.5, 5.5)
    found = dict(played(double, profile, [*range(9)]))
    by_second = {second: next(s for s in f.samples if s.uuid == FAILING) for second, f in found.items() if second}
    assert [by_second[s].dram_ratio for s in range(1, 9)] == [0.5, 0.5, None, None, None, 0.5, 0.5, 0.5]
    assert [by_second[s].power_w for s in range(1, 9)] == [300] * 8
    (line,) = found[3].problems
    assert line == found[4].problems[0]
    assert "no permission for bandwidth and activity (GPM)" in line
    assert "NVreg_RestrictProfilingToAdminUsers=0" in line
    assert found[7].problems == ()


def test_several_figures_of_one_kind_share_a_line(double: Double) -> None:
    more = "fail 0 nvmlDeviceGetClockInfo 10 0.5 3\nfail 0 nvmlDeviceGetUtilizationRates 10 0.5 3\n"
    ((_, _), (_, found)) = played(double, STEADY + more, [0, 1])
    (line,) = found.problems
    assert line == f"NVML: {FAILING} did not answer in time for GPU-Util, SM clock, memory clock: tried again at " + (
        "growing intervals"
    )


def test_a_device_that_returns_under_another_index(double: Double) -> None:
    gone = STEADY + "order 0 0 1\norder 5.5 1\norder 9.5 1 0\n"
    found = dict(played(double, gone, [*range(31)]))
    assert {second: {d.uuid: d.index for d in found[second].devices} for second in (5, 7, 30)} == {
        5: {FAILING: 0, SOUND: 1},
        7: {SOUND: 0},
        30: {SOUND: 0, FAILING: 1},
    }
    lost = [s for s in found[6].samples if s.uuid == FAILING]
    assert [s.dram_ratio for s in lost] == [None]
    assert any(f"{FAILING} is lost" in line for line in found[6].problems)
    for second in range(1, 31):  # the other device lost no window
        assert [s.end_monotonic_s for s in found[second].samples if s.uuid == SOUND] == [second]
        assert [s.dram_ratio for s in found[second].samples if s.uuid == SOUND] == [0.5]
    assert [s.dram_ratio for s in found[30].samples if s.uuid == FAILING] == [0.5]
    assert found[30].problems == ()


def test_a_watched_device_that_returns_is_found_by_its_uuid(double: Double) -> None:
    double.play(STEADY + "order 0 0 1\norder 5.5 1\norder 9.5 1 0\n")
    probe = NvmlProbe(clock=double.clock)
    probe.watch(frozenset({FAILING}))
    found = {}
    for second in range(31):
        double.clock.at(second)
        found[second] = probe.sample()
    assert any("is not here" in line for line in found[8].problems)
    assert [(s.uuid, s.dram_ratio) for s in found[30].samples] == [(FAILING, 0.5)]
    assert found[30].problems == ()
    assert [d.index for d in found[30].devices if d.uuid == FAILING] == [1]


def test_the_library_is_opened_anew_at_growing_intervals(double: Double, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[float] = []
    before = binding().nvmlInit
    monkeypatch.setattr(binding(), "nvmlInit", lambda: (opened.append(double.clock()), before())[1])
    list(played(double, STEADY + "fail 0 nvmlDeviceGetClockInfo 15 10.5 1000\n", [*range(200)]))
    pauses = [later - earlier for earlier, later in pairwise(opened[1:])]
    assert opened[:2] == [0, 11]
    assert pauses == sorted(pauses)
    assert pauses[:4] == [1, 2, 4, 8]
    assert pauses[-1] == 60


def test_a_driver_that_is_loaded_later(double: Double) -> None:
    profile = STEADY + "fail * nvmlInitWithFlags 9 0 4\n"
    found = dict(played(double, profile, [*range(10)]))
    assert found[0] == found[2] == Probed(problems=(library.NO_DRIVER,))
    assert found[9].problems == ()
    assert {sample.uuid for sample in found[9].samples} == {FAILING, SOUND}


def test_a_driver_that_is_unloaded_and_loaded_again(double: Double) -> None:
    profile = STEADY + "fail * nvmlDeviceGetFieldValues 9 5.5 8\nfail * nvmlInitWithFlags 9 5.5 8\n"
    found = dict(played(double, profile, [*range(20)]))
    assert found[7] == Probed(problems=(library.NO_DRIVER,))
    assert found[19].problems == ()
    assert [sample.dram_ratio for sample in found[19].samples] == [0.5, 0.5]


@pytest.mark.parametrize(
    ("code", "line"), [(4, library.NO_ACCESS), (18, library.OTHER_VERSION), (9, library.NO_DRIVER)]
)
def test_a_library_that_does_not_open(double: Double, code: int, line: str) -> None:
    ((_, found),) = played(double, f"device 0\nfail * nvmlInitWithFlags {code}\n", [0])
    assert found == Probed(problems=(line,))


def test_without_the_library(nvml_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(*_: object) -> ctypes.CDLL:
        raise OSError("libnvidia-ml.so.1: cannot open shared object file: No such file or directory")

    with loaded(nvml_library, tmp_path) as double:
        monkeypatch.setattr(binding(), "nvmlLib", None)
        monkeypatch.setattr(binding(), "CDLL", nothing)
        probe = NvmlProbe(clock=double.clock)
        assert probe.sample() == Probed(problems=(library.NO_LIBRARY,))
        double.clock.at(1)
        assert probe.sample() == Probed(problems=(library.NO_LIBRARY,))
        probe.close()


def test_a_library_that_is_there_and_cannot_be_loaded_is_said_to_be_so(tmp_path: Path) -> None:
    """nvidia-ml-py says of it that none was found."""
    (tmp_path / library.LIBRARY_FILE).write_text("no ELF\n" * 20)
    code = "from rooflens.collector.nvml import NvmlProbe; print(*NvmlProbe().sample().problems)"
    environment = os.environ | {"LD_LIBRARY_PATH": str(tmp_path)}
    run = subprocess.run(
        [sys.executable, "-P", "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert run.stdout.startswith("NVML: libnvidia-ml.so.1 cannot be loaded (")
    assert "invalid ELF header" in run.stdout


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ModuleNotFoundError("No module named 'pynvml'"), library.NO_BINDING),
        (SyntaxError("invalid syntax"), "NVML: nvidia-ml-py cannot be imported (invalid syntax): pip install -U "),
    ],
)
def test_without_the_binding(monkeypatch: pytest.MonkeyPatch, error: Exception, line: str) -> None:
    real = builtins.__import__

    def broken(name: str, *arguments: Any, **named: Any) -> Any:
        if name == "pynvml":
            raise error
        return real(name, *arguments, **named)

    monkeypatch.setattr(builtins, "__import__", broken)
    (found,) = NvmlProbe().sample().problems
    assert found.startswith(line)


def test_a_fault_of_our_own_is_said_and_the_next_sample_is_whole(
    double: Double, monkeypatch: pytest.MonkeyPatch
) -> None:
    double.play(STEADY)
    probe = NvmlProbe(clock=double.clock)
    probe.sample()
    with monkeypatch.context() as patch:
        patch.setattr(binding(), "nvmlDeviceGetClockInfo", lambda *_: "fast")
        double.clock.at(1)
        (line,) = probe.sample().problems
        assert line.startswith("NVML: a sample failed (TypeError")
    double.clock.at(2)
    found = probe.sample()
    assert found.problems == ()
    assert [sample.dram_ratio for sample in found.samples] == [0.5, 0.5]
