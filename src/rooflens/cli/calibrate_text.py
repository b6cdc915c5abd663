"""A calibration as a table: what was measured, how far runs lie apart, and which ceiling is used for what."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from rooflens.analyzer.calibrated import THIS_CPU, hardware_of, pass_rates, why_unsteady
from rooflens.analyzer.measured_cpu import makes_roof
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
LEAST_PASS_BYTES, MOST_PASSES = 1 << 20, 8


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
    if hardware is not None and hardware.id == THIS_CPU:
        found += ["", *_passes(calibration), ""]
    found += [f"odd       {flag}" for flag in calibration.flags]
    return found


def pass_roofs(calibration: Calibration) -> list[tuple[int, float, float | None]]:
    """(bytes that a pass reads, the rate of its floor, what is reachable or None), bytes/s, by the largest sizes."""
    sizes = sorted({size for size, _ in (*calibration.reads, *calibration.copies)})
    found: list[tuple[int, float, float | None]] = []
    for size in [size for size in sizes if size >= LEAST_PASS_BYTES or size == sizes[-1]][-MOST_PASSES:]:
        roof = hardware_of(calibration, size)
        highest, known = roof.memory_bandwidth_bytes_per_s, why_unsteady(calibration, roof) is None
        usual = min(pass_rates(calibration, roof)[0], highest) if known and calibration.reads else None
        found.append((size, highest, usual))
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
        why = "not known: a roof is made of reads and products, and both are not here; give more --seconds"
        if not makes_roof(calibration):
            why = "none: torch's reads pass the caches, so NumPy beats them; this says only what is reachable"
        yield f"ceilings  {why}"
        return
    if hardware is None:
        yield "ceilings  not known: no datasheet of this device is shipped; --hardware FILE.toml takes one of yours"
        return
    rows: list[Sequence[str]] = [(f"ceilings of {hardware.id}", "", "", "used for")]
    for one in ceilings:
        memory = "memory" if hardware.id != THIS_CPU else "memory, beyond caches"
        what = memory if one.number_format is None else one.number_format
        rate = si_text(one.per_s, "B/s" if one.number_format is None else "FLOP/s")
        rows.append((ORIGINS[one.origin], what, rate, ", ".join(_name(each) for each in one.used_for) or ONLY_SHOWN))
    yield from aligned(rows)


def _passes(calibration: Calibration) -> Iterator[str]:
    """What a model of so many bytes gets for its roof; every verb takes that of its own bytes."""
    yield "the roof depends on the bytes that a pass of the model reads, of which caches keep a part"
    rows: list[Sequence[str]] = [("memory, for a pass over", "", "floor, MBU", "reachable")]
    for size, highest, usual in pass_roofs(calibration):
        shown = "not known" if usual is None else si_text(usual, "B/s")
        rows.append(("", binary_text(size), si_text(highest, "B/s"), shown))
    yield from aligned(rows)


def _name(use: str) -> str:
    return use.upper() if use in ("mbu", "mfu") else use
