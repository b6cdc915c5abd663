"""All that cells say of a recording over time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rooflens.analyzer.history.amounts import Sums, amounts_at, span_of, step_quantiles, tokens_of
from rooflens.analyzer.history.change_points import RULE, change_points
from rooflens.analyzer.history.cost import cost_of
from rooflens.analyzer.history.invalid import invalid_engines, invalid_lines, without
from rooflens.analyzer.history.phases import decode_by_batch, phases_of
from rooflens.analyzer.history.records import EngineHistory, Happening, History, StoodFinding
from rooflens.analyzer.history.sums import Column, Table, known, ratio, sums_by, table_of, unique_rows
from rooflens.analyzer.history.time_line import engine_windows, silent_s, windows_of
from rooflens.analyzer.history.worst import worst_windows
from rooflens.records import RooflensError
from rooflens.trace_records import Cells, TraceFacts

NOTHING = "no step lies in what was asked for"
TWICE = (
    "{}: busy for {:,.1f} s in {:,.1f} s: two sources or two processes tell of it under one name, and its steps and "
    "costs count twice; choose one with --engine RUN"
)
MOST_BUSY, LEAST_TWICE_S = 1.02, 1.0  # steps of one engine follow each other, but their times are rounded
WORST = 10  # windows that are told unless another number is asked for


@dataclass(frozen=True, slots=True)
class Beside:
    """What is known beside the cells: events, findings, lost steps, energy of the devices that were counted.

    ``clock_spans_s`` are the spans by the host's own clock of engines whose wall clock was set, by label. ``partial``
    is whether only some of the steps of the period were chosen, so that time without one is not idle time.
    """

    events: tuple[Happening, ...] = ()
    findings: tuple[StoodFinding, ...] = ()
    lost_steps: int = 0
    energy_j: float | None = None
    energy_ratio: float | None = None
    notes: tuple[str, ...] = ()
    clock_spans_s: Mapping[str, float] = field(default_factory=dict)
    partial: bool = False


def history_of(
    cells: Cells, beside: Beside = Beside(), price_per_device_hour: float | None = None, most: int = WORST
) -> History:
    """The history of ``cells``; RooflensError in one line where they hold no step."""
    everything = _begun(table_of(cells))
    if not len(everything) or not np.isfinite(everything["first_unix_s"]).any():
        raise RooflensError(NOTHING)
    invalid = invalid_engines(everything, cells.facts)
    table = without(everything, invalid)
    why = list(invalid_lines(everything, invalid))
    engines = list(_engines(cells, table, beside, why))
    order = sorted(range(len(engines)), key=lambda at: _rank(engines[at]))
    ranked = tuple(engines[at] for at in order if engines[at].amounts.rows)
    first, last = float(np.nanmin(table["begun_unix_s"])), float(np.nanmax(table["last_unix_s"]))
    whole = sums_by(table, np.zeros(len(table), np.int64), 1)
    span = max(0.0 if beside.clock_spans_s else last - first, *(engine.amounts.span_s for engine in ranked))
    totals = amounts_at(whole, 0, table.one_basis, step_quantiles(cells, float(whole["observed_max_s"][0])), span)
    outside = sum(max(0.0, one.amounts.span_s - (one.amounts.observed_s or 0.0)) for one in ranked)
    untold = beside.partial or bool(beside.clock_spans_s)
    bad = [f"{label}: {line}" for label, line in zip(cells.engines, why, strict=True) if line]
    return History(
        from_unix_s=first,
        to_unix_s=last,
        span_s=span,
        window_s=cells.width_s,
        engines_known=len(ranked),
        hosts=tuple(sorted({engine.host for engine in ranked})),
        lost_steps=beside.lost_steps,
        silent_s=None if untold else silent_s(table, cells.width_s),
        totals=totals,
        engines=ranked,
        phases=phases_of(cells, table, 0.0 if beside.partial else outside),
        decode_by_batch=decode_by_batch(table),
        time_line=windows_of(table, cells.width_s, first, last),
        basis=table.one_basis,
        engine_windows=engine_windows(table, cells.width_s, order),
        worst_windows=worst_windows(table, cells.width_s, cells.engines, most),
        change_points=change_points(table, cells.width_s, cells.engines),
        change_rule=RULE,
        cost=cost_of(ranked, _tokens(whole), price_per_device_hour, beside.energy_j, beside.energy_ratio),
        events=beside.events,
        findings=beside.findings,
        notes=(*bad, *_twice(table, cells.engines), *beside.notes),
    )


def _begun(table: Table) -> Table:
    """The table with a begin for each cell: where no time of a step is known, its output."""
    return replace(
        table, columns={**table.columns, "begun_unix_s": np.fmin(table["begun_unix_s"], table["first_unix_s"])}
    )


def _tokens(whole: Sums) -> float | None:
    """Generated tokens where every engine tells them."""
    return known(float(tokens_of(whole)[0]))


def _twice(table: Table, labels: Sequence[str]) -> Iterator[str]:
    """A line for each engine that was busy for longer than its steps lie apart: two sources tell of it."""
    names = ("begun_unix_s", "last_unix_s", "observed_s")
    begun, last, busy = (sums_by(table, table["engine"], len(labels), names)[name] for name in names)
    for at in np.flatnonzero(busy > (last - begun) * MOST_BUSY + LEAST_TWICE_S).tolist():
        yield TWICE.format(labels[at], busy[at], last[at] - begun[at])


def _rank(engine: EngineHistory) -> tuple[float, str]:
    """Most wasted first, those of which it is not known last."""
    wasted = engine.wasted_device_s
    return (float("inf") if wasted is None else -wasted, engine.label)


def _engines(cells: Cells, table: Table, beside: Beside, invalid: Sequence[str | None]) -> Iterator[EngineHistory]:
    sums = sums_by(table, table["engine"], len(cells.engines))
    held, tokens = _held(table, len(cells.engines)), tokens_of(sums)
    for at, (label, facts) in enumerate(zip(cells.engines, cells.facts, strict=True)):
        quantiles = step_quantiles(cells, float(sums["observed_max_s"][at]), cells.histogram["engine"] == at)
        first, last, observed = (float(sums[name][at]) for name in ("begun_unix_s", "last_unix_s", "observed_s"))
        own = beside.clock_spans_s.get(label)
        span = span_of(first, last, observed) if own is None else own
        usual = held[at] if own is None and np.isfinite(held[at]) else span * max(1, facts.devices)
        yield EngineHistory(
            label=label,
            **_facts(facts) | ({"problem": invalid[at]} if invalid[at] else {}),
            wasted_device_s=known(sums["wasted_device_s"][at]),
            busy_device_s=known(sums["busy_device_s"][at]),
            held_device_s=None if beside.partial else max(float(usual), known(sums["busy_device_s"][at]) or 0.0),
            amounts=amounts_at(sums, at, table.basis[at], quantiles, span),
            measurement_invalid=invalid[at] is not None,
            tokens_per_s=None if beside.partial else ratio(float(tokens[at]), span),
        )


def _held(table: Table, engines: int) -> Column:
    """Device-seconds from the begin of each engine's first step to its last: a restart may have had other devices.

    Those of a run are held until the next one, with others, begins.
    """
    (engine, devices), place = unique_rows(table["engine"], table["devices"])
    ends = sums_by(table, place, len(engine), ("begun_unix_s", "last_unix_s"))
    held = np.full(engines, np.nan)
    for at in range(engines):
        mine = np.flatnonzero(engine == at)
        mine = mine[np.argsort(ends["begun_unix_s"][mine], kind="stable")]
        if len(mine):
            until = np.append(ends["begun_unix_s"][mine][1:], ends["last_unix_s"][mine].max())
            held[at] = float(((until - ends["begun_unix_s"][mine]) * devices[mine]).sum())
    return held


def _facts(facts: TraceFacts) -> dict[str, Any]:
    """What EngineHistory takes over from the facts."""
    info = facts.info
    return {
        "model_name": facts.model_name,
        "engine": facts.engine,
        "host": facts.host,
        "run": facts.run,
        "source": str(facts.source),
        "devices": max(1, facts.devices),
        "hardware": facts.hardware.id if facts.hardware else None,
        "engine_name": info.engine if info else None,
        "engine_version": info.engine_version if info else None,
        "weights": (info.quantization or info.weight_dtype) if info else None,
        "kv": info.kv_dtype if info else None,
        "problem": facts.problem,
    }
