"""What the floors of a trace stand on: each distinct roof with its origin, and what lowers its worth."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from rooflens.cli.units import si_text
from rooflens.trace_records import TraceFacts

SHOWN = 4  # roofs that are listed
MEASURED = "measured"


def roofs_of(facts: Iterable[TraceFacts]) -> list[dict[str, Any]]:
    """One object a distinct roof, that of most runs first: its figures in SI units, ``flags`` of how it was measured,
    the labels of its ``engines``, its number of ``runs``, and all of it in words."""
    runs: dict[str, list[TraceFacts]] = {}
    for each in facts:
        if each.hardware is not None:
            runs.setdefault(json.dumps(asdict(each.hardware), sort_keys=True, default=str), []).append(each)
    found = [_roof(group) for group in runs.values()]
    return sorted(found, key=lambda roof: (-roof["runs"], roof["text"]))


def _roof(group: Sequence[TraceFacts]) -> dict[str, Any]:
    hardware = group[0].hardware
    assert hardware is not None
    measured = hardware.origin == MEASURED  # what a curator wrote of a datasheet is no doubt of the roof
    flags = list(hardware.flags) if measured else []
    rates = ", ".join(f"{si_text(rate, 'FLOP/s')} {name}" for name, rate in hardware.peak_flops_per_s.items())
    bandwidth = f"{hardware.memory_bandwidth_bytes_per_s / 1e9:,.1f} GB/s"
    return {
        "hardware": hardware.id,
        "origin": hardware.origin,
        "memory_bandwidth_bytes_per_s": hardware.memory_bandwidth_bytes_per_s,
        "peak_flops_per_s": dict(hardware.peak_flops_per_s),
        "flags": flags,
        "engines": sorted({each.label for each in group}),
        "runs": len({each.run for each in group}),
        "text": "; ".join([f"{hardware.id} ({hardware.origin}): {bandwidth}{f', {rates}' if rates else ''}", *flags]),
    }


def roof_texts(roofs: Sequence[dict[str, Any]]) -> list[str]:
    """One text a roof; of which runs is said where there are several."""
    several = len(roofs) > 1
    texts = [f"{each['text']}{_whose(each) if several else ''}" for each in roofs[:SHOWN]]
    return [*texts, f"{len(roofs) - SHOWN:,} more roofs: --json"] if len(roofs) > SHOWN else texts


def _whose(roof: dict[str, Any]) -> str:
    runs, engines = roof["runs"], roof["engines"]
    named = engines[0] if len(engines) == 1 else f"{len(engines):,} engines"
    return f" [{runs:,} run{'s' if runs != 1 else ''} of {named}]"
