"""What counters of DRAM say of memory-bound steps that are slow: more bytes than needed, or the same ones slowly."""

from __future__ import annotations

from dataclasses import dataclass

from rooflens.analyzer.rules.case import Case
from rooflens.analyzer.rules.clocks import MEMORY_RATIO
from rooflens.analyzer.rules.counted import profiled
from rooflens.analyzer.sums import Mask
from rooflens.findings import Evidence

MORE_RATIO = 1.2  # at the low end: activations, padding and page tables are a few percent of a decode step
LESS_RATIO = 1.2  # at the high end: no more than the model needs
LOW_DRAM_RATIO = 0.6  # of the bandwidth: published kernels reach 0.8 and more of it on large reads
MEMORY_ONLY = 0.9  # of the compared floor: activations of prompts are moved too, and the model's bytes hold none


@dataclass(frozen=True, slots=True)
class Moved:
    """The words for the summary, a next step that goes before the usual one, and the facts; empty for nothing said."""

    text: str = ""
    remedy: str = ""
    evidence: tuple[Evidence, ...] = ()


def moved_bytes(case: Case, rows: Mask) -> Moved:
    """What the counters of the window say of its memory-bound ``rows``; nothing without counters that can be trusted.

    The model's bytes are held against what it is expected to read: of a mixture of experts those that uniform routing
    touches, and not the fewest possible. Below 0.95 of the highest memory clock nothing is said: the counter tells a
    share of a bandwidth, and not whether of the one at this clock.
    """
    counters, window = profiled(case), case.window
    if counters is None or window is None or window.analysis is None or counters.ratio is None:
        return Moved()
    floor_s, expected_s = (float(c[rows].sum()) for c in (window.analysis.floor_s, window.analysis.expected_s))
    more = expected_s / floor_s if floor_s else 1.0
    ends = (counters.ratio, counters.ratio_low, counters.ratio_high)
    ratio, low, high = (counters.ratio if each is None else each for each in ends)
    ratio, low, high = (each / more for each in (ratio, low, high))
    facts = [("counter_over_model_bytes", ratio), ("counter_over_model_bytes_low", low),
             ("counter_over_model_bytes_high", high), ("dram_ratio", counters.dram_ratio)]  # fmt: skip
    evidence = tuple(Evidence(name, value, "1") for name, value in facts if value is not None)
    bound_s, clock = case.figures[-1].bound_s, counters.memory_clock_ratio
    if (clock is not None and clock < MEMORY_RATIO) or bound_s.get("memory", 0.0) < MEMORY_ONLY * sum(bound_s.values()):
        return Moved(evidence=evidence)
    if low > MORE_RATIO:
        remedy = "find what moves more than the model needs: padded batches, kernels that are not fused, prompts "
        remedy += "computed again, experts beyond the chosen ones, a shared prefix read once for each sequence (the "
        remedy += "model counts it once), another process on the device"
        return Moved(f", and {ratio:.1f} times the bytes that they need are moved", remedy, evidence)
    if high < LESS_RATIO and counters.dram_ratio is not None and counters.dram_ratio < LOW_DRAM_RATIO:
        text = f", though no more bytes are moved than they need, at {counters.dram_ratio:.0%} of the bandwidth"
        return Moved(f"{text}: kernels do not reach it", "", evidence)
    return Moved(evidence=evidence)
