"""The JSON of `rooflens predict`: SI units, null for what is not known, the same keys whatever was asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Any

from rooflens.analyzer.accuracy import published_accuracy
from rooflens.analyzer.precision import GROUPS
from rooflens.analyzer.predict import Prediction, ridge_announced_flop_per_byte, ridge_flop_per_byte
from rooflens.cli.predict_answer import Answer
from rooflens.cli.predict_figures import at_floor, at_reachable, published_reachable, times_floor, with_transfer
from rooflens.cli.predict_notes import notes, shown_flags
from rooflens.cli.predict_options import Asked
from rooflens.cli.predict_speculation import speculation_json
from rooflens.cli.what_if import WhatIf
from rooflens.model_records import HardwareSpec


def hardware_json(hardware: HardwareSpec, weights: str) -> dict[str, Any]:
    """Every key of the full answer, null for those that need a model, and what the hardware alone says."""
    empty: dict[str, Any] = {f.name: None for f in fields(Prediction)}
    return empty | {
        "hardware": hardware.id,
        "weights": weights,
        "speculation": None,
        "handover": None,
        "ridge_flop_per_byte": ridge_flop_per_byte(hardware, weights),
        "ridge_announced_flop_per_byte": ridge_announced_flop_per_byte(hardware, weights),
        "memory_bandwidth_bytes_per_s": hardware.memory_bandwidth_bytes_per_s,
        "peak_flops_per_s": dict(hardware.peak_flops_per_s),
        "ceiling_flops_per_s": dict(hardware.ceiling_flops_per_s),
        "announced_flops_per_s": dict(hardware.announced_flops_per_s),
        "read_curve": [list(point) for point in hardware.read_curve],
        "source": hardware.source,
        "hardware_flags": list(hardware.flags),
        "notes": shown_flags(hardware),
    }


def answer_json(answer: Answer, alone: bool = True) -> dict[str, Any]:
    """One point: what was asked, as it was understood, and its prediction; ``alone`` where it is the only one."""
    plan, precision, placed = answer.plan, answer.precision, answer.plan.deployment
    data = hardware_json(answer.hardware, precision.weights) | asdict(answer.result)
    data |= {"model": answer.arch.name, "weights": precision.weights, "kv": precision.kv, "phase": answer.phase}
    data |= {"devices": plan.devices, "tensor_parallel": placed.tensor, "pipeline_parallel": placed.pipeline}
    data |= {"data_parallel": placed.data, "context_parallel": placed.context, "expert_parallel": placed.expert}
    data |= {"replicas": plan.replicas, "batch": plan.batch, "context_tokens": plan.context_tokens}
    data |= {"computed_tokens": plan.computed_tokens, "cached_tokens": plan.cached_tokens}
    data |= {"shared_prefix_tokens": plan.shared_prefix_tokens, "token_s": at_floor(answer).token_s}
    reachable = at_reachable(answer)
    data |= {"reachable_tokens_per_s": reachable.tokens_per_s, "reachable_token_s": reachable.token_s}
    sent = answer.handover
    data |= {"handover": None if sent is None else asdict(sent) | {"link_keeps_up": sent.link_keeps_up}}
    data |= {"sequence_kv_bytes": answer.sequence_kv_bytes, "next_token_kv_bytes": answer.next_token_kv_bytes}
    data |= {"exact_weights": answer.exact_weights, "group_formats": _group_formats(answer)}
    data |= {"speculation": speculation_json(answer.speculation, with_break_even=alone)}
    return data | _beside_reachable(answer) | {"error": None, "notes": notes(answer)}


def _beside_reachable(answer: Answer) -> dict[str, Any]:
    """What is reachable against the floor, and how far published figures of such steps are from it."""
    found, known, prompt = published_accuracy(), published_reachable(answer), answer.plan.prefill
    least, reachable = at_floor(answer).token_s, at_reachable(answer).token_s
    return {
        "reachable_floor_ratio": times_floor(answer),
        "reachable_error_median_ratio": found.decode_median_ratio if known and not prompt else None,
        "reachable_error_p90_ratio": found.decode_p90_ratio if known and not prompt else None,
        "first_token_reachable_ratio": dict(found.first_token_ratio) if known and prompt else None,
        "token_with_transfer_s": with_transfer(answer, least),
        "reachable_token_with_transfer_s": with_transfer(answer, reachable),
        "model_max_context_tokens": answer.arch.max_context_tokens,
    }


def _group_formats(answer: Answer) -> dict[str, list[dict[str, Any]]]:
    """By group of tensors: its formats, with their share of the elements and what one takes."""
    return {group: [asdict(part) for part in answer.precision.parts(group)] for group in GROUPS}


def impossible_json(asked: Asked, reason: str) -> dict[str, Any]:
    """A point of a sweep without a prediction: ``error`` says why, the rest is what was asked, as it was asked."""
    return {"error": reason} | {name: value for name, value in asdict(asked).items() if value is not None}


def what_if_json(now: Answer, others: Sequence[Answer], what_ifs: Sequence[WhatIf]) -> list[dict[str, Any]]:
    """Each what-if's answer, with ``change``: the ratio of every figure to what it is now, null where there is none."""
    before = answer_json(now)
    found = []
    for one, other in zip(what_ifs, others, strict=True):
        after = answer_json(other)
        change = {key: _ratio(before[key], value) for key, value in after.items() if _is_number(value)}
        found.append({"set": one.text, **after, "change": change})
    return found


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _ratio(before: Any, after: Any) -> float | None:
    return after / before if _is_number(before) and before and after else None
