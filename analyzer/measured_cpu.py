"""What a calibration of a CPU must be, and hold, to be this machine's roof."""

from __future__ import annotations

from rooflens.calibration_records import Calibration
from rooflens.records import RooflensError

CPU = "cpu"
READ_FLOP_PER_BYTE = 2 / 4  # a matrix of fp32 times a vector: a product and a sum for each element


def makes_roof(calibration: Calibration) -> bool:
    """Whether a calibration of a CPU is a roof of it: through NumPy, whose reads leave in the caches what stays there.

    torch's are measured as on a device, past the caches, and say only what its kernels reach.
    """
    return "torch" not in calibration.versions or "numpy" in calibration.versions


def check_roof(calibration: Calibration) -> None:
    """RooflensError for the calibration of another device, without reads or products, or that makes_roof denies."""
    if calibration.identity.kind != CPU:
        raise RooflensError(f"this calibration is of {calibration.identity.name}, not of a CPU: give --hardware ID")
    if not (calibration.reads or calibration.copies) or not calibration.products:
        raise RooflensError("this calibration holds no reads or no products: run 'rooflens calibrate' again")
    if not makes_roof(calibration):
        raise RooflensError("this calibration is through torch, which NumPy beats: no roof; run 'rooflens calibrate'")


def highest_products(calibration: Calibration) -> dict[str, float]:
    """flop/s by format: the best product, or what the reads multiplied meanwhile where that is more.

    Beside others a product may never have met a quiet moment that a read met.
    """
    found = {name: rate.best for name, rate in calibration.products.items()}
    beside = max((rate.best * READ_FLOP_PER_BYTE for _, rate in calibration.reads), default=0.0)
    return {**found, "fp32": max(found["fp32"], beside)} if "fp32" in found else found
