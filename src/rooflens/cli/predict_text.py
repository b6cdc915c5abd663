"""What `rooflens predict` says: the rows, the notes and the closing sentence."""

from __future__ import annotations

from dataclasses import dataclass

from rooflens.analyzer.operators import CACHE_NOTE_RATIO, cache_note, link_notes, unknown_rate, works
from rooflens.analyzer.precision import PLAIN, Precision
from rooflens.analyzer.predict import (
    Plan,
    Prediction,
    devices_needed,
    ridge_announced_flop_per_byte,
    ridge_flop_per_byte,
)
from rooflens.arch_records import Attention, Deployment, ModelArch
from rooflens.model_records import HardwareSpec

NOT_KNOWN = "not known"
Row = tuple[str, str, str]  # label, value with its unit, remark


@dataclass(frozen=True, slots=True)
class Answer:
    """A prediction with what it was made of; ``formats_given`` are the formats that the user named."""

    arch: ModelArch
    hardware: HardwareSpec
    precision: Precision
    plan: Plan
    result: Prediction
    formats_given: tuple[str, ...] = ()


def misfit(answer: Answer) -> str | None:
    """In one sentence why the plan does not fit the memory and what would; None where it fits."""
    plan, result = answer.plan, answer.result
    if result.fits:
        return None
    needed = devices_needed(answer.arch, answer.hardware, answer.precision, plan)
    would = f"{needed[0]:,} devices with --tp {needed[1].tensor} would hold it" if needed else "no number of devices holds it"
    sizes = f"{si(result.weight_bytes, 'B')} of weights and {si(result.kv_bytes, 'B')} of KV cache"
    room = f"{si(result.capacity_bytes, 'B')} that the engine may use"
    if result.max_batch == 0:
        return f"the weights and one sequence do not fit in the memory ({sizes}, {room}): {would}"
    return f"a batch of {plan.batch:,} does not fit ({sizes}, {room}): the largest is {result.max_batch:,}, or {would}"


def notes(answer: Answer) -> list[str]:
    """What a reader of the figures should know, each one sentence; what does not fit comes first."""
    arch, hardware, precision, plan, result = (
        answer.arch,
        answer.hardware,
        answer.precision,
        answer.plan,
        answer.result,
    )
    problem = misfit(answer)
    unknown = unknown_rate(hardware, works(arch, precision, Deployment(tensor=plan.deployment.tensor)))
    found = [*((problem,) if problem else ()), *((unknown,) if unknown else ()), *_cache_notes(result)]
    if arch.max_context_tokens and plan.context_tokens > arch.max_context_tokens:
        found.append(f"the model was made for contexts up to {arch.max_context_tokens:,} tokens")
    if any(isinstance(x.mixer, Attention) and plan.deployment.tensor > x.mixer.kv_heads for x in arch.layers):
        found.append("more devices than KV heads: each KV head is stored on several devices")
    if precision.weights != precision.head:
        found.append(f"embedding and head are taken at {precision.head}")
    if result.mfu is not None and result.mfu > 1:
        found.append(
            f"the floor is at {roof_words(hardware)}, above the datasheet's peak, so mfu at the floor exceeds 1"
        )
    return [*found, *_assumed(answer), *link_notes(hardware, plan.deployment.tensor)]


def _assumed(answer: Answer) -> list[str]:
    """Defaults that neither the user nor the model's files stated."""
    arch, precision, found = answer.arch, answer.precision, list(answer.arch.assumptions)
    if arch.activation_assumed:
        weights_open = "weights" not in answer.formats_given and arch.weight_format is None
        kv_open = "kv" not in answer.formats_given and arch.kv_format is None
        kv_open = kv_open and (weights_open or precision.weights not in PLAIN)  # else it follows the given weights
        parts = [name for name, is_open in (("weights", weights_open), ("KV cache", kv_open)) if is_open]
        if parts:
            found.append(
                f"the model's files state no dtype: {precision.activations} is assumed for {' and '.join(parts)}"
            )
    return found


def _cache_notes(result: Prediction) -> list[str]:
    moved = result.weight_read_bytes + result.kv_read_bytes + result.kv_write_bytes
    if result.cached_bytes <= CACHE_NOTE_RATIO * moved:
        return []
    return [cache_note(result.cached_bytes, whole=result.memory_s == 0)]


def roof_words(hardware: HardwareSpec) -> str:
    """Which rate compute times are said of, which may be above the peak that MFU is said of."""
    if hardware.announced_flops_per_s:
        return "the highest clock or announced rate"
    if dict(hardware.ceiling_flops_per_s) != dict(hardware.peak_flops_per_s):
        return "the highest clock"
    return f"the {hardware.origin} peak"


def flag_rows(hardware: HardwareSpec) -> list[Row]:
    """How a measurement went; a datasheet's flags are for whoever checks the facts, and only in the JSON."""
    return [("note", flag, "") for flag in hardware.flags] if hardware.origin == "measured" else []


def hardware_rows(hardware: HardwareSpec, weights: str) -> list[Row]:
    """The device alone."""
    rows = [("hardware", hardware.id, hardware.name)]
    rows.append(("memory bandwidth", si(hardware.memory_bandwidth_bytes_per_s, "B/s"), hardware.origin))
    for name, rate in hardware.peak_flops_per_s.items():
        ceiling = hardware.ceiling_flops_per_s[name]
        announced = hardware.announced_flops_per_s.get(name)
        remark = f"at most {si(ceiling, 'FLOP/s')} at the highest clock" if ceiling > rate and not announced else ""
        if announced:
            remark = f"{si(announced, 'FLOP/s')} announced for inference, not dense"
        rows.append((f"peak {name}", si(rate, "FLOP/s"), remark))
    return rows + _ridge_rows(hardware, weights) + flag_rows(hardware)


