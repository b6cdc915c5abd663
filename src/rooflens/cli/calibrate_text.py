"""A calibration as a table: what was measured, how far runs lie apart, and which ceiling is used for what."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from rooflens.calibration_records import Calibration, Ceiling, Measured
from rooflens.cli.units import aligned, binary_text, percent_text, seconds_text, si_text
from rooflens.model_records import HardwareSpec

HEAD = ("", "size", "usual", "best", "spread", "runs")
CURVES = (
    ("reads", "weights read, matrix x vector"),
    ("copies", "plain reads"),
    ("attention", "keys and values, decode attention"),
)
ORIGINS = {
    "datasheet": "datasheet",
    "measured": "measured, the best",
    "calibrated": "calibrated, the usual",
    "clock_adjusted": "datasheet at the clocks of this calibration",
}
ONLY_SHOWN = "only shown"


def lines(calibration: Calibration, hardware: HardwareSpec | None, ceilings: Sequence[Ceiling]) -> list[str]:
    """The whole calibration; ``hardware`` is None for a device that is not known, which has no ceilings."""
    identity = calibration.identity
    units = "" if identity.units is None else f", {identity.units} {'cores' if identity.kind == 'cpu' else 'SMs'}"
    day = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(calibration.measured_unix_s))
    versions = ", ".join(f"{name} {version}" for name, version in sorted(calibration.versions.items()))
    found = [f"device    {identity.name}{units}{f', {identity.device_uuid}' if identity.device_uuid else ''}"]
    found.append(f"measured  {day}, in {seconds_text(calibration.took_s)}; {versions or 'versions not known'}")
    if calibration.clocks_hz:
        clocks = ", ".join(f"{name} {hz / 1e6:,.0f} MHz" for name, hz in sorted(calibration.clocks_hz.items()))
        found.append(f"clocks    {clocks} meanwhile")
    rows: list[Sequence[str]] = [HEAD, *_curves(calibration), *_products(calibration), *_times(calibration)]
    found += ["", *aligned(rows), "", *_ceilings(calibration, hardware, ceilings)]
    found += [f"odd       {flag}" for flag in calibration.flags]
    return found


def _row(name: str, size: str, value: Measured, unit: str) -> Sequence[str]:
    shown = [seconds_text(each) if unit == "s" else si_text(each, unit) for each in (value.median, value.best)]
    return (name, size, *shown, percent_text(value.spread_ratio), str(value.count))


def _curves(calibration: Calibration) -> Iterator[Sequence[str]]:
    for field, name in CURVES:
        curve = getattr(calibration, field)
        if not curve:
            yield (name, "", "not known", "", "", "")
        for number, (size, value) in enumerate(curve):
            yield _row("" if number else name, binary_text(size), value, "B/s")


def _products(calibration: Calibration) -> Iterator[Sequence[str]]:
    for number, (name, value) in enumerate(sorted(calibration.products.items())):
        yield _row("" if number else "matrix products", name, value, "FLOP/s")


def _times(calibration: Calibration) -> Iterator[Sequence[str]]:
    for name, value in (("a launch", calibration.launch_s), ("a launch in a graph", calibration.graph_launch_s)):
        if value is not None:
            yield _row(name, "", value, "s")
    for devices, curve in sorted(calibration.all_reduce_s.items()):
        for number, (size, each) in enumerate(curve):
            yield _row("" if number else f"all-reduce, {devices} devices", binary_text(size), each, "s")


def _ceilings(calibration: Calibration, hardware: HardwareSpec | None, ceilings: Sequence[Ceiling]) -> Iterator[str]:
    if hardware is None and calibration.identity.kind == "cpu":
        yield "ceilings  not known: a roof is made of reads and products, and both are not here; give more --seconds"
        return
    if hardware is None:
        yield "ceilings  not known: no datasheet of this device is shipped; --hardware FILE.toml takes one of yours"
        return
    rows: list[Sequence[str]] = [(f"ceilings of {hardware.id}", "", "", "used for")]
    for one in ceilings:
        what = "memory" if one.number_format is None else one.number_format
        rate = si_text(one.per_s, "B/s" if one.number_format is None else "FLOP/s")
        rows.append((ORIGINS[one.origin], what, rate, ", ".join(_name(each) for each in one.used_for) or ONLY_SHOWN))
    yield from aligned(rows)


def _name(use: str) -> str:
    return use.upper() if use in ("mbu", "mfu") else use
