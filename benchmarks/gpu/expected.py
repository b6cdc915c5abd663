"""The finding that a loop was made for against what the rules said, and whether the calibration was good enough."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rooflens.analyzer.rules.host_overhead import BETWEEN_RATIO
from rooflens.analyzer.rules.memory_bound_waste import MARGIN_RATIO
from rooflens.findings import Code, Status

AS_EXPECTED, MISSED, CANNOT_TELL = "as expected", "NOT as expected", "cannot tell"
# Of the reads around the weights: beyond, the slow end of what is reachable is over twice its middle, and no bound.
MOST_SPREAD_RATIO = 1.0


def read_spread(reads: Sequence[tuple[int, Any]], read_bytes: int) -> float | None:
    """The wider spread of the two measured sizes around ``read_bytes``; None without reads."""
    below = [rate for size, rate in reads if size <= read_bytes][-1:]
    above = [rate for size, rate in reads if size > read_bytes][:1]
    return max((rate.spread_ratio for rate in (*below, *above)), default=None)


def doubted(said: Mapping[str, Any], code: str, spread_ratio: float | None) -> dict[str, Any]:
    """A rule's answer; that of one that judges by the calibration is not taken for clear where this spreads too far."""
    wide = spread_ratio is not None and spread_ratio > MOST_SPREAD_RATIO
    if code != Code.MEMORY_BOUND_WASTE or said["status"] != Status.CLEARED or not wide:
        return dict(said)
    why = f"the calibration's reads spread by {spread_ratio:.0%}, so that the bound is none; the rule said cleared"
    return {**said, "status": str(Status.CANNOT_TELL), "summary": why, "missing": [why]}


def judged_by(code: str, evidence: Mapping[str, Any]) -> str | None:
    """What the rule compared with what, in words; None where it got not so far."""
    if code == Code.MEMORY_BOUND_WASTE and "reachable_slow" in evidence:
        return (f"steps took {evidence['observed']:.3g} s in all, allowed are {MARGIN_RATIO} x "
                f"{evidence['reachable_slow']:.3g} s of slow kernels; floor {evidence['floor']:.3g} s")  # fmt: skip
    if code == Code.HOST_OVERHEAD and "between_steps_share" in evidence:
        return f"it fires from {BETWEEN_RATIO:.0%} of the time on"
    return None


def outcome(loop: Mapping[str, Any]) -> dict[str, Any] | None:
    """Expected and got of a loop that is made for a finding, the outcome, and why it cannot be told; else None."""
    code = loop["made_for"]
    if code is None:
        return None
    said = loop["verdicts"][code]
    found = {"code": code, "expected": str(Status.FIRING), "got": said["status"], "why": None}
    if said["status"] == Status.FIRING:
        return found | {"outcome": AS_EXPECTED}
    why = _cannot(loop, code, said)
    return found | {"outcome": CANNOT_TELL if why else MISSED, "why": why}


def _cannot(loop: Mapping[str, Any], code: str, said: Mapping[str, Any]) -> str | None:
    """Why a finding that did not come proves nothing; None where it refutes the rule or the benchmark."""
    if code == Code.MEMORY_BOUND_WASTE:
        if loop["device_p50_s"] is None and loop["counters"] is None:
            return "there is neither device time nor a counter here (a CPU has none), without which it never fires"
        evidence = said["evidence"]
        usual_s, slow_s = evidence.get("reachable"), evidence.get("reachable_slow")
        if usual_s is not None and MARGIN_RATIO * slow_s >= loop["passes"] * usual_s:
            return (f"{loop['passes']} passes of usual kernels take {loop['passes'] * usual_s:.3g} s, and "
                    f"{MARGIN_RATIO * slow_s:.3g} s are allowed: kernels spread too far to tell")  # fmt: skip
    return "; ".join(said["missing"]) or None if said["status"] == Status.CANNOT_TELL else None


def missed(loops: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a finding that a loop was made for did not come though it could have been told."""
    return any(loop["outcome"] is not None and loop["outcome"]["outcome"] == MISSED for loop in loops)
