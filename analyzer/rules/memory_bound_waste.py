"""Memory-bound steps are slower than the memory allows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rooflens.analyzer.reachable_steps import Reachable, reachable
from rooflens.analyzer.roofline import is_eager
from rooflens.analyzer.rules.answers import (
    LEAST_STEPS,
    active_s,
    cannot_tell,
    cleared,
    firing,
    setting,
    too_few,
)
from rooflens.analyzer.rules.answers import price as priced
from rooflens.analyzer.rules.bounds import bounds, no_roofline
from rooflens.analyzer.rules.case import Case
from rooflens.analyzer.rules.clocks import Clocks, at_low_clocks, clocks_of, low_clocks
from rooflens.analyzer.rules.counted import (
    WAITING_RATIO,
    WORKING_RATIO,
    counters_of,
    device_time_missing,
    doubt_of_neighbours,
    working,
)
from rooflens.analyzer.rules.mixed_rows import widened
from rooflens.analyzer.rules.waste_bytes import moved_bytes
from rooflens.analyzer.sums import Mask, filled, steps_of
from rooflens.findings import Code, Evidence, Finding
from rooflens.model_records import Bound, StepAnalysis

CODE = Code.MEMORY_BOUND_WASTE
MARGIN_RATIO = 1.05  # beyond the slow end: one kernel misses the fits by 5 to 10 % in the median, a sum of many by less
MEMORY_SHARE = 0.5  # of the compared floor that memory must bind: below it another resource is the story
LEAST_WASTE_RATIO = 0.05  # of the engine's time that the steps beyond must cost, or nobody gains by changing it


def memory_bound_waste(case: Case) -> Finding:
    """The steps are limited by reading weights and KV cache, yet take clearly longer than these bytes need.

    Judged on the memory-bound steps of the window against what published kernel tables say that kernels reach on such
    a device, or on its nearest kin: for every operator a latency and a fraction of the bandwidth (on an H100 3.7 us
    and 88 % for bf16 weights, 14 us and 86 % for KV), 2.5 us for a launch, and all-reduces as they were measured.
    Launches are those of captured graphs whether the engine has them or not: to run without is part of the waste.
    Within the spread of these kernels: cleared. Beyond its slow end by more than 5 %: fires when device time says that
    the excess is spent on the device, and is host_overhead's when device time is short. Where no step has device time
    counters of the devices stand in for the window: when something computed in nine tenths of the time with requests,
    so much of the steps is device time at least. Without either it cannot be told. Counters of DRAM beside it tell
    whether the devices move more bytes than the model needs (with the experts that routing is expected to read), or the
    same ones slowly. Where a clock is clearly low, what kernels reach is that at this clock: the rest is throttling's.
    On hardware of which nobody knows what kernels reach, it cannot be told. The price is the device
    time beyond what usual kernels take, from the slow to the fast end of their spread.
    """
    if few := too_few(case, CODE):
        return few
    found, table, figures = bounds(case), case.windows[-1].steps, case.figures[-1]
    if found is None:
        return cannot_tell(case, CODE, *no_roofline(case))
    roofline, analysis = found
    rows = analysis.compared & (analysis.bound == Bound.MEMORY)
    bound_s = sum(figures.bound_s.values())
    if not bound_s or figures.bound_s.get("memory", 0.0) < MEMORY_SHARE * bound_s or _count(case, rows) < LEAST_STEPS:
        return cleared(case, CODE, "the steps are not bound by memory")
    reach = reachable(roofline, table, analysis)
    if reach is None:
        return cannot_tell(case, CODE, f"what is reachable on {roofline.hardware.id}")
    clocks = _low_clocks(case)
    if clocks is not None:
        reach = at_low_clocks(reach, clocks, roofline, table, analysis)
    reach = widened(reach, table, analysis)
    observed_s, slow_s = float(analysis.observed_s[rows].sum()), float(reach.slow_s[rows].sum())
    evidence = _evidence(analysis, reach, rows)
    if observed_s <= MARGIN_RATIO * slow_s:
        at = " at these clocks" if clocks is not None else ""
        return cleared(case, CODE, f"the steps take no longer than these bytes may take{at}", *evidence)
    timed = rows & table.where("device_s")
    if timed.sum() * 2 >= rows.sum() and _count(case, timed) >= LEAST_STEPS:
        device_s = float(filled(table, "device_s")[timed].sum())
        return _judge(case, reach, timed, _OnDevice(device_s, device_s, device_s, 0.8), evidence)
    spent = _by_counters(case, observed_s)
    if spent is None or (spent.low_s <= MARGIN_RATIO * slow_s < spent.high_s):
        return cannot_tell(case, CODE, device_time_missing(case))
    return _judge(case, reach, rows, spent, evidence)


@dataclass(frozen=True, slots=True)
class _OnDevice:
    """Seconds that the judged steps spend on the device, with hard bounds, and how sure a finding by them is."""

    seconds: float
    low_s: float
    high_s: float
    confidence: float


def _low_clocks(case: Case) -> Clocks | None:
    """Those of the newest window where one is clearly low; None else, or where they are not known."""
    counters = counters_of(case)
    clocks = clocks_of(counters, case.hardware) if counters is not None else None
    return clocks if clocks is not None and low_clocks(clocks) else None


def _by_counters(case: Case, observed_s: float) -> _OnDevice | None:
    """By the share of time in which the devices worked: clearly most of it, or little; None between or not known.

    Devices that wait inside kernels can only be shown not to have worked.
    """
    found = working(case)
    if found is None or (found.proven < WORKING_RATIO and found.high >= WAITING_RATIO):
        return None
    low_s = max(0.0, observed_s - found.waiting_s)
    high_s = observed_s if found.proven >= WORKING_RATIO else min(observed_s, found.high * active_s(case.figures[-1]))
    return _OnDevice((low_s + high_s) / 2, low_s, max(low_s, high_s), 0.7 - doubt_of_neighbours(case))


def _judge(case: Case, reach: Reachable, rows: Mask, spent: _OnDevice, evidence: tuple[Evidence, ...]) -> Finding:
    """By the device time of ``rows`` against what kernels take for their bytes."""
    figures = case.figures[-1]
    slow_s, usual_s, fast_s = (float(c[rows].sum()) for c in (reach.slow_s, reach.reachable_s, reach.fast_s))
    evidence = (*evidence, Evidence("device_time", spent.seconds, "s"))
    waste_s = spent.seconds - usual_s
    if spent.low_s <= MARGIN_RATIO * slow_s or waste_s < LEAST_WASTE_RATIO * active_s(figures):
        return cleared(case, CODE, "the excess is not spent on the device", *evidence)
    price = priced(
        waste_s,
        spent.low_s - slow_s,
        spent.high_s - fast_s,
        active_s(figures),
        "device time of the memory-bound steps beyond what usual kernels take for their bytes (slow to fast ones)",
    )
    moved = moved_bytes(case, rows)
    at = " at these clocks" if _low_clocks(case) is not None else ""
    text = (
        f"memory-bound steps take {spent.seconds / slow_s:.1f} times what even a slow kernel needs for their bytes{at}"
    )
    remedy = "; ".join(each for each in (moved.remedy, _remedy(case, rows)) if each)
    return firing(case, CODE, text + moved.text, (*evidence, *moved.evidence), remedy, spent.confidence, price)


def _evidence(analysis: StepAnalysis, reach: Reachable, rows: Mask) -> tuple[Evidence, ...]:
    columns = {
        "observed": analysis.observed_s,
        "floor": analysis.floor_s,
        "reachable_fast": reach.fast_s,
        "reachable": reach.reachable_s,
        "reachable_slow": reach.slow_s,
    }
    share = float(analysis.memory_s[rows].sum()) / float(analysis.observed_s[rows].sum())
    return (
        *(Evidence(name, float(column[rows].sum()), "s") for name, column in columns.items()),
        Evidence("share_of_the_memory_bandwidth", share, "1"),
    )


def _count(case: Case, rows: Mask) -> float:
    """Engine steps that the rows stand for."""
    return float(steps_of(case.windows[-1].steps)[rows].sum())


def _remedy(case: Case, rows: Mask) -> str:
    """Graphs up to the batch that runs, where the engine does not have them; else the attention back end."""
    info, table = case.info, case.windows[-1].steps
    batch = int(np.max(filled(table, "requests")[rows] / steps_of(table)[rows]))
    too_small = info is not None and info.graph_sizes and max(info.graph_sizes) < batch
    if info is not None and is_eager(info):
        return setting(info, "", "replay captured graphs", "drop --enforce-eager", "drop --disable-cuda-graph")
    if too_small:
        size = str(batch)
        vllm = "--compilation-config with cudagraph_capture_sizes up to"
        return setting(info, size, "capture graphs up to a batch of {}", vllm, "--cuda-graph-max-bs")
    used = f" (now {info.attention_backend})" if info is not None and info.attention_backend else ""
    plain = "another attention back end{}; look for a neighbour on the device and at its memory clock"
    return setting(info, used, plain, "compare another --attention-backend", "compare another --attention-backend")
