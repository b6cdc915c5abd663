"""What `rooflens predict` says of one point: the rows of its table and the closing sentence."""

from __future__ import annotations

from collections.abc import Iterator

from rooflens.analyzer.efficiency import efficiency_of
from rooflens.analyzer.handover import Handover
from rooflens.analyzer.predict import ridge_announced_flop_per_byte, ridge_flop_per_byte
from rooflens.cli.predict_answer import Answer
from rooflens.cli.predict_figures import (
    EXPECTED_WORDS,
    at_expected,
    at_floor,
    at_reachable,
    error_words,
    formats_text,
    has_expected,
    longest_context,
    published_reachable,
    times_floor,
    token_word,
    with_transfer,
)
from rooflens.cli.predict_notes import floor_words, misfit, notes, roof_words, shown_flags, spread_words
from rooflens.cli.predict_speculation import speculation_rows
from rooflens.cli.units import (
    NOT_KNOWN,
    binary_text,
    duration_text,
    parameters_text,
    percent_text,
    si_text,
    times_text,
    tokens_text,
)
from rooflens.model_records import HardwareSpec

Row = tuple[str, str, str]  # label, value with its unit, remark


def rows(answer: Answer) -> list[Row]:
    """The whole table, without what does not fit, which stands before it."""
    result, first = answer.result, misfit(answer)
    return [
        *_what(answer),
        *_times(answer),
        *_rates(answer),
        *_bytes(answer),
        ("flops", si_text(result.flops, "FLOP"), f"in a step, {si_text(result.flops_per_token, 'FLOP')} a token"),
        *ridge_rows(answer.hardware, answer.precision.weights),
        ("largest batch", f"{result.max_batch:,}", f"in {si_text(result.capacity_bytes, 'B')} that the engine may use"),
        ("longest context", f"{longest_context(answer):,}", _context_remark(answer)),
        *(speculation_rows(answer.speculation) if answer.speculation else ()),
        *(("note", note, "") for note in notes(answer) if note != first),
    ]


def _what(answer: Answer) -> Iterator[Row]:
    arch, plan, result, precision = answer.arch, answer.plan, answer.result, answer.precision
    exact = " (bytes of its files)" if answer.exact_weights else ""
    yield "model", arch.name, f"weights {formats_text(precision)}{exact}, KV {precision.kv}"
    if result.parameters is not None:
        active = result.active_parameters
        fewer = active is not None and active < 0.99 * result.parameters
        words = f"{parameters_text(active)} of them used by a token" if active is not None and fewer else ""
        yield "parameters", parameters_text(result.parameters), words
    replicas = f", {plan.replicas} replicas" if plan.replicas > 1 else ""
    yield (
        "hardware",
        f"{plan.devices:,} x {answer.hardware.id}",
        spread_words(plan.deployment).replace("--", "") + replicas,
    )
    if answer.hardware.origin == "measured":
        yield "bandwidth", si_text(answer.hardware.memory_bandwidth_bytes_per_s, "B/s"), "measured on this machine"
    yield answer.phase, f"batch {plan.batch:,}", _each(answer)


def _each(answer: Answer) -> str:
    """What each sequence has and computes."""
    plan = answer.plan
    parts = [f"{plan.context_tokens:,} tokens each"]
    if plan.prefill and plan.cached_tokens:
        parts.append(f"{plan.cached_tokens:,} of them cached")
    if plan.prefill and plan.cached_tokens + plan.computed_tokens < plan.context_tokens:
        parts.append(f"{plan.computed_tokens:,} computed in this step")
    if not plan.prefill and plan.computed_tokens > 1:
        parts.append(f"{plan.computed_tokens} rows computed in one pass")
    if plan.shared_prefix_tokens:
        parts.append(f"{plan.shared_prefix_tokens:,} of them shared by all")
    if plan.encoder_tokens:
        parts.append(f"{plan.encoder_tokens:,} of the encoder")
    if plan.lora_rank:
        parts.append(f"LoRA of rank {plan.lora_rank} from {plan.lora_adapters:,} adapters")
    return ", ".join(parts)


