"""The way to a device and back, with a made-up torch and NVML: no device is here to measure, so what they answer is.

It is the order of things that is tested: who uses the device is asked before it is opened, graphs fall back to single
launches, clocks are read before, while and after, and the other devices are left alone while others use them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from rooflens.calibration_records import MachineIdentity, Measured
from rooflens.collector.calibrate import calibrate, run, torch_device
from rooflens.collector.calibrate.rounds import Outcome
from rooflens.collector.calibrate.torch_kernels import Bench, event_timer
from rooflens.collector.calibrate.torch_products import _formats
from rooflens.model_records import DISTURBED
from rooflens.records import RooflensError

UUID = "11111111-2222-3333-4444-555555555555"
RATE = Measured(4e12, 4.2e12, 0.02, 30)


class Cuda:
    """torch.cuda of ``count`` devices; ``log`` is what was asked, in order."""

    def __init__(self, count: int, log: list[str]) -> None:
        self._count, self._log, self.capability, self.opened = count, log, (9, 0), False

    def is_available(self) -> bool:
        return self._count > 0

    def device_count(self) -> int:
        return self._count

    def is_initialized(self) -> bool:
        return self.opened

    def get_device_properties(self, _index: Any) -> Any:
        self.opened = True
        self._log.append("opened")
        return SimpleNamespace(name="NVIDIA H200", uuid=UUID, L2_cache_size=50 << 20)

    def get_device_capability(self, _device: Any) -> tuple[int, int]:
        return self.capability

    def mem_get_info(self, _device: Any) -> tuple[int, int]:
        return 100_000_000_000, 140_000_000_000

    def memory_reserved(self, _device: Any) -> int:
        return 30_000_000_000


@dataclass
class Device:
    """torch.device."""

    type: str
    index: int | None

    def __str__(self) -> str:
        return f"{self.type}:{self.index}"


def made_torch(count: int, log: list[str], hip: str | None = None) -> Any:
    found = ModuleType("torch")

    def device(name: Any, index: int | None = None) -> Any:
        if not isinstance(name, str):
            return name
        kind, _, number = name.partition(":")
        if kind not in ("cuda", "cpu"):
            raise RuntimeError("no such device")
        chosen = int(number) if number else index
        return Device(kind, chosen)

    for name, value in {
        "device": device,
        "cuda": Cuda(count, log),
        "version": SimpleNamespace(cuda=None if hip else "13.0", hip=hip),
        "__version__": "2.13.0+cu130",
    }.items():
        setattr(found, name, value)
    return found


def made_nvml(log: list[str], pids: list[int]) -> Any:
    found = ModuleType("pynvml")
    clocks = iter([1.2e3, 1.98e3, 1.95e3, 1.9e3, 1.7e3])

    def asked(_handle: Any) -> list[Any]:
        log.append("asked who computes")
        return [SimpleNamespace(pid=pid) for pid in pids]

    calls = {
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetCount": lambda: 1,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetUUID": lambda _handle: f"GPU-{UUID}",
        "nvmlDeviceGetName": lambda _handle: "NVIDIA H200",
        "nvmlDeviceGetComputeRunningProcesses": asked,
        "nvmlSystemGetDriverVersion": lambda: "580.65.06",
        "nvmlDeviceGetClockInfo": lambda _handle, kind: int(next(clocks)) if kind == 1 else int("no number"),
        "nvmlDeviceGetMaxClockInfo": lambda _handle, kind: 1980 if kind == 1 else 3201,
        "NVML_CLOCK_SM": 1,
        "NVML_CLOCK_MEM": 2,
    }
    for name, call in calls.items():
        setattr(found, name, call)
    return found


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was asked, on a machine with one H200 that nobody uses; the measurement itself is made up."""
    found: list[str] = []
    monkeypatch.setitem(sys.modules, "torch", made_torch(1, found))
    monkeypatch.setitem(sys.modules, "pynvml", made_nvml(found, []))
    monkeypatch.setitem(sys.modules, "amdsmi", None)

    def measure(_torch: Any, device: Any, _s: float, deadline_s: float, _clock: Any, tell: Any, watch: Any) -> Outcome:
        found.append(f"measured {device.type}:{device.index} until {deadline_s:.0f}")
        tell("round 1")
        for _ in range(3):
            watch()
        values = {"reads": {2 << 20: RATE}, "products": {"bf16": RATE}, "graph_launch_s": {None: RATE}}
        return Outcome(measured={**values}, problems=["products int8 is not known: RuntimeError: no"])

    monkeypatch.setattr(torch_device, "measure", measure)
    return found


