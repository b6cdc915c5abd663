"""Around the scheduler: the executor's calls, data-parallel dummy steps, and events that change what a step costs."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from rooflens.adapters.vllm import surface
from rooflens.adapters.vllm.patch import capture_of, captures, detach, failed, wrap


def timed(original: Callable[..., Any]) -> Callable[..., Any]:
    """Add the duration of each call to the newest step in flight: the one that the executor is working on."""

    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        started_ns = time.monotonic_ns()
        try:
            return original(self, *args, **kwargs)
        finally:
            _add_call(started_ns, time.monotonic_ns())

    return wrapper


def _add_call(started_ns: int, ended_ns: int) -> None:
    if not captures:
        return
    try:
        pending = captures[-1].pending
        if pending:
            pending[-1].executor_ns += ended_ns - started_ns
            pending[-1].last_return_ns = ended_ns
    except Exception:
        failed(captures[-1], "the executor's call")


def _dummy(original: Callable[..., Any]) -> Callable[..., Any]:
    def execute_dummy_batch(self: Any, *args: Any, **kwargs: Any) -> Any:
        started_ns = time.monotonic_ns()
        result = original(self, *args, **kwargs)
        capture = capture_of(getattr(self, "scheduler", None))
        if capture is not None:
            try:
                capture.dummy(started_ns, time.monotonic_ns())
            except Exception:
                failed(capture, "execute_dummy_batch")
        return result

    return execute_dummy_batch


def _event(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(self, *args, **kwargs)
            capture = capture_of(getattr(self, "scheduler", None))
            if capture is not None:
                try:
                    capture.ring.event(name)
                except Exception:
                    failed(capture, name)
            return result

        return wrapper

    return make


def _shutdown(original: Callable[..., Any]) -> Callable[..., Any]:
    """Close the ring of a core that is told to end between two steps; one that fails, or hangs, has not ended so."""

    def shutdown(self: Any, *args: Any, **kwargs: Any) -> Any:
        error = sys.exc_info()[1]  # what took the core out of its loop: SystemExit where it was told to end
        scheduler = getattr(self, "scheduler", None)
        capture = capture_of(scheduler)
        if capture is not None and not capture.pending and isinstance(error, SystemExit | None):
            try:
                detach(scheduler)
            except Exception:
                failed(capture, "shutdown")
        return original(self, *args, **kwargs)

    return shutdown


def wrap_executor(owner: type) -> None:
    """Time the calls of every executor that is built from now on."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            for name in surface.EXECUTOR_METHODS:
                wrap(type(self), name, timed)
            original(self, *args, **kwargs)

        return __init__

    wrap(owner, "__init__", make)


def wrap_core(owner: type) -> None:
    """Record data-parallel dummy steps, the events that change what a step costs, and the end."""
    wrap(owner, "execute_dummy_batch", _dummy)
    wrap(owner, "shutdown", _shutdown)
    for name in surface.CORE_EVENTS:
        wrap(owner, name, _event(name))
