"""The device waits for the host between steps."""

from __future__ import annotations

import numpy as np

from rooflens.analyzer.rules.answers import active_s, cannot_tell, cleared, firing, setting, too_few
from rooflens.analyzer.rules.answers import price as priced
from rooflens.analyzer.rules.blocked import blocked_gaps_s
from rooflens.analyzer.rules.bounds import bounds
from rooflens.analyzer.rules.by_engine import steps_missing
from rooflens.analyzer.rules.case import Case
from rooflens.analyzer.rules.counted import device_time_missing
from rooflens.analyzer.rules.host_counters import by_counters, weighed
from rooflens.analyzer.sums import filled, known_sum, steps_of, time_spent
from rooflens.findings import Code, Evidence, Finding, Price, Status
from rooflens.live_records import Window, WindowFigures
from rooflens.records import StepTable

CODE = Code.HOST_OVERHEAD
BETWEEN_RATIO = 0.25  # a healthy engine has below 0.05; at a quarter the change pays for the trouble
TYPICAL_RATIO = 0.15  # of the median step: one long pause of the host is not an overhead of every step
TUNED_RATIO = 0.05  # what a tuned synchronous engine needs between its steps
DEVICE_RATIO = 0.75  # device time below this part of the step: a quarter of it waits, as above
DEVICE_CLEAR_RATIO = 0.9  # the events leave out a little of every step
NO_WAIT_RATIO = 0.05  # of the step: then the result was there already when the engine asked
NO_WAIT_SHARE = 0.8  # of the steps
CALL_RATIO = 0.5  # of the step inside the executor's call: it may compute there, which is no host overhead


def host_overhead(case: Case) -> Finding:
    """Scheduling, input preparation, sampling or Python itself keeps the device waiting.

    Time in which all requests wait for something else (remote KV, a grammar) is not judged. An engine that schedules a
    step only after the last output: fires when the time between steps, while requests are there, is a quarter of all
    or more, and 15 % or more at the median step. An engine that schedules ahead: when
    device time is less than three quarters of the steps' time, or when in 80 % of the steps it never waited for the
    output (the result was already there) though it was not busy inside the executor's call. Without device time
    counters of the devices stand in, for the whole window: the share of the time with requests in which anything
    computed, below three quarters, idle time taken off. So they do for an engine that is only seen by its metrics page,
    or that waits inside its steps. Else cannot_tell, which ROOFLENS_DEVICE_TIME=1 cures. The processor time of the
    engine core makes it surer where its busiest thread never waits, and less sure, in words, where that idles as well;
    so do devices that work nine tenths of the time. The price is the time between steps beyond the 5 % that a tuned
    engine needs, or that in which no device works beyond a tenth.
    """
    if (few := too_few(case, CODE)) or case.window is None:
        return few or cannot_tell(case, CODE, steps_missing(case.info))
    return weighed(case, _judge(case, case.window, case.figures[-1]))


def _judge(case: Case, window: Window, figures: WindowFigures) -> Finding:
    single = bool((steps_of(window.steps) == 1).all()) and figures.between_s is not None
    if not single or not {"submit_monotonic_s", "output_monotonic_s", "observed_s"} <= window.steps.columns.keys():
        return by_counters(case, _remedy(case)) or cannot_tell(case, CODE, steps_missing(case.info))
    info = case.info
    if info is None or info.async_scheduling is None or info.concurrent_batches is None:
        settings = "whether the engine schedules ahead of the output (its settings)"
        return by_counters(case, _remedy(case)) or cannot_tell(case, CODE, settings)
    if info.async_scheduling is False and info.concurrent_batches == 1:
        found = _one_by_one(case, window, figures)
        within = by_counters(case, _remedy(case)) if found.status is Status.CLEARED and not _timed(window) else None
        return within if within is not None and within.status is Status.FIRING else found
    return _ahead(case, window, figures)


def _timed(window: Window) -> bool:
    """Whether device time is known for half of the steps."""
    table = window.steps
    on_device = (filled(table, "observed_s") > 0) & table.where("device_s")
    return bool(on_device.sum() * 2 >= len(table))


def _one_by_one(case: Case, window: Window, figures: WindowFigures) -> Finding:
    """Of an engine whose next step begins after the last output."""
    stuck = blocked_gaps_s(window.steps)
    stuck_s = float(stuck.sum())
    judged_s, between_s = active_s(figures) - stuck_s, (figures.between_s or 0.0) - stuck_s
    ratio = between_s / judged_s if judged_s else 0.0
    spent = time_spent(window.steps)
    judged = spent.timed[1:] & (stuck[1:] == 0)
    observed = np.maximum(filled(window.steps, "observed_s")[1:], 0.0)[judged]
    gaps = spent.gap_s[1:][judged]
    typical = float(np.median(gaps / np.maximum(gaps + observed, 1e-12))) if len(gaps) else 0.0
    evidence = (
        Evidence("between_steps", between_s, "s"),
        Evidence("between_steps_share", ratio, "1"),
        Evidence("between_steps_share_of_the_median_step", typical, "1"),
        *((Evidence("blocked_between_steps", stuck_s, "s"),) if stuck_s else ()),
        *_host_times(window.steps),
    )
    if ratio < BETWEEN_RATIO or typical < TYPICAL_RATIO:
        return cleared(case, CODE, f"{ratio:.0%} of the time lies between steps", *evidence)
    tuned_s = TUNED_RATIO / (1 - TUNED_RATIO) * figures.busy_s
    price = priced(
        between_s - tuned_s,
        between_s - 2 * tuned_s,
        between_s,
        judged_s,
        f"the time between steps, less the {TUNED_RATIO:.0%} that a tuned engine needs (none to twice that)",
    )
    return firing(
        case,
        CODE,
        f"{ratio:.0%} of the engine's time is spent between steps, {np.mean(gaps) * 1e3:.3g} ms before each",
        evidence,
        _remedy(case),
        confidence=0.9,
        price=price,
    )


