"""Every ceiling of one device side by side, and what is computed with which."""

from __future__ import annotations

from collections.abc import Iterator

from rooflens.analyzer.calibrated import THIS_CPU, date_text, fits, pass_rates, why_unsteady
from rooflens.analyzer.unsteady import steady
from rooflens.calibration_records import Calibration, Ceiling, CeilingOrigin
from rooflens.model_records import HardwareSpec

FLOOR, REACHABLE, MBU, MFU = "floor", "reachable", "mbu", "mfu"
SAME_RATIO = 1.0005  # of the printed peak: a highest clock that gains less says nothing new
USUAL = "what usual kernels reached, {date}"


def ceilings_of(
    hardware: HardwareSpec,
    calibration: Calibration | None = None,
    sm_clock_hz: float | None = None,
    sm_clock_max_hz: float | None = None,
    memory_clock_ratio: float | None = None,
) -> tuple[Ceiling, ...]:
    """The roofs of one ``hardware``, the memory's (bytes/s) before those of arithmetic (flop/s) in each group.

    Datasheet or measured first: floor, MBU and MFU stand on these and on no other. Then, where ``calibration`` is of
    such a device, what it reached: reachable stands on that, else on fractions of the datasheet that were published.
    Last what the highest rates come to at the clocks that are observed now (``sm_clock_hz`` of ``sm_clock_max_hz``,
    ``memory_clock_ratio`` of the highest memory clock): shown, so that a reader sees what a low clock takes, and used
    for nothing, for a floor that followed the clock would call a throttled device perfect.
    """
    own = (
        calibration if calibration is not None and calibration.reads and fits(calibration.identity, hardware) else None
    )
    found = [*_roofs(hardware, None if own is None else steady(own)[0])]
    if own is not None:
        found += _calibrated(own, hardware)
    found += _at_clocks(hardware, sm_clock_hz, sm_clock_max_hz, memory_clock_ratio)
    return tuple(found)


def _roofs(hardware: HardwareSpec, calibration: Calibration | None) -> Iterator[Ceiling]:
    """What the floor stands on: documents, or for a device without any the best that was measured."""
    printed = hardware.origin == "datasheet"
    origin = CeilingOrigin.DATASHEET if printed else CeilingOrigin.MEASURED
    shares = (REACHABLE,) if printed else ()  # of which published fractions make what is reachable
    note = hardware.source if printed else "the best that was measured"
    basis = () if calibration and calibration.reads else shares
    yield Ceiling(origin, hardware.memory_bandwidth_bytes_per_s, None, (FLOOR, *basis, MBU), note)
    for name, rate in sorted(hardware.peak_flops_per_s.items()):
        highest = hardware.ceiling_flops_per_s.get(name, rate)
        apart = highest > SAME_RATIO * rate
        basis = () if calibration and name in calibration.products else shares
        yield Ceiling(origin, rate, name, (*(() if apart else (FLOOR,)), *basis, MFU), note)
        if apart:
            yield Ceiling(origin, highest, name, (FLOOR,), "at the highest clock, or as it is announced")


def _calibrated(calibration: Calibration, hardware: HardwareSpec) -> Iterator[Ceiling]:
    """What usual kernels reached: all of it is shown, what is too unsteady to say what is usual is used for nothing."""
    note = USUAL.format(date=date_text(calibration))
    kept = steady(calibration)[0]
    unknown = hardware.id == THIS_CPU and why_unsteady(calibration, hardware) is not None
    used = () if unknown or not kept.reads else (REACHABLE,)
    what = "a pass" if hardware.id == THIS_CPU and not hardware.cache_bytes else "large reads"
    yield Ceiling(CeilingOrigin.CALIBRATED, pass_rates(calibration, hardware)[0], None, used, f"{note}: {what}")
    for name, rate in sorted(calibration.products.items()):
        used = (REACHABLE,) if name in hardware.peak_flops_per_s and name in kept.products and not unknown else ()
        yield Ceiling(CeilingOrigin.CALIBRATED, rate.median, name, used, f"{note}: large products")


def _at_clocks(
    hardware: HardwareSpec, sm_clock_hz: float | None, sm_clock_max_hz: float | None, memory_clock_ratio: float | None
) -> Iterator[Ceiling]:
    if memory_clock_ratio is not None and memory_clock_ratio > 0:
        rate = memory_clock_ratio * hardware.memory_bandwidth_bytes_per_s
        yield Ceiling(CeilingOrigin.CLOCK_ADJUSTED, rate, None, (), f"at {memory_clock_ratio:.0%} of the memory clock")
    if not sm_clock_hz:
        return
    for name, rate in sorted(hardware.peak_flops_per_s.items()):
        if hardware.datasheet_clock_hz:
            found, of_hz, which = rate, hardware.datasheet_clock_hz, "of the datasheet"
        elif sm_clock_max_hz:
            found, of_hz, which = hardware.ceiling_flops_per_s.get(name, rate), sm_clock_max_hz, "at the most"
        else:
            return
        note = f"at {sm_clock_hz / 1e6:,.0f} MHz, {of_hz / 1e6:,.0f} {which}"
        yield Ceiling(CeilingOrigin.CLOCK_ADJUSTED, sm_clock_hz / of_hz * found, name, (), note)
