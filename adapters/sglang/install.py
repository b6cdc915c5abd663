"""Finds the classes of the imported SGLang, checks them, and puts the wrappers on."""

from __future__ import annotations

import functools
import importlib
import logging
from collections.abc import Callable
from typing import Any

from rooflens.adapters.sglang import surface
from rooflens.adapters.sglang.capture import Capture

log = logging.getLogger("sglang.rooflens")
CAPTURE, WRAPPED = "_rooflens_capture", "_rooflens_wrapped"


def install(module: Any) -> None:
    """Wrap the scheduler class, once; one warning and nothing else if it is not what the hook knows."""
    scheduler = module.Scheduler
    if getattr(scheduler.run_batch, WRAPPED, False):
        return
    problem = surface.version_problem(str(importlib.import_module("sglang.version").__version__))
    if problem is None:
        batches = importlib.import_module("sglang.srt.managers.schedule_batch")
        mode = importlib.import_module("sglang.srt.model_executor.forward_batch_info").ForwardMode
        missing = surface.class_problems(scheduler, batches.ScheduleBatch, batches.Req, mode)
        problem = "this SGLang has no " + ", ".join(missing) if missing else None
    if problem is not None:
        log.warning("rooflens does not record this engine: %s", problem)
        return
    wrap(scheduler)


def wrap(scheduler: type) -> None:
    """Put the wrappers on the class; what they do never raises and changes nothing of what the engine sees."""
    scheduler.run_batch = _around(scheduler.run_batch, _run)  # type: ignore[attr-defined]
    scheduler.process_batch_result = _around(scheduler.process_batch_result, _process)  # type: ignore[attr-defined]


def _around(original: Callable[..., Any], around: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def wrapped(self: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
        return around(original, self, batch, *args, **kwargs)

    setattr(wrapped, WRAPPED, True)
    return wrapped


def _run(original: Callable[..., Any], self: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
    capture = _capture_of(self)
    step = capture.begin(batch) if capture is not None else None
    try:
        result = original(self, batch, *args, **kwargs)
    except BaseException:
        if capture is not None and step is not None:
            capture.failed(step)
        raise
    if capture is not None and step is not None:
        capture.launched(step, result)
    return result


def _process(original: Callable[..., Any], self: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
    capture = _capture_of(self)
    result = args[0] if args else kwargs.get("result")
    done = original(self, batch, *args, **kwargs)
    if capture is not None:
        capture.processed(result)
    return done


def _capture_of(scheduler: Any) -> Capture | None:
    """The recording of a scheduler, begun at its first batch; None where there is none."""
    found = scheduler.__dict__.get(CAPTURE, False)
    if found is False:
        found = None
        try:
            problem = surface.instance_problem(scheduler)
            if problem is not None:
                log.warning("rooflens does not record this engine: %s", problem)
            else:
                found = Capture.of(scheduler)
        except Exception as error:
            log.warning("rooflens does not record this engine: %s: %s", type(error).__name__, error)
        scheduler.__dict__[CAPTURE] = found
    return found if found is None or not found.off else None
