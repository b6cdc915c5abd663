"""What the hook touches in vLLM, said once: the canary and the contract tests go by this list."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

# Dataclass fields read in every release since 0.9.2; the hook stays off if one is gone.
FIELDS: dict[str, tuple[str, ...]] = {
    "SchedulerOutput": (
        "scheduled_new_reqs",
        "scheduled_cached_reqs",
        "num_scheduled_tokens",
        "total_num_scheduled_tokens",
        "scheduled_spec_decode_tokens",
        "scheduled_encoder_inputs",
        "finished_req_ids",
    ),
    "CachedRequestData": ("req_ids", "num_computed_tokens"),
    "NewRequestData": ("req_id", "num_computed_tokens", "lora_request", "sampling_params"),
    "ModelRunnerOutput": ("req_id_to_index", "sampled_token_ids"),
}
# One of these says who came back after a preemption through the cached requests.
RESUMED_FIELDS = ("resumed_req_ids", "resumed_from_preemption")
# Scheduler methods that are wrapped, with their leading parameters; others may follow.
METHODS: dict[str, tuple[str, ...]] = {
    "schedule": ("self",),
    "update_from_output": ("self", "scheduler_output", "model_runner_output"),
    "_free_request": ("self", "request"),
}
# Wrapped where they exist; before _preempt_request, preemption is seen as a free of a running request.
OPTIONAL_METHODS = ("_preempt_request", "_handle_stopped_request")
# Attributes of a built scheduler.
ATTRIBUTES = ("requests", "running", "waiting", "kv_cache_manager", "vllm_config")
# Attributes of a request.
REQUEST_ATTRIBUTES = ("request_id", "num_computed_tokens", "num_prompt_tokens", "num_tokens", "arrival_time", "status")
EXECUTOR_METHODS = ("execute_model", "sample_tokens")
CORE_METHODS = ("execute_dummy_batch",)
CORE_EVENTS = (
    "sleep",
    "wake_up",
    "reset_prefix_cache",
    "add_lora",
    "remove_lora",
    "set_weight_version",
    "pause_scheduler",
    "resume_scheduler",
)


def class_problems(classes: dict[str, Any], scheduler: type) -> list[str]:
    """What is missing or renamed in these vLLM classes; empty if the hook can work."""
    problems = []
    for name, wanted in FIELDS.items():
        present = {field.name for field in dataclasses.fields(classes[name])}
        problems += [f"{name}.{field}" for field in wanted if field not in present]
    cached = {field.name for field in dataclasses.fields(classes["CachedRequestData"])}
    if not cached & set(RESUMED_FIELDS):
        problems.append("CachedRequestData." + "/".join(RESUMED_FIELDS))
    for name, leading in METHODS.items():
        method = getattr(scheduler, name, None)
        if method is None:
            problems.append(f"{scheduler.__name__}.{name}()")
            continue
        parameters = tuple(inspect.signature(method).parameters)
        if parameters[: len(leading)] != leading and "args" not in parameters:
            problems.append(f"{scheduler.__name__}.{name}{parameters}")
    return problems


def instance_problems(scheduler: Any) -> list[str]:
    """What a built scheduler lacks."""
    problems = [f"{type(scheduler).__name__}.{name}" for name in ATTRIBUTES if not hasattr(scheduler, name)]
    pool = getattr(getattr(scheduler, "kv_cache_manager", None), "block_pool", None)
    if pool is None or not hasattr(pool, "get_num_free_blocks"):
        problems.append("kv_cache_manager.block_pool.get_num_free_blocks()")
    model = getattr(getattr(scheduler, "vllm_config", None), "model_config", None)
    pooling = getattr(model, "runner_type", "") == "pooling"
    if getattr(scheduler, "num_sampled_tokens_per_step", 1) != 1 and not pooling:
        # Rows then hold drafts alone, and the lengths would be wrong.
        problems.append("token sampled in every step (a diffusion model)")
    return problems
