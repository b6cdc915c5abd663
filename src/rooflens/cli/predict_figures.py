"""The figures of an answer that its table, its JSON, a sweep and a what-if all show: each in one place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rooflens.analyzer.accuracy import published_accuracy
from rooflens.analyzer.precision import Precision
from rooflens.cli.predict_answer import Answer
from rooflens.cli.units import NOT_KNOWN, duration_text, percent_text, si_text, times_text, tokens_text

EXPECTED_WORDS = "the floor with the distinct experts of uniform or measured routing; not a bound"
EXPECTED_APART = 1.001  # expected beyond the floor by this factor is worth a line


@dataclass(frozen=True, slots=True)
class Rates:
    """What a user feels of one step: ``seconds`` of it, tokens a second of all sequences, seconds a token of one."""

    seconds: float | None
    tokens_per_s: float | None
    token_s: float | None


def at_floor(answer: Answer) -> Rates:
    """The rates of a step at the floor: at most and at least."""
    return rates(answer, answer.result.floor_s or None)


def at_reachable(answer: Answer) -> Rates:
    """The rates of a step that a well-tuned engine gets, None where that is not known."""
    return rates(answer, answer.result.reachable_s)


def rates(answer: Answer, seconds: float | None) -> Rates:
    """The rates of a step of ``seconds``."""
    if not seconds:
        return Rates(None, None, None)
    tokens = answer.plan.batch * answer.plan.computed_tokens
    each = seconds if answer.plan.prefill else seconds / answer.plan.computed_tokens
    return Rates(seconds, tokens / seconds, each)


def at_expected(answer: Answer) -> Rates:
    """The rates of a step that reads the experts which uniform routing chooses; of a dense model those at the floor."""
    return rates(answer, answer.result.expected_s or None)


def likely(answer: Answer) -> Rates:
    """The rates at the reachable step, or at the expected one where reachable is not known."""
    found = at_reachable(answer)
    return found if found.seconds is not None else at_expected(answer)


def has_expected(answer: Answer) -> bool:
    """Whether uniform routing reads more than the strict floor counts: in a mixture of experts."""
    return answer.result.expected_s > EXPECTED_APART * answer.result.floor_s


def token_word(answer: Answer) -> str:
    """What the time of one token, of one prompt, or of one chunk of it is called."""
    if not answer.plan.prefill:
        return "TPOT"
    return "TTFT" if answer.plan.sampled_rows else "chunk time"


def with_transfer(answer: Answer, seconds: float | None) -> float | None:
    """A first token's ``seconds`` and the transfer of the caches after it; None where no prompt is handed over."""
    if seconds is None or answer.handover is None or token_word(answer) != "TTFT":
        return None
    return seconds + answer.handover.exposed_s


def times_floor(answer: Answer) -> float | None:
    """How many times the floor the reachable step is."""
    result = answer.result
    return result.reachable_s / result.floor_s if result.reachable_s is not None and result.floor_s else None


def longest_context(answer: Answer) -> int:
    """Tokens that each sequence can have: what memory holds, or what the model was made for if that is less."""
    return min(answer.result.max_context_tokens, answer.arch.max_context_tokens or answer.result.max_context_tokens)


def published_reachable(answer: Answer) -> bool:
    """Whether what is reachable follows from published kernels, of which it is known how far served steps are."""
    return answer.result.reachable_s is not None and answer.efficiency is None


def error_words(answer: Answer) -> str:
    """How far published figures of such steps are from what is reachable."""
    found = published_accuracy()
    if answer.plan.prefill:
        pairs = sorted((ratio, engine) for engine, ratio in found.first_token_ratio.items())
        times = ", ".join(f"{ratio:.1f} ({engine})" for ratio, engine in pairs)
        return f"first tokens of servers took {times} times it, as requests wait: medians of {found.first_token_rows}"
    middle, most = f"{found.decode_median_ratio:.1%}", f"{found.decode_p90_ratio:.1%}"
    return f"of {found.decode_rows} published decode steps half are within {middle} of it, nine in ten within {most}"