def _times(answer: Answer) -> Iterator[Row]:
    result = answer.result
    yield "floor", duration_text(result.floor_s) if result.floor_s else NOT_KNOWN, _floor_remark(answer)
    if has_expected(answer):
        yield "expected", duration_text(result.expected_s), EXPECTED_WORDS
    if result.reachable_s is not None:
        times = times_floor(answer)
        many = f"{times_text(times)} the floor; " if times is not None else ""
        yield "reachable", duration_text(result.reachable_s), many + reachable_words(answer)
        if published_reachable(answer):
            yield "", "", error_words(answer)
    yield "serial floor", duration_text(result.serial_floor_s), "operator after operator, nothing overlapped"
    if result.link_s:
        yield "link", duration_text(result.link_s), "beside it, what devices send each other"


def reachable_words(answer: Answer) -> str:
    """What reachable means, in one sentence, and whose kernels it is of."""
    found = answer.efficiency or efficiency_of(answer.hardware)
    whose = "with kernels as measured"
    if found is not None:
        said = found.source.partition(";")[0]
        whose = f"with kernels as {found.origin} for it" if found.origin == "published" else said
    return f"what a well-tuned engine gets; not a bound ({whose})"


def _floor_remark(answer: Answer) -> str:
    result = answer.result
    if result.bound_known:
        return f"bound by {result.bound}; {floor_words(answer.hardware)}"
    if not result.floor_s:
        return "compute is not known, and all bytes may come from the last-level cache"
    return f"of {result.bound} alone, another side may take longer; {floor_words(answer.hardware)}"


def _rates(answer: Answer) -> Iterator[Row]:
    result, hardware = answer.result, answer.hardware
    word = "at the floor" if result.bound_known else "at this floor; the real rate may be far lower"
    reachable = at_reachable(answer)
    if has_expected(answer):
        word += f", {tokens_text(at_expected(answer).tokens_per_s)} expected"
    if reachable.tokens_per_s is not None:
        word += f", {tokens_text(reachable.tokens_per_s)} reachable"
    tokens = at_floor(answer).tokens_per_s
    yield "tokens", NOT_KNOWN if tokens is None else f"{tokens_text(tokens)} tokens/s", word
    yield token_word(answer), duration_text(at_floor(answer).token_s), _token_remark(answer)
    peaks = f"at the floor, of the peaks ({hardware.origin})"
    if roof_words(hardware) != f"the {hardware.origin} peak":
        peaks += f"; compute times are at {roof_words(hardware)}"
    yield "MFU, MBU", f"{percent_text(result.mfu)}, {percent_text(result.mbu)}", peaks


def _token_remark(answer: Answer) -> str:
    """Of whom the time of a token or a prompt is, what is reachable, and what a transfer adds."""
    whose = "of one sequence" + (", with every draft accepted" if answer.plan.computed_tokens > 1 else "")
    found = [f"{'of each prompt' if answer.plan.prefill else whose}, at the floor"]
    least, reachable = at_floor(answer).token_s, at_reachable(answer).token_s
    if reachable is not None:
        found.append(f"{duration_text(reachable)} reachable")
    sent = [with_transfer(answer, seconds) for seconds in (least, reachable)]
    known = " and ".join(duration_text(seconds) for seconds in sent if seconds is not None)
    return ", ".join(found) + (f"; {known} with the KV transfer" if known else "")


def _context_remark(answer: Answer) -> str:
    held = answer.result.max_context_tokens
    words = f"tokens, with a batch of {answer.plan.batch:,}"
    return words + (
        f": all that the model was made for; memory holds {held:,}" if held > longest_context(answer) else ""
    )


def _bytes(answer: Answer) -> Iterator[Row]:
    result, tokens = answer.result, answer.plan.context_tokens
    read = f"{si_text(result.weight_read_bytes, 'B')} read in a step"
    if result.expert_bytes > 0.001 * result.weight_read_bytes:
        read += f", {si_text(result.weight_read_bytes + result.expert_bytes, 'B')} expected"
    yield "weights", si_text(result.weight_bytes, "B"), read
    copies = result.sequence_bytes / answer.sequence_kv_bytes if answer.sequence_kv_bytes else 1.0
    kept = "of the batch, over all devices"
    yield "KV cache", si_text(result.kv_bytes, "B"), kept + f", which keep {copies:.3g} copies" * (copies > 1.001)
    each = f"of {tokens:,} tokens: {answer.sequence_kv_bytes:,.0f} bytes ({binary_text(answer.sequence_kv_bytes)}), "
    each += f"{answer.next_token_kv_bytes:,.0f} "
    even = answer.next_token_kv_bytes * tokens == answer.sequence_kv_bytes
    yield "KV a sequence", si_text(answer.sequence_kv_bytes, "B"), each + ("a token" if even else "for one token more")
    if answer.handover is not None:
        yield from _handover_rows(answer.handover)
    if result.state_bytes:
        yield "states", si_text(result.state_bytes, "B"), "read and written in a step, whatever the context"


