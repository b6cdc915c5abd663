"""Where the hook takes hold of continuous batching: wrappers that pass everything through and never raise."""

from __future__ import annotations

import functools
import importlib
import logging
from collections.abc import Callable
from threading import get_ident
from time import monotonic_ns
from typing import Any

from rooflens.adapters.transformers import rings, surface
from rooflens.adapters.transformers.capture import Capture

log = logging.getLogger("rooflens")
CAPTURE = "_rooflens_capture"
MOST_FAILURES = 16  # a hook that fails this often tells nothing true any more
_originals: list[tuple[type, str, Any, Any]] = []
_captures: list[Capture] = []
_warned = False


def warn_once(message: str) -> None:
    """The one warning that rooflens gives an engine."""
    global _warned
    if not _warned:
        _warned = True
        log.warning("rooflens does not record this engine: %s", message)


def installed() -> bool:
    """Whether the classes are wrapped."""
    return bool(_originals)


def classes() -> dict[str, Any]:
    """The installed release's classes, by name; ImportError where it has no continuous batching of this layout."""
    found = {
        name: getattr(importlib.import_module(f"{surface.MODULE}.{place}"), name)
        for name, place in surface.PLACES.items()
    }
    found[surface.SCHEDULED] = getattr(importlib.import_module(f"{surface.MODULE}.requests"), surface.SCHEDULED, None)
    return found


def install() -> bool:
    """Wrap the classes, once; False, and one warning, where they are not what the hook knows."""
    if _originals:
        return True
    try:
        found = classes()
        problems = surface.class_problems(found)
    except (ImportError, AttributeError) as error:
        problems = [str(error)]
    if problems:
        warn_once("this transformers (5.0 or newer is known) has not " + ", ".join(problems) + "; upgrade rooflens")
        return False
    processor, manager = found["ContinuousBatchProcessor"], found["ContinuousBatchingManager"]
    _wrap(processor, "prepare_next_batch", _prepare)
    _wrap(processor, "_generation_step", _run)
    _wrap(processor, "update_batch", _update)
    _wrap(manager, "_run_generation_loop", _loop)
    return True


def uninstall() -> None:
    """Give the classes their own methods back and end every recording in order."""
    while _originals:
        owner, name, original, ours = _originals.pop()
        if owner.__dict__.get(name) is ours:
            setattr(owner, name, original)
    for capture in list(_captures):
        detach(capture)
    rings.close_idle()


