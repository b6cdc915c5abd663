"""The device runs below its clock, and the steps take longer by it."""

from __future__ import annotations

from rooflens.analyzer.rules.answers import active_s, cannot_tell, cleared, firing, too_few
from rooflens.analyzer.rules.answers import price as priced
from rooflens.analyzer.rules.bounds import bounds, no_roofline
from rooflens.analyzer.rules.case import Case
from rooflens.analyzer.rules.clocks import MEMORY_CLOCK, SM_CLOCK, Clocks, clocks_of, low_clocks
from rooflens.analyzer.rules.counted import NO_COUNTERS, SHARED, WAITING_RATIO, counters_of, working
from rooflens.analyzer.rules.throttle_causes import cause_of, flags_text, reasons_of
from rooflens.analyzer.rules.throttle_cost import ThrottleCost, throttle_cost
from rooflens.device_records import WindowCounters
from rooflens.findings import Code, Evidence, Finding, Price, Severity

CODE = Code.THROTTLING
LEAST_COST_RATIO = 0.05  # of the engine's time: less is within what kernels differ by, and nobody gains by changing it
DOUBT = 0.1  # confidence that a device that is missing costs, or one that others compute on


def throttling(case: Case) -> Finding:
    """Clocks are held down, and the steps take longer by it: a flag alone is no finding.

    Looked at are the SM clock where it is below 0.9 of the highest, and the memory clock below 0.95. The steps of the
    window are put through the model twice, at these clocks and at the datasheet's: fires where the difference, as far
    as the steps are that slow, is 5 % of the engine's time or more. How long a step took is its device time where at
    least half have one: what waits for the host is no clock's. Memory-bound steps hardly take longer at a lower SM
    clock, so that a power cap over them clears, whatever its flag says. So do steps as fast as published ones, as
    nobody recorded at which clocks those were made; up to what slow kernels take it is info. The reason that is in
    force for most of the time names the cause and what to do; a power cap with a draw below 0.75 of the limit while it
    was in force is one of the platform and not of the card. Of several devices the slowest counts, at whose speed the
    others run, with its own reasons and power; the evidence names it. Clocks count while steps were under way: an idle
    device lowers its own. cannot_tell where the clocks, or what kernels reach, are not known; a device that tells no
    memory clock is judged by its SM clock while it tells of reasons and none is in force. The price is the
    difference as far as it is seen; at the low end beyond what slow kernels take, at the high end all that the clocks
    may cost.
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
        if _matters(unknown, counters):
            return cannot_tell(case, CODE, f"{' and '.join(unknown)} beside the highest: {NO_COUNTERS}")
        text = "the SM clock is at its highest and nothing holds the device down; it tells no memory clock"
        if not unknown:
            text = f"the clocks are at their highest{flags_text(counters)}"
        return cleared(case, CODE, text, *_evidence(counters, clocks))
    return _judge(case, counters, clocks, low, unknown)


def _judge(case: Case, counters: WindowCounters, clocks: Clocks, low: tuple[str, ...], unknown: list[str]) -> Finding:
    """By what the low clocks cost the steps."""
    found = bounds(case)
    if found is None:
        return cannot_tell(case, CODE, *no_roofline(case))
    cost = throttle_cost(case, clocks, low)
    if cost is None:
        return cannot_tell(case, CODE, f"what kernels reach on {found[0].hardware.id} at another clock")
    judged_s = active_s(case.figures[-1])
    seen = " and ".join(f"{name} at {_ratio(clocks, name):.0%} of its highest" for name in low)
    possible, shown = (each_s / judged_s if judged_s else 0.0 for each_s in (cost.possible_s, cost.shown_s))
    shares = (Evidence("cost_share", shown, "1"), Evidence("cost_share_by_clocks_alone", possible, "1"))
    evidence = (*_evidence(counters, clocks), *shares)
    if cost.contradicted:
        text = f"the steps took less than the device can take with {seen}: that was not their clock"
        return cleared(case, CODE, text, *evidence)
    if shown < LEAST_COST_RATIO:
        if _matters(unknown, counters):
            return cannot_tell(case, CODE, f"{' and '.join(unknown)} beside the highest: {NO_COUNTERS}")
        text = f"{seen} costs these steps {shown:.1%} of their time"
        if possible >= LEAST_COST_RATIO:
            text = f"{seen}, and the steps are as fast as published ones, whose clocks nobody recorded"
        return cleared(case, CODE, text + flags_text(counters), *evidence)
    return _firing(case, counters, clocks, low, cost, evidence)


def _matters(unknown: list[str], counters: WindowCounters) -> bool:
    """Whether a clock that is not known may cost: not that of a memory without one where no reason is in force."""
    return bool(unknown) and (unknown != [MEMORY_CLOCK] or not counters.throttled_ratio or bool(reasons_of(counters)))


def _firing(
    case: Case,
    counters: WindowCounters,
    clocks: Clocks,
    low: tuple[str, ...],
    cost: ThrottleCost,
    evidence: tuple[Evidence, ...],
) -> Finding:
    """The clocks that cost, why, and how much; no warning where kernels vary by as much, or nobody can help it."""
    judged_s = active_s(case.figures[-1])
    dear = low if len(low) == 1 else tuple(name for name in low if _alone(case, clocks, name) >= LEAST_COST_RATIO)
    names = dear or low
    cause = cause_of(counters, memory_alone=names == (MEMORY_CLOCK,))
    words = " and ".join(f"{name} is at {_ratio(clocks, name):.0%} of its highest" for name in names)
    takes = f"takes {cost.shown_s / judged_s:.0%} of the engine's time"
    if not cost.clear:
        takes = f"may take {cost.shown_s / judged_s:.0%} of the engine's time, or kernels that are slower than most do"
    beside = _slowest(counters, names) + (f"; {SHARED} as well" if counters.shared else "")
    doubts = (counters.devices < counters.devices_expected) + bool(counters.shared) + (not cost.clear)
    return firing(
        case,
        CODE,
        f"{words} ({cause.text}), which {takes}{beside}",
        (*evidence, Evidence("cause", cause.text)),
        cause.remedy,
        cause.confidence - DOUBT * doubts,
        _price(case, cost, judged_s),
        Severity.INFO if cause.mild or not cost.clear else None,
    )


def _ratio(clocks: Clocks, name: str) -> float:
    return (clocks.sm if name == SM_CLOCK else clocks.memory) or 0.0


def _alone(case: Case, clocks: Clocks, name: str) -> float:
    """The share of the engine's time that one of the low clocks costs by itself."""
    cost, judged_s = throttle_cost(case, clocks, (name,)), active_s(case.figures[-1])
    return cost.shown_s / judged_s if cost is not None and judged_s else 0.0


def _price(case: Case, cost: ThrottleCost, judged_s: float) -> Price:
    """Nothing at the low end where the devices wait for the host: a faster one may only wait longer."""
    found = working(case)
    waits = found is not None and found.high < WAITING_RATIO
    ends = "none, since the devices wait for the host, to all" if waits else "beyond slow kernels, to all"
    derivation = "the steps' time beyond usual kernels at the datasheet's clocks, as far as the clocks explain it"
    return priced(cost.shown_s, 0.0 if waits else cost.low_s, cost.high_s, judged_s, f"{derivation} ({ends})")


def _slowest(counters: WindowCounters, names: tuple[str, ...]) -> str:
    """Whose clocks these are, of several devices; which of them has the lowest memory clock is not told."""
    if counters.devices < 2:
        return ""
    if counters.slowest_uuid is None or SM_CLOCK not in names:
        return f": the lowest of {counters.devices} devices, and the others run at its speed"
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
