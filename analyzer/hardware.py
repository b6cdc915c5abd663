"""Devices: one TOML file each, found by id, by the name its driver gives, or by the path of a user's own file."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from rooflens.analyzer.mig import slice_of, slices_of, split_name
from rooflens.analyzer.small_file import plain_reason, small_text
from rooflens.analyzer.suggest import did_you_mean
from rooflens.model_records import HardwareSpec
from rooflens.records import RooflensError

OWN_FILE = (
    "for another device write a TOML with id, name, vendor, memory_bytes, memory_bandwidth_bytes_per_s, a table "
    "[peak_flops_per_s] (such as bf16 = 9.9e14) and a table [source] with a title, and give its path"
)
LINK_KEY = "link.bandwidth_per_direction_bytes_per_s"
# Less than any device has: a figure below it is in GB, GB/s or TFLOP/s and not in the SI unit that its name says.
CLOCK_ROUNDING = 1.01  # peaks are printed in three digits
LEAST = {"memory_bytes": 1e6, "memory_bandwidth_bytes_per_s": 1e8, "flops_per_s": 1e9, "bandwidth_bytes_per_s": 1e6}


@cache
def known_hardware() -> Mapping[str, HardwareSpec]:
    """Every shipped device by id, sorted."""
    folder = files("rooflens.analyzer") / "data" / "hardware"
    rows = sorted((f for f in folder.iterdir() if f.name.endswith(".toml")), key=lambda f: f.name)
    specs = [_read(f, f.name) for f in rows]
    return {spec.id: spec for spec in specs}


def find_hardware(name: str) -> HardwareSpec:
    """The device called ``name``: an id, a product name exactly as its driver spells it, or the path of a TOML file.

    A MIG slice is found by the name NVML gives it ("NVIDIA H100 80GB HBM3 MIG 3g.40gb") or by its own id. Raises
    RooflensError in one line for an unknown device or slice. There is no nearest match: "NVIDIA H20" is another
    device than "NVIDIA H200", and a wrong roof is worse than none.
    """
    wanted = name.strip().casefold()
    if (spec := _named(wanted)) is not None:
        return spec
    if wanted.endswith(".toml"):
        return _read(Path(name), name)
    whole, profile = split_name(wanted)
    if profile is not None and (spec := _named(whole)) is not None:
        return slice_of(spec, profile)
    names = {n: spec.id for spec in known_hardware().values() for n in all_names(spec)} | {"this-cpu": "this-cpu"}
    raise RooflensError(
        f"unknown hardware {name[:60]!r}{did_you_mean(name, names)}; 'rooflens predict --list' names all; {OWN_FILE}"
    )


def all_names(spec: HardwareSpec) -> tuple[str, ...]:
    """Everything the device answers to, its id first."""
    return (spec.id, *spec.nvml_names, *spec.other_names)


def _named(wanted: str) -> HardwareSpec | None:
    """The shipped device with exactly this name, case folded."""
    for spec in known_hardware().values():
        if wanted in (n.casefold() for n in all_names(spec)):
            return spec
    return None


def fastest(spec: HardwareSpec, formats: tuple[str, ...]) -> str | None:
    """Which of ``formats`` this device multiplies fastest; None if it states a rate for none of them.

    Several formats stand for kernels that a serving engine may choose among (fp8 weights run on fp8 units, or
    are widened to bf16 where there are none), and a lower bound takes the fastest.
    """
    able = [f for f in formats if f in spec.ceiling_flops_per_s]
    return max(able, key=lambda f: spec.ceiling_flops_per_s[f], default=None)


def _read(file: Traversable | Path, shown: str) -> HardwareSpec:
    """The device in one TOML file; every fault of the file is one line naming it."""
    try:
        data = tomllib.loads(small_text(file) if isinstance(file, Path) else file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise RooflensError(
            f"{shown}: no such file: give the path of a device's TOML, or one of 'rooflens predict --list'"
        ) from error
    except (OSError, ValueError) as error:
        raise RooflensError(f"{shown}: cannot be read as a hardware TOML: {plain_reason(error)}") from error
    try:
        return _spec(data)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise RooflensError(f"{shown}: not a hardware TOML: {what}") from error


def _spec(data: Mapping[str, Any]) -> HardwareSpec:
    """Build the record; the ceiling is arithmetic on the file's facts, not a fact of its own."""
    peak = _rates(data["peak_flops_per_s"], "peak_flops_per_s")
    announced = _rates(data.get("announced_flops_per_s", {}), "announced_flops_per_s")
    scale = _clock_scale(data.get("clock"), peak)
    faster = _rates(data.get("fp16_accumulate_flops_per_s", {}), "fp16_accumulate_flops_per_s")
    ceiling = {f: max(max(rate, faster.get(f, 0.0)) * scale, announced.get(f, 0.0)) for f, rate in peak.items()}
    link = data.get("link", {})
    bandwidth = link.get(LINK_KEY.removeprefix("link."))
    return HardwareSpec(
        id=_text(data["id"], "id"),
        name=_text(data["name"], "name"),
        vendor=_text(data["vendor"], "vendor"),
        memory_bytes=int(_at_least(data["memory_bytes"], "memory_bytes")),
        memory_bandwidth_bytes_per_s=_at_least(data["memory_bandwidth_bytes_per_s"], "memory_bandwidth_bytes_per_s"),
        peak_flops_per_s=peak,
        ceiling_flops_per_s=ceiling,
        announced_flops_per_s=announced,
        cache_bytes=int(_positive(data["cache_bytes"], "cache_bytes")) if "cache_bytes" in data else None,
        link_bandwidth_bytes_per_s=None
        if bandwidth is None
        else _at_least(bandwidth, LINK_KEY, "bandwidth_bytes_per_s"),
        link_kind=link.get("kind"),
        link_reduces=bool(link.get("reduces_in_network", False)),
        nvml_names=tuple(_text(n, "nvml_names") for n in data.get("nvml_names", ())),
        source=_text(data["source"]["title"], "source.title"),
        flags=tuple(_text(f, "flags") for f in data.get("flags", ())),
        other_names=tuple(_text(n, "other_names") for n in data.get("other_names", ())),
        slices=slices_of(data["mig"], data.get("clock", {}).get("sm_count")) if "mig" in data else (),
        datasheet_clock_hz=_datasheet_clock_hz(data.get("clock"), peak),
    )


