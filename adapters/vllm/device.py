"""Device time, opt-in: takes hold of a worker's model runner once it is built, and leaves every other worker alone."""

from __future__ import annotations

import logging
import os
import sys
import time
import weakref
from collections.abc import Callable, Mapping
from typing import Any

from rooflens.adapters.vllm.device_timer import DeviceTimer
from rooflens.adapters.vllm.info import engine_version
from rooflens.adapters.vllm.patch import wrap
from rooflens.ring_folder import DEVICE_SIZES, DEVICE_SUFFIX, create_ring, default_folder, host_name
from rooflens.ring_writer import RingWriter

log = logging.getLogger("vllm.rooflens")

TIMER = "_rooflens_device_timer"
KIND = "device"  # says in a ring's facts that it holds device spans
# What is looked for in a model runner; of the second at least one where execute_model returns None.
FIRST_CALL, LAST_CALLS, DUMMY_CALL = "execute_model", ("sample_tokens", "pool"), "_dummy_run"
# What is wrapped in a worker: the runner is built in the first, the second makes passes that are no steps.
BUILDS, WARMS_UP = "init_device", "compile_or_warm_up_model"
_timers: weakref.WeakSet[DeviceTimer] = weakref.WeakSet()


def _stop_in_child() -> None:
    for timer in _timers:  # the ring, if there is one, is the parent's; so is the device
        timer.off = True


os.register_at_fork(after_in_child=_stop_in_child)


