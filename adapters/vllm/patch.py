"""Where the hook takes hold of vLLM: wrappers that pass everything through and never raise."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable
from time import monotonic_ns
from typing import Any

from rooflens.adapters.vllm import surface
from rooflens.adapters.vllm.capture import Capture
from rooflens.adapters.vllm.info import engine_info
from rooflens.adapters.vllm.rows import Pending
from rooflens.ring_folder import create_ring, default_folder

log = logging.getLogger("vllm.rooflens")  # under vllm, so that its handlers and format apply

CAPTURE = "_rooflens_capture"
WRAPPED = "_rooflens_wrapped"
MOST_FAILURES = 16  # a hook that fails this often tells nothing true any more
captures: list[Capture] = []
_warned = False


def warn_once(message: str) -> None:
    """The one warning that rooflens gives an engine."""
    global _warned
    if not _warned:
        _warned = True
        log.warning("rooflens does not record this engine: %s", message)


def _stop_in_child() -> None:
    for capture in captures:
        switch_off(capture)
    captures.clear()


os.register_at_fork(after_in_child=_stop_in_child)


def attach(scheduler: Any) -> Capture | None:
    """Open a ring for a built scheduler; None, and one warning, if that cannot be."""
    try:
        problems = surface.instance_problems(scheduler)
        if problems:
            warn_once("this vLLM has no " + ", ".join(problems))
            return None
        rank = int(getattr(scheduler.vllm_config.parallel_config, "data_parallel_rank", 0) or 0)
        ring, path = create_ring(default_folder(), rank)
        ring.set_info(engine_info(scheduler, path.stem).to_json())
        capture = Capture(scheduler, ring)
    except Exception as error:  # the engine comes first
        warn_once(f"{type(error).__name__}: {error}")
        return None
    setattr(scheduler, CAPTURE, capture)
    captures.append(capture)
    log.info("rooflens records every step of this engine in %s", path)
    return capture


def detach(scheduler: Any) -> None:
    """End the recording of a scheduler in order."""
    capture = getattr(scheduler, CAPTURE, None)
    if capture is not None:
        capture.tell_ended()
        switch_off(capture)
        capture.ring.close()
        captures.remove(capture)


def switch_off(capture: Capture) -> None:
    """Leave the scheduler alone from here on; what was recorded stays."""
    capture.off = True
    setattr(capture.scheduler, CAPTURE, None)


def failed(capture: Capture, where: str) -> None:
    """Count a failure of the hook where a reader sees it; the first is logged, the last switches the hook off."""
    capture.failures += 1
    try:
        capture.lose_track()
        capture.ring.unstamp()  # what is not going to be told would look like a step that hangs
        capture.ring.count_failure()
        if capture.failures == 1:
            log.warning("rooflens failed in %s and goes on", where, exc_info=True)
        if capture.failures < MOST_FAILURES:
            capture.ring.event("hook_failed")  # what the last step said of the queue holds no more
        else:
            switch_off(capture)
            capture.ring.event("hook_off", {"failures": capture.failures})
            log.warning("rooflens failed %d times and switched itself off", capture.failures)
    except Exception:
        switch_off(capture)


def capture_of(scheduler: Any) -> Capture | None:
    """The capture that a call should report to: None while one of its wrappers is at work further out."""
    capture: Capture | None = getattr(scheduler, CAPTURE, None)
    return None if capture is None or capture.off or capture.inside else capture


def wrap(owner: type, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Replace a method by what ``make`` makes of it, once for a class and those derived from it."""
    original = getattr(owner, name, None)
    if original is None or hasattr(original, WRAPPED):  # inherited from a class that is wrapped already
        return
    wrapper = make(original)
    functools.update_wrapper(wrapper, original)
    setattr(wrapper, WRAPPED, True)
    setattr(owner, name, wrapper)


