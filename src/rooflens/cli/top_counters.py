"""What an engine's devices counted in its windows, as one line of the live view; hidden where nothing is known."""

from __future__ import annotations

from collections.abc import Iterator

from rooflens.cli.top_lines import INDENT, Json, Line, word, wrapped
from rooflens.cli.top_notes import listed
from rooflens.cli.units import factor_text

LEAST_SHARE = 0.005  # of the time: less reads 0%
BUSY_CORES = 0.9  # of one thread: it never waits


def counter_lines(engine: Json, width: int) -> list[Line]:
    """DRAM, counted over modelled bytes with the interval, clock, power, throttling; and what is odd about them."""
    found = _newest(engine)
    told = list(_parts(found))
    odd = found.get("complaints") or []
    lines = listed("counters", told, width) if told else []
    return [*lines, *(line for text in odd for line in wrapped(f"{INDENT}counters: ", text, width))]


def _newest(engine: Json) -> Json:
    """The counters of the newest window in which bytes could be compared, else of the newest with any."""
    told: list[Json] = [window["counters"] for window in engine.get("windows") or [] if window.get("counters")]
    compared = [counters for counters in told if counters.get("ratio") is not None]
    return (compared or told or [{}])[-1]


def _parts(found: Json) -> Iterator[str]:
    devices, expected = found.get("devices"), found.get("devices_expected")
    if devices is not None and expected and devices != expected:
        yield f"{devices} of {expected} devices"
    if (dram := found.get("dram_ratio")) is not None:
        yield f"DRAM {dram:.0%}"
    ratio, low, high = (found.get(name) for name in ("ratio", "ratio_low", "ratio_high"))
    if ratio is not None:
        interval = f" ({factor_text(low)} to {factor_text(high)})" if low is not None and high is not None else ""
        yield f"counted {factor_text(ratio)} x model bytes{interval}"
    clock_hz, part = found.get("sm_clock_hz"), found.get("sm_clock_ratio")
    if clock_hz is not None:
        yield f"SM clock {clock_hz / 1e6:,.0f}{f' of {clock_hz / part / 1e6:,.0f}' if part else ''} MHz"
    power_w, share = found.get("power_w"), found.get("power_ratio")
    if power_w is not None:
        yield f"{power_w:,.0f} W{f', {share:.0%} of the limit' if share is not None else ''}"
    for reason, held in (found.get("throttled_ratio") or {}).items():
        if held >= LEAST_SHARE:
            yield f"throttled {held:.0%} ({word(reason).replace('_', ' ')})"
    if (busiest := found.get("engine_core_busiest_cores")) is not None and busiest >= BUSY_CORES:
        yield f"engine core's busiest thread {busiest:.0%}"