def wrap_workers(base: type) -> None:
    """Take hold of the model runner of every worker of this class or a class derived from it."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            original(self, *args, **kwargs)
            try:
                wrap(type(self), BUILDS, _builds)
                wrap(type(self), WARMS_UP, _warms_up)
            except Exception as error:
                _stay_off(f"{type(error).__name__}: {error}")

        return __init__

    wrap(base, "__init__", make)


def _builds(original: Callable[..., Any]) -> Callable[..., Any]:
    def init_device(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        try:
            attach(self, sys.modules.get("torch"))
        except Exception as error:  # the worker comes first
            _stay_off(f"{type(error).__name__}: {error}")
        return result

    return init_device


def _warms_up(original: Callable[..., Any]) -> Callable[..., Any]:
    def compile_or_warm_up_model(self: Any, *args: Any, **kwargs: Any) -> Any:
        timer = timer_of(getattr(self, "model_runner", None))
        if timer is None:
            return original(self, *args, **kwargs)
        timer.warming += 1
        try:
            return original(self, *args, **kwargs)
        finally:
            timer.warming -= 1

    return compile_or_warm_up_model


def _stay_off(why: str) -> None:
    log.warning("rooflens does not time this worker's device: %s", why)


def timer_of(runner: Any) -> DeviceTimer | None:
    """The timer of a model runner, None if it has none or it is switched off."""
    timer: DeviceTimer | None = getattr(runner, TIMER, None)
    return None if timer is None or timer.off else timer


def attach(worker: Any, torch: Any) -> DeviceTimer | None:
    """Wrap the runner that a worker has built; None, and one line, where its device cannot be timed."""
    runner = getattr(worker, "model_runner", None)
    if runner is None or hasattr(runner, TIMER):
        return None
    device = getattr(runner, "device", None)
    kind = getattr(device, "type", None)
    if kind != "cuda" or torch is None:  # ROCm calls itself cuda too
        log.info("rooflens: device time stays off, this worker runs on %s, not on a GPU with CUDA events", kind)
        return None
    closes = [name for name in LAST_CALLS if callable(getattr(runner, name, None))]
    if not callable(getattr(runner, FIRST_CALL, None)):
        _stay_off(f"{type(runner).__name__} has no {FIRST_CALL}()")
        return None

    def open_ring() -> RingWriter:
        facts = worker_facts(worker, torch.cuda.get_device_properties(device))
        ring, path = create_ring(default_folder(), facts["rank"], DEVICE_SIZES, DEVICE_SUFFIX)
        ring.set_info({"instance": path.stem, **facts})
        log.info("rooflens times this worker's device in %s", path)
        return ring

    timer = DeviceTimer(torch.cuda, open_ring, bool(closes))
    owner = type(runner)
    wrap(owner, FIRST_CALL, _begins)
    wrap(owner, DUMMY_CALL, _dummy)
    for name in closes:
        wrap(owner, name, _ends)
    setattr(runner, TIMER, timer)
    _timers.add(timer)
    return timer


def worker_facts(worker: Any, device: Any) -> dict[str, Any]:
    """What a device ring says of itself; ``parent_pid`` is the engine's process unless that is the worker's own."""
    config = worker.vllm_config
    parallel = config.parallel_config
    rank = int(getattr(worker, "rank", 0) or 0)
    # The rank is 0 in every replica of a dense model; the index, where there is one, tells them apart.
    replica = int(getattr(parallel, "data_parallel_index", getattr(parallel, "data_parallel_rank", 0)) or 0)
    size = int(getattr(parallel, "world_size", 1) or 1)
    uuid = getattr(device, "uuid", None)
    name = None if uuid is None else str(uuid)
    if name is not None and not name.startswith(("GPU-", "MIG-")):
        name = f"GPU-{name}"  # as NVML writes it
    return {
        "kind": KIND,
        "engine": "vllm",
        "engine_version": engine_version(),
        "rank": rank if rank >= size else replica * size + rank,
        "replica": replica,
        "parent_pid": os.getppid(),
        "host": host_name(),
        "start_unix_s": time.time(),
        "tensor_parallel": int(getattr(parallel, "tensor_parallel_size", 1) or 1),
        "pipeline_parallel": int(getattr(parallel, "pipeline_parallel_size", 1) or 1),
        "device": str(getattr(device, "name", "")) or None,
        "device_uuids": [name] if name else [],
    }


def _is_dummy(timer: DeviceTimer, kwargs: Mapping[str, Any]) -> bool:
    return timer.warming > 0 or bool(kwargs.get("dummy_run"))


def _begins(original: Callable[..., Any]) -> Callable[..., Any]:
    def execute_model(self: Any, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
        timer = timer_of(self)
        if timer is None or timer.inside:
            return original(self, scheduler_output, *args, **kwargs)
        if _is_dummy(timer, kwargs):
            return _unseen(timer, original, self, scheduler_output, *args, **kwargs)
        try:
            timer.begin(scheduler_output)
        except Exception:
            timer.failed(FIRST_CALL)
        timer.inside = True
        try:
            result = original(self, scheduler_output, *args, **kwargs)
        except BaseException:
            timer.broke()
            raise
        finally:
            timer.inside = False
        try:
            timer.returned(result)
        except Exception:
            timer.failed(FIRST_CALL)
        return result

    return execute_model


def _ends(original: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        timer = timer_of(self)
        if timer is None or timer.inside or timer.warming:
            return original(self, *args, **kwargs)
        try:
            timer.sampling()
        except Exception:
            timer.failed("sample_tokens")
        timer.inside = True
        try:
            result = original(self, *args, **kwargs)
        except BaseException:
            timer.broke()
            raise
        finally:
            timer.inside = False
        try:
            timer.sampled()
        except Exception:
            timer.failed("sample_tokens")
        return result

    return wrapper


def _unseen(timer: DeviceTimer, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """A pass that is no step of the engine; one under way would contain it, so that one is given up."""
    timer.broke("dummy run")
    timer.inside = True
    try:
        return original(*args, **kwargs)
    finally:
        timer.inside = False


def _dummy(original: Callable[..., Any]) -> Callable[..., Any]:
    def _dummy_run(self: Any, *args: Any, **kwargs: Any) -> Any:
        timer = timer_of(self)
        if timer is None or timer.inside:
            return original(self, *args, **kwargs)
        return _unseen(timer, original, self, *args, **kwargs)

    return _dummy_run
