"""All that cells say of a recording over time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from rooflens.analyzer.history.amounts import amounts_at, span_of, step_quantiles
from rooflens.analyzer.history.change_points import RULE, change_points
from rooflens.analyzer.history.cost import cost_of
from rooflens.analyzer.history.phases import decode_by_batch, phases_of
from rooflens.analyzer.history.records import EngineHistory, Happening, History, StoodFinding
from rooflens.analyzer.history.sums import Table, known, sums_by, table_of
from rooflens.analyzer.history.time_line import engine_windows, silent_s, windows_of
from rooflens.analyzer.history.worst import worst_windows
from rooflens.records import RooflensError
from rooflens.trace_records import Cells, TraceFacts

NOTHING = "no step lies in what was asked for"
WORST = 10  # windows that are told unless another number is asked for


@dataclass(frozen=True, slots=True)
class Beside:
    """What is known beside the cells: events, findings, lost steps, energy of the devices that were counted."""

    events: tuple[Happening, ...] = ()
    findings: tuple[StoodFinding, ...] = ()
    lost_steps: int = 0
    energy_j: float | None = None
    energy_ratio: float | None = None
    notes: tuple[str, ...] = ()


def history_of(
    cells: Cells, beside: Beside = Beside(), price_per_device_hour: float | None = None, most: int = WORST
) -> History:
    """The history of ``cells``; RooflensError in one line where they hold no step."""
    table = table_of(cells)
    if not len(table) or not np.isfinite(table["first_unix_s"]).any():
        raise RooflensError(NOTHING)
    engines = list(_engines(cells, table))
    order = sorted(range(len(engines)), key=lambda at: _rank(engines[at]))
    ranked = tuple(engines[at] for at in order if engines[at].amounts.rows)
    first, last = float(np.nanmin(table["first_unix_s"])), float(np.nanmax(table["last_unix_s"]))
    whole = sums_by(table, np.zeros(len(table), np.int64), 1)
    span = max(last - first, *(engine.amounts.span_s for engine in ranked))
    totals = amounts_at(whole, 0, table.one_basis, step_quantiles(cells, float(whole["observed_max_s"][0])), span)
    outside = sum(max(0.0, one.amounts.span_s - (one.amounts.observed_s or 0.0)) for one in ranked)
    return History(
        from_unix_s=first,
        to_unix_s=last,
        span_s=span,
        window_s=cells.width_s,
        engines_known=len(ranked),
        hosts=tuple(sorted({engine.host for engine in ranked})),
        lost_steps=beside.lost_steps,
        silent_s=silent_s(table, cells.width_s),
        totals=totals,
        engines=ranked,
        phases=phases_of(cells, table, outside),
        decode_by_batch=decode_by_batch(table),
        time_line=windows_of(table, cells.width_s, first, last),
        basis=table.one_basis,
        engine_windows=engine_windows(table, cells.width_s, order),
        worst_windows=worst_windows(table, cells.width_s, cells.engines, most),
        change_points=change_points(table, cells.width_s, cells.engines),
        change_rule=RULE,
        cost=cost_of(ranked, totals.generated_tokens, price_per_device_hour, beside.energy_j, beside.energy_ratio),
        events=beside.events,
        findings=beside.findings,
        notes=beside.notes,
    )


def _rank(engine: EngineHistory) -> tuple[float, str]:
    """Most wasted first, those of which it is not known last."""
    wasted = engine.wasted_device_s
    return (float("inf") if wasted is None else -wasted, engine.label)


def _engines(cells: Cells, table: Table) -> Iterator[EngineHistory]:
    sums = sums_by(table, table["engine"], len(cells.engines))
    for at, (label, facts) in enumerate(zip(cells.engines, cells.facts, strict=True)):
        quantiles = step_quantiles(cells, float(sums["observed_max_s"][at]), cells.histogram["engine"] == at)
        first, last, observed = (float(sums[name][at]) for name in ("first_unix_s", "last_unix_s", "observed_s"))
        span = span_of(first, last, observed)
        yield EngineHistory(
            label=label,
            **_facts(facts),
            wasted_device_s=known(sums["wasted_device_s"][at]),
            busy_device_s=known(sums["busy_device_s"][at]),
            held_device_s=span * max(1, facts.devices),
            amounts=amounts_at(sums, at, table.basis[at], quantiles, span),
        )


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
