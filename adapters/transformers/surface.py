"""What the hook touches in transformers' continuous batching, said once: the canary and the contract test go by it.

Read in the sources of 5.0.0, 5.3.0, 5.6.2, 5.9.0, 5.14.1, 5.16.1, 5.19.0, 5.21.1 and 5.24.0. Before 5.0 requests and
schedulers are others, and a token too many is computed for each request: these releases are left alone.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterable, Mapping
from typing import Any

MODULE = "transformers.generation.continuous_batching"
# Methods that are wrapped or called, with their leading parameters; others may follow.
METHODS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "ContinuousBatchProcessor": {
        "prepare_next_batch": ("self",),
        "update_batch": ("self",),
        "_generation_step": ("self", "model"),
    },
    "ContinuousBatchingManager": {"_run_generation_loop": ("self",)},
    "Scheduler": {
        "schedule_batch": ("self", "token_budget", "cache_budget"),
        "finish_request": ("self", "request_id"),
        "clear_cancelled_requests": ("self",),
    },
}
# Fields of a request.
REQUEST_FIELDS = (
    "request_id", "initial_tokens", "generated_tokens", "tokens_to_process", "remaining_prefill_tokens",
    "position_offset", "created_time", "_true_initial_tokens",
)  # fmt: skip
# Slots of a scheduled request, since 5.3; before, the request itself is scheduled. query_length came with 5.6.
SCHEDULED_SLOTS = ("state", "has_new_token")
# Where the modules above keep the classes.
PLACES: Mapping[str, str] = {
    "ContinuousBatchProcessor": "continuous_api",
    "ContinuousBatchingManager": "continuous_api",
    "Scheduler": "scheduler",
    "RequestState": "requests",
}
SCHEDULED = "FutureRequestState"
# The call that brings the output to the host: of the inputs and outputs since 5.3, of the processor before.
OUTPUT_CALLS = (("inputs_and_outputs", "prepare_batch_update"), (None, "_get_new_tokens"))
# Attributes of what was built.
PROCESSOR_ATTRIBUTES = ("scheduler", "cache", "config", "model_device", "model_dtype", "input_queue")
SCHEDULER_ATTRIBUTES = ("active_requests", "waiting_requests", "_requests_to_cancel")


def class_problems(classes: Mapping[str, Any]) -> list[str]:
    """What is missing or renamed in these classes of PLACES and SCHEDULED (None: it is not there); empty if known."""
    problems = []
    for owner, methods in METHODS.items():
        for name, leading in methods.items():
            method = getattr(classes[owner], name, None)
            if method is None:
                problems.append(f"{owner}.{name}()")
                continue
            parameters = tuple(inspect.signature(method).parameters)
            if parameters[: len(leading)] != leading:
                problems.append(f"{owner}.{name}{parameters}")
    fields = {field.name for field in dataclasses.fields(classes["RequestState"])}
    problems += [f"RequestState.{name}" for name in REQUEST_FIELDS if name not in fields]
    scheduled = classes[SCHEDULED]
    if scheduled is not None:
        slots = tuple(getattr(scheduled, "__slots__", ()))
        problems += [f"{SCHEDULED}.{name}" for name in SCHEDULED_SLOTS if name not in slots]
    return problems


def _missing(owner: Any, names: Iterable[str]) -> list[str]:
    return [f"{type(owner).__name__}.{name}" for name in names if not hasattr(owner, name)]


def instance_problems(processor: Any) -> list[str]:
    """What a built batch processor lacks."""
    problems = _missing(processor, PROCESSOR_ATTRIBUTES)
    problems += _missing(getattr(processor, "scheduler", None), SCHEDULER_ATTRIBUTES)
    if output_call(processor) is None:
        problems.append("the call that brings the output to the host")
    cache = getattr(processor, "cache", None)
    if not isinstance(getattr(cache, "num_blocks", None), int):
        problems.append(f"{type(cache).__name__}.num_blocks")
    if not hasattr(cache, "get_num_free_blocks") and not (
        hasattr(cache, "pool") and hasattr(cache, "cache_allocators")
    ):
        problems.append(f"{type(cache).__name__}: a count of free blocks")
    return problems


def output_call(processor: Any) -> tuple[Any, str] | None:
    """The object and the name of its method that brings the output to the host; None where there is none."""
    for holder, name in OUTPUT_CALLS:
        owner = processor if holder is None else getattr(processor, holder, None)
        if hasattr(owner, name):
            return owner, name
    return None