def _wrap(owner: type, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    original = getattr(owner, name)
    ours = functools.wraps(original)(make(original))
    _originals.append((owner, name, original, ours))
    setattr(owner, name, ours)


def _guarded(capture: Capture, call: Callable[..., Any], *values: Any) -> Any:
    """What ``call`` returns; None where it failed or has done so too often."""
    if capture.off:
        return None
    try:
        return call(*values)
    except Exception as error:  # nothing of ours may reach the engine's loop
        capture.failures += 1
        log.debug("rooflens failed in %s", getattr(call, "__name__", call), exc_info=True)
        if capture.failures >= MOST_FAILURES:
            capture.switch_off()
            warn_once(f"it failed {capture.failures} times, last with {type(error).__name__}: {error}")
        return None


def attach(processor: Any) -> Capture | None:
    """A capture for a batch processor, made at its first batch; None, and at most one warning, where that cannot be."""
    found: Capture | None = processor.__dict__.get(CAPTURE)
    if found is not None or CAPTURE in processor.__dict__:
        return found
    processor.__dict__[CAPTURE] = None
    try:
        if processor.__dict__.get("input_queue", True) is None:
            return None  # one of the ranks that follow the first: the same steps, told once
        problems = surface.instance_problems(processor)
        if problems:
            warn_once("this transformers has not " + ", ".join(problems) + "; upgrade rooflens")
            return None
        capture = Capture(processor, *rings.take(processor))
        _hold(capture)
    except Exception as error:  # the engine comes first
        warn_once(f"{type(error).__name__}: {error}")
        return None
    processor.__dict__[CAPTURE] = capture
    _captures.append(capture)
    return capture


def _hold(capture: Capture) -> None:
    """Stand before the methods of this one scheduler, and before the call that brings its output."""
    scheduler = capture.processor.scheduler
    output = surface.output_call(capture.processor)
    if output is None:
        return
    for owner, name, make in (
        (scheduler, "schedule_batch", _schedule),
        (scheduler, "finish_request", _finish),
        (scheduler, "clear_cancelled_requests", _cancel),
        (*output, _output),
    ):
        original = getattr(owner, name)
        capture.held.append((owner, name))
        setattr(owner, name, functools.wraps(original)(make(capture, original)))


def _schedule(capture: Capture, original: Callable[..., Any]) -> Callable[..., Any]:
    def schedule_batch(*args: Any, **kwargs: Any) -> Any:
        _guarded(capture, capture.deciding)
        answer = original(*args, **kwargs)
        _guarded(capture, capture.decided, answer)
        return answer

    return schedule_batch


def _finish(capture: Capture, original: Callable[..., Any]) -> Callable[..., Any]:
    def finish_request(request_id: Any, *args: Any, **kwargs: Any) -> Any:
        _guarded(capture, capture.left, request_id)
        return original(request_id, *args, **kwargs)

    return finish_request


def _cancel(capture: Capture, original: Callable[..., Any]) -> Callable[..., Any]:
    def clear_cancelled_requests(*args: Any, **kwargs: Any) -> Any:
        _guarded(capture, capture.cancelling)
        return original(*args, **kwargs)

    return clear_cancelled_requests


def _output(capture: Capture, original: Callable[..., Any]) -> Callable[..., Any]:
    def prepare_batch_update(*args: Any, **kwargs: Any) -> Any:
        began_ns = monotonic_ns()
        answer = original(*args, **kwargs)
        _guarded(capture, capture.came, began_ns)
        return answer

    return prepare_batch_update


def detach(capture: Capture) -> None:
    """End the capture of one batch processor; its scheduler has its own methods again."""
    if capture not in _captures:
        return
    _captures.remove(capture)
    capture.processor.__dict__.pop(CAPTURE, None)
    for owner, name in capture.held:
        owner.__dict__.pop(name, None)
    try:
        capture.end()
        rings.give_back(capture.recorder, capture.key)
    except Exception as error:
        warn_once(f"{type(error).__name__}: {error}")


def _prepare(original: Callable[..., Any]) -> Callable[..., Any]:
    def prepare_next_batch(self: Any, *args: Any, **kwargs: Any) -> Any:
        capture = attach(self)
        if capture is None:
            return original(self, *args, **kwargs)
        _guarded(capture, capture.begin)
        ready = original(self, *args, **kwargs)
        _guarded(capture, capture.prepared, ready)
        return ready

    return prepare_next_batch


def _run(original: Callable[..., Any]) -> Callable[..., Any]:
    def _generation_step(self: Any, *args: Any, **kwargs: Any) -> Any:
        capture = self.__dict__.get(CAPTURE)
        began_ns = monotonic_ns()
        answer = original(self, *args, **kwargs)
        if capture is not None:
            _guarded(capture, capture.ran, began_ns)
        return answer

    return _generation_step


def _update(original: Callable[..., Any]) -> Callable[..., Any]:
    def update_batch(self: Any, *args: Any, **kwargs: Any) -> Any:
        capture = self.__dict__.get(CAPTURE)
        if capture is None:
            return original(self, *args, **kwargs)
        had = _guarded(capture, capture.updating)
        answer = original(self, *args, **kwargs)
        _guarded(capture, capture.updated, had)
        return answer

    return update_batch


def _loop(original: Callable[..., Any]) -> Callable[..., Any]:
    def _run_generation_loop(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return original(self, *args, **kwargs)
        finally:
            for capture in [one for one in _captures if one.thread == get_ident()]:
                detach(capture)

    return _run_generation_loop
