"""Cells of several pieces of one recording as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rooflens.analyzer.history.sums import LARGEST, SMALLEST, sums_by_key
from rooflens.trace_records import CELL_KEYS, CELL_SUMS, Cells, TraceFacts

HISTOGRAM_KEYS = ("engine", "kind", "bin")


def joined(pieces: Sequence[Cells], files: int = 0, problems: tuple[str, ...] = ()) -> Cells:
    """The sums of all ``pieces``, which have the same width; an engine is told by its label."""
    labels = sorted({label for piece in pieces for label in piece.engines})
    facts: dict[str, TraceFacts] = {}
    for piece in pieces:
        facts |= dict(zip(piece.engines, piece.facts, strict=True))
    number = {label: at for at, label in enumerate(labels)}
    columns, histogram = [], []
    for piece in pieces:
        own = np.array([number[label] for label in piece.engines], np.int64)
        columns.append({**piece.columns, "engine": own[piece.columns["engine"]]})
        histogram.append({**piece.histogram, "engine": own[piece.histogram["engine"]]})
    keys = tuple(name for name, _ in CELL_KEYS)
    together = _stacked(columns, (*keys, *(name for name, _ in CELL_SUMS)))
    counts = _stacked(histogram, (*HISTOGRAM_KEYS, "steps"))
    told = {line: None for piece in pieces for line in piece.problems}
    return Cells(
        width_s=pieces[0].width_s,
        engines=tuple(labels),
        facts=tuple(facts[label] for label in labels),
        columns=sums_by_key(together, keys, SMALLEST, LARGEST),
        histogram={
            name: column.astype(np.int64) for name, column in sums_by_key(counts, HISTOGRAM_KEYS, (), ()).items()
        },
        files=files,
        problems=(*problems, *told),
    )


def _stacked(pieces: Sequence[Mapping[str, NDArray[Any]]], names: Sequence[str]) -> dict[str, NDArray[Any]]:
    return {name: np.concatenate([np.asarray(piece[name]) for piece in pieces]) for name in names}
