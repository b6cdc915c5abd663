"""Samples of devices as lines of values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rooflens.exporters.trace_files.parts import CounterRows
from rooflens.exporters.trace_files.slices import DIGITS, Counter

LINES = {
    "dram_ratio": Counter("DRAM", "1"),
    "tensor_ratio": Counter("tensor pipes", "1"),
    "sm_ratio": Counter("SMs", "1"),
    "power_w": Counter("power", "W"),
    "sm_clock_hz": Counter("SM clock", "Hz"),
    "memory_used_bytes": Counter("memory used", "bytes"),
    "temperature_celsius": Counter("temperature", "C"),
}


class Sampled(NamedTuple):
    """One value of one device over the window that begins then."""

    host: str
    uuid: str
    counter: Counter
    begin_unix_s: float
    value: float


def sampled(rows: CounterRows) -> Iterator[Sampled]:
    """The values of a piece, in its order."""
    columns = rows.columns
    known = [(columns[name], counter) for name, counter in LINES.items() if name in columns]
    for at, (host, uuid, begin) in enumerate(
        zip(columns["host"], columns["uuid"], columns["start_unix_s"], strict=True)
    ):
        if begin is None:
            continue
        for values, counter in known:
            if (value := values[at]) is not None:
                yield Sampled(host, uuid, counter, begin, round(value, DIGITS) if counter.unit == "1" else value)
