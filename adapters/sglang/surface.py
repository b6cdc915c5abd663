"""What the hook touches in SGLang, said once: the canary and the contract test go by this list.

Read in the wheels 0.5.12, 0.5.14, 0.5.16, 0.5.18, 0.5.20, 0.5.22 and 0.5.23. Older ones have no plugins.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from typing import Any

OLDEST, NEWEST = (0, 5, 12), (0, 5, 23)
BATCH_FIELDS = ("reqs", "forward_mode", "seq_lens_cpu", "prefix_lens", "extend_lens", "decoding_reqs")
METHODS = {"run_batch": ("self", "batch"), "process_batch_result": ("self", "batch", "result")}
MODES = ("is_decode", "is_extend", "is_mixed", "is_idle")
REQUEST_PROPERTIES = ("seqlen",)
SCHEDULER_ATTRIBUTES = ("server_args", "spec_algorithm", "model_config", "waiting_queue", "is_generation")
NUMBER = re.compile(r"(\d+)\.(\d+)\.(\d+)(?:\.post\d+)?")


def version_problem(version: str) -> str | None:
    """Why nothing is recorded of this release; None for one of those that were read, and between them."""
    found = NUMBER.fullmatch(version)
    if found is None or not OLDEST <= tuple(map(int, found.groups())) <= NEWEST:
        return f"SGLang {version[:40]} is not one of 0.5.12 to 0.5.23, which this rooflens knows"
    return None


def class_problems(scheduler: type, batch: type, request: type, mode: type) -> list[str]:
    """What is missing or renamed in these classes; empty if the hook can work."""
    fields = {field.name for field in dataclasses.fields(batch)}
    problems = [f"ScheduleBatch.{name}" for name in BATCH_FIELDS if name not in fields]
    for name, leading in METHODS.items():
        method = getattr(scheduler, name, None)
        if method is None or tuple(inspect.signature(method).parameters)[: len(leading)] != leading:
            problems.append(f"Scheduler.{name}{leading}")
    problems += [f"ForwardMode.{name}" for name in MODES if not hasattr(mode, name)]
    return problems + [f"Req.{name}" for name in REQUEST_PROPERTIES if not hasattr(request, name)]


def instance_problem(scheduler: Any) -> str | None:
    """Why this scheduler is left alone; None if it can be recorded."""
    missing = [name for name in SCHEDULER_ATTRIBUTES if not hasattr(scheduler, name)]
    if missing:
        return "its scheduler has no " + ", ".join(missing)
    if not scheduler.is_generation:
        return "it does not generate"
    if not scheduler.spec_algorithm.is_none():
        return (
            "with speculation its lengths are not exact in these releases: use its forward-pass metrics (docs/feeds.md)"
        )
    if getattr(scheduler.server_args, "pp_size", 1) != 1:
        return "with pipeline parallelism its results are not those of its batches: use its forward-pass metrics"
    return None
