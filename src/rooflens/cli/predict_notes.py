"""What a reader of predict's figures should know: what does not fit, is not known, was assumed or lies outside."""

from __future__ import annotations

from collections.abc import Iterator

from rooflens.analyzer.operators import CACHE_NOTE_RATIO, cache_note, link_notes, unknown_rate, works
from rooflens.analyzer.precision import PLAIN
from rooflens.analyzer.predict import Prediction, devices_needed
from rooflens.arch_records import Attention, Deployment, MixtureOfExperts
from rooflens.cli.predict_answer import Answer
from rooflens.cli.units import si_text
from rooflens.model_records import HardwareSpec


def misfit(answer: Answer) -> str | None:
    """In one sentence why the plan does not fit the memory and what would; None where it fits."""
    plan, result = answer.plan, answer.result
    if result.fits:
        return None
    needed = devices_needed(answer.arch, answer.hardware, answer.precision, plan)
    would = f"{needed[0]:,} devices with {spread_words(needed[1])} would hold it" if needed else ""
    would = would or "no number of devices holds it"
    sizes = f"{si_text(result.weight_bytes, 'B')} of weights and {si_text(result.kv_bytes, 'B')} of KV cache"
    room = f"{si_text(result.capacity_bytes, 'B')} that the engine may use"
    if result.max_batch == 0:
        return f"the weights and one sequence do not fit in the memory ({sizes}, {room}): {would}"
    return f"a batch of {plan.batch:,} does not fit ({sizes}, {room}): the largest is {result.max_batch:,}, or {would}"


def spread_words(placed: Deployment) -> str:
    """The options that spread a model so."""
    parts = [f"--tp {placed.tensor}"]
    parts += [f"--{n} {v}" for n, v in (("pp", placed.pipeline), ("dp", placed.data), ("cp", placed.context)) if v > 1]
    return " ".join([*parts, *(("--ep",) if placed.expert else ())])


def notes(answer: Answer) -> list[str]:
    """All of it, each one sentence; what does not fit comes first."""
    arch, hardware, plan, result = answer.arch, answer.hardware, answer.plan, answer.result
    unknown = unknown_rate(hardware, works(arch, answer.precision, plan.deployment))
    problem = misfit(answer)
    found = [*(text for text in (problem, unknown) if text), *arch.unknown]
    found += [*answer.precision.notes, *_cache_notes(result)]
    if arch.max_context_tokens and plan.context_tokens > arch.max_context_tokens:
        found.append(f"the model was made for contexts up to {arch.max_context_tokens:,} tokens")
    if any(isinstance(x.mixer, Attention) and plan.deployment.tensor > x.mixer.kv_heads for x in arch.layers):
        found.append("more devices than KV heads: each KV head is stored on several devices")
    if answer.precision.weights != answer.precision.head:
        found.append(f"embedding and head are taken at {answer.precision.head}")
    if result.mfu is not None and result.mfu > 1:
        found.append(
            f"the floor is at {roof_words(hardware)}, above the datasheet's peak, so mfu at the floor exceeds 1"
        )
    return [*found, *_without_effect(answer), *_assumed(answer), *link_notes(hardware, plan.deployment.tensor)]


def _without_effect(answer: Answer) -> Iterator[str]:
    """Options that change nothing for this model."""
    experts = any(isinstance(layer.mlp, MixtureOfExperts) for layer in answer.arch.layers)
    if answer.asked.ep and not experts:
        yield "--ep changes nothing: the model has no experts"
    if (answer.asked.dp or 1) > 1 and not experts:
        yield "--dp ranks of a model without experts are copies that share the batch"
    if answer.asked.encoder_tokens and not answer.arch.encoder:
        yield "--encoder-tokens changes nothing: the model has no encoder"


def _assumed(answer: Answer) -> Iterator[str]:
    """Defaults that neither the user nor the model's files stated."""
    arch, precision, asked = answer.arch, answer.precision, answer.asked
    yield from arch.assumptions
    if not arch.activation_assumed:
        return
    weights_open = asked.weights is None and arch.weight_format is None
    kv_open = asked.kv is None and arch.kv_format is None
    kv_open = kv_open and (weights_open or precision.weights not in PLAIN)  # else it follows the given weights
    parts = [name for name, is_open in (("weights", weights_open), ("KV cache", kv_open)) if is_open]
    if parts:
        yield f"the model's files state no dtype: {precision.activations} is assumed for {' and '.join(parts)}"


def _cache_notes(result: Prediction) -> Iterator[str]:
    moved = result.weight_read_bytes + result.kv_read_bytes + result.kv_write_bytes
    if result.cached_bytes > CACHE_NOTE_RATIO * moved:
        yield cache_note(result.cached_bytes, whole=result.memory_s == 0)


def floor_words(hardware: HardwareSpec) -> str:
    """What a floor claims: everything, unless the roof was measured while others used the machine."""
    return "measured roof, may be too low" if hardware.disturbed else "no step can be shorter"


def roof_words(hardware: HardwareSpec) -> str:
    """Which rate compute times are said of, which may be above the peak that MFU is said of."""
    if hardware.announced_flops_per_s:
        return "the highest clock or announced rate"
    if dict(hardware.ceiling_flops_per_s) != dict(hardware.peak_flops_per_s):
        return "the highest clock"
    return f"the {hardware.origin} peak"
