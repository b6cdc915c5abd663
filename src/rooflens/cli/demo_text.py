"""How the demo says what its sidecar found."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from rooflens.cli.demo_live import Raised
from rooflens.cli.units import seconds_text
from rooflens.findings import Evidence, Finding, Price

WIDTH, NAME_WIDTH = 118, 10
MOST_EVIDENCE = 8  # facts; the API has them all


def findings_text(raised: Raised, expected: str | None) -> str:
    """What fired above info and what could not be told and why, then each finding with its price and remedy."""
    untold = [f"{code} ({'; '.join(finding.missing)})" for code, finding in raised.cannot_tell.items()]
    told = _headline([finding.code for finding in raised.serious], expected)
    lines = _wrapped("findings", f"{told}; not told: {', '.join(untold)}" if untold else told)
    for finding in raised.findings.values():
        lines += ["", *_finding(finding)]
    return "\n".join(lines)


def _headline(codes: Sequence[str], expected: str | None) -> str:
    """What the findings above info amount to, given the one that the fault should raise."""
    if expected in codes:
        return f"{expected}, as the fault should raise"
    hint = f"; {expected} was expected, unless an option took the fault away: give more --seconds" if expected else ""
    if codes:
        return f"{', '.join(codes)}{hint}"
    return f"none above info{hint}"


def _finding(finding: Finding) -> Iterator[str]:
    yield from _wrapped(str(finding.severity), f"{finding.code}: {finding.summary}")
    facts = ", ".join(_fact(fact) for fact in finding.evidence[:MOST_EVIDENCE])
    if facts:
        yield from _wrapped("evidence", facts)
    yield from _wrapped("price", price_text(finding.price))
    if finding.remedy:
        yield from _wrapped("remedy", finding.remedy)
    yield from _wrapped("more", f"rooflens explain {finding.code}")


def price_text(price: Price | None) -> str:
    """What the cause cost, with its interval and how it was computed."""
    if price is None:
        return "not known"
    share = f" ({price.saved_s / price.judged_s:.0%})" if price.judged_s > 0 else ""
    interval = f"{seconds_text(price.saved_low_s)} to {seconds_text(price.saved_high_s)}"
    return f"{seconds_text(price.saved_s)}{share} of {seconds_text(price.judged_s)}, {interval}: {price.derivation}"


def _fact(fact: Evidence) -> str:
    name = fact.name.replace("_", " ")
    if isinstance(fact.value, str):
        return f"{name} {fact.value}"
    if fact.unit == "s":
        return f"{name} {seconds_text(float(fact.value))}"
    if fact.unit == "1":
        return f"{name} {fact.value:.0%}" if abs(fact.value) <= 1 else f"{name} {fact.value:.3g}"
    return f"{name} {fact.value:,.4g}"


def _wrapped(name: str, text: str) -> list[str]:
    """Lines that begin with ``name`` in a column of its own."""
    return textwrap.wrap(
        text, WIDTH, initial_indent=f"{name:<{NAME_WIDTH}}", subsequent_indent=" " * NAME_WIDTH, break_long_words=False
    )
