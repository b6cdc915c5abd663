"""Finds the classes of the installed vLLM, checks them, and puts the wrappers on."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import Any

from rooflens.adapters.vllm import core, patch, surface

DEVICE_TIME_VARIABLE = "ROOFLENS_DEVICE_TIME"
_installed = False


def _class(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)


def vllm_classes() -> dict[str, Any]:
    """The classes the hook reads or wraps, by name."""
    sched = "vllm.v1.core.sched"
    found = {name: _class(f"{sched}.output", name) for name in list(surface.FIELDS)[:3]}
    found["ModelRunnerOutput"] = _class("vllm.v1.outputs", "ModelRunnerOutput")
    found["Scheduler"] = _class(f"{sched}.scheduler", "Scheduler")
    found["Executor"] = _class("vllm.v1.executor.abstract", "Executor")
    return found


def install() -> None:
    """Wrap vLLM's classes, once a process; one warning and nothing else if they are not what the hook knows."""
    global _installed
    if _installed:
        return
    _installed = True
    if os.environ.get(DEVICE_TIME_VARIABLE, "").strip().lower() not in ("", "0", "false", "no"):
        _time_devices()
    classes = vllm_classes()
    problems = surface.class_problems(classes, classes["Scheduler"])
    if problems:
        patch.warn_once("this vLLM has no " + ", ".join(problems) + "; upgrade rooflens")
        return
    patch.wrap_scheduler(classes["Scheduler"])
    patch.wrap_construction(classes["Scheduler"])
    core.wrap_executor(classes["Executor"])
    core.wrap_core(_class("vllm.v1.engine.core", "EngineCore"))
    _wrap_custom_schedulers(classes["Scheduler"])


def _time_devices() -> None:
    """Opt-in: workers time their device; without it nothing of theirs is touched. Never imports a model runner."""
    try:
        from rooflens.adapters.vllm import device

        device.wrap_workers(_class("vllm.v1.worker.worker_base", "WorkerBase"))
    except Exception as error:
        patch.log.warning("rooflens does not time devices: %s: %s", type(error).__name__, error)


def _wrap_custom_schedulers(base: type) -> None:
    """A scheduler_cls that does not derive from vLLM's own is met where the configuration resolves it."""
    config = _class("vllm.config", "SchedulerConfig")

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def get_scheduler_cls(self: Any) -> Any:
            chosen = original(self)
            try:
                if isinstance(chosen, type) and not issubclass(chosen, base):
                    patch.wrap_construction(chosen)
            except Exception as error:
                patch.warn_once(f"{type(error).__name__}: {error}")
            return chosen

        return get_scheduler_cls

    patch.wrap(config, "get_scheduler_cls", make)
