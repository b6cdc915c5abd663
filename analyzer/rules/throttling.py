"""The device runs below its clock, and the steps take longer by it."""

from __future__ import annotations

from dataclasses import dataclass

from rooflens.analyzer.reachable_steps import Reachable
from rooflens.analyzer.rules.answers import active_s, cannot_tell, cleared, firing, too_few
from rooflens.analyzer.rules.answers import price as priced
from rooflens.analyzer.rules.bounds import NOISE_RATIO, bounds, no_roofline
from rooflens.analyzer.rules.case import Case
from rooflens.analyzer.rules.clocks import MEMORY_CLOCK, SM_CLOCK, Clocks, clocks_of, low_clocks, steps_at
from rooflens.analyzer.rules.counted import NO_COUNTERS, SHARED, WAITING_RATIO, counters_of, working
from rooflens.analyzer.rules.throttle_causes import cause_of, flags_text, reasons_of
from rooflens.analyzer.sums import Mask
from rooflens.device_records import WindowCounters
from rooflens.findings import Code, Evidence, Finding, Price, Severity

CODE = Code.THROTTLING
LEAST_COST_RATIO = 0.05  # of the engine's time: less is within what kernels differ by, and nobody gains by changing it
DOUBT = 0.1  # confidence that a device that is missing costs, or one that others compute on


@dataclass(frozen=True, slots=True)
class _Cost:
    """Seconds that the present clocks cost the compared steps, by usual kernels and by the others of their spread."""

    usual_s: float
    low_s: float
    high_s: float
    contradicted: bool


def throttling(case: Case) -> Finding:
    """Clocks are held down, and the steps take longer by it: a flag alone is no finding.

    Looked at are the SM clock where it is below 0.9 of the highest, and the memory clock below 0.95. The steps of the
    window are put through the model twice, at these clocks and at the datasheet's: fires where the difference is 5 %
    of the engine's time or more. Memory-bound steps hardly take longer at a lower SM clock, so that a power cap over
    them clears, whatever its flag says; so do steps that were faster than the fastest kernels are at such a clock,
    which cannot have been their clock. The reason that is in force for most of the time names the cause and what to
    do; a power cap with a draw below 0.75 of the limit while it was in force is one of the platform and not of the
    card. Of several devices the slowest counts, at whose speed the others run, with its own reasons and power; the
    evidence names it. Clocks count while steps were under way: an idle device lowers its own. cannot_tell where the
    clocks, or what kernels reach, are not known. The price is that difference, from the least to the most that kernels
    of the published spread make of it.
    """
    if few := too_few(case, CODE):
        return few
    counters = counters_of(case)
    if counters is None:
        return cannot_tell(case, CODE, f"clocks: {NO_COUNTERS}")
    clocks = clocks_of(counters, case.hardware)
    unknown = [name for name, ratio in ((SM_CLOCK, clocks.sm), (MEMORY_CLOCK, clocks.memory)) if ratio is None]
    low = low_clocks(clocks)
    if not low:
        if unknown:
            return cannot_tell(case, CODE, f"{' and '.join(unknown)} beside the highest: {NO_COUNTERS}")
        text = f"the clocks are at their highest{flags_text(counters)}"
        return cleared(case, CODE, text, *_evidence(counters, clocks))
    return _judge(case, counters, clocks, low, unknown)


def _judge(case: Case, counters: WindowCounters, clocks: Clocks, low: tuple[str, ...], unknown: list[str]) -> Finding:
    """By what the low clocks cost the steps."""
    found = bounds(case)
    if found is None:
        return cannot_tell(case, CODE, *no_roofline(case))
    cost = _cost(case, clocks, low)
    if cost is None:
        return cannot_tell(case, CODE, f"what kernels reach on {found[0].hardware.id} at another clock")
    judged_s = active_s(case.figures[-1])
    seen = " and ".join(f"{name} at {_ratio(clocks, name):.0%} of its highest" for name in low)
    share = cost.usual_s / judged_s if judged_s else 0.0
    evidence = (*_evidence(counters, clocks), Evidence("cost_share", share, "1"))
    if cost.contradicted:
        return cleared(case, CODE, f"the steps were faster than any kernel with {seen}", *evidence)
    if share < LEAST_COST_RATIO:
        if unknown:
            return cannot_tell(case, CODE, f"{' and '.join(unknown)} beside the highest: {NO_COUNTERS}")
        text = f"{seen} costs these steps {share:.1%} of their time{flags_text(counters)}"
        return cleared(case, CODE, text, *evidence)
    dear = low if len(low) == 1 else tuple(name for name in low if _alone(case, clocks, name) >= LEAST_COST_RATIO)
    names = dear or low
    cause = cause_of(counters, memory_alone=names == (MEMORY_CLOCK,))
    beside = _slowest(counters) + (f"; {SHARED} as well" if counters.shared else "")
    words = " and ".join(f"{name} is at {_ratio(clocks, name):.0%} of its highest" for name in names)
    doubts = (counters.devices < counters.devices_expected) + bool(counters.shared)
    return firing(
        case,
        CODE,
        f"{words} ({cause.text}), which takes {share:.0%} of the engine's time{beside}",
        (*evidence, Evidence("cause", cause.text)),
        cause.remedy,
        cause.confidence - DOUBT * doubts,
        _price(case, cost, judged_s),
        Severity.INFO if cause.mild else None,
    )


