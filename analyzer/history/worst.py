"""The windows that cost most: of which engine, when, and beside which term most of the loss lies."""

from __future__ import annotations

import numpy as np

from rooflens.analyzer.history.amounts import slowdown
from rooflens.analyzer.history.phases import kind_name
from rooflens.analyzer.history.ratio_series import ratios_of, usual_of
from rooflens.analyzer.history.records import WorstWindow
from rooflens.analyzer.history.sums import Column, Groups, Table, by_group, known, ratio, sums_by, unique_rows
from rooflens.model_records import Bound

HALF = 0.5  # of a loss: what explains more than this names it
ONE_STEP, HOST = "one step", "host"
TERM_WORDS = {
    ONE_STEP: "one step of {step}",
    HOST: "the host, not the device",
    "memory": "memory-bound",
    "compute": "compute-bound",
    "link": "link-bound",
}


def worst_windows(table: Table, width_s: float, labels: tuple[str, ...], most: int) -> tuple[WorstWindow, ...]:
    """The ``most`` pairs of engine and window that took most device time above what is usual there, the worst first.

    What an engine always wastes is the table of engines' to tell; where nothing is above it, the waste itself decides.
    """
    (engines, windows), place = unique_rows(table["engine"], table["window"])
    sums = sums_by(table, place, len(engines))
    wasted = sums["wasted_device_s"]
    above, usual = _beside_usual(table, engines, windows)
    above = above * sums["busy_device_s"] / sums["observed_s"]  # the devices of the run of that time
    rank = np.lexsort((-np.nan_to_num(wasted), -np.round(np.nan_to_num(above), 9)))
    order = rank[np.nan_to_num(wasted[rank], nan=-1.0) > 0][:most]
    total = float(wasted[wasted > 0].sum())
    found = []
    for at in order.tolist():
        engine, window = int(engines[at]), int(windows[at])
        phase, term = _blame(table.take(place == at), {name: float(column[at]) for name, column in sums.items()})
        longest = known(sums["observed_max_s"][at])
        words = TERM_WORDS[term].format(step=f"{longest:.3g} s" if longest else "unknown length")
        found.append(
            WorstWindow(
                engine=labels[engine],
                start_unix_s=window * width_s,
                seconds=width_s,
                wasted_device_s=float(wasted[at]),
                above_usual_device_s=known(above[at]),
                share_ratio=ratio(float(wasted[at]), total),
                phase=phase,
                term=term,
                slowdown=slowdown(sums, at),
                usual=known(usual[at]),
                step_max_s=longest,
                text=f"{phase}: {words}",
            )
        )
    return tuple(found)


def _beside_usual(table: Table, engines: Groups, windows: Groups) -> tuple[Column, Column]:
    """(seconds above what is usual, the usual slowdown) of each pair; NaN where there are no bounds."""
    ratios = ratios_of(table, least_steps=1)
    above, usual = np.full(len(engines), np.nan), np.full(len(engines), np.nan)
    if not len(ratios.value):
        return above, usual
    (engine, window), place = unique_rows(ratios.engine, ratios.window)
    bound = ratios.seconds / np.exp(ratios.value)
    expected = bound * np.exp(usual_of(ratios, every=True))
    spent_s, bound_s, usual_s = (by_group(each, place, len(engine)) for each in (ratios.seconds, bound, expected))
    at = np.searchsorted(_key(engines, windows, windows), _key(engine, window, windows))
    above[at], usual[at] = spent_s - usual_s, usual_s / bound_s
    return above, usual


def _key(engine: Groups, window: Groups, windows: Groups) -> Groups:
    low = int(windows.min())
    key: Groups = engine * (int(windows.max()) - low + 1) + window - low
    return key


def _blame(cells: Table, one: dict[str, float]) -> tuple[str, str]:
    """(kind that lost most, term) of one window: one long step, the host where device time tells, else the bound."""
    lost = np.nan_to_num(cells["wasted_s"])
    kinds = np.unique(cells["kind"])
    by_kind = [float(lost[cells["kind"] == kind].sum()) for kind in kinds.tolist()]
    kind = int(kinds[int(np.argmax(by_kind))])
    if one["observed_max_s"] > HALF * one["wasted_s"] and one["observed_steps"] > 2:
        return kind_name(kind), ONE_STEP
    told = ratio(one["device_observed_s"], one["observed_s"]) or 0.0  # device time is known of so much of it
    if told > HALF and one["device_observed_s"] - one["device_s"] > HALF * told * one["wasted_s"]:
        return kind_name(kind), HOST
    mine = cells["kind"] == kind
    bound = [float(np.nansum(cells[f"{each.name.lower()}_bound_steps"][mine])) for each in Bound]
    return kind_name(kind), list(Bound)[int(np.argmax(bound))].name.lower()
