"""The two panels of --plot: the roofline with the points on it, and tokens a second against batch with its limits."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from rooflens.analyzer.hardware import fastest
from rooflens.analyzer.precision import WEIGHT_FORMATS
from rooflens.cli.panels import Curve, Mark, Panel, Point
from rooflens.cli.predict_answer import Answer, Sources, answer
from rooflens.cli.predict_figures import at_expected, at_floor, at_reachable, has_expected, likely
from rooflens.cli.predict_options import SWEPT, Asked, Sweep
from rooflens.cli.units import si_text
from rooflens.records import RooflensError

MOST_CURVES = 6  # of the second panel; more cannot be told apart
LARGEST_BATCH = 1 << 20  # searched for the ridge and the knee
LEAST_LARGEST = 512  # the batch axis ends here at the earliest
KNEE_GAIN = 1.5  # twice the batch brings this many times the tokens a second at the knee, less beyond it
ROOM = 4.0  # the roofline reaches this factor beyond its points and its ridge

RIDGE = "ridge, compute binds from batch"

Group = tuple[str, list[Answer]]
CURVES: Sequence[tuple[str, str, Callable[[Answer], float | None]]] = (
    ("at the floor", "line", lambda one: at_floor(one).tokens_per_s),
    ("expected", "dotted", lambda one: at_expected(one).tokens_per_s if has_expected(one) else None),
    ("reachable", "dashed", lambda one: at_reachable(one).tokens_per_s),
    ("speculating", "dashed", lambda one: None if one.speculation is None else one.speculation.at.tokens_per_s),
)


def widest_axis(sweep: Sweep) -> str:
    """What tokens a second are drawn against: batch where it was swept or nothing was, else the longest axis."""
    if "batch" in sweep.axes or not sweep.axes:
        return "batch"
    return max(sweep.axes, key=lambda name: len({getattr(point, name) for point in sweep.points}))


def groups_of(found: Sequence[Answer], sweep: Sweep, axis: str) -> list[Group]:
    """The points along ``axis``, a group for each combination of the other axes, called by their values."""
    others = [name for name in sweep.axes if name != axis]
    groups: dict[str, list[Answer]] = {}
    for one in found:
        label = ", ".join(f"{SWEPT[name]} {getattr(one.asked, name):,}" for name in others)
        groups.setdefault(label, []).append(one)
    if len(groups) > MOST_CURVES:
        raise RooflensError(
            f"--plot would draw {len(groups)} curves, at most {MOST_CURVES} can be told apart: sweep less"
        )
    return list(groups.items())


def roofline_panel(groups: Sequence[Group]) -> Panel:
    """Flops a second of one device against flops done with each byte: the roofs and every point."""
    hardware = groups[0][1][0].hardware
    groups = [(label, members) for label, members in groups if members[0].hardware.id == hardware.id]  # one roof each
    found = [one for _, members in groups for one in members]
    bandwidth = hardware.memory_bandwidth_bytes_per_s
    formats = {one.precision.weights: None for one in found} | {one.precision.head: None for one in found}
    computing = {name: None for f in formats if (name := fastest(hardware, WEIGHT_FORMATS[f].compute)) is not None}
    ridges = {name: hardware.peak_flops_per_s[name] / bandwidth for name in computing}
    xs = [_intensity(one) for one in found if _intensity(one) > 0] + list(ridges.values())
    if not xs:
        raise RooflensError("--plot has nothing to draw: neither a peak nor an intensity is known")
    low, high = min(xs) / 2, max(xs) * ROOM
    highest = max((hardware.ceiling_flops_per_s[name] for name in computing), default=high * bandwidth)
    end = highest / bandwidth
    curves = [Curve(f"memory {si_text(bandwidth, 'B/s')}", ((low, low * bandwidth), (end, highest)))]
    for name in computing:
        peak, ceiling = hardware.peak_flops_per_s[name], hardware.ceiling_flops_per_s[name]
        curves.append(Curve(f"{name} peak {si_text(peak, 'FLOP/s')}", ((peak / bandwidth, peak), (high, peak))))
        if ceiling > peak:
            words = "announced" if hardware.announced_flops_per_s.get(name) == ceiling else "highest clock"
            line = ((ceiling / bandwidth, ceiling), (high, ceiling))
            curves.append(Curve(f"{name} {words} {si_text(ceiling, 'FLOP/s')}", line, "dashed"))
    for label, members in groups:
        curves.append(Curve(f"at the floor{_of(label)}", _spots(members, _floor_s), "points", f"points{label}"))
        reachable = _spots(members, lambda one: one.result.reachable_s)
        if reachable:
            curves.append(Curve(f"reachable{_of(label)}", reachable, "crosses", f"points{label}"))
    marks = tuple(Mark(f"ridge of {name}: {ridge:,.0f} FLOP/B", ridge) for name, ridge in ridges.items())
    title = f"Roofline of one {hardware.id}"
    return Panel(title, "FLOP done with each byte of memory", "FLOP/s", tuple(curves), marks)


def _of(label: str) -> str:
    return f", {label}" if label else ""


def _floor_s(one: Answer) -> float | None:
    return one.result.floor_s


def _moved(one: Answer) -> float:
    result = one.result
    return result.weight_read_bytes + result.kv_read_bytes + result.kv_write_bytes + result.state_bytes


def _intensity(one: Answer) -> float:
    return one.result.flops / _moved(one) if _moved(one) else 0.0


def _spots(members: Sequence[Answer], seconds: Callable[[Answer], float | None]) -> tuple[Point, ...]:
    found = ((_intensity(m), m.result.flops / m.plan.devices / s) for m in members if (s := seconds(m)))
    return tuple(sorted(found))


def throughput_panel(groups: Sequence[Group], axis: str, sources: Sources) -> Panel:
    """Tokens a second of all sequences against ``axis``; against batch with the knee, the ridge and what fits."""
    curves, marks = [], []
    for label, members in groups:
        for words, style, rate in CURVES:
            points = [(_along(m, axis), r) for m in members if (r := rate(m)) is not None]
            if points:
                shade = label if words != "speculating" else f"{label} {words}"
                curves.append(Curve(f"{words}{_of(label)}", tuple(sorted(points)), style, shade))
        if axis == "batch":
            marks += limits(members[0].asked, sources, label)
        elif axis == "context" and members[0].result.max_context_tokens:
            marks.append(_mark("longest context that fits", members[0].result.max_context_tokens, label))
    always = axis == "batch" and not any(mark.label.startswith(RIDGE) for mark in marks)
    x_label = f"{SWEPT[axis]} (no ridge: memory binds at any)" if always else SWEPT[axis]
    return Panel("Tokens a second", x_label, "tokens/s", tuple(curves), tuple(marks), binary=True)


def _along(one: Answer, axis: str) -> float:
    value: Mapping[str, float] = {"batch": one.plan.batch, "context": one.plan.context_tokens}
    return value[axis] if axis in value else float(getattr(one.asked, axis) or 0)


def limits(asked: Asked, sources: Sources, label: str = "") -> list[Mark]:
    """The knee, the ridge and the largest batch that fits, where each is there."""
    at = _Batches(asked, sources)
    marks = [(at.knee(), f"knee of {at.likely()}")]
    marks += [(at.ridge(), RIDGE)]
    marks += [(at.cap(), "largest batch that fits")]
    return [_mark(words, value, label) for value, words in marks if value]


def _mark(words: str, value: int, label: str) -> Mark:
    return Mark(f"{words} {value:,}{_of(label)}", float(value))


class _Batches:
    """One deployment at any batch, without speculation."""

    def __init__(self, asked: Asked, sources: Sources) -> None:
        drafts = asked.spec_tokens if asked.phase == "verify" else None
        plain = replace(asked, kv_link=None, spec_method=None, spec_tokens=drafts, acceptance=None, draft_model=None)
        self.asked, self.sources = plain, sources

    def at(self, batch: int) -> Answer:
        return answer(replace(self.asked, batch=batch), self.sources)

    def cap(self) -> int | None:
        """The largest batch whose cache fits beside the weights."""
        return self.at(1).result.max_batch or None

    def ridge(self) -> int | None:
        """The smallest batch at which compute takes as long as memory; None where memory always binds."""
        return self._first(self._compute_binds)

    def likely(self) -> str:
        """Which curve the knee is one of."""
        one = self.at(1)
        if one.result.reachable_s is not None:
            return "reachable"
        return "expected" if has_expected(one) else "the floor"

    def knee(self) -> int | None:
        """The smallest batch of which twice brings less than KNEE_GAIN times the tokens a second."""
        return self._first(lambda batch: self._gain(batch) < KNEE_GAIN)

    def _compute_binds(self, batch: int) -> bool:
        result = self.at(batch).result
        return result.compute_s is not None and result.compute_s >= result.memory_s

    def _gain(self, batch: int) -> float:
        now, twice = likely(self.at(batch)).tokens_per_s, likely(self.at(2 * batch)).tokens_per_s
        return twice / now if now and twice else math.inf

    def _first(self, holds: Callable[[int], bool]) -> int | None:
        """The smallest batch that holds, where all larger ones do."""
        batches = [1]
        while batches[-1] < LARGEST_BATCH:
            batches.append(2 * batches[-1])
        held = [holds(batch) for batch in batches]
        if not held[-1]:
            return None
        last_miss = max((n for n, yes in enumerate(held) if not yes), default=-1)
        if last_miss < 0:
            return 1
        low, high = batches[last_miss], batches[last_miss + 1]
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if holds(middle) else (middle, high)
        return high


def batches_to_draw(asked: Asked, sources: Sources) -> tuple[int, ...]:
    """The batch axis where none was swept: doubling, to beyond what fits and what was asked."""
    cap = _Batches(asked, sources).cap() or 1
    end = max(LEAST_LARGEST, min(2 * cap, LARGEST_BATCH), asked.batch or 1)
    powers = [1 << n for n in range(math.ceil(math.log2(end)) + 1)]
    return tuple(sorted({*powers, asked.batch or 1}))
