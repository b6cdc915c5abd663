"""What a reader of predict's figures should know: what does not fit, is not known, was assumed or lies outside."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from rooflens.analyzer.drafting import trained_depth
from rooflens.analyzer.hardware import fastest
from rooflens.analyzer.operators import CACHE_NOTE_RATIO, cache_note, link_notes, unknown_rate, works
from rooflens.analyzer.operators.experts import fewest_experts
from rooflens.analyzer.precision import PLAIN
from rooflens.analyzer.predict import Prediction, devices_needed
from rooflens.analyzer.work import Work
from rooflens.arch_records import Attention, Deployment, MixtureOfExperts
from rooflens.cli.predict_answer import DEFAULT_DRAFTS, Answer
from rooflens.cli.units import si_text
from rooflens.model_records import HardwareSpec

SAME = 1e-3  # figures that differ by less are the same


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
    problem = misfit(answer)
    return [*([problem] if problem else []), *remarks(answer)]


def remarks(answer: Answer) -> list[str]:
    """All of it but what does not fit."""
    arch, hardware, plan, result = answer.arch, answer.hardware, answer.plan, answer.result
    rows = works(arch, answer.precision, plan.deployment)
    unknown = unknown_rate(hardware, rows)
    found = [*([unknown] if unknown else _other_units(hardware, rows)), *arch.unknown]
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
    found += [*_without_effect(answer), *_spread_experts(answer), *_drafts(answer), *_assumed(answer)]
    return [*found, *link_notes(hardware, plan.deployment.tensor), *shown_flags(hardware)]


def shown_flags(hardware: HardwareSpec) -> list[str]:
    """How a measurement went; a datasheet's flags are for whoever checks the facts, apart in the JSON."""
    return list(hardware.flags) if hardware.origin == "measured" else []


def _other_units(hardware: HardwareSpec, rows: Iterable[Work]) -> list[str]:
    """Formats for which the device has no units, and those that multiply them."""
    widened = {
        row.compute[0]: chosen
        for row in rows
        if row.flops
        and row.compute[0] not in hardware.ceiling_flops_per_s
        and (chosen := fastest(hardware, row.compute))
    }
    return [
        f"{hardware.id} states no rate for {native}: what would be multiplied in it is, at the {chosen} rate"
        for native, chosen in widened.items()
    ]


def _spread_experts(answer: Answer) -> Iterator[str]:
    """What expert parallelism takes for granted, and where it changes nothing."""
    placed, cut = answer.plan.deployment, answer.without_ep
    used = [fewest_experts(layer.mlp) for layer in answer.arch.layers if isinstance(layer.mlp, MixtureOfExperts)]
    if cut is not None and used:
        devices, result = placed.expert_devices, answer.result
        pairs = [(getattr(cut, name), getattr(result, name)) for name in ("floor_s", "expected_s", "reachable_s")]
        if all(math.isclose(before or 0.0, after or 0.0, rel_tol=SAME) for before, after in pairs):
            yield (
                f"--ep changes nothing here: --tp alone cuts each expert over the same {devices} devices, and where "
                "routing is even each device reads as many bytes of them either way; --ep matters with --dp"
            )
        yield (
            f"--ep: routing is taken to be even over {devices} devices; the floor is that of the busiest, which reads "
            f"at least {math.ceil(max(used) / devices)} of a token's {max(used)} experts"
        )
    idle = answer.plan.ranks - answer.plan.batch
    if placed.data > 1 and used and idle > 0:
        yield (
            f"{idle:,} of {answer.plan.ranks:,} data-parallel ranks have no sequence: they run dummy passes, since "
            "their part of the experts must answer the others"
        )


def _drafts(answer: Answer) -> Iterator[str]:
    """What speculation takes for granted."""
    found = answer.speculation
    if found is None:
        return
    if not isinstance(found.acceptance, tuple) and max(found.at.depth, found.best.depth) > 1:
        yield (
            "one acceptance for all positions is optimistic: in practice it falls from one drafted token to the next, "
            "and deep drafts gain less (give --acceptance as a list)"
        )
    trained = trained_depth(found.method, answer.arch)
    if trained is not None and found.at.depth > trained:
        yield (
            f"{found.method} was trained to draft {trained} token{'s' * (trained > 1)} in this model: for more it runs "
            "again on its own drafts, of which fewer are accepted"
        )


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
    if asked.phase == "verify" and not isinstance(asked.spec_tokens, int):
        yield f"{DEFAULT_DRAFTS} drafted tokens are assumed (say --spec-tokens)"
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
    return "less on a quiet machine, others used it" if hardware.disturbed else "no step can be shorter"


def roof_words(hardware: HardwareSpec) -> str:
    """Which rate compute times are said of, which may be above the peak that MFU is said of."""
    if hardware.announced_flops_per_s:
        return "the highest clock or announced rate"
    if dict(hardware.ceiling_flops_per_s) != dict(hardware.peak_flops_per_s):
        return "the highest clock"
    return f"the {hardware.origin} peak"
