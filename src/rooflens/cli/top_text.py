"""A moment of all engines as lines of text, from the same dicts that the API serves; None stays a dash."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence

from rooflens.cli.top_block import above_floor, engine_block, last_window, number, percent, rate
from rooflens.cli.top_groups import group_lines
from rooflens.cli.top_lines import INDENT, Json, Line, cut, word, wrapped
from rooflens.cli.top_notes import cleared_line, listed
from rooflens.cli.units import aligned, seconds_text

Pair = tuple[Json, Sequence[Json]]  # an engine, and the findings that name it

LEAST_NAME = 10
MOST_BLOCKS = 4  # more engines are one line each
FIRING, CANNOT_TELL = "firing", "cannot_tell"
SEVERITIES = ("critical", "warning", "info")


def frame_lines(frame: Json, origin: str, width: int, height: int | None = None) -> list[Line]:
    """All lines of ``frame`` at this ``width``; with a ``height`` the last one says how many did not fit.

    ``frame`` is what the API serves of the engines, with the list of ``findings`` beside them; ``origin`` says where
    it is from.
    """
    engines = frame.get("engines") or []
    pairs = [(engine, _findings_of(engine, frame)) for engine in engines]
    now_s = (frame.get("snapshot") or {}).get("created_unix_s")
    blocks = [
        line
        for pair in pairs
        for line in (*engine_block(pair[0], now_s, width), *_findings([pair], width, False, now_s))
    ]
    groups = group_lines(frame.get("groups") or [], width)
    lines = [_head(frame, origin, len(engines)), *groups]
    if not engines:
        lines.append(Line("no engine yet: it appears here once it makes steps"))
    elif len(engines) == 1 or (
        len(engines) <= MOST_BLOCKS and (height is None or len(blocks) + len(groups) + 2 <= height)
    ):
        lines += blocks
    else:
        lines += [*_table(pairs, width), *_findings(pairs, width, named=True)]
    for problem in frame.get("problems") or []:
        lines += wrapped("problem: ", problem, width, "warning")
    lines = [Line(cut(line.text, width), line.style) for line in lines]
    if height is not None and len(lines) > height:
        hidden = len(lines) - height + 1
        lines = [*lines[: height - 1], Line(cut(f"... {hidden} more lines: rooflens top --once", width))]
    return lines


def _findings_of(engine: Json, frame: Json) -> list[Json]:
    """The findings that name this engine."""
    name = (engine.get("model_name"), engine.get("engine"))
    return [found for found in frame.get("findings") or [] if (found.get("model_name"), found.get("engine")) == name]


def _head(frame: Json, origin: str, engines: int) -> Line:
    parts = [f"rooflens {word(frame.get('version'))}", word(origin)]
    if (created_s := (frame.get("snapshot") or {}).get("created_unix_s")) is not None:
        parts.append(f"{datetime.datetime.fromtimestamp(created_s, datetime.UTC):%H:%M:%S} UTC")
    parts.append(f"{engines:,} engine{'' if engines == 1 else 's'}")
    return Line("   ".join(parts), "head")


def _table(pairs: Sequence[Pair], width: int) -> list[Line]:
    """One line for each engine; its name gets what the figures leave."""
    rows = [("state", "tok/s", "p50", "batch", "queue", " KV", " MBU", "x floor", "finds")]
    for engine, found in pairs:
        figures = last_window(engine)
        decode = (figures.get("kinds") or {}).get("decode") or {}
        rows.append((
            word(engine.get("state")), rate(figures, "generated_tokens"), seconds_text(decode.get("step_p50_s")),
            number(figures.get("batch_mean")), number(figures.get("waiting_mean")),
            percent(figures.get("kv_used_mean")), percent(figures.get("mbu")), above_floor(figures),
            str(sum(finding.get("status") == FIRING for finding in found)),
        ))  # fmt: skip
    ends = [f", {word(engine.get('engine'))}" for engine, _ in pairs]
    taken = sum(2 + max(map(len, column)) for column in zip(*rows, strict=True)) + max(map(len, ends))
    room = max(LEAST_NAME, width - taken)
    names = [cut(word(engine.get("model_name")), room) + end for (engine, _), end in zip(pairs, ends, strict=True)]
    named = zip(("model, engine", *names), rows, strict=True)
    first, *rest = aligned([(name, *row) for name, row in named])
    return [Line(first, "head"), *map(Line, rest)]


def _findings(pairs: Sequence[Pair], width: int, named: bool, now_s: float | None = None) -> list[Line]:
    """What fires, worst first, with price and remedy; then, of single engines, what cleared and what none can tell."""
    lines: list[Line] = []
    firing = [(engine, finding) for engine, found in pairs for finding in found if finding.get("status") == FIRING]
    for engine, finding in sorted(firing, key=lambda pair: _rank(pair[1])):
        severity = word(finding.get("severity"))
        whose = f"{word(engine.get('model_name'))}, {word(engine.get('engine'))}: " if named else ""
        lines += wrapped(f"{INDENT}{severity.upper()} ", f"{whose}{finding.get('code')}: {finding.get('summary')}",
                          width, severity)  # fmt: skip
        if price := finding.get("price"):
            lines += wrapped(f"{INDENT * 2}price: ", price_text(price), width)
        if remedy := finding.get("remedy"):
            lines += wrapped(f"{INDENT * 2}remedy: ", remedy, width)
    untold = [f"{word(finding.get('code'))} ({', '.join(map(word, finding.get('missing') or ()))})"
              for _, found in pairs for finding in found if finding.get("status") == CANNOT_TELL]  # fmt: skip
    if named:
        return lines
    lines += [line for _, found in pairs for line in cleared_line(found, now_s, width)]
    return [*lines, *listed("cannot tell", untold, width)] if untold else lines


def _rank(finding: Json) -> int:
    severity = finding.get("severity")
    return SEVERITIES.index(severity) if severity in SEVERITIES else len(SEVERITIES)


def price_text(price: Json) -> str:
    """What a cause cost, as a share of the judged time with its interval."""
    judged_s = price.get("judged_s") or 0.0
    saved, low, high = (price.get(name) or 0.0 for name in ("saved_s", "saved_low_s", "saved_high_s"))
    if not judged_s:
        return seconds_text(saved)
    least, most = f"{low / judged_s:.0%}", f"{high / judged_s:.0%}"
    interval = f"; {least} to {most}" if least != most else ""
    times = f"{seconds_text(saved)} of {seconds_text(judged_s)}"
    return f"{saved / judged_s:.0%} of the engine's time ({times}{interval})"


def plain(lines: Iterable[Line]) -> str:
    """The lines as text without colours."""
    return "\n".join(line.text.rstrip() for line in lines)