def _ridge_rows(hardware: HardwareSpec, weights: str) -> list[Row]:
    ridge = ridge_flop_per_byte(hardware, weights)
    if ridge is None:
        return [("ridge", NOT_KNOWN, f"no rate stated for {weights} weights")]
    rows = [("ridge", f"{ridge:,.0f} FLOP/B", f"{weights} weights, dense peak")]
    announced = ridge_announced_flop_per_byte(hardware, weights)
    if announced is not None:
        rows.append(("ridge, announced", f"{announced:,.0f} FLOP/B", "at the announced rate, not dense"))
    return rows


def rows(answer: Answer) -> list[Row]:
    """The whole table, without what does not fit, which stands before it."""
    hardware, precision, plan, result = answer.hardware, answer.precision, answer.plan, answer.result
    used = f"tp {plan.deployment.tensor}" + (f", {plan.replicas} replicas" if plan.replicas > 1 else "")
    peaks = f"at the floor, of the peaks ({hardware.origin})"
    if roof_words(hardware) != f"the {hardware.origin} peak":
        peaks += f"; compute times are at {roof_words(hardware)}"
    tokens = NOT_KNOWN if result.tokens_per_s is None else f"{result.tokens_per_s:,.0f} tokens/s"
    first = misfit(answer)
    return [
        ("model", answer.arch.name, f"weights {precision.weights}, KV {precision.kv}"),
        ("hardware", f"{plan.devices:,} x {hardware.id}", used),
        (plan.phase, f"batch {plan.batch:,}", f"{plan.context_tokens:,} tokens each"),
        ("floor", _floor(result), _floor_remark(result)),
        ("serial floor", seconds(result.serial_floor_s), "operator after operator, nothing overlapped"),
        *((("link", seconds(result.link_s), "beside it, all-reduces"),) if plan.deployment.tensor > 1 else ()),
        ("tokens", tokens, "at the floor" if result.bound_known else "at most, of a floor that may be far too low"),
        ("MFU, MBU", f"{_percent(result.mfu)}, {_percent(result.mbu)}", peaks),
        ("weights", si(result.weight_bytes, "B"), f"{si(result.weight_read_bytes, 'B')} read in a step"),
        ("KV cache", si(result.kv_bytes, "B"), f"{si(result.kv_bytes_per_token, 'B')} a token"),
        ("flops", si(result.flops, "FLOP"), "in a step"),
        *_ridge_rows(hardware, precision.weights),
        ("largest batch", f"{result.max_batch:,}", f"in {si(result.capacity_bytes, 'B')} that the engine may use"),
        *(("note", note, "") for note in notes(answer) if note != first),
        *flag_rows(hardware),
    ]


def _floor(result: Prediction) -> str:
    return seconds(result.floor_s) if result.floor_s else NOT_KNOWN


def _floor_remark(result: Prediction) -> str:
    if result.bound_known:
        return f"bound by {result.bound}; no step can be shorter"
    if not result.floor_s:
        return "compute is not known, and all bytes may come from the last-level cache"
    return f"of {result.bound} alone; no step can be shorter, but another side may bind"


def sentence(answer: Answer) -> str:
    """What bounds the step, in one sentence, or that it is not known."""
    hardware, plan, result = answer.hardware, answer.plan, answer.result
    sides = {"memory": result.memory_s, "compute": result.compute_s, "link": result.link_s}
    others = ", ".join(
        f"{name} {NOT_KNOWN if value is None else seconds(value)}"
        + (f" at {roof_words(hardware)}" if name == "compute" and value is not None else "")
        for name, value in sides.items()
        if name != result.bound
    )
    if result.bound is None:
        return f"What bounds this {plan.phase} step is not known, and neither is its floor ({others})."
    reason = {
        "memory": f"reading {si(result.weight_read_bytes, 'B')} of weights and "
        f"{si(result.kv_read_bytes, 'B')} of KV cache",
        "compute": f"computing {si(result.flops, 'FLOP')} at {roof_words(hardware)}",
        "link": "sending activations between devices",
    }[result.bound]
    takes = f"{reason} takes {seconds(result.floor_s)} at best"
    if result.bound_known:
        return f"This {plan.phase} step is bound by {result.bound}: {takes} ({others})."
    return f"What bounds this {plan.phase} step is not known; no step can be shorter, since {takes} ({others})."


def _percent(ratio: float | None) -> str:
    return NOT_KNOWN if ratio is None else f"{ratio:.1%}"


def si(value: float, unit: str) -> str:
    """A value with three digits and the decimal prefix that fits."""
    for power, prefix in ((15, "P"), (12, "T"), (9, "G"), (6, "M"), (3, "k")):
        if value >= 10**power:
            return f"{value / 10**power:.3g} {prefix}{unit}" if value < 10 ** (power + 3) else f"{value:.3g} {unit}"
    return f"{value:.3g} {unit}"


def seconds(value: float) -> str:
    """A duration with three digits and the unit that fits."""
    for power, unit in ((0, "s"), (-3, "ms"), (-6, "us")):
        if value >= 10.0**power:
            return f"{value / 10.0**power:.3g} {unit}"
    return f"{value / 1e-9:.3g} ns"
