"""What the live view adds below an engine's figures: which were computed, what the bounds leave out, what cleared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rooflens.cli.top_lines import INDENT, Json, Line, word, wrapped
from rooflens.cli.units import age_text, factor_text, seconds_text

CLEARED = "cleared"
# A page's derived values in the words of the lines above them.
NAMES: Mapping[str, str] = {
    "resolution_steps": "steps an interval",
    "batch": "batch",
    "context": "context",
    "observed_s": "busy time",
    "step_s": "step",
    "prefill_pairs": "pairs of attention in prompts",
    "completed_tokens_per_s": "tokens a second, by requests that ended,",
}


def listed(label: str, items: Sequence[str], width: int) -> list[Line]:
    """``label`` and ``items`` with commas on as many lines as they take, broken between items alone."""
    rows = [f"{INDENT}{label}:"]
    for at, item in enumerate(items):
        ending = "," if at + 1 < len(items) else ""
        if len(rows[-1]) + 1 + len(item) + len(ending) > width and len(rows[-1].split()) > 1:
            rows.append(INDENT * 2)
        rows[-1] += f"{'' if rows[-1].endswith(' ') else ' '}{item}{ending}"
    return [line for row in rows for line in wrapped(row[: len(row) - len(row.lstrip())], row.lstrip(), width)]


def derived_lines(values: Sequence[Json], width: int) -> list[Line]:
    """Which figures were computed and not read, with their bounds."""
    told = []
    for value in values:
        name, unit = str(value.get("name")), value.get("unit")
        low, high = value.get("low"), value.get("high")
        span = "" if low is None or high is None else f" ({_figure(low, unit)} to {_figure(high, unit)})"
        told.append(f"{word(NAMES.get(name, name.replace('_', ' ')))} {_figure(value.get('value'), unit)}{span}")
    return listed("estimated", told, width) if told else []


def _figure(value: float | None, unit: object) -> str:
    if value is None:
        return "-"
    if unit == "s":
        return seconds_text(value)
    if unit == "1":
        return f"{value:.0%}"
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else factor_text(value).rstrip("0").rstrip(".")


def bound_notes(engine: Json, figures: Json, width: int) -> list[Line]:
    """Why there is no floor, MBU or MFU, or one that says little."""
    if figures.get("mfu") is not None and figures.get("floor_s"):
        return []
    return [line for note in engine.get("notes") or [] for line in wrapped(f"{INDENT}note: ", note, width)]


def cleared_line(findings: Sequence[Json], now_s: float | None, width: int) -> list[Line]:
    """What fired within the last windows and does no more."""
    told = []
    for finding in findings:
        until_s = finding.get("until_unix_s")
        if finding.get("status") == CLEARED and until_s is not None:
            age = f" ({age_text(max(0.0, now_s - until_s))} ago)" if now_s is not None else ""
            told.append(f"{word(finding.get('code'))}{age}")
    return listed("cleared", told, width) if told else []
