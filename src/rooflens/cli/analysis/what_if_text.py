"""A what-if on captured steps as text."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from rooflens.analyzer.history.records import WhatIfAnswer, WhatIfPart
from rooflens.cli.output import one_line
from rooflens.cli.units import aligned, binary_text, seconds_text

WIDTH, INDENT = 100, " " * 10
FEW = 5  # problems that are listed


def what_if_lines(answer: WhatIfAnswer) -> list[str]:
    """The table by kind, then what it saves, whether it fits, and what would make it wrong."""
    heading = (f"what if {answer.change}", "steps", "observed", "reachable", "then", "new time", "tokens/s", "then")
    rows: list[Sequence[str]] = [heading, *(_row(part) for part in answer.kinds)]
    if answer.total is not None and len(answer.kinds) > 1:
        rows.append(_row(answer.total))
    lines = aligned(rows) if answer.kinds else [f"what if {answer.change}: no captured step can be put through it"]
    if answer.saved_device_s is not None:
        loses = answer.saved_device_s[1] < 0
        lines += wrapped("costs     " if loses else "saves     ", _saving(answer, loses))
    if answer.pool_bytes is not None and answer.needed_bytes is not None:
        verdict = "fits" if answer.fits else "DOES NOT FIT"
        room = binary_text(max(0.0, answer.pool_bytes))
        lines += wrapped(
            "KV pool   ",
            f"{verdict}: at its fullest {binary_text(answer.needed_bytes)} of {room} on the tightest device",
        )
    if answer.skipped_steps:
        lines += wrapped("left out  ", f"{answer.skipped_steps:,.0f} steps without bounds before or under the change")
    for problem in answer.problems[:FEW]:
        lines += wrapped("warning   ", problem)
    if len(answer.problems) > FEW:
        lines.append(f"warning   {len(answer.problems) - FEW:,} more")
    for note in answer.notes:
        lines += wrapped("but       ", note)
    return lines


def _saving(answer: WhatIfAnswer, loses: bool) -> str:
    """What it saves, or of a loss what it costs beside now."""

    def told(saved: tuple[float, float]) -> tuple[float, float]:
        return (-saved[1], -saved[0]) if loses else saved

    text = f"{interval(*map(seconds_text, told(answer.saved_device_s or (0.0, 0.0))))} of device time"
    text += " beside now" if loses else ""
    if answer.saved_money is not None:
        text += f", {interval(*(f'{each:,.2f}' for each in told(answer.saved_money)))} in money"
    if answer.devices_now != answer.devices_then:
        text += f", with {answer.devices_then:,} devices instead of {answer.devices_now:,}"
    return text


def interval(low: str, high: str) -> str:
    """Two figures, or one where they read the same."""
    return low if low == high else f"{low} to {high}"


def _row(part: WhatIfPart) -> Sequence[str]:
    rates = [part.tokens_per_s_low, part.tokens_per_s_high]
    told = ["-" if rate is None else f"{rate:,.1f}" for rate in rates]
    return (
        f"  {part.name}",
        f"{part.steps:,.0f}",
        seconds_text(part.observed_s),
        seconds_text(part.reachable_now_s),
        seconds_text(part.reachable_then_s),
        interval(seconds_text(part.new_low_s), seconds_text(part.new_high_s)),
        "-" if part.tokens_per_s_now is None else f"{part.tokens_per_s_now:,.1f}",
        interval(*told),
    )


def wrapped(name: str, text: str) -> list[str]:
    """A text in lines of a terminal, ``name`` in a column of its own before the first."""
    return textwrap.wrap(one_line(text), WIDTH, initial_indent=name, subsequent_indent=INDENT, break_long_words=False)
