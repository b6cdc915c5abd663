"""A history as text for a terminal of 100 columns."""

from __future__ import annotations

from collections.abc import Sequence

from rooflens.analyzer.history.phases import OUTSIDE
from rooflens.analyzer.history.records import EXPECTED, REACHABLE, EngineHistory, History
from rooflens.cli.analysis.asked import Question
from rooflens.cli.analysis.time_lines import time_line
from rooflens.cli.analysis.what_if_text import INDENT, what_if_lines, wrapped
from rooflens.cli.output import one_line
from rooflens.cli.report import phase_table, time_text
from rooflens.cli.units import aligned, factor_text, percent_text, seconds_text, si_text

LONGEST_LABEL = 40
FEW = 10  # events and problems that are listed
BASIS = {REACHABLE: "x reachable", EXPECTED: "x expected"}
NO_BASIS = "x bound"
INVALID = "invalid"  # instead of a ratio: it was faster than possible, and a note says so
PARTIAL = "not told with --where, for other steps may lie between those that were chosen"


def trace_text(
    places: Sequence[str],
    files: int,
    problems: Sequence[str],
    history: History,
    question: Question,
    roofs: Sequence[str] = (),
) -> str:
    """The whole report of a trace; ``roofs`` is what its floors stand on."""
    lines = [f"trace     {', '.join(places)}; {files:,} file{'s' if files != 1 else ''}"]
    lines += [*_head(history), *(line for each in roofs for line in wrapped("floor     ", each))]
    lines += _wrapped_all("warning   ", problems)
    lines += ["", *_engines(history, question.most), "", *phase_table(history), *_below_phases(history)]
    lines += sections(history, question)
    return "\n".join(map(one_line, lines))


def sections(history: History, question: Question) -> list[str]:
    """What stands below the phases, of a trace and of a ring."""
    lines = ["", *time_line(history), *_worst(history), *_changes(history, question.most)]
    lines += [*_happenings(history), *_findings(history), "", *_cost(history)]
    for each in history.what_ifs:
        lines += ["", *what_if_lines(each)]
    return lines


def _head(history: History) -> list[str]:
    kinds: dict[str, int] = {}
    for engine in history.engines:
        words = " ".join(part for part in (engine.engine_name, engine.engine_version) if part) or "facts not recorded"
        kinds[words] = kinds.get(words, 0) + 1
    told = ", ".join(f"{count:,} x {words}" if count > 1 else words for words, count in kinds.items())
    lost = f"lost {history.lost_steps:,}"
    silent = f"; no step at all for {seconds_text(history.silent_s)}" if history.silent_s else ""
    hosts = f"{len(history.hosts):,} host{'s' if len(history.hosts) != 1 else ''}"
    return [
        f"engines   {history.engines_known:,} on {hosts}: {told}",
        f"period    {time_text(history.from_unix_s)} to {time_text(history.to_unix_s)}, "
        f"{seconds_text(history.span_s)}; windows of {seconds_text(history.window_s)}",
        f"recorded  {history.totals.steps:,} steps, {lost}{silent}",
    ]


def _engines(history: History, most: int) -> list[str]:
    heading = (
        "engines, most wasted first",
        "devices",
        "steps",
        "busy",
        "wasted",
        "of busy",
        "p50",
        "p90",
        "x bound",
        "tokens/s",
    )
    rows: list[Sequence[str]] = [heading]
    rows += [_engine_row(engine) for engine in history.engines[:most]]
    lines = aligned(rows)
    if (more := len(history.engines) - most) > 0:
        lines.append(f"{more:,} more: --top {len(history.engines)}")
    against = {engine.amounts.waste_basis for engine in history.engines} - {None}
    if against:
        words = " or, marked *, the expected floor where that is not known" if len(against) > 1 else ""
        unknown = "the expected floor, marked *: what is reachable is not known"
        basis = "what is reachable" if REACHABLE in against else unknown
        lines.append(f"wasted: device time above {basis}{words}")
    elif not any(engine.measurement_invalid for engine in history.engines):
        lines.append("wasted: not known, for no step has bounds" + _why(history))
    for engine in [each for each in history.engines if each.measurement_invalid][:FEW]:
        lines += wrapped("warning   ", f"{shortened(engine.label)}: {engine.problem}")
    return lines


