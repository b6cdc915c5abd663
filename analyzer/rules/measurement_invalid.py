"""The numbers contradict each other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rooflens.analyzer.rules.answers import cannot_tell, cleared, firing
from rooflens.analyzer.rules.bounds import below_floor
from rooflens.analyzer.rules.case import Case
from rooflens.analyzer.rules.counter_faults import counter_faults
from rooflens.analyzer.sums import clock_jumps_s, filled
from rooflens.findings import Code, Evidence, Finding, Severity
from rooflens.live_records import Window

CODE = Code.MEASUREMENT_INVALID
LOST_RATIO = 0.01  # of the steps; sums and rates are then off by about as much
LEAST_JUMP_S = 1.0  # of the wall clock; less is a correction by its time service
OVER_RATIO = 1.05  # counters of one page are read one after the other, while steps end
SPAN_RATIO = 1.1  # as above, for times that were derived from a histogram
NO_STEPS = "a window with steps"
COUNTS = (
    "requests", "query_tokens", "prefill_tokens", "sampled_rows", "generated_tokens", "context_tokens",
    "drafted_tokens", "accepted_tokens", "rejected_tokens", "recomputed_tokens", "running", "waiting",
    "kv_blocks_used", "preempted",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Fault:
    """One contradiction: what it is, what not to trust because of it, the fact, whether it is only worth knowing, and
    the next step where it has one of its own."""

    text: str
    distrust: str
    fact: Evidence
    mild: bool = False
    remedy: str = ""


def measurement_invalid(case: Case) -> Finding:
    """A measurement is impossible or contradicts another; nothing that rests on it can be believed.

    Fires when the steps of the window together were faster than their floor by more than 3 %, or, of an engine whose
    steps cannot shorten each other, more than 2 % of them were; when more than 1 % of the steps were lost or damaged;
    when counts are negative or break their identities (more tokens generated or prefilled than computed, more blocks
    used than there are, more busy time than time); when the source complained (a counter that went down); when the
    counters of the devices cannot be (below). A jump of the wall clock is info: durations do not depend on it. The
    evidence says which figures not to trust; where that is the floor, no other rule decides or prices by it, where it
    is what the devices measured of themselves, none concludes anything from that. No price.
    Counters cannot be where a ratio is beyond 1.05; where every measured ratio is 0, or that of DRAM alone, while steps
    ran (or kernels by GPU-Util of 0.5 and a power of 0.4 of the limit: the one use of GPU-Util); or where they hold
    less than four fifths of the bytes that the steps must move, less what the last caches may keep.
    """
    window = case.window
    if window is None or not case.figures:
        return cannot_tell(case, CODE, NO_STEPS)
    faults = [*_floor(case, window), *_lost(case, window), *_counts(case, window), *_source(window), *_counters(case)]
    if not faults and not len(window.steps):
        return cannot_tell(case, CODE, NO_STEPS)
    if not faults:
        return cleared(case, CODE, "nothing contradicts itself")
    distrust = tuple(dict.fromkeys(fault.distrust for fault in faults))
    first, more = faults[0], len(faults) - 1
    return firing(
        case,
        CODE,
        first.text + (f" (and {more} more)" if more else ""),
        (*(fault.fact for fault in faults), Evidence("not_to_be_trusted", ", ".join(distrust))),
        _remedy(case, faults),
        confidence=0.9,
        severity=Severity.INFO if all(fault.mild for fault in faults) else None,
    )


def _floor(case: Case, window: Window) -> Iterator[_Fault]:
    """Faster than possible: the hardware, the model or the times are not what they are said to be."""
    below, analysis = below_floor(case), window.analysis
    if below is not None and analysis is not None:
        allows = f"{analysis.hardware} allows for {analysis.model}"
        text = f"{below.rows} steps were faster than {allows}"
        if below.whole:
            text = f"observed {below.ratio:.2f} times the shortest time that {allows}"
        yield _Fault(text, "floor, MBU and MFU", Evidence("observed_over_floor", below.ratio, "1"))


def _lost(case: Case, window: Window) -> Iterator[_Fault]:
    """Steps that were not read."""
    lost, seen = window.lost_steps + window.torn_steps, case.figures[-1].steps
    if lost > LOST_RATIO * (seen + lost):
        text = f"{lost} steps were overwritten or damaged before they were read, {seen} were read"
        yield _Fault(text, "sums and rates", Evidence("lost_or_torn_steps", lost))


def _counts(case: Case, window: Window) -> Iterator[_Fault]:
    """Counts that cannot be."""
    table, figures = window.steps, case.figures[-1]
    for name in COUNTS:
        known = table.where(name)
        if known.any() and float(np.min(table[name][known])) < 0:
            yield _Fault(f"{name} is negative", name, Evidence(name, float(np.min(table[name][known]))))
    computed = float(filled(table, "query_tokens").sum()) if table.has("query_tokens") else None
    edge = float(figures.batch_max or 0)  # a step's tokens may reach one counter before the page is read, one after
    for name in ("generated_tokens", "prefill_tokens"):
        value = getattr(figures, name)
        if computed is not None and value is not None and value > OVER_RATIO * computed + edge:
            text = f"{name} {value:,} of {computed:,.0f} tokens computed"
            yield _Fault(text, "token counts", Evidence(f"{name}_of_computed", value / max(computed, 1.0), "1"))
    if figures.kv_used_max is not None and figures.kv_used_max > OVER_RATIO:
        text = f"{figures.kv_used_max:.2f} times the KV pool is used"
        yield _Fault(text, "KV use", Evidence("kv_used_max", figures.kv_used_max, "1"))
    longest_s = max((kind.step_max_s or 0.0 for kind in figures.kinds.values()), default=0.0)
    if figures.span_s and figures.busy_s > SPAN_RATIO * figures.span_s + longest_s:
        text = f"{figures.busy_s:.3g} s of steps in {figures.span_s:.3g} s"
        yield _Fault(text, "step times", Evidence("busy_over_span", figures.busy_s / figures.span_s, "1"))


def _source(window: Window) -> Iterator[_Fault]:
    """What the source found wrong itself, and jumps of the wall clock."""
    for complaint in window.complaints:
        yield _Fault(complaint, "figures of this window from that source", Evidence("complaint", complaint))
    jumps = [jump_s for jump_s in clock_jumps_s(window.events) if abs(jump_s) >= LEAST_JUMP_S]
    if jumps:
        text = f"the wall clock was set by {jumps[0]:+.1f} s"
        yield _Fault(text, "times of day (durations hold)", Evidence("clock_jump", jumps[0], "s"), mild=True)


def _counters(case: Case) -> Iterator[_Fault]:
    """What the counters of the devices contradict: themselves, or the bytes of the steps."""
    for fault in counter_faults(case):
        distrust = "device counters" if not fault.mild else "times of day (durations hold)"
        yield _Fault(fault.text, distrust, fault.fact, fault.mild, fault.remedy)


def _remedy(case: Case, faults: list[_Fault]) -> str:
    names = {fault.fact.name for fault in faults}
    if "observed_over_floor" in names and case.hardware is not None and case.hardware.disturbed:
        return "the roof was measured beside others, so it is too low: in quiet, run 'rooflens calibrate'"
    if "observed_over_floor" in names:
        return "check --hardware, the number of devices, and the precision of weights and KV cache"
    if "lost_or_torn_steps" in names:
        return "give the sidecar processor time: it reads the ring more slowly than the engine writes it"
    if names == {"clock_jump"}:
        return "none needed for durations and rates; compare times of day across it with care"
    own = next((fault.remedy for fault in faults if fault.remedy and not fault.mild), "")
    return own or "look at what the source delivers: rooflens doctor"