def _schedule(original: Callable[..., Any]) -> Callable[..., Any]:
    def schedule(self: Any, *args: Any, **kwargs: Any) -> Any:
        capture: Capture | None = getattr(self, CAPTURE, None)
        if capture is None or capture.inside:
            return original(self, *args, **kwargs)
        started_ns = monotonic_ns()
        capture.inside = True
        try:
            # An unpacking call costs a tenth of the whole hook; vLLM passes at most one argument.
            output = original(self, *args, **kwargs) if args or kwargs else original(self)
        finally:
            capture.inside = False
        try:
            capture.scheduled(output, started_ns)
        except Exception:
            failed(capture, "schedule")
        return output

    return schedule


def _before_update(capture: Capture, output: Any, result: Any) -> Pending | None:
    try:
        return capture.before_update(output, result)
    except Exception:
        failed(capture, "update")
        return None


def _update(original: Callable[..., Any]) -> Callable[..., Any]:
    def update_from_output(self: Any, scheduler_output: Any, model_runner_output: Any, *args: Any, **kw: Any) -> Any:
        capture: Capture | None = getattr(self, CAPTURE, None)
        if capture is None or capture.inside or args or kw:
            return original(self, scheduler_output, model_runner_output, *args, **kw)
        started_ns = monotonic_ns()
        pending = capture.pending
        step: Pending | None
        if pending and pending[0].plain and pending[0].output is scheduler_output:
            step = pending.popleft()
        else:
            step = _before_update(capture, scheduler_output, model_runner_output)
        capture.inside = True
        try:
            outputs = original(self, scheduler_output, model_runner_output)
        finally:
            capture.inside = False
        if step is not None:
            try:
                capture.updated(step, model_runner_output, outputs, started_ns, monotonic_ns())
            except Exception:
                failed(capture, "update")
        return outputs

    return update_from_output


def _before(method: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Tell the capture of a request before the scheduler acts on it; runs inside schedule and update too."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(self: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
            capture: Capture | None = getattr(self, CAPTURE, None)
            if capture is None or capture.off or capture.telling:  # a subclass that calls its base is told once
                return original(self, request, *args, **kwargs)
            try:
                getattr(capture.requests, method)(request)
            except Exception:
                failed(capture, method)
            capture.telling = True
            try:
                return original(self, request, *args, **kwargs)
            finally:
                capture.telling = False

        return wrapper

    return make


def _parked(original: Callable[..., Any]) -> Callable[..., Any]:
    def _handle_stopped_request(self: Any, request: Any) -> Any:
        finished = original(self, request)
        capture: Capture | None = getattr(self, CAPTURE, None)
        if not finished and capture is not None and not capture.off:
            try:
                capture.requests.on_park(request)
            except Exception:
                failed(capture, "on_park")
        return finished

    return _handle_stopped_request


def wrap_scheduler(owner: type) -> None:
    """Wrap the methods of a scheduler class in place, once."""
    wrap(owner, "schedule", _schedule)
    wrap(owner, "update_from_output", _update)
    wrap(owner, "_free_request", _before("on_end"))
    wrap(owner, "_preempt_request", _before("on_preempt"))
    wrap(owner, "_handle_stopped_request", _parked)


def watch_inline_preemption(scheduler: Any, capture: Capture) -> None:
    """Before vLLM 0.12 preemption is no method: what shows it is that a running request's blocks are freed."""
    if hasattr(scheduler, "_preempt_request"):
        return
    blocks = scheduler.kv_cache_manager
    original = blocks.free

    def free(request: Any, *args: Any, **kwargs: Any) -> Any:
        if not capture.off and getattr(request.status, "name", "") == "RUNNING":
            try:
                capture.requests.on_preempt(request)
            except Exception:
                failed(capture, "on_preempt")
        return original(request, *args, **kwargs)

    blocks.free = free


def wrap_construction(owner: type) -> None:
    """Attach to every scheduler of this class or a class derived from it, once it is built."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            original(self, *args, **kwargs)
            if hasattr(self, CAPTURE):
                return
            setattr(self, CAPTURE, None)
            try:
                wrap_scheduler(type(self))
                capture = attach(self)
                if capture is not None:
                    watch_inline_preemption(self, capture)
            except Exception as error:
                warn_once(f"{type(error).__name__}: {error}")

        return __init__

    wrap(owner, "__init__", make)