def _why(history: History) -> str:
    found = next((each.problem for each in history.engines if each.problem and not each.measurement_invalid), None)
    return f" ({found})" if found else ""


def _engine_row(engine: EngineHistory) -> Sequence[str]:
    amounts = engine.amounts
    by_reachable = amounts.waste_basis == REACHABLE
    factor = amounts.x_reachable if by_reachable else amounts.x_expected
    mark = "" if by_reachable or amounts.waste_basis is None else "*"
    wasted, busy = amounts.wasted_s, amounts.wasted_of_s
    rate = engine.tokens_per_s or None
    return (
        shortened(engine.label),
        f"{engine.devices:,}",
        f"{amounts.steps:,}",
        seconds_text(engine.busy_device_s),
        seconds_text(engine.wasted_device_s),
        percent_text(wasted / busy) if wasted is not None and busy else "-",
        seconds_text(amounts.step_p50_s),
        seconds_text(amounts.step_p90_s),
        INVALID if engine.measurement_invalid else f"{factor_text(factor)}{mark}" if factor is not None else "-",
        f"{rate:,.1f}" if rate is not None else "-",
    )


def shortened(label: str) -> str:
    """A label that leaves room for the columns beside it: its end tells it apart."""
    return label if len(label) <= LONGEST_LABEL else f"...{label[3 - LONGEST_LABEL :]}"


def _below_phases(history: History) -> list[str]:
    if any(phase.name == OUTSIDE for phase in history.phases):
        return ["shares are of the time in steps; quantiles are within 2 %"]
    return []


def _worst(history: History) -> list[str]:
    if not history.worst_windows:
        return []
    rows: list[Sequence[str]] = [
        ("worst windows", "begin", "wasted", "above usual", BASIS.get(history.basis or "", NO_BASIS), "usual")
    ]
    for window in history.worst_windows:
        rows.append(
            (
                shortened(window.engine),
                clock_text(window.start_unix_s, history.window_s),
                seconds_text(window.wasted_device_s),
                "-" if window.above_usual_device_s is None else seconds_text(window.above_usual_device_s),
                factor_text(window.slowdown) if window.slowdown is not None else "-",
                factor_text(window.usual) if window.usual is not None else "-",
            )
        )
    words = ["", *(window.text for window in history.worst_windows)]
    return ["", *(f"{line}  {text}".rstrip() for line, text in zip(_padded(aligned(rows)), words, strict=True))]


def _padded(lines: Sequence[str]) -> list[str]:
    width = max(map(len, lines))
    return [line.ljust(width) for line in lines]


def clock_text(unix_s: float, width_s: float) -> str:
    """The time of a window's begin, with a tenth of a second where windows are that narrow."""
    day, clock, _ = time_text(unix_s).split()
    tenth = f".{int(unix_s * 10 + 0.5) % 10}" if width_s < 1 else ""
    return f"{day[5:]} {clock}{tenth}"


def _changes(history: History, most: int) -> list[str]:
    lines = ["", "changes"]
    for change in history.change_points[:most]:
        cost = (
            f", {'cost' if (change.cost_device_s or 0) >= 0 else 'saved'} {seconds_text(abs(change.cost_device_s))}"
            if change.cost_device_s is not None
            else ""
        )
        first, last = (clock_text(each, history.window_s).split()[1] for each in (change.from_unix_s, change.to_unix_s))
        between = f" (between {first} and {last})" if first != last else ""
        lines += wrapped(
            "          ",
            f"{clock_text(change.at_unix_s, history.window_s)}{between}, {shortened(change.engine)}: {change.text}; "
            f"{change.factor_low - 1:+.1%} to {change.factor_high - 1:+.1%}, confidence "
            f"{confidence(change.confidence)}{cost}",
        )
    if not history.change_points:
        lines[-1] += "   none found" if history.basis else "   cannot be told without bounds"
    elif (more := len(history.change_points) - most) > 0:
        lines.append(f"{INDENT}{more:,} more")
    return lines


