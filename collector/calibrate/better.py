"""Whether a calibration that is kept says more than a new one of the same device, which would take its place."""

from __future__ import annotations

from statistics import median

from rooflens.calibration_records import Calibration, Measured
from rooflens.collector.calibrate.store import is_stale
from rooflens.model_records import DISTURBED

LONGER = 2.0  # times as long: less is no other measurement


def why_better(kept: Calibration, new: Calibration, now_unix_s: float) -> str | None:
    """In which way ``kept`` is clearly the better one, in words; None where ``new`` should take its place.

    It must be of the same device and releases and hold still. Then it is better where others used the machine only
    while the new one was measured, or where it was measured at least twice as long and its runs lie nearer together.
    """
    if kept.identity != new.identity or dict(kept.versions) != dict(new.versions):
        return None
    if is_stale(kept, now_unix_s, new.versions) is not None or (_disturbed(kept) and not _disturbed(new)):
        return None
    if _disturbed(new) and not _disturbed(kept):
        return "others used the machine now and not then"
    if kept.took_s >= LONGER * new.took_s and _spread(kept) < _spread(new):
        return f"it took {kept.took_s:.0f} s, not {new.took_s:.0f}, and its runs lie nearer together"
    return None


def _disturbed(calibration: Calibration) -> bool:
    return any(flag.startswith(DISTURBED) for flag in calibration.flags)


def _spread(calibration: Calibration) -> float:
    """The middle one of all spreads, as a ratio."""
    curves = (calibration.reads, calibration.copies, calibration.attention)
    values: list[Measured] = [value for curve in curves for _, value in curve]
    values += calibration.products.values()
    values += [value for value in (calibration.launch_s, calibration.graph_launch_s) if value is not None]
    return median(value.spread_ratio for value in values) if values else float("inf")
