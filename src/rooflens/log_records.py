"""The vocabulary of what engines write: one record a line that says something, in SI units, None for not known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class RecordKind(StrEnum):
    """What a line tells of.

    INTERVAL: means and a moment's gauges, every few seconds. ITERATION: one step of the engine, with its time where
    that is told. PREFILL and DECODE: a batch that was begun, or the last of several. SPECULATION: drafts of an
    interval. PREEMPTION: requests that lost their KV blocks. STARTUP: a fact of the configuration. TIMING: one request
    that ended, or runs. SENSOR: a device.
    """

    INTERVAL = "interval"
    ITERATION = "iteration"
    PREFILL = "prefill"
    DECODE = "decode"
    SPECULATION = "speculation"
    PREEMPTION = "preemption"
    STARTUP = "startup"
    TIMING = "timing"
    SENSOR = "sensor"


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One line, or what belongs together of several.

    ``values`` are numbers in SI units with the unit in the name (``kv_used_ratio`` 0 to 1, ``iteration_s``,
    ``generated_tokens_per_s``, counts without one); what the line does not tell is absent, never 0. ``words`` are
    short facts that are no numbers (a dtype, a backend). ``ranks`` are the numbers that it gives itself, by what they
    count ("engine", "dp", "tp", "pp", "pid"). ``unix_s`` is its time stamp; without a zone it is taken for local time,
    without a date it is None. ``unknown`` are labels on the line that this version does not know.
    """

    engine: str
    kind: RecordKind
    values: Mapping[str, float] = field(default_factory=dict)
    words: Mapping[str, str] = field(default_factory=dict)
    ranks: Mapping[str, int] = field(default_factory=dict)
    unix_s: float | None = None
    unknown: tuple[str, ...] = ()
