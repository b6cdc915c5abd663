"""Whether the devices wait for the host, by counters of a whole window where no step has device time."""

from __future__ import annotations

from dataclasses import replace

from rooflens.analyzer.rules.answers import active_s, cleared, firing
from rooflens.analyzer.rules.answers import price as priced
from rooflens.analyzer.rules.blocked import blocked_s
from rooflens.analyzer.rules.case import Case
from rooflens.analyzer.rules.counted import (
    WAITING_RATIO,
    WORKING_RATIO,
    Working,
    counters_of,
    doubt_of_neighbours,
    working,
    working_evidence,
)
from rooflens.findings import Code, Evidence, Finding, Status

CODE = Code.HOST_OVERHEAD
BUSY_CORES = 0.95  # of one: a thread that hardly ever waits
IDLE_CORES = 0.5  # a thread that waits for half of the time holds nobody up by computing
SURE = 0.05  # confidence that a busy thread adds
UNSURE = 0.25  # and that an idle one, or a device that works, takes away


def by_counters(case: Case, remedy: str) -> Finding | None:
    """The answer that the devices' own share of working time gives; None where it gives none."""
    found = working(case)
    if found is None:
        return None
    if found.high < WAITING_RATIO:
        return _waiting(case, found, remedy)
    if found.proven >= WAITING_RATIO:
        text = f"the devices work {found.low:.0%} or more of the time that requests are there"
        return cleared(case, CODE, text, *working_evidence(found))
    return None


def _waiting(case: Case, found: Working, remedy: str) -> Finding:
    figures = case.figures[-1]
    judged_s = active_s(figures) - blocked_s(case.windows[-1], figures)
    price = priced(
        (WORKING_RATIO - found.middle) * judged_s,
        (WAITING_RATIO - found.high) * judged_s,
        (1 - found.low) * judged_s,
        judged_s,
        "time with requests in which no device computed, by counters of the whole window, less the tenth that a tuned "
        "engine has there (none to a quarter)",
    )
    who, waits = ("its least busy device works", "waits") if found.wait_inside else ("the devices work", "wait")
    text = f"{who} {found.high:.0%} of the time that requests are there, and {waits} for the host in the rest"
    sure = 0.85 - doubt_of_neighbours(case)
    return firing(case, CODE, text, working_evidence(found), remedy, confidence=sure, price=price)


def weighed(case: Case, finding: Finding) -> Finding:
    """A firing answer beside what else the counters say of host and devices: surer, or less so with the reason."""
    if finding.status is not Status.FIRING or finding.confidence is None:
        return finding
    counters, devices = counters_of(case), working(case)
    cores = counters.engine_core_busiest_cores if counters is not None else None
    evidence, summary, confidence = list(finding.evidence), finding.summary, finding.confidence
    if cores is not None:
        evidence.append(Evidence("engine_core_busiest_thread_cores", cores))
        if cores >= BUSY_CORES:
            confidence = min(0.95, confidence + SURE)
        elif cores < IDLE_CORES:
            confidence -= UNSURE
            summary += f"; but the engine core's busiest thread uses {cores:.2f} of a core: it waits for something too"
    if devices is not None and devices.proven >= WORKING_RATIO:
        confidence -= UNSURE
        evidence += working_evidence(devices)
        summary += f"; but the devices work {devices.low:.0%} or more of that time"
    return replace(finding, evidence=tuple(evidence), summary=summary, confidence=max(0.0, confidence))
