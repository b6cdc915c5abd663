"""The sections of a recording over time, as tables that are read without a script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rooflens.dashboards.report import words
from rooflens.dashboards.report.markup import Child, Markup, tag
from rooflens.dashboards.report.tables import Cell, Column, table
from rooflens.dashboards.report.view import basis_of, bound_words

Row = Mapping[str, Any]
LABEL = 48  # characters of an engine's name


def label(text: str) -> Child:
    """An engine's name; all of it where the mouse rests."""
    return tag("span", words.short(text, LABEL), class_="label", title=text if len(text) > LABEL else None)


def seconds(value: float | None) -> Cell:
    """A duration."""
    return Cell(words.seconds(value), value)


def percent(value: float | None) -> Cell:
    """A ratio."""
    return Cell(words.percent(value), value)


def factor(value: float | None) -> Cell:
    """A factor."""
    return Cell(words.factor(value), value)


def number(value: float | None) -> Cell:
    """A number with three digits."""
    return Cell(words.number(value), value)


def whole(value: float | None) -> Cell:
    """A count."""
    return Cell(words.whole(value), value)


def at(unix_s: float | None, width_s: float | None = None) -> Cell:
    """A moment."""
    return Cell(words.moment(unix_s, width_s), unix_s)


def stack(
    floor_s: float | None, bound_s: float | None, observed_s: float | None, all_s: float, most_s: float
) -> Markup:
    """A bar: the floor, what is reachable above it, what was lost, and the time that was compared with no bound."""
    known = observed_s is not None and floor_s is not None
    parts: list[tuple[str, str, float]] = []
    if known and observed_s is not None and floor_s is not None:
        bound = floor_s if bound_s is None else max(bound_s, floor_s)
        parts = [("floor", "floor", min(floor_s, observed_s))]
        parts.append(("reachable", "reachable above it", max(0.0, min(bound, observed_s) - floor_s)))
        parts.append(("waste", "above", max(0.0, observed_s - bound)))
    parts.append(("unknown", "not compared", max(0.0, all_s - (observed_s if known and observed_s else 0.0))))
    shown = [(name, text, value) for name, text, value in parts if value > 0]
    longer = all_s > most_s * 1.0001 > 0
    told = ", ".join(f"{text} {words.seconds(value)}" for _, text, value in shown) or "nothing"
    spans = [
        tag("span", class_=f"part part-{name}", style=f"width:{min(100.0, 100 * value / most_s) if most_s else 0:.2f}%")
        for name, _, value in shown
    ]
    return tag("div", spans, class_="stack longer" if longer else "stack", role="img", aria_label=told, title=told)


def legend(basis: str) -> Markup:
    """What the colours of the bars mean."""
    names = (("floor", "floor: no engine can be faster"), ("reachable", f"up to {bound_words(basis)}"),
             ("waste", "above it: lost"), ("unknown", "idle, or not compared with a bound"))  # fmt: skip
    items = [tag("li", tag("span", class_=f"key part-{name}"), f" {text}") for name, text in names]
    return tag("ul", items, class_="legend")


def phases(found: Row, basis: str) -> Markup | None:
    """Where the time went, by kind of step, and decode by its batch."""
    rows: list[list[Cell | Child]] = []
    every = found.get("phases") or ()
    steps = [phase["seconds"] for phase in every if phase.get("steps")]
    most = max(steps or [phase["seconds"] for phase in every], default=0.0)  # idle time may be a thousand times that
    for phase in every:
        rows.append(_phase(phase, str(phase["name"]), most))
        parts = found.get("decode_by_batch") or ()
        if phase["name"] == "decode" and len(parts) > 1:
            rows += [_phase(part, Cell(str(part["name"]), class_="inner"), most) for part in parts]
    columns = (
        Column("kind of step", False), Column("floor, reachable, lost", False), Column("time"), Column("share"),
        Column("steps"), Column("p50", help="half of the steps were shorter"), Column("p90"), Column("longest"),
        Column("lost", help=f"above {bound_words(basis)}"), Column("× floor", help="observed time over the floor"),
        Column("MBU", help="needed bytes over what the memory moves in that time"),
        Column("MFU", help="needed operations over what the device computes in that time"), Column("bound by", False),
    )  # fmt: skip
    return table("Time by kind of step.", columns, rows, "time by kind", sortable=False) if rows else None


def _phase(phase: Row, name: Cell | Child, most_s: float) -> list[Cell | Child]:
    floor, step = phase.get("floor") or {}, phase.get("step_s") or {}
    observed, bound = floor.get("observed_s"), floor.get("reachable_s")
    bound = floor.get("expected_s") if bound is None else bound
    steps: Mapping[str, int] = floor.get("bound_steps") or {}
    by = max(steps, key=steps.__getitem__, default="")
    if by and len(steps) > 1:
        by = f"{by} {words.percent(steps[by] / sum(steps.values()))}"
    return [
        name, stack(floor.get("floor_s"), bound, observed, phase["seconds"], most_s), seconds(phase["seconds"]),
        percent(phase.get("share_ratio")), whole(phase.get("steps") or None), seconds(step.get("p50")),
        seconds(step.get("p90")), seconds(step.get("max")),
        seconds(observed - bound if observed is not None and bound is not None else None),
        factor(observed / floor["floor_s"] if observed and floor.get("floor_s") else None),
        percent(floor.get("mbu")), percent(floor.get("mfu")), by,
    ]  # fmt: skip