def _handover_rows(sent: Handover) -> Iterator[Row]:
    made = f"after {duration_text(sent.prefill_s)} of prefill ({sent.basis})"
    yield "KV transfer", duration_text(sent.transfer_s), f"of one prompt's {si_text(sent.cache_bytes, 'B')}, {made}"
    rate = f"the link carries {tokens_text(sent.link_prompts_per_s)} prompts/s, prefill makes "
    rate += f"{tokens_text(sent.prefill_prompts_per_s)}: " + (
        "it keeps up" if sent.link_keeps_up else "it does not keep up"
    )
    yield "KV link needed", si_text(sent.needed_bytes_per_s, "B/s"), rate


def hardware_rows(hardware: HardwareSpec, weights: str) -> list[Row]:
    """The device alone."""
    found = [("hardware", hardware.id, hardware.name)]
    found.append(("memory bandwidth", si_text(hardware.memory_bandwidth_bytes_per_s, "B/s"), hardware.origin))
    for name, rate in hardware.peak_flops_per_s.items():
        ceiling = hardware.ceiling_flops_per_s[name]
        announced = hardware.announced_flops_per_s.get(name)
        remark = (
            f"at most {si_text(ceiling, 'FLOP/s')} at the highest clock" if ceiling > rate and not announced else ""
        )
        if announced:
            remark = f"{si_text(announced, 'FLOP/s')} announced for inference, not dense"
        found.append((f"peak {name}", si_text(rate, "FLOP/s"), remark))
    return found + ridge_rows(hardware, weights) + [("note", flag, "") for flag in shown_flags(hardware)]


def ridge_rows(hardware: HardwareSpec, weights: str) -> list[Row]:
    """Where arithmetic, not memory, is the limit."""
    ridge = ridge_flop_per_byte(hardware, weights)
    if ridge is None:
        return [("ridge", NOT_KNOWN, f"no rate stated for {weights} weights")]
    found = [("ridge", f"{ridge:,.0f} FLOP/B", f"{weights} weights, dense peak")]
    announced = ridge_announced_flop_per_byte(hardware, weights)
    if announced is not None:
        found.append(("ridge, announced", f"{announced:,.0f} FLOP/B", "at the announced rate, not dense"))
    return found


def sentence(answer: Answer) -> str:
    """What bounds the step, in one sentence, or that it is not known."""
    hardware, result, phase = answer.hardware, answer.result, answer.phase
    sides = {"memory": result.memory_s, "compute": result.compute_s, "link": result.link_s}
    others = ", ".join(
        f"{name} {duration_text(value)}"
        + (f" at {roof_words(hardware)}" if name == "compute" and value is not None else "")
        for name, value in sides.items()
        if name != result.bound and (name != "link" or answer.plan.devices > 1)
    )
    if result.bound is None:
        return f"What bounds this {phase} step is not known, and neither is its floor ({others})."
    reason = {
        "memory": f"reading {si_text(result.weight_read_bytes, 'B')} of weights and "
        f"{si_text(result.kv_read_bytes, 'B')} of KV cache",
        "compute": f"computing {si_text(result.flops, 'FLOP')} at {roof_words(hardware)}",
        "link": "sending activations between devices",
    }[result.bound]
    takes = f"{reason} takes {duration_text(result.floor_s)} at best"
    if result.bound_known:
        return f"This {phase} step is bound by {result.bound}: {takes} ({others})."
    since = "at rates measured while others used the machine" if hardware.disturbed else "no step can be shorter, since"
    return f"What bounds this {phase} step is not known; {since} {takes} ({others})."