def still() -> float:
    """A clock that stands."""
    return 0.0


def test_a_device_is_asked_for_before_it_is_opened_and_then_measured(log: list[str]) -> None:
    found = calibrate("cuda", 60.0, clock=still)
    assert log[:3] == ["asked who computes", "opened", "measured cuda:0 until 27"]
    assert found.identity.device_uuid == f"GPU-{UUID}"
    assert (found.identity.kind, found.identity.name) == ("cuda", "NVIDIA H200")
    assert found.reads == ((2 << 20, RATE),)
    assert (found.products, found.launch_s, found.graph_launch_s) == ({"bf16": RATE}, None, RATE)
    assert found.flags == ("products int8 is not known: RuntimeError: no",)
    assert found.clocks_hz == {
        "sm": 1.95e9, "sm_before": 1.2e9, "sm_after": 1.7e9, "sm_max": 1.98e9, "memory_max": 3.201e9,
    }  # fmt: skip
    assert (found.versions["driver"], found.versions["cuda"]) == ("580.65.06", "13.0")
    assert found.all_reduce_s == {}


def test_the_first_device_is_the_default(log: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "find_spec", lambda _name: object())
    assert calibrate(clock=still).identity.kind == "cuda"


def test_a_busy_device_is_refused_unless_forced(log: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", made_nvml(log, [4242]))
    with pytest.raises(RooflensError, match=r"cuda:0 \(NVIDIA H200\) is in use: 1 other process computes on it"):
        calibrate("cuda:0", clock=still)
    assert not [line for line in log if line.startswith("measured")]
    sys.modules["torch"].cuda.opened = False
    found = calibrate("cuda:0", force=True, clock=still)
    assert found.flags[0] == f"{DISTURBED}: 1 other process computes on it"


def test_where_no_driver_says_who_computes_their_memory_does(log: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(RooflensError, match=r"others hold 10.0 GB of its memory"):
        calibrate("cuda:0", clock=still)
    found = calibrate("cuda:0", force=True, clock=still)
    assert (found.identity.device_uuid, found.clocks_hz) == (f"GPU-{UUID}", {})
    monkeypatch.setattr(sys.modules["torch"].cuda, "mem_get_info", lambda _device: (109_000_000_000, 140_000_000_000))
    assert calibrate("cuda:0", clock=still).flags == ("products int8 is not known: RuntimeError: no",)


def test_rocm_is_measured_the_same_way(log: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", made_torch(1, log, hip="7.1"))
    found = calibrate("cuda:0", force=True, clock=still)
    assert found.identity.kind == "rocm"
    assert found.versions["hip"] == "7.1"


def test_an_all_reduce_between_all_devices_and_between_two(log: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", made_torch(8, log))
    curve = ((16384, RATE),)

    def between(backend: str, devices: int, seconds: float) -> tuple[Any, str | None]:
        log.append(f"{backend} {devices} {seconds:.0f}")
        return (curve, None) if devices == 8 else (None, "all_reduce between 2 devices is not known: a test")

    monkeypatch.setattr(run.all_reduce, "between", between)
    found = calibrate("cuda:3", 60.0, clock=still)
    assert "measured cuda:3 until 30" in log  # the rest of the minute is for the processes
    assert log[-2:] == ["nccl 8 60", "nccl 2 60"]
    assert found.all_reduce_s == {8: curve}
    assert found.flags[-1] == "all_reduce between 2 devices is not known: a test"


def test_no_all_reduce_while_another_device_is_in_use(log: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", made_torch(2, log))
    outcome = Outcome()
    torch: Any = sys.modules["torch"]
    meter = run.Meter(None, still, 0.0, 60.0)
    assert run._all_reduce(torch, {"GPU-1": None, "GPU-2": "somebody"}, meter, False, outcome) == {}
    assert outcome.problems == ["all_reduce is not known: another of the devices is in use"]


@pytest.mark.parametrize(("device", "why"), [("cuda:1", r"torch sees no cuda:1 here \(1 device\)"), ("x", "no device")])
def test_a_device_that_is_not_there(log: list[str], device: str, why: str) -> None:
    with pytest.raises(RooflensError, match=why):
        calibrate(device)
    assert log == []


FORMATS = [
    ((7, 5), None, ["fp16", "fp32", "int8"]),
    ((8, 0), None, ["bf16", "fp16", "fp32", "tf32", "int8"]),
    ((9, 0), None, ["bf16", "fp16", "fp32", "tf32", "fp8", "int8"]),
    ((9, 4), "7.1", ["bf16", "fp16", "fp32", "fp8", "int8"]),
]


@pytest.mark.parametrize(("capability", "hip", "expected"), FORMATS)
def test_formats_that_are_tried(capability: tuple[int, int], hip: str | None, expected: list[str]) -> None:
    torch = made_torch(1, [], hip)
    torch.cuda.capability = capability
    assert _formats(Bench(torch, torch.device("cuda:0"), lambda _call, _calls: 1.0, None, 1)) == expected


class Stream:
    def wait_stream(self, _other: Any) -> None:
        """Nothing to wait for."""


def capturing(log: list[str], works: bool) -> Any:
    """A torch whose graphs do what was done while they were captured, or cannot be captured."""

    class Graph:
        def replay(self) -> None:
            log.append("replayed")

    @contextmanager
    def graph(_graph: Any) -> Iterator[None]:
        log.append("capturing")
        yield
        if not works:
            raise RuntimeError("operation not permitted when stream is capturing")

    cuda = SimpleNamespace(
        Stream=Stream, current_stream=Stream, stream=lambda _one: nullcontext(), CUDAGraph=Graph, graph=graph
    )
    return SimpleNamespace(cuda=cuda)


def test_turns_are_captured_after_one_that_is_not() -> None:
    log: list[str] = []
    bench = Bench(capturing(log, works=True), SimpleNamespace(type="cuda"), lambda _call, _calls: 1.0, None, 1)
    call = bench.captured(lambda: log.append("turn"))
    call()
    assert log == ["turn", "capturing", "turn", "replayed"]
    assert bench.problems == []


def test_what_cannot_be_captured_is_launched_and_said_once() -> None:
    log: list[str] = []
    bench = Bench(capturing(log, works=False), SimpleNamespace(type="cuda"), lambda _call, _calls: 1.0, None, 1)
    for _ in range(2):
        bench.captured(lambda: log.append("turn"))()
    assert log[-1] == "turn"
    assert bench.problems == ["not captured in a graph, so the host's launches are in it: RuntimeError"]


def test_events_are_recorded_around_all_calls_and_waited_for() -> None:
    log: list[str] = []

    class Event:
        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            log.append("record")

        def synchronize(self) -> None:
            log.append("wait")

        def elapsed_time(self, _end: Any) -> float:
            return 12.5

    seconds = event_timer(SimpleNamespace(cuda=SimpleNamespace(Event=Event)))
    assert seconds(lambda: log.append("call"), 3) == 0.0125
    assert log == ["record", "call", "call", "call", "record", "wait"]


def test_identities_of_torch_and_of_the_driver_are_the_same(log: list[str]) -> None:
    from rooflens.collector.calibrate import identities_here, identity_of_torch

    found: MachineIdentity = identity_of_torch("cuda:0")
    assert found in identities_here()
