"""Slices of a device: what NVIDIA's MIG hands out as a device of its own, with its share of the whole."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rooflens.model_records import HardwareSlice, HardwareSpec
from rooflens.records import RooflensError

# "NVIDIA H100 80GB HBM3 MIG 3g.40gb" as NVML names it, or the id "h100-sxm5-80-mig-3g.40gb".
NAME = re.compile(r"(?P<whole>.+?)[ -]mig[ -](?P<profile>\S+)")
MEDIA = re.compile(r"(?:[+-](?:me|gfx|me\.all))+$")  # media engines and graphics change neither memory nor SMs


def split_name(wanted: str) -> tuple[str, str | None]:
    """(name of the whole device, profile of its slice or None) of a case-folded name."""
    found = NAME.fullmatch(wanted)
    return (found["whole"], found["profile"]) if found else (wanted, None)


def slices_of(table: Mapping[str, Any], sm_count: int | None) -> tuple[HardwareSlice, ...]:
    """The slices that a hardware file lists, of a device with ``sm_count`` SMs; KeyError for a part left out.

    The user guide gives the SMs as sevenths, which a device whose SMs do not divide by seven exceeds: 1g.20gb of
    an H100 has 26 of 132, a fifth, and not a seventh. Where no counted SMs are listed the larger of the share of
    compute slices and that of memory slices stands in. It is an upper bound wherever SMs were counted, and a roof
    that is too high makes a floor that is too low, never one that is too high.
    """
    found = []
    for profile, part in table["profiles"].items():
        memory = part["memory_slices"] / table["memory_slices"]
        compute = max(memory, part["compute_slices"] / table["compute_slices"])
        counted = part.get("sm_count")
        known = counted is not None and sm_count is not None
        found.append(HardwareSlice(profile, memory, counted / sm_count if known else compute, known))
    return tuple(found)


def slice_of(spec: HardwareSpec, profile: str) -> HardwareSpec:
    """The slice of ``spec`` as a device of its own; RooflensError in one line for a profile it does not have.

    Memory, bandwidth and cache are its share, the rates too; it has no link, since slices do not reach other devices
    directly.
    """
    wanted = MEDIA.sub("", profile)
    found = next((each for each in spec.slices if each.profile == wanted), None)
    if found is None:
        known = ", ".join(each.profile for each in spec.slices) or "none"
        inner = ": a compute instance shares its memory with others" if re.match(r"\d+c\.", profile) else ""
        raise RooflensError(f"unknown MIG slice {profile[:40]!r} of {spec.id}{inner}; its slices: {known}")
    exact = "" if found.compute_known else ", an upper bound: its SMs were not counted"
    note = f"MIG slice of {spec.id}: {found.memory_share:.3g} of its memory, bandwidth and cache"
    scale = found.compute_share
    return replace(
        spec,
        id=f"{spec.id}-mig-{wanted}",
        name=f"{spec.name}, MIG {wanted}",
        memory_bytes=int(spec.memory_bytes * found.memory_share),
        memory_bandwidth_bytes_per_s=spec.memory_bandwidth_bytes_per_s * found.memory_share,
        peak_flops_per_s={f: rate * scale for f, rate in spec.peak_flops_per_s.items()},
        ceiling_flops_per_s={f: rate * scale for f, rate in spec.ceiling_flops_per_s.items()},
        announced_flops_per_s={f: rate * scale for f, rate in spec.announced_flops_per_s.items()},
        cache_bytes=None if spec.cache_bytes is None else int(spec.cache_bytes * found.memory_share),
        link_bandwidth_bytes_per_s=None,
        link_kind=None,
        link_reduces=False,
        nvml_names=tuple(f"{name} MIG {wanted}" for name in spec.nvml_names),
        flags=(*spec.flags, f"{note}, {scale:.3g} of its arithmetic{exact}; no link to other devices"),
        slices=(),
    )
