"""What contradicts itself in the counters of a window; the only place where GPU-Util is looked at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rooflens.analyzer.rules.case import Case
from rooflens.analyzer.sums import steps_of
from rooflens.device_records import CounterSource, WindowCounters
from rooflens.findings import Evidence
from rooflens.live_records import WindowFigures

MOST_RATIO = 1.05  # of a ratio: a driver divides by a clock and a width that it reads a moment later
LEAST_BUSY_RATIO = 0.01  # of the window with steps: below it a share may be rounded to 0
KERNEL_RATIO = 0.5  # GPU-Util of a device that runs something, whatever it is
POWER_RATIO = 0.4  # of the limit: idle devices draw a tenth to a quarter
FEWER_RATIO = 0.8  # of the bytes that must be moved: drivers state no error, and a fifth is no rounding
WINDOWS_OF_A_PAGE = 4  # a dcgm-exporter's page is renewed every 30 s, and tells of the 30 s before
PROFILED = ("dram_ratio", "tensor_ratio", "sm_ratio", "sm_occupancy_ratio", "graphics_ratio")
CLOCKS = ("sm_clock_ratio", "memory_clock_ratio")
OF_CLOCKS = ("clock", "suspend")  # words of a complaint that is of the host's clocks: durations hold


@dataclass(frozen=True, slots=True)
class CounterFault:
    """One contradiction: what it is, the fact, the next step, whether ratios that the devices measured are doubted
    because of it, and whether it is only worth knowing."""

    text: str
    fact: Evidence
    remedy: str
    doubted: bool = False
    mild: bool = False


def counter_faults(case: Case) -> tuple[CounterFault, ...]:
    """All that contradicts itself in the counters of the newest window; nothing without any."""
    window = case.window
    if window is None or window.counters is None:
        return ()
    counters = window.counters
    still = tuple(_standing_still(case, counters))
    return (*_beyond(counters), *still, *(() if still else _fewer_bytes(case, counters)), *_complaints(counters))


def judged_figures(case: Case) -> tuple[WindowFigures, ...]:
    """Figures of all windows that the counters of the newest one may be of; empty where not so many were seen yet."""
    window = case.window
    paged = window is not None and window.counters is not None and window.counters.source is CounterSource.DCGM
    count = WINDOWS_OF_A_PAGE if paged else 1
    return case.figures[-count:] if len(case.figures) >= count else ()


def profiling_doubted(faults: Sequence[CounterFault]) -> bool:
    """Whether nothing may be concluded from ratios that the devices measured."""
    return any(fault.doubted for fault in faults)


def _beyond(counters: WindowCounters) -> Iterator[CounterFault]:
    """Shares of a whole that are more than it, or less than nothing."""
    for name in (*PROFILED, *CLOCKS, "kernel_ratio"):
        value = getattr(counters, name)
        if value is not None and not 0 <= value <= MOST_RATIO:
            text = f"the devices' {name} is {value:.2f}: it is a share"
            yield CounterFault(text, Evidence(name, value, "1"), _remedy(counters), name in PROFILED)


def _standing_still(case: Case, counters: WindowCounters) -> Iterator[CounterFault]:
    """Measured ratios of 0 while the devices worked: known of DCGM after an Xid, or while another profiler runs."""
    known = [value for name in PROFILED if (value := getattr(counters, name)) is not None]
    judged, busy_ratio = judged_figures(case), 1 - min(counters.covered_ratio, 1.0) + LEAST_BUSY_RATIO
    stepped = bool(judged) and all(figures.busy_s > busy_ratio * figures.span_s for figures in judged)
    ran = (counters.kernel_ratio or 0.0) > KERNEL_RATIO and (counters.power_ratio or 0.0) > POWER_RATIO
    if known and not any(known) and (stepped or ran):
        seen = "kernels ran and power was drawn" if ran else "steps ran"
        text = f"every measured ratio of the devices is 0 while {seen}: the counters stand still, the devices do not"
        fact = Evidence("kernel_ratio", counters.kernel_ratio, "1") if ran and counters.kernel_ratio else None
        yield CounterFault(text, fact or Evidence("measured_ratios", 0.0, "1"), _remedy(counters), doubted=True)
    elif counters.dram_ratio == 0 and stepped:
        text = "the devices' dram_ratio is 0 while steps ran: the counter stands still, memory does not"
        yield CounterFault(text, Evidence("dram_ratio", 0.0, "1"), _remedy(counters), doubted=True)


def _fewer_bytes(case: Case, counters: WindowCounters) -> Iterator[CounterFault]:
    """Less was counted than the steps must move, even if the last cache kept all that it can hold."""
    counted, moved = counters.counter_bytes_high, counters.model_bytes_low
    if counted is None or not moved or counters.devices < counters.devices_expected:
        return
    needed = moved * (1 - cached_share(case))
    if counted < FEWER_RATIO * needed:
        text = f"the devices counted {counted / needed:.2f} times the bytes that the steps must move"
        fact = Evidence("counter_over_needed_bytes", counted / needed, "1")
        yield CounterFault(text, fact, _remedy(counters), doubted=True)


def cached_share(case: Case) -> float:
    """The most of the steps' bytes that the last caches of the devices may keep from step to step, 0 to 1.

    The floor leaves out the same: as much as a cache holds, of every device in every step.
    """
    window, roofline = case.window, case.roofline
    analysis = window.analysis if window is not None else None
    if window is None or analysis is None or roofline is None or not roofline.hardware.cache_bytes:
        return 0.0
    rows = analysis.modelled
    moved = sum(float(column[rows].sum()) for column in analysis.group_bytes.values())
    kept = float(steps_of(window.steps)[rows].sum()) * analysis.devices * roofline.hardware.cache_bytes
    return min(1.0, kept / moved) if moved else 0.0


def _complaints(counters: WindowCounters) -> Iterator[CounterFault]:
    for complaint in counters.complaints:
        mild = any(word in complaint for word in OF_CLOCKS)
        yield CounterFault(complaint, Evidence("complaint", complaint), _remedy(counters), mild=mild)


def _remedy(counters: WindowCounters) -> str:
    """Where to look, by the source."""
    first = "look for an Xid in the kernel log, and whether these are the engine's devices (docs/counters.md)"
    if counters.source is CounterSource.DCGM:
        return f"restart the DCGM host engine and its exporter, end other profilers; {first}"
    return first
