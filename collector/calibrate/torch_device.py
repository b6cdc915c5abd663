"""One device measured through torch (CUDA, ROCm, or torch on the CPU), beside what NVML says of its clocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from statistics import median
from typing import Any

from rooflens.collector.calibrate.drivers import ask, attempt
from rooflens.collector.calibrate.rounds import Clock, Outcome, Rounds, wall_timer
from rooflens.collector.calibrate.torch_kernels import (
    ELEMENT_BYTES,
    SIZES_BYTES,
    Bench,
    event_timer,
    launch_quantities,
    memory_quantities,
)
from rooflens.collector.calibrate.torch_products import product_quantities
from rooflens.collector.cpu_facts import memory_available_bytes
from rooflens.records import RooflensError

MEMORY_SHARE = 0.25  # of what is free; half of it to read, half for the products
MOST_POOL_BYTES = 4 << 30
CPU_BYTES_A_SECOND_GIVEN = 8_000_000  # of the time: a round on a CPU reads the pool a dozen times
FALLBACK_CACHE_BYTES = 64 << 20
CPU_CACHE_BYTES = 8 << 20  # what one core may have for itself; a CPU's last cache is for NumPy's calibration to pass
CLOCKS = (("sm", "NVML_CLOCK_SM"), ("memory", "NVML_CLOCK_MEM"))


def torch_here(device: str) -> Any:
    """The module torch; RooflensError where it is not installed or does not load."""
    try:
        import torch
    except Exception as error:  # a broken installation fails in many ways
        raise RooflensError(
            f"{device} is measured through torch, which does not load here ({type(error).__name__}): "
            "run this with the Python of the engine, or give --device cpu"
        ) from None
    return torch


def resolve(torch: Any, device: str) -> Any:
    """torch's own device of this name, with its index; RooflensError where there is none."""
    try:
        found = torch.device("cpu" if device == "torch-cpu" else device)
    except Exception:
        raise RooflensError(f"{device} is no device: give cpu, torch-cpu or cuda:0 (also of ROCm)") from None
    if found.type == "cpu":
        return found
    count = torch.cuda.device_count() if found.type == "cuda" else 0
    index = found.index or 0
    if index >= count:
        raise RooflensError(
            f"torch sees no {device} here ({count} device{'' if count == 1 else 's'}): give another, or --device cpu"
        )
    return torch.device("cuda", index)


def measure(
    torch: Any, device: Any, seconds: float, deadline_s: float, clock: Clock, tell: Callable[[str], None],
    watch: Callable[[], None] | None = None,
) -> Outcome:  # fmt: skip
    """Everything but the all-reduce; takes at most a quarter of the free memory and gives it back."""
    cuda = device.type == "cuda"
    with torch.cuda.device(device) if cuda else nullcontext(), _settings_kept(torch), torch.inference_mode():
        room = _free_bytes(torch, device) * MEMORY_SHARE / 2
        bench = _bench(torch, device, room, seconds, clock)
        quantities = [
            *launch_quantities(bench),
            *product_quantities(bench, int(room)),
            *memory_quantities(bench),
        ]
        outcome = Rounds(clock, tell, watch).run(quantities, deadline_s)
        outcome.problems += bench.problems
        del quantities, bench
        if cuda:
            attempt(torch.cuda.empty_cache)
    return outcome


def _bench(torch: Any, device: Any, room_bytes: float, seconds: float, clock: Clock) -> Bench:
    pool_bytes = min(room_bytes, MOST_POOL_BYTES)
    if device.type == "cpu":
        pool_bytes = min(pool_bytes, seconds * CPU_BYTES_A_SECOND_GIVEN)
    elements = max(int(pool_bytes), SIZES_BYTES[0]) // ELEMENT_BYTES
    try:
        if device.type == "cpu":
            pool = torch.ones(elements, dtype=torch.bfloat16)
            return Bench(torch, device, wall_timer(clock), pool, CPU_CACHE_BYTES)
        pool = torch.empty(elements, dtype=torch.bfloat16, device=device).normal_()
    except Exception as error:
        raise RooflensError(
            f"{device} could not be used: {str(error).strip().splitlines()[0][:120] or type(error).__name__}; "
            "free some of its memory, or look with rooflens doctor"
        ) from None
    cache = getattr(torch.cuda.get_device_properties(device), "L2_cache_size", 0) or FALLBACK_CACHE_BYTES
    return Bench(torch, device, event_timer(torch), pool, cache)


def _free_bytes(torch: Any, device: Any) -> float:
    if device.type == "cpu":
        return memory_available_bytes()
    found = attempt(torch.cuda.mem_get_info, device)
    return float(found[0]) if found else 0.0


@contextmanager
def _settings_kept(torch: Any) -> Iterator[None]:
    precision = torch.get_float32_matmul_precision()
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(precision)


class DeviceClocks:
    """The clocks of an NVIDIA device before, while and after it is measured; nothing where NVML does not say."""

    def __init__(self, library: Any, handle: Any) -> None:
        self._library, self._handle = library, handle
        self._before_hz, self._while_hz = self._now_hz(), {}  # type: tuple[dict[str, float], dict[str, list[float]]]

    def look(self) -> None:
        """Once more, while it is measured."""
        for name, value in self._now_hz().items():
            self._while_hz.setdefault(name, []).append(value)

    def clocks_hz(self) -> dict[str, float]:
        """sm and memory: the median while it was measured; the same with _before, _after and _max."""
        found = {name: median(values) for name, values in self._while_hz.items()}
        for ending, values in (("before", self._before_hz), ("after", self._now_hz()), ("max", self._most_hz())):
            found |= {f"{name}_{ending}": value for name, value in values.items()}
        return found

    def _now_hz(self) -> dict[str, float]:
        return self._read("nvmlDeviceGetClockInfo")

    def _most_hz(self) -> dict[str, float]:
        return self._read("nvmlDeviceGetMaxClockInfo")

    def _read(self, call: str) -> dict[str, float]:
        """By name, in Hz; NVML has them in MHz."""
        if self._library is None or self._handle is None:
            return {}
        found = {}
        for name, constant in CLOCKS:
            value = ask(self._library, call, self._handle, getattr(self._library, constant, None))
            if isinstance(value, int) and value > 0:
                found[name] = value * 1e6
        return found
