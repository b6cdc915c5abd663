"""A GPU whose time the test moves, as torch.cuda shows it, and runners and workers shaped like vLLM's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from rooflens.adapters.vllm import device as device_time
from rooflens.adapters.vllm.device_timer import DeviceTimer
from rooflens.collector.device_spans import DeviceRing, read_device_ring
from rooflens.ring_folder import DEVICE_SUFFIX, list_rings


class Stream:
    """Work handed to the device is done when the test says so."""

    def __init__(self) -> None:
        self.marks: list[Event] = []


class Event:
    """Passed once the device has come to it; asking for its time before that, or waiting for it, is a fault."""

    def __init__(self, device: Device, enable_timing: bool) -> None:
        assert enable_timing
        self.device = device
        self.at_ms: float | None = None

    def record(self, stream: Stream) -> None:
        if self.device.broken:
            raise RuntimeError("CUDA error: unspecified launch failure")
        self.at_ms = None
        self.device.records += 1
        stream.marks.append(self)

    def query(self) -> bool:
        return self.at_ms is not None

    def synchronize(self) -> None:
        raise AssertionError("the hook waited for the device")

    def elapsed_time(self, other: Event) -> float:
        assert self.at_ms is not None
        assert other.at_ms is not None
        return other.at_ms - self.at_ms


class Device:
    """One GPU: ``torch`` is what a worker would have imported."""

    def __init__(self) -> None:
        self.stream = Stream()
        self.now_ms = 1000.0
        self.capturing = False
        self.broken = False
        self.records = 0
        self.torch: Any = SimpleNamespace(
            cuda=SimpleNamespace(
                Event=lambda enable_timing=False: Event(self, enable_timing),
                current_stream=lambda: self.stream,
                is_current_stream_capturing=lambda: self.capturing,
                get_device_properties=lambda device: SimpleNamespace(name="Made-up GPU", uuid="1234-56"),
            )
        )

    def work(self, ms: float) -> None:
        """Come to every mark but the last one, work, and come to that."""
        *before, last = self.stream.marks
        for mark in before:
            mark.at_ms = self.now_ms
        self.now_ms += ms
        last.at_ms = self.now_ms
        self.stream.marks.clear()


def output(tokens: int, requests: int = 1) -> Any:
    return SimpleNamespace(total_num_scheduled_tokens=tokens, num_scheduled_tokens=dict.fromkeys(range(requests)))


class Worker:
    """Builds its runner in init_device, as vLLM's do."""

    runner: type
    device_type = "cuda"

    def __init__(self, rank: int = 0) -> None:
        self.rank = rank
        self.model_runner: Any = None
        parallel = SimpleNamespace(world_size=2, tensor_parallel_size=2, pipeline_parallel_size=1)
        self.vllm_config = SimpleNamespace(parallel_config=parallel)

    def init_device(self) -> None:
        self.model_runner = self.runner()
        self.model_runner.device = SimpleNamespace(type=self.device_type)

    def compile_or_warm_up_model(self) -> str:
        self.model_runner.execute_model(output(64))
        self.model_runner.sample_tokens(None)
        self.model_runner._dummy_run(8)
        return "warm"


class OneCall:
    """Before 0.11.1: sampling is part of execute_model."""

    device: Any
    during: Callable[[], None] | None = None

    def execute_model(self, scheduler_output: Any, intermediate_tensors: Any = None) -> Any:
        if self.during is not None:
            self.during()
        return f"output of {scheduler_output.total_num_scheduled_tokens}"

    def _dummy_run(self, num_tokens: int) -> str:
        return "dummy"


class TwoCalls(OneCall):
    """Since 0.11.1: None, and sample_tokens is called; what is returned instead ends the pass."""

    instead: Any = None

    def execute_model(self, scheduler_output: Any, intermediate_tensors: Any = None, dummy_run: bool = False) -> Any:
        if self.during is not None:
            self.during()
        return None if scheduler_output.total_num_scheduled_tokens and self.instead is None else self.instead

    def sample_tokens(self, grammar_output: Any) -> str:
        if self.during is not None:
            self.during()
        return "sampled"


class Second(TwoCalls):
    """Model runner 2: a dummy run goes through execute_model."""

    def _dummy_run(self, num_tokens: int) -> str:
        self.execute_model(output(num_tokens), dummy_run=True)
        return "dummy"


def worker(runner: type = TwoCalls, rank: int = 0, **members: Any) -> Any:
    """A worker whose class was wrapped before it was built, with classes of its own so that no test sees another's."""
    base = type("Base", (Worker,), {"runner": type("Runner", (runner,), {}), **members})
    device_time.wrap_workers(base)
    made = type("Derived", (base,), {})(rank)
    made.init_device()
    return made


def timer(of: Any) -> DeviceTimer:
    found = device_time.timer_of(of.model_runner)
    assert found is not None
    return found


def step(of: Any, gpu: Any, tokens: int, ms: float, requests: int = 1) -> None:
    """One pass that the device has finished before the next begins."""
    assert of.model_runner.execute_model(output(tokens, requests)) is None
    assert of.model_runner.sample_tokens(None) == "sampled"
    if gpu.stream.marks:
        gpu.work(ms)


def ring(folder: Path) -> DeviceRing:
    (path,) = list_rings(folder, DEVICE_SUFFIX)
    return read_device_ring(path)
