"""One engine of the live view: what it is, how fast, how full, how near to the roof, and where its time goes."""

from __future__ import annotations

from collections.abc import Mapping

from rooflens.cli.top_counters import counter_lines
from rooflens.cli.top_lines import INDENT, Json, Line, word, wrapped
from rooflens.cli.top_notes import bound_notes, derived_lines, listed
from rooflens.cli.units import age_text, factor_text, seconds_text

BAR_CELLS = 24
TIME_CELLS = 40
# The parts of an engine's time: key, letter in the bar, name; letters carry the meaning where colours do not.
PARTS = (
    ("memory", "M", "memory"),
    ("compute", "C", "compute"),
    ("link", "L", "link"),
    ("beyond_floor", "+", "beyond floor"),
    ("not_modelled", "?", "not modelled"),
    ("between", "-", "between"),
    ("idle", ".", "idle"),
)
LEAST_SHOWN = 0.005  # below it a share reads 0%
EXPECTED_RATIO = 1.005  # of the floor: less is no share of any expert
STALE_S = 3.0  # a step this old is worth a word; loops turn every second


def last_window(engine: Json) -> Json:
    """The figures of the engine's newest window; empty before the first."""
    windows = engine.get("windows") or []
    return windows[-1] if windows else {}


def _title(engine: Json, now_s: float | None) -> list[str]:
    facts = engine.get("facts") or {}
    runs = " ".join(word(part) for part in (facts.get("engine"), facts.get("engine_version")) if part)
    place = word(engine.get("hardware") or "hardware not known")
    parts = [word(engine.get("model_name")), f"engine {word(engine.get('engine'))}", word(engine.get("state")),
             f"by {word(engine.get('source'))}", runs, place]  # fmt: skip
    last_s = engine.get("last_step_unix_s")
    if now_s is not None and last_s is not None and now_s - last_s >= STALE_S:
        parts.append(f"last step {age_text(now_s - last_s)} ago")
    return [part for part in parts if part]


def _head(engine: Json, now_s: float | None, width: int) -> list[Line]:
    """What the engine is, on as many lines as it takes; a part is never cut for the sake of the next."""
    rows = [""]
    for part in _title(engine, now_s):
        if rows[-1] and len(rows[-1]) + 2 + len(part) > width:
            rows.append(INDENT + part)
        else:
            rows[-1] += f"  {part}" if rows[-1] else part
    return [Line(row, "head") for row in rows]


def engine_block(engine: Json, now_s: float | None, width: int) -> list[Line]:
    """One engine: what it is, how fast, how full, how near to the roof, and where its time goes."""
    figures, heads = last_window(engine), _head(engine, now_s, width)
    notes = wrapped(INDENT, f"no floor: {engine['problem']}", width) if engine.get("problem") else []
    if not figures:
        return [*heads, Line(f"{INDENT}no window yet: it takes ten seconds in which fifty steps are made"), *notes]
    decode = (figures.get("kinds") or {}).get("decode") or {}
    lines = [
        f"{rate(figures, 'steps')} steps/s   {rate(figures, 'generated_tokens')} tokens/s   decode step p50 "
        f"{seconds_text(decode.get('step_p50_s'))}, p99 {seconds_text(decode.get('step_p99_s'))}",
        f"batch {number(figures.get('batch_mean'))}   context {number(figures.get('context_tokens_mean'))}   running "
        f"{number(figures.get('running_mean'))}   waiting {number(figures.get('waiting_mean'))}{_queued(figures)}"
        + (f"   deferred {number(figures['deferred_mean'])}" if figures.get("deferred_mean") else ""),
        f"KV {_bar(figures.get('kv_used_mean'))} {percent(figures.get('kv_used_mean'))}, at most "
        f"{percent(figures.get('kv_used_max'))}   {_preempted(figures)}",
        f"MBU {percent(figures.get('mbu'))}   MFU {percent(figures.get('mfu'))}   {_above(figures)}",
    ]
    return [
        *heads,
        *(Line(INDENT + line) for line in lines),
        *_bound_line(figures, width),
        *_time_lines(figures, width),
        *counter_lines(engine, width),
        *bound_notes(engine, figures, width),
        *derived_lines(engine.get("derived") or [], width),
        *notes,
    ]