def _ahead(case: Case, window: Window, figures: WindowFigures) -> Finding:
    """Of an engine that schedules the next step before the last output has come."""
    table = window.steps
    timed = filled(table, "observed_s") > 0
    if _timed(window):
        on_device = timed & table.where("device_s")
        device_s, observed_s = (float(table[name][on_device].sum()) for name in ("device_s", "observed_s"))
        ratio = device_s / observed_s
        evidence = (Evidence("device_time_share", ratio, "1"), *_host_times(table))
        if ratio >= DEVICE_RATIO:
            return cleared(case, CODE, f"the device works {min(ratio, 1.0):.0%} of the time", *evidence)
        price = priced(
            DEVICE_CLEAR_RATIO * observed_s - device_s,
            DEVICE_RATIO * observed_s - device_s,
            observed_s - device_s,
            active_s(figures),
            "the steps' time beyond device time, less the tenth that a tuned engine has there (none to a quarter)",
        )
        text = f"the device works {ratio:.0%} of the steps' time and waits for the host in the rest"
        return firing(case, CODE, text, evidence, _remedy(case), confidence=0.9, price=price)
    return by_counters(case, _remedy(case)) or _by_waiting(case, window, timed)


def _by_waiting(case: Case, window: Window, timed: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Finding:
    """By whether the engine ever waits for the output; the price is not known without device time."""
    table = window.steps
    known = timed & table.where("wait_s") & table.where("executor_s")
    if known.sum() * 2 < len(table):
        return cannot_tell(case, CODE, device_time_missing(case))
    observed = filled(table, "observed_s")[known]
    share = float((filled(table, "wait_s")[known] <= NO_WAIT_RATIO * observed).mean())
    call = float(filled(table, "executor_s")[known].sum() / observed.sum())
    evidence = (
        Evidence("share_of_steps_that_did_not_wait", share, "1"),
        Evidence("executor_call_share", call, "1"),
        *_host_times(table),
    )
    if share < NO_WAIT_SHARE:
        return cleared(case, CODE, f"the engine waits for the device in {1 - share:.0%} of its steps", *evidence)
    if call >= CALL_RATIO:
        return cannot_tell(case, CODE, device_time_missing(case))
    text = f"in {share:.0%} of the steps the output was already there: the host is slower than the device"
    return firing(case, CODE, text, evidence, _remedy(case), confidence=0.7, price=_price_of_floor(case))


def _price_of_floor(case: Case) -> Price | None:
    """From nothing to all above what is reachable, or above the floor; None where there is none, or none that fits."""
    figures = case.figures[-1]
    if bounds(case) is None or figures.compared_s is None or figures.floor_s is None:
        return None
    reachable_s = figures.reachable_s
    above_s = max(0.0, figures.compared_s - (figures.floor_s if reachable_s is None else reachable_s))
    what = "the floor" if reachable_s is None else "what is reachable"
    derivation = f"from nothing to all time above {what}: device time would tell (ROOFLENS_DEVICE_TIME=1)"
    return priced(above_s / 2, 0.0, above_s, active_s(figures), derivation)


def _host_times(table: StepTable) -> tuple[Evidence, ...]:
    """What is known of the host's own work, in seconds, and rows under a grammar, whose mask the host computes."""
    times = ((name, known_sum(table, f"{name}_s")) for name in ("schedule", "update", "hook"))
    rows = known_sum(table, "structured_rows")
    return (
        *(Evidence(name, seconds, "s") for name, seconds in times if seconds is not None),
        *((Evidence("rows_under_a_grammar", int(rows)),) if rows else ()),
    )


def _remedy(case: Case) -> str:
    info, steps = case.info, case.figures[-1]
    cores = "give the engine core whole CPU cores"
    if info is not None and info.async_scheduling is False:
        plain = "let scheduling overlap the forward pass"
        first = setting(info, "", plain, "--async-scheduling", "drop --disable-overlap-schedule")
    else:
        plain = "stream to clients every {} steps instead of each"
        first = setting(info, "4", plain, "--stream-interval", "--num-continuous-decode-steps")
    batch = f"; batch more (now {steps.batch_mean:.3g} a step)" if steps.batch_mean else ""
    return f"{first}; {cores}{batch}"
