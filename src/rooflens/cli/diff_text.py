"""A comparison as text, the verdict first, and as JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rooflens.analyzer.diff.result import Change, Comparison, RegimeChange, SideFigures, TermChange, Verdict
from rooflens.cli.diff_sides import Side
from rooflens.cli.output import one_line
from rooflens.cli.units import aligned, seconds_text

MOST_REGIMES = 12
WIDTH, INDENT = 118, " " * 8
POWER = 0.84 / 1.96  # of the normal distribution: four in five above, of half a 95 % interval
NEXT = {
    Verdict.WORSE: "look at what differs, then at the part that moved; 'rooflens analyze' of both sides shows when",
    Verdict.BETTER: "nothing to do; keep B's recording as the next side A",
    Verdict.SAME: "nothing to do; longer recordings or several a side (--a A1 A2 --b B1 B2) lower the noise floor",
    Verdict.CANNOT_TELL: "record longer, the same kind of load, several times a side (--a A1 A2 --b B1 B2)",
}


def text(found: Comparison, a: Side, b: Side) -> str:
    """The whole report; no line ends in a space."""
    lines = [
        _verdict(found),
        *(each for note in found.notes[:1] if found.relative for each in _wrapped("first   ", note)),
    ]
    lines += [_side("A", a, found.a), _side("B", b, found.b)]
    if found.regimes:
        lines += ["", *_regimes(found)]
    if found.terms:
        lines += ["", *_terms(found.terms)]
    lines += ["", *_facts(found)]
    lines += [line for note in found.notes[1 if found.relative else 0 :] for line in _wrapped("note    ", note)]
    lines += _wrapped("next    ", NEXT[found.verdict] if not found.identical else "name two recordings")
    return "\n".join(map(one_line, lines))


def _verdict(found: Comparison) -> str:
    if found.change is None or found.identical:
        return f"{found.verdict}: {found.why}"
    within = "" if found.within_ratio is None else f" within {100 * found.within_ratio:.1f} %"
    return f"{found.verdict}{within}: {found.why}; B {signed(found.change.ratio)} {interval(found.change)}"


def signed(ratio: float) -> str:
    """A change in percent with its sign: +5.2 %."""
    return f"{100 * ratio:+.1f} %"


def interval(change: Change | None) -> str:
    """Its 95 % interval."""
    return "" if change is None else f"[{100 * change.low_ratio:+.1f}, {100 * change.high_ratio:+.1f}]"


def _side(name: str, side: Side, figures: SideFigures) -> str:
    places = ", ".join(side.places[:3]) + (f" and {len(side.places) - 3} more" if len(side.places) > 3 else "")
    runs = f"{figures.runs:,} run{'s' if figures.runs != 1 else ''}, {figures.steps:,} steps"
    matched = f"; {figures.matched_ratio:.0%} of its time in regimes of both sides" if figures.matched_ratio else ""
    left = f"; {figures.left_out:,} rows left out" if figures.left_out else ""
    return f"{name}       {places}: {runs}{matched}{left}"


def _regimes(found: Comparison) -> list[str]:
    unit = (lambda value: f"x {value:.3g}") if found.relative else seconds_text
    rows: list[Sequence[str]] = [
        ("the same step, while nothing disturbs it", "weight", "steps A", "steps B", "A", "B", "change", "95 %", "")
    ]
    rows += [_regime(each, unit) for each in found.regimes[:MOST_REGIMES]]
    if found.change is not None:
        whole = (signed(found.change.ratio), interval(found.change), str(found.verdict))
        rows.append(("all of them", f"{1:.0%}", "", "", "", "", *whole))
    if (mean := found.mean_change) is not None:
        rows.append(("all of them, disturbed or not", "", "", "", "", "", signed(mean.ratio), interval(mean), ""))
    lines = aligned(rows)
    if (more := len(found.regimes) - MOST_REGIMES) > 0:
        lines.append(f"and {more} smaller regimes (--json has all)")
    if found.change is not None:
        lines.append(
            f"noise   +-{100 * found.change.noise_ratio:.1f} %: what two recordings of one engine may differ by here; "
            f"a change of less than {100 * least_told(found.change):.1f} % is seldom found"
        )
    return lines


def least_told(change: Change) -> float:
    """The change that is found four times in five: beyond the interval by what one estimate misses the truth by."""
    return change.noise_ratio * (1 + POWER)


def _regime(each: RegimeChange, unit: Any) -> Sequence[str]:
    return (
        each.name,
        f"{each.weight:.0%}",
        f"{each.steps_a:,}",
        f"{each.steps_b:,}",
        unit(each.a_s),
        unit(each.b_s),
        signed(each.change.ratio),
        interval(each.change),
        str(each.verdict),
    )


def _terms(terms: Sequence[TermChange]) -> list[str]:
    rows: list[Sequence[str]] = [("which part moved, of a whole step", "change", "95 %", "", "")]
    for term in terms:
        change = "" if term.change is None else signed(term.change.ratio)
        rows.append((term.name, change, interval(term.change), str(term.verdict), ""))
    lines = aligned(rows)
    return [line if not at else f"{line}  {terms[at - 1].words}" for at, line in enumerate(lines)]


def _facts(found: Comparison) -> list[str]:
    if not found.facts:
        return ["facts   what the engines say of themselves is the same on both sides"]
    rows = [(each.name, each.a or "not stated", each.b or "not stated") for each in found.facts]
    head = (
        "what differs: candidates for the cause" if found.verdict in (Verdict.WORSE, Verdict.BETTER) else "what differs"
    )
    return aligned([(head, "A", "B"), *rows])


def _wrapped(name: str, words: str) -> list[str]:
    return textwrap.wrap(one_line(words), WIDTH, initial_indent=name, subsequent_indent=INDENT)


def as_json(found: Comparison, a: Side, b: Side, worst: float | None, code: int) -> dict[str, Any]:
    """The same with every regime; ratios and seconds, in parts of what is reachable where ``relative``."""
    data = asdict(found)
    for name, side in (("a", a), ("b", b)):
        data[name] |= {"places": list(side.places), "problems": list(side.problems)}
    change = found.change
    return data | {
        "noise_ratio": None if change is None else change.noise_ratio,
        "least_detectable_ratio": None if change is None else least_told(change),
        "fail_if_worse_ratio": worst,
        "exit_code": code,
    }