def _clock_scale(clock: Mapping[str, Any] | None, peak: Mapping[str, float]) -> float:
    """How far the part can exceed its printed peaks: units x flop per clock x highest clock over the printed rate.

    The datasheet's rate of an H100 holds at 1830 MHz while the part boosts to 1980 MHz, so a fast kernel would
    show MFU above 1 and a step below its floor if the printed peak were taken for the roof. Never below 1.
    """
    printed_hz = _datasheet_clock_hz(clock, peak)
    if clock is None or printed_hz is None:
        return 1.0
    return max(1.0, _positive(clock["max_clock_hz"], "max_clock_hz") / printed_hz)


def _datasheet_clock_hz(clock: Mapping[str, Any] | None, peak: Mapping[str, float]) -> float | None:
    """The clock at which the units of the device reach its printed peak; None where its units are not stated.

    None as well where that is beyond its highest clock: the peak is then not of these units.
    """
    if clock is None:
        return None
    fmt = "fp16" if "flop_per_clock_per_sm_fp16" in clock else "bf16"  # a part without bf16 states fp16
    each = f"flop_per_clock_per_sm_{fmt}"
    hertz = peak[fmt] / (_positive(clock["sm_count"], "sm_count") * _positive(clock[each], each))
    return hertz if hertz <= CLOCK_ROUNDING * _positive(clock["max_clock_hz"], "max_clock_hz") else None


def _rates(table: Mapping[str, Any], name: str) -> dict[str, float]:
    return {str(fmt): _at_least(rate, f"{name}.{fmt}", "flops_per_s") for fmt, rate in table.items()}


def _at_least(value: Any, name: str, kind: str | None = None) -> float:
    """``value``, where it can be one in the SI unit that the key's name ends in."""
    found, least = _positive(value, name), LEAST[kind or name]
    if found < least:
        raise ValueError(f"{name} = {found:g} is too small to be in SI units: no device has less than {least:g}")
    return found


def _positive(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ValueError(f"{name} must be a positive number")
    return float(value)


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{name} must be text")
    return value