def _bound_line(figures: Json, width: int) -> list[Line]:
    """The mean step of the kind that took most time: floor, expected where it differs, reachable, observed."""
    kinds = {name: kind for name, kind in (figures.get("kinds") or {}).items() if kind.get("compared_steps")}
    if not kinds:
        return []
    name, kind = max(kinds.items(), key=lambda each: each[1].get("compared_s") or 0.0)
    floor_s, expected_s = kind.get("floor_s") or 0.0, kind.get("expected_s") or 0.0
    seconds = {
        "floor": floor_s,
        "expected": expected_s if expected_s > EXPECTED_RATIO * floor_s else None,
        "reachable": kind.get("reachable_s"),
        "observed": kind.get("compared_s"),
    }
    count = kind["compared_steps"]
    told = [f"{what} {seconds_text(total / count)}" for what, total in seconds.items() if total is not None]
    return listed(f"mean {word(name)} step", told, width)


def _time_lines(figures: Json, width: int) -> list[Line]:
    """The bar of where the time went and, below it, what its letters are."""
    parts = time_parts(figures)
    if not parts:
        return []
    told = [f"{letter} {name} {parts[key]:.0%}" for key, letter, name in PARTS if parts[key] >= LEAST_SHOWN]
    rows = [f"{INDENT}time [{time_bar(parts)}]", f"{INDENT}    "]
    for item in told:
        if len(rows[-1]) + 2 + len(item) > width:
            rows.append(f"{INDENT}    ")
        rows[-1] += f"  {item}"
    return [Line(row) for row in rows]


def time_parts(figures: Json) -> dict[str, float]:
    """Where the wall time of a window went, as ratios that add up to 1; empty where there was none.

    Time of which the source does not say whether anybody asked for anything counts as between.
    """
    bound, busy_s = figures.get("bound_s") or {}, figures.get("busy_s") or 0.0
    floor_s, compared_s = figures.get("floor_s") or 0.0, figures.get("compared_s") or 0.0
    seconds = {name: bound.get(name, 0.0) for name in ("memory", "compute", "link")}
    seconds["beyond_floor"] = max(0.0, compared_s - floor_s)
    seconds["not_modelled"] = max(0.0, busy_s - compared_s)
    seconds["between"] = figures.get("between_s") or 0.0
    seconds["idle"] = figures.get("idle_s") or 0.0
    total_s = sum(seconds.values())
    return {name: value / total_s for name, value in seconds.items()} if total_s > 0 else {}


def time_bar(parts: Mapping[str, float], cells: int = TIME_CELLS) -> str:
    """The parts as letters in ``cells`` columns; what is above zero and rounds to nothing is left out."""
    bar, gone = "", 0.0
    for key, letter, _ in PARTS:
        gone += parts.get(key, 0.0)
        bar += letter * (round(gone * cells) - len(bar))
    return bar.ljust(cells)


def rate(figures: Json, name: str) -> str:
    """How often a second the figure called ``name`` was counted."""
    count, span_s = figures.get(name), figures.get("span_s")
    return "-" if count is None or not span_s else number(count / span_s)


def number(value: float | None) -> str:
    """A count or a mean with a digit after the point where it matters; a dash where it is not known."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.1f}"


def percent(ratio: float | None) -> str:
    """A ratio in percent; a dash where it is not known."""
    return "-" if ratio is None else f"{ratio:.0%}"


def _queued(figures: Json) -> str:
    share = figures.get("waiting_share")
    return f" ({share:.0%} of steps)" if share else ""


def _preempted(figures: Json) -> str:
    preempted = figures.get("preempted")
    return "preemptions not known" if preempted is None else f"{preempted:,} preemption{'' if preempted == 1 else 's'}"


def _bar(ratio: float | None) -> str:
    filled = round(min(1.0, max(0.0, ratio or 0.0)) * BAR_CELLS)
    return f"[{'#' * filled}{' ' * (BAR_CELLS - filled)}]"


def above_floor(figures: Json) -> str:
    """Observed time over the floor, of the steps that have one."""
    floor_s, compared_s = figures.get("floor_s"), figures.get("compared_s")
    return "-" if not floor_s or compared_s is None else factor_text(compared_s / floor_s)


def _above(figures: Json) -> str:
    """The factor above the floor and what sets the floor, with shares where it is more than one resource."""
    bound = {name: value for name, value in (figures.get("bound_s") or {}).items() if value > 0}
    total_s = sum(bound.values())
    shares = ", ".join(f"{word(name)} {s / total_s:.0%}" for name, s in sorted(bound.items(), key=lambda i: -i[1]))
    names = shares if len(bound) > 1 else "".join(map(word, bound)) or "-"
    return f"{above_floor(figures)} x floor   bound by {names}"