def _depth(answer: Answer) -> float | None:
    return None if answer.speculation is None else float(answer.speculation.at.depth)


def _gain(answer: Answer) -> float | None:
    return None if answer.speculation is None else answer.speculation.at.gain


def _speculating(answer: Answer) -> float | None:
    return None if answer.speculation is None else answer.speculation.at.tokens_per_s


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of a comparison: its value as a number (for the change) and as text."""

    name: str
    value: Callable[[Answer], float | None]
    text: Callable[[Answer], str]
    shown: Callable[[Answer], bool] = lambda answer: True


COMPARED: Sequence[Figure] = (
    Figure("floor", lambda a: a.result.floor_s or None, lambda a: duration_text(a.result.floor_s or None)),
    Figure("expected", lambda a: a.result.expected_s, lambda a: duration_text(a.result.expected_s), has_expected),
    Figure(
        "reachable", lambda a: a.result.reachable_s, lambda a: duration_text(a.result.reachable_s),
        lambda a: a.result.reachable_s is not None,
    ),
    Figure("tokens/s at most", lambda a: at_floor(a).tokens_per_s, lambda a: tokens_text(at_floor(a).tokens_per_s)),
    Figure(
        "tokens/s reachable", lambda a: at_reachable(a).tokens_per_s,
        lambda a: tokens_text(at_reachable(a).tokens_per_s), lambda a: a.result.reachable_s is not None,
    ),
    Figure(
        "tokens/s speculating", _speculating,
        lambda a: tokens_text(_speculating(a)), lambda a: a.speculation is not None,
    ),
    Figure(
        "drafted tokens", _depth, lambda a: "-" if a.speculation is None else f"{a.speculation.at.depth}",
        lambda a: a.speculation is not None,
    ),
    Figure(
        "gain of speculation", _gain, lambda a: "-" if a.speculation is None else times_text(a.speculation.at.gain),
        lambda a: a.speculation is not None,
    ),
    Figure("bound", lambda a: None, lambda a: bound_text(a)),
    Figure("MFU", lambda a: a.result.mfu, lambda a: percent_text(a.result.mfu)),
    Figure("MBU", lambda a: a.result.mbu, lambda a: percent_text(a.result.mbu)),
    Figure("flops", lambda a: a.result.flops, lambda a: si_text(a.result.flops, "FLOP")),
    Figure("weights", lambda a: a.result.weight_bytes, lambda a: si_text(a.result.weight_bytes, "B")),
    Figure("KV a sequence", lambda a: a.sequence_kv_bytes, lambda a: si_text(a.sequence_kv_bytes, "B")),
    Figure("largest batch", lambda a: a.result.max_batch, lambda a: f"{a.result.max_batch:,}"),
    Figure("longest context", longest_context, lambda a: f"{longest_context(a):,}"),
    Figure("fits", lambda a: None, lambda a: fits_text(a)),
)  # fmt: skip


LINEAR = ("attention", "mlp", "experts", "shared_experts", "state")  # groups whose formats are worth a word


def formats_text(precision: Precision) -> str:
    """The format of most weights, and of the groups that have another: fp8 (experts mxfp4)."""
    others = []
    for group in LINEAR:
        names = {part.name for part in precision.groups.get(group, ()) if part.share > 0.01}
        if names and names != {precision.weights}:
            others.append(f"{group.replace('_', ' ')} {' and '.join(sorted(names))}")
    return f"{precision.weights} ({', '.join(others)})" if others else precision.weights


def bound_text(answer: Answer) -> str:
    """The side that sets the floor, where it is known to bind."""
    return str(answer.result.bound) if answer.result.bound_known else NOT_KNOWN


def fits_text(answer: Answer) -> str:
    """yes, or NO, which must be seen."""
    return "yes" if answer.result.fits else "NO"