def _ratio(clocks: Clocks, name: str) -> float:
    return (clocks.sm if name == SM_CLOCK else clocks.memory) or 0.0


def _alone(case: Case, clocks: Clocks, name: str) -> float:
    """The share of the engine's time that one of the low clocks costs by itself."""
    cost, judged_s = _cost(case, clocks, (name,)), active_s(case.figures[-1])
    return cost.usual_s / judged_s if cost is not None and judged_s else 0.0


def _cost(case: Case, clocks: Clocks, low: tuple[str, ...]) -> _Cost | None:
    """What the clocks named in ``low`` cost the compared steps; None where it is not known what kernels reach.

    A clock above the datasheet's costs nothing against it. Of steps faster than usual kernels the same part is lost.
    """
    found = bounds(case)
    if found is None or case.roofline is None:
        return None
    roofline, analysis = found
    table, rows = case.windows[-1].steps, analysis.compared
    sm = min(1.0, clocks.of_datasheet or 1.0) if SM_CLOCK in low else 1.0
    memory = (clocks.memory or 1.0) if MEMORY_CLOCK in low else 1.0
    full, present = (steps_at(roofline, table, analysis, *at) for at in ((1.0, 1.0), (sm, memory)))
    if full is None or present is None:
        return None
    observed_s = float(analysis.observed_s[rows].sum())
    lost = [_lost_s(observed_s, *ends) for ends in zip(_ends(full, rows), _ends(present, rows), strict=True)]
    fastest_s = _ends(present, rows)[0]
    return _Cost(lost[1], min(lost), max(lost), observed_s < (1 - NOISE_RATIO) * fastest_s)


def _ends(reach: Reachable, rows: Mask) -> tuple[float, float, float]:
    """Seconds of all rows by fast, usual and slow kernels."""
    fast_s, usual_s, slow_s = (float(c[rows].sum()) for c in (reach.fast_s, reach.reachable_s, reach.slow_s))
    return fast_s, usual_s, slow_s


def _lost_s(observed_s: float, full_s: float, present_s: float) -> float:
    """What of ``present_s`` the lower clocks are, in as much of it as was really taken."""
    return min(observed_s, present_s) * (1 - full_s / present_s) if present_s > 0 else 0.0


def _price(case: Case, cost: _Cost, judged_s: float) -> Price:
    """Nothing at the low end where the devices wait for the host: a faster one may only wait longer."""
    found = working(case)
    waits = found is not None and found.high < WAITING_RATIO
    derivation = "the window's steps at the present clocks less the same at the datasheet's, by usual kernels"
    derivation += " (none, since the devices wait for the host, to the most)" if waits else " (least to most)"
    return priced(cost.usual_s, 0.0 if waits else cost.low_s, cost.high_s, judged_s, derivation)


def _slowest(counters: WindowCounters) -> str:
    """Whose clocks these are, of several devices."""
    if counters.devices < 2 or counters.slowest_uuid is None:
        return ""
    return f": of {counters.devices} devices {counters.slowest_uuid} is the slowest, and the others run at its speed"


def _evidence(counters: WindowCounters, clocks: Clocks) -> tuple[Evidence, ...]:
    facts = (
        ("sm_clock_of_highest", clocks.sm, "1"),
        ("sm_clock_of_datasheet", clocks.of_datasheet, "1"),
        ("sm_clock", counters.sm_clock_hz, "Hz"),
        ("memory_clock_of_highest", clocks.memory, "1"),
        ("power", counters.power_w, "W"),
        ("power_of_limit", counters.power_ratio, "1"),
        ("power_of_limit_while_capped", counters.capped_power_ratio, "1"),
        ("highest_power_limit_of_limit", counters.power_limit_room_ratio, "1"),
        *((f"time_with_{reason}", share, "1") for reason, share in reasons_of(counters)),
    )
    device = (Evidence("slowest_device", counters.slowest_uuid),) if counters.slowest_uuid is not None else ()
    return (*device, *(Evidence(name, value, unit) for name, value, unit in facts if value is not None))
