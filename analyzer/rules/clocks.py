"""The clocks of an engine's devices while steps ran, and what the steps would take at others."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from rooflens.analyzer.efficiency import efficiency_of
from rooflens.analyzer.reachable_steps import Reachable, ReachableSteps
from rooflens.analyzer.roofline import Roofline
from rooflens.analyzer.rules.counter_faults import MOST_RATIO
from rooflens.device_records import WindowCounters
from rooflens.model_records import HardwareSpec, StepAnalysis
from rooflens.records import StepTable

# A GeForce with power to spare stands at 0.91 of the highest clock that its driver names (2820 of 3105 MHz).
SM_RATIO = 0.9
# Computing, a GeForce lowers its memory clock by 2 to 4 % on purpose (its state P2): 10,251 of 10,501 MHz.
MEMORY_RATIO = 0.95
SM_CLOCK, MEMORY_CLOCK = "the SM clock", "the memory clock"


@dataclass(frozen=True, slots=True)
class Clocks:
    """Clocks while the devices worked as shares of the highest, None for not known, or for a share that cannot be.

    ``of_datasheet`` is the SM clock over the one at which the datasheet's peak is printed, which what is reachable is
    said of; it may exceed 1.
    """

    sm: float | None
    memory: float | None
    of_datasheet: float | None


def clocks_of(counters: WindowCounters, hardware: HardwareSpec | None) -> Clocks:
    """The clocks of one window; an SM clock without a known highest is held against that of the hardware's file."""
    hertz = counters.sm_clock_hz
    printed_hz = hardware.datasheet_clock_hz if hardware is not None else None
    sm = counters.sm_clock_ratio
    if sm is None and hertz is not None and hardware is not None and printed_hz:
        sm = hertz / (printed_hz * highest_over_datasheet(hardware))
    sm, memory = _possible(sm), _possible(counters.memory_clock_ratio)
    if sm is None or hardware is None:
        return Clocks(sm, memory, None)
    if hertz is not None and printed_hz:
        return Clocks(sm, memory, hertz / printed_hz)
    return Clocks(sm, memory, sm * highest_over_datasheet(hardware))


def low_clocks(clocks: Clocks) -> tuple[str, ...]:
    """The clocks that are clearly below the highest."""
    limits = ((SM_CLOCK, clocks.sm, SM_RATIO), (MEMORY_CLOCK, clocks.memory, MEMORY_RATIO))
    return tuple(name for name, ratio, limit in limits if ratio is not None and ratio < limit)


def highest_over_datasheet(hardware: HardwareSpec) -> float:
    """The highest clock over the one that the printed peak holds at: what the ceiling exceeds the peak by.

    Of the formats the least, since a ceiling may also be higher by an announced rate or a narrower accumulator.
    """
    ceilings, peaks = hardware.ceiling_flops_per_s, hardware.peak_flops_per_s
    return min((ceilings[name] / peaks[name] for name in peaks if name in ceilings), default=1.0)


def steps_at(
    roofline: Roofline, table: StepTable, analysis: StepAnalysis, sm_of_datasheet: float = 1.0, memory: float = 1.0
) -> Reachable | None:
    """What the steps of ``table`` can take at other clocks, by published kernels; None where none are known.

    ``sm_of_datasheet`` is as terms_of takes its clock_ratio, ``memory`` of the highest memory clock, which the
    datasheet's bandwidth is of. A calibration is left aside: the clocks while it was measured are in it already.
    """
    hardware = roofline.hardware
    efficiency = efficiency_of(hardware)
    if efficiency is None:
        return None
    slower = roofline
    if memory != 1.0:
        rate = hardware.memory_bandwidth_bytes_per_s * memory
        slower = roofline.on(replace(hardware, memory_bandwidth_bytes_per_s=rate))
    return ReachableSteps(slower, efficiency, sm_of_datasheet, roofline.eager).of(table, analysis)


def of_low(clocks: Clocks, low: tuple[str, ...]) -> tuple[float, float]:
    """What steps_at takes for the clocks named in ``low``, the others at the highest; none above the datasheet's."""
    sm = min(1.0, clocks.of_datasheet or 1.0) if SM_CLOCK in low else 1.0
    return sm, (clocks.memory or 1.0) if MEMORY_CLOCK in low else 1.0


def at_low_clocks(
    reach: Reachable, clocks: Clocks, roofline: Roofline, table: StepTable, analysis: StepAnalysis
) -> Reachable:
    """``reach``, or what published kernels take at clocks that are clearly low where that is longer.

    So one that was calibrated at such a clock is not lengthened by it once more.
    """
    low = low_clocks(clocks)
    present = steps_at(roofline, table, analysis, *of_low(clocks, low)) if low else None
    if present is None:
        return reach
    return Reachable(
        fast_s=np.maximum(reach.fast_s, present.fast_s),
        reachable_s=np.maximum(reach.reachable_s, present.reachable_s),
        slow_s=np.maximum(reach.slow_s, present.slow_s),
    )


def _possible(ratio: float | None) -> float | None:
    return min(ratio, 1.0) if ratio is not None and 0 < ratio <= MOST_RATIO else None
