"""How the demo says what its sidecar found."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from rooflens.analyzer.figures import Summary
from rooflens.cli.demo_live import Raised
from rooflens.cli.units import factor_text, seconds_text
from rooflens.findings import Evidence, Finding, Price

WIDTH, NAME_WIDTH = 118, 10
FAR_RATIO = 2.0  # of what is reachable: less needs no word
CROWDED_LOAD = 0.5  # beyond the engine's own threads: less is the average's own wavering
MOST_EVIDENCE = 8  # facts; the API has them all


def apart_text(summary: Summary, threads: int, load: float, cores: int) -> str:
    """Why steps far above their bounds are no finding of this engine; empty where they are not far above.

    ``load`` is the machine's load average, of which the engine makes ``threads`` at most.
    """
    floors = [phase.floor for phase in summary.phases if phase.floor and phase.floor.floor_s]
    observed_s, floor_s = sum(floor.observed_s for floor in floors), sum(floor.floor_s for floor in floors)
    reachable_s = sum(floor.reachable_s or floor.floor_s for floor in floors)
    if not floors or observed_s < FAR_RATIO * reachable_s:
        return ""
    beyond = f", {factor_text(observed_s / reachable_s)} times what is reachable" if reachable_s > floor_s else ""
    by_batch = {
        part.name: part.floor.observed_s / part.floor.floor_s
        for part in summary.decode_by_batch
        if part.floor and part.floor.floor_s
    }
    told = ", ".join(f"{name} {factor_text(times)}" for name, times in by_batch.items())
    why = f": that is what NumPy makes of this load (decode by batch: {told})" if by_batch else ""
    if max(by_batch.values(), default=0.0) >= FAR_RATIO * by_batch.get("batch 1", float("inf")):
        why += "; its products of a few rows take a multiple of those of one, though they read the same weights"
    if load > threads + CROWDED_LOAD:
        why += f"; others use the machine too (load average {load:.1f} on {cores} cores, the engine has {threads})"
    text = f"{factor_text(observed_s / floor_s)} times their floor{beyond}{why}"
    return "\n".join(_wrapped("steps", text))


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
