"""Cells summed by groups: what is not known stays not known, and what is derived of an engine is derived once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rooflens.analyzer.history.records import EXPECTED, MIXED, REACHABLE
from rooflens.trace_records import CELL_KEYS, CELL_SUMS, Cells

Column = NDArray[np.float64]
Groups = NDArray[np.int64]
SMALLEST, LARGEST = ("first_unix_s", "begun_unix_s"), ("last_unix_s", "observed_max_s", "kv_ratio_max")
WAITING = "waiting_mean"  # of each engine over its time, summed over engines
MOST_UNREACHED = 0.5  # of an engine's compared steps: with more of them unknown, what is reachable is no basis


@dataclass(frozen=True, slots=True)
class Table:
    """Cells as columns of one length, with what follows from the facts of each engine.

    Beside the names of CELL_KEYS and CELL_SUMS: ``wasted_s`` of ``wasted_of_s`` lies above the engine's ``basis``;
    ``wasted_device_s`` and ``busy_device_s`` count each of the devices that its run had. ``devices`` are those of each
    engine's last run.
    """

    columns: Mapping[str, NDArray[Any]]
    devices: Groups
    basis: tuple[str | None, ...]

    def __len__(self) -> int:
        return len(self.columns["engine"])

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.columns[name]

    def take(self, rows: NDArray[Any]) -> Table:
        """The cells selected by an index array or a mask."""
        return Table({name: column[rows] for name, column in self.columns.items()}, self.devices, self.basis)

    def devices_at(self, engine: int, windows: Groups) -> Column:
        """The devices of an engine in ``windows``, shape (windows,): of one with a restart the mean over its time."""
        mine = self.take(self.columns["engine"] == engine)
        found, place = np.unique(mine["window"], return_inverse=True)
        busy = [by_group(mine[name], place.reshape(-1), len(found)) for name in ("busy_device_s", "observed_s")]
        at = np.minimum(np.searchsorted(found, windows), max(0, len(found) - 1))
        of_window: Column = np.where(busy[1] > 0, busy[0] / np.where(busy[1] > 0, busy[1], 1.0), self.devices[engine])
        return of_window[at]

    @property
    def one_basis(self) -> str | None:
        """What waste is against, in one word over all engines."""
        found = {each for each in self.basis if each is not None}
        return None if not found else found.pop() if len(found) == 1 else MIXED


def table_of(cells: Cells) -> Table:
    """The columns of ``cells`` and what is derived of them."""
    columns: dict[str, NDArray[Any]] = {name: np.asarray(cells.columns[name], np.int64) for name, _ in CELL_KEYS}
    columns |= {name: np.asarray(cells.columns[name], np.float64) for name, _ in CELL_SUMS}
    engine, engines = columns["engine"], len(cells.engines)
    devices = np.array([max(1, facts.devices) for facts in cells.facts], np.int64)
    reached, compared = (by_group(columns[name], engine, engines) for name in ("reached_steps", "compared_steps"))
    basis = tuple(map(_basis, reached.tolist(), compared.tolist()))
    by_reachable = np.array([each == REACHABLE for each in basis], bool)[engine] if engines else np.empty(0, bool)
    spent = np.where(by_reachable, columns["reached_observed_s"], columns["compared_observed_s"])
    columns["wasted_of_s"] = spent
    columns["wasted_s"] = spent - np.where(by_reachable, columns["reachable_s"], columns["compared_expected_s"])
    columns["wasted_device_s"] = columns["wasted_s"] * columns["devices"]
    columns["busy_device_s"] = columns["observed_s"] * columns["devices"]
    return Table(columns, devices, basis)


def _basis(reached_steps: float, compared_steps: float) -> str | None:
    if not compared_steps > 0:
        return None
    return REACHABLE if reached_steps > (1 - MOST_UNREACHED) * compared_steps else EXPECTED


def by_group(values: Column, groups: Groups, count: int) -> Column:
    """The sums of ``values`` by group, shape (count,); NaN where no value of a group is known."""
    known = np.isfinite(values)
    if known.all():
        sums = np.bincount(groups, values, count)
        seen: Groups = np.bincount(groups, minlength=count)
    else:
        sums = np.bincount(groups[known], values[known], count)
        seen = np.bincount(groups[known], minlength=count)
    found: Column = np.where(seen > 0, sums, np.nan)
    return found


def _extreme(values: Column, groups: Groups, count: int, largest: bool) -> Column:
    found = np.full(count, np.nan)
    (np.fmax if largest else np.fmin).at(found, groups, values)
    return found


def sums_by(table: Table, groups: Groups, count: int, names: tuple[str, ...] | None = None) -> dict[str, Column]:
    """Every summed column by group, shape (count,); NaN where not known. ``names`` picks some."""
    found = {}
    for name, column in table.columns.items():
        if name in KEYS or (names is not None and name not in names):
            continue
        if name in SMALLEST or name in LARGEST:
            found[name] = _extreme(column, groups, count, name in LARGEST)
        else:
            found[name] = by_group(column, groups, count)
    if names is None or WAITING in names:
        found[WAITING] = _waiting(table, groups, count)
    return found


def _waiting(table: Table, groups: Groups, count: int) -> Column:
    """Requests that wait, by group: the mean of each engine over its own time, summed over the engines."""
    (group, _), place = unique_rows(groups, table["engine"])
    waiting, known_s = (by_group(table[name], place, len(group)) for name in ("waiting_s", "waiting_of_s"))
    return by_group(waiting / known_s, group, count)


def unique_rows(*columns: Groups) -> tuple[list[Groups], Groups]:
    """(the columns of each combination that there is, in order, of each row which of them it has)."""
    key = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        if len(column):
            low = int(column.min())
            key = key * (int(column.max()) - low + 1) + column - low
    _, first, place = np.unique(key, return_index=True, return_inverse=True)
    return [column[first] for column in columns], np.asarray(place, np.int64).reshape(-1)


def sums_by_key(
    columns: Mapping[str, NDArray[Any]], keys: tuple[str, ...], smallest: tuple[str, ...], largest: tuple[str, ...]
) -> dict[str, NDArray[Any]]:
    """One row for each combination of ``keys``, in their order; other columns are summed, or the extreme is taken."""
    chosen, place = unique_rows(*(columns[name] for name in keys))
    count = len(chosen[0])
    found: dict[str, NDArray[Any]] = dict(zip(keys, chosen, strict=True))
    for name, column in columns.items():
        if name not in keys:
            values = np.asarray(column, np.float64)
            extreme = name in smallest or name in largest
            found[name] = _extreme(values, place, count, name in largest) if extreme else by_group(values, place, count)
    return found


KEYS = frozenset(name for name, _ in CELL_KEYS)


def known(value: float) -> float | None:
    """The value, None for NaN."""
    return float(value) if np.isfinite(value) else None


def ratio(part: float, whole: float) -> float | None:
    """One over the other; None where it is not known or the other is nothing."""
    return float(part / whole) if np.isfinite(part) and np.isfinite(whole) and whole > 0 else None