def confidence(value: float) -> str:
    """A probability near 1 that never reads as certain."""
    return f"{value:.1%}" if value < 0.999 else "above 99.9%"


def _happenings(history: History) -> list[str]:
    if not history.events:
        return []
    lines = ["", "events"]
    for event in history.events[:FEW]:
        text = f": {event.text}" if event.text else ""
        lines += wrapped(
            INDENT, f"{clock_text(event.unix_s, history.window_s)}, {shortened(event.engine)}, {event.name}{text}"
        )
    if (more := len(history.events) - FEW) > 0:
        counts: dict[str, int] = {}
        for event in history.events[FEW:]:
            counts[event.name] = counts.get(event.name, 0) + 1
        lines += wrapped(INDENT, f"{more:,} more: " + ", ".join(f"{name} {count:,}" for name, count in counts.items()))
    return lines


def _findings(history: History) -> list[str]:
    if not history.findings:
        return []
    lines = ["", "findings"]
    for one in history.findings[:FEW]:
        until = (
            "standing at the end" if one.until_unix_s is None else f"for {seconds_text(one.until_unix_s - one.unix_s)}"
        )
        lines += wrapped(
            INDENT,
            f"{clock_text(one.unix_s, history.window_s)}, {until}, {shortened(one.engine)}, {one.code} "
            f"({one.severity}): {one.summary}",
        )
    if (more := len(history.findings) - FEW) > 0:
        lines.append(f"{INDENT}{more:,} more")
    return lines


def _cost(history: History) -> list[str]:
    cost = history.cost
    wasted = f", {seconds_text(cost.wasted_device_s)} wasted" if cost.wasted_device_s is not None else ""
    if cost.held_device_s is None:
        text = f"{seconds_text(cost.busy_device_s)} of device time in steps{wasted}; time held is {PARTIAL}"
    else:
        busy = f", {seconds_text(cost.busy_device_s)} of it in steps" if cost.busy_device_s is not None else ""
        cut = any(history.chosen.get(end) is not None for end in ("from_unix_s", "to_unix_s"))
        how = " from each engine's first step in the period to its last" if cut else ""
        text = f"{seconds_text(cost.held_device_s)} of devices held{how}{busy}{wasted}"
    if cost.device_s_per_million_tokens is not None:
        text += f"; {seconds_text(cost.device_s_per_million_tokens)} a million generated tokens"
    lines = wrapped("cost      ", text)
    if cost.money is not None:
        each = cost.money_per_million_tokens
        text = f"{cost.money:,.2f} in all"
        text += f", {cost.wasted_money:,.2f} wasted" if cost.wasted_money is not None else ""
        text += f", {each:,.2f} a million generated tokens" if each is not None else ""
        lines += wrapped("money     ", f"{text} (at {cost.price_per_device_hour:,.2f} a device and hour)")
    if cost.energy_j is not None:
        text = si_text(cost.energy_j, "J")
        if cost.energy_j_per_million_tokens is not None:
            text += f", {si_text(cost.energy_j_per_million_tokens, 'J')} a million generated tokens"
        part = (
            f", of {cost.energy_ratio:.0%} of the devices"
            if cost.energy_ratio is not None and cost.energy_ratio < 1
            else ""
        )
        lines += wrapped("energy    ", text + part)
    for note in history.notes:
        lines += wrapped("note      ", note)
    return lines


def _wrapped_all(name: str, texts: Sequence[str]) -> list[str]:
    shown = [line for text in texts[:FEW] for line in wrapped(name, text)]
    return [*shown, f"{name}{len(texts) - FEW:,} more"] if len(texts) > FEW else shown
