"""What the rows say of a device: its link, its rates, its cache; and the K and V of a token."""

from __future__ import annotations

import math
from collections.abc import Mapping

from rooflens.analyzer.hardware import fastest
from rooflens.analyzer.work import Work
from rooflens.model_records import HardwareSpec
from rooflens.records import RooflensError

CACHE_NOTE_RATIO = 0.01  # of the bytes of a step, from which what the cache may keep is worth a word
USUAL_LINK_DOMAIN = 8  # devices on one NVLink switch of a usual server


def check_link(hardware: HardwareSpec, devices: int) -> None:
    """RooflensError where several devices are to work together and no link between them is known."""
    if devices > 1 and hardware.link_bandwidth_bytes_per_s is None:
        raise RooflensError(
            f"{hardware.id} states no link between devices: tensor parallel {devices} has no roofline; its TOML would "
            "say [link] bandwidth_per_direction_bytes_per_s"
        )


def unknown_rate(hardware: HardwareSpec, rows: tuple[Work, ...]) -> str | None:
    """In one sentence why the compute side of ``rows`` is not known; None where the device states every rate."""
    for row in rows:
        if row.flops and fastest(hardware, row.compute) is None:
            return (
                f"{hardware.id} states no rate for {' or '.join(row.compute)} (it knows "
                f"{', '.join(hardware.ceiling_flops_per_s)}): compute time and MFU are not known, and the floor is "
                "that of memory and link alone"
            )
    return None


def link_notes(hardware: HardwareSpec, devices: int) -> tuple[str, ...]:
    """What the link term of a tensor-parallel group takes for granted."""
    if devices <= 1:
        return ()
    notes = ["the link term counts bytes only, no latency"]
    if devices > USUAL_LINK_DOMAIN and (hardware.link_kind or "").startswith("NVLink"):
        notes.append(f"one NVLink domain of {devices} devices is assumed")
    return tuple(notes)


def cache_note(cached_bytes: float, whole: bool) -> str:
    """What the last-level cache takes off the memory term; ``whole`` where that is all of it."""
    size = f"{cached_bytes / 1e6:.3g} MB" if cached_bytes < 999.5e6 else f"{cached_bytes / 1e9:.3g} GB"
    note = f"{size} may stay in the last-level cache from step to step and are not counted"
    return f"{note}: all of it, so the memory floor says nothing here" if whole else note


def rate_flops_per_s(table: Mapping[str, float], hardware: HardwareSpec, row: Work) -> float:
    """What ``table``, peaks or ceilings of ``hardware``, gives for the flops of ``row``; infinite without one."""
    chosen = fastest(hardware, row.compute) if row.flops else None
    return math.inf if chosen is None else table[chosen]


def kv_bytes_per_token(rows: tuple[Work, ...]) -> float:
    """Bytes that a new token writes to the cache on one device, over all layers: K and V, latents, indexer keys."""
    return sum(row.kv_write_bytes.get("query_tokens", 0.0) for row in rows)