def engines(history: Row) -> Markup:
    """Every engine, most wasted first."""
    found: Sequence[Row] = history.get("engines") or ()
    most = max((engine.get("busy_device_s") or 0.0 for engine in found), default=0.0)
    columns: Sequence[Column] = (
        Column("engine", False), Column("busy time", False, "floor, what is reachable, lost"), Column("devices"),
        Column("steps"), Column("busy"), Column("lost", help=f"device time above {bound_words(basis_of(history))}"),
        Column("of busy"), Column("p50"), Column("p90"), Column("batch"), Column("tokens/s"),
        Column("KV used", help="mean of the pool's blocks in use"), Column("runs", False),
    )  # fmt: skip
    rows = [_engine(engine, most) for engine in found]
    if all((engine.get("devices") or 1) == 1 for engine in found):
        columns, rows = (*columns[:2], *columns[3:]), [[*row[:2], *row[3:]] for row in rows]
    return table(f"Engines, most lost first: {len(found):,}.", columns, rows, "engines")


def _engine(engine: Row, most_s: float) -> list[Cell | Child]:
    amounts: Row = engine.get("amounts") or {}
    devices, busy = engine.get("devices") or 1, engine.get("busy_device_s")
    wasted, wasted_s, of_s = engine.get("wasted_device_s"), amounts.get("wasted_s"), amounts.get("wasted_of_s")
    floor, compared = amounts.get("floor_s"), amounts.get("compared_s")
    bound = of_s - wasted_s if of_s is not None and wasted_s is not None else None
    scaled = [None if each is None else each * devices for each in (floor, bound, of_s or compared)]
    bar = stack(scaled[0], scaled[1], scaled[2], busy or 0.0, most_s)
    software = " ".join(filter(None, (engine.get("engine_name"), engine.get("engine_version"))))
    hardware = engine.get("hardware") or tag("span", "hardware not known", title=engine.get("problem"))
    runs = tag("div", software or words.DASH, ", ", hardware, class_="runs")
    return [
        label(engine["label"]), Cell(bar, busy), whole(devices), whole(amounts.get("steps")),
        seconds(busy), seconds(wasted), percent(wasted_s / of_s if wasted_s is not None and of_s else None),
        seconds(amounts.get("step_p50_s")), seconds(amounts.get("step_p90_s")),
        number(amounts.get("requests_mean")), number(engine.get("tokens_per_s")),
        percent(amounts.get("kv_used_ratio")), runs,
    ]  # fmt: skip


def worst(history: Row, place: str) -> Markup | None:
    """The windows that cost most; each leads to its place in the time line."""
    found, width_s = history.get("worst_windows") or (), history.get("window_s")
    columns = (
        Column("begin (UTC)", False), Column("engine", False), Column("lost"),
        Column("share", help="of all that was lost"),
        Column("above usual", help="device time that this engine does not lose elsewhere"),
        Column("× bound", help=f"observed time beside {bound_words(basis_of(history))}"),
        Column("usual ×", help="of this engine at the same regimes elsewhere"),
        Column("longest step"), Column("mostly in", False), Column("beside", False),
    )  # fmt: skip
    rows = [
        [
            Cell(jump(one["start_unix_s"], width_s, one["seconds"], one["engine"], place), one["start_unix_s"]),
            label(one["engine"]), seconds(one["wasted_device_s"]), percent(one["share_ratio"]),
            seconds(one.get("above_usual_device_s")),
            factor(one["slowdown"]), factor(one["usual"]), seconds(one["step_max_s"]), one["phase"], one["term"],
        ]
        for one in found
    ]  # fmt: skip
    caption = f"Windows of one engine, of {words.seconds(width_s)} each, that lost most beside what is usual for it."
    return table(caption, columns, rows, "worst windows") if rows else None


def jump(unix_s: float, width_s: float | None, seconds_: float, engine: str, place: str) -> Markup:
    """A link to a moment in the time line."""
    text = words.moment(unix_s, width_s)
    return tag("a", text, href=f"#{place}", data_from=repr(unix_s), data_to=repr(unix_s + seconds_), data_engine=engine)


def changes(history: Row, place: str) -> Markup | None:
    """When the step time changed, with what it rests on."""
    width_s = history.get("window_s")
    columns = (
        Column("at (UTC)", False), Column("between (UTC)", False), Column("engine", False), Column("change"),
        Column("95 % interval"), Column("confidence"), Column("cost"), Column("where", False),
    )  # fmt: skip
    rows = [
        [
            Cell(jump(one["at_unix_s"], width_s, 0.0, one["engine"], place), one["at_unix_s"]),
            f"{words.clock(one['from_unix_s'], width_s)} to {words.clock(one['to_unix_s'], width_s)}",
            label(one["engine"]), Cell(words.change(one["factor"]), one["factor"]),
            f"{words.change(one['factor_low'])} to {words.change(one['factor_high'])}",
            Cell("> 99.9%" if one["confidence"] >= 0.999 else f"{one['confidence']:.1%}", one["confidence"]),
            seconds(one["cost_device_s"]), one["text"],
        ]
        for one in history.get("change_points") or ()
    ]  # fmt: skip
    return table("Changes of the time of a step beside its bound.", columns, rows, "changes") if rows else None
