"""Speculative decoding as predict shows it: what one depth gains, which is best, and from which batch on it fades."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rooflens.analyzer.plan import Plan
from rooflens.analyzer.precision import Precision, choose_precision
from rooflens.analyzer.speculation import BreakEven, Draft, Gain, Speculator
from rooflens.arch_records import ModelArch
from rooflens.cli.predict_options import Asked
from rooflens.cli.units import duration_text, times_text, tokens_text
from rooflens.model_records import Efficiency, HardwareSpec
from rooflens.records import RooflensError

ASSUMED_ACCEPTANCE = 0.8  # of the first token, as published for EAGLE and MTP drafts on chat; decays by position
Row = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Speculation:
    """``at`` is the depth asked for, or the best; ``acceptance_assumed`` where the user gave none."""

    method: str
    acceptance: float | tuple[float, ...]
    acceptance_assumed: bool
    at: Gain
    best: Gain
    speculator: Speculator

    def break_even(self) -> BreakEven | None:
        """The largest batch at which this depth gains; None for a depth of 0."""
        return self.speculator.break_even(self.at.depth) if self.at.depth else None


def speculates(asked: Asked) -> bool:
    """Whether a method was asked for; RooflensError for options that mean nothing without one."""
    if asked.spec_method not in (None, "none"):
        if asked.spec_method == "model" and asked.draft_model is None:
            raise RooflensError("--spec-method model needs the model that drafts: add --draft-model NAME or its config")
        if asked.spec_method != "model" and asked.draft_model is not None:
            raise RooflensError(f"--draft-model belongs to --spec-method model, not {asked.spec_method}")
        return True
    lost = [name for name in ("acceptance", "draft_model") if getattr(asked, name) is not None]
    lost += ["spec_tokens"] * (asked.spec_tokens is not None and asked.phase != "verify")
    if lost:
        raise RooflensError(
            f"--{lost[0].replace('_', '-')} says nothing without --spec-method (ngram, model, eagle3, mtp, parallel)"
        )
    return False


def speculation(
    asked: Asked,
    arch: ModelArch,
    hardware: HardwareSpec,
    precision: Precision,
    plan: Plan,
    drafting: ModelArch | None,
    efficiency: Efficiency | None = None,
) -> Speculation:
    """What speculation as asked for gains at ``plan``; ``drafting`` is the model that drafts, if one does.

    ``efficiency`` is what kernels reach where that is not as published.
    """
    given = asked.acceptance
    acceptance: float | tuple[float, ...] = (
        ASSUMED_ACCEPTANCE if given is None else given[0] if len(given) == 1 else given
    )
    formats = None if drafting is None else choose_precision(drafting, None, asked.kv)
    draft = Draft(asked.spec_method or "ngram", drafting, formats)
    found = Speculator.of(arch, hardware, precision, plan, draft, acceptance, efficiency)
    best = found.best()
    at = found.gain(asked.spec_tokens) if isinstance(asked.spec_tokens, int) else best
    return Speculation(draft.method, acceptance, given is None, at, best, found)


def speculation_rows(found: Speculation) -> list[Row]:
    """The rows of one point."""
    at, best = found.at, found.best
    rows: list[Row] = [("speculation", f"{found.method}, {_many(at.depth, 'draft')}", acceptance_words(found))]
    if not at.depth:
        return [*rows, ("", "", "no depth gains here: plain decoding yields more tokens/s")]
    rows.append(("tokens a step", f"{at.expected_tokens:.2f}", "of each sequence, expected with that acceptance"))
    rows.append(("verify step", duration_text(at.verify_s), _verify_words(at)))
    rows.append(("draft", duration_text(at.draft_s), f"for {_many(at.depth, 'token')} of every sequence"))
    rows.append(
        (
            "speculating",
            f"{tokens_text(at.tokens_per_s)} tokens/s",
            f"{times_text(at.gain)} plain decoding ({at.basis})",
        )
    )
    rows.append(
        (
            "TPOT speculating",
            duration_text((at.verify_s + at.draft_s) / at.expected_tokens),
            f"plain {duration_text(at.plain_s)}",
        )
    )
    rows.append(("best depth", f"{best.depth}", f"{times_text(best.gain)} plain decoding at this batch and context"))
    return [*rows, *_break_even_row(found)]


def _many(count: int, word: str) -> str:
    return f"{count} {word}{'s' * (count != 1)}"


def acceptance_words(found: Speculation) -> str:
    """The acceptance, and whether it was assumed."""
    rates = found.acceptance if isinstance(found.acceptance, tuple) else (found.acceptance,)
    words = ", ".join(f"{rate:g}" for rate in rates)
    return f"acceptance {words}" + (", assumed (say --acceptance)" if found.acceptance_assumed else "")


def _verify_words(at: Gain) -> str:
    return f"{times_text(at.verify_ratio)} a plain step for {at.depth + 1} rows of each sequence, bound by {at.bound}"


def _break_even_row(found: Speculation) -> Iterator[Row]:
    even = found.break_even()
    if even is not None:
        value = f"batch {even.batch:,}" if even.batch is not None else "any batch" if even.always else "no batch"
        yield "gains up to", value, even.reason


def speculation_json(found: Speculation | None, with_break_even: bool) -> dict[str, Any] | None:
    """The same in SI units; ``break_even`` null where it was not looked for."""
    if found is None:
        return None
    even = found.break_even() if with_break_even else None
    return {
        "method": found.method,
        "acceptance": list(found.acceptance) if isinstance(found.acceptance, tuple) else found.acceptance,
        "acceptance_assumed": found.acceptance_assumed,
        **asdict(found.at),
        "best": asdict(found.best),
        "break_even": None if even is None else asdict(even),
    }


HEAD = ("depth", "tokens/step", "verify", "draft", "speculating", "gain")


def sweep_cells(found: Speculation | None) -> Sequence[str]:
    """The cells of one row of a sweep."""
    if found is None:
        return ("-",) * len(HEAD)
    at = found.at
    return (
        f"{at.depth}",
        f"{at.expected_tokens:.2f}",
        duration_text(at.verify_s),
        duration_text(at.draft_s),
        tokens_text(at.tokens_per_s),
        times_text(at.gain),
    )
