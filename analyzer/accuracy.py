"""How far published measurements are from what is reachable, as benchmarks/prove_roofline.py found it."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Single decode steps, and first tokens of servers, beside what is reachable.

    ``decode_rows`` steps are off by ``decode_median_ratio`` in the middle and ``decode_p90_ratio`` at the 90th
    percentile (magnitude of predicted / observed - 1, no scale fitted). ``first_token_ratio`` is by engine the median
    of observed / reachable of ``first_token_rows`` first tokens; it holds the waiting for other requests.
    """

    decode_rows: int
    decode_median_ratio: float
    decode_p90_ratio: float
    first_token_rows: int
    first_token_ratio: Mapping[str, float]
    source: str


@cache
def published_accuracy() -> Accuracy:
    """The shipped figures."""
    text = (files("rooflens.analyzer") / "data" / "accuracy.toml").read_text(encoding="utf-8")
    data = tomllib.loads(text)
    decode, first = data["decode"], data["first_token"]
    return Accuracy(
        decode_rows=decode["rows"],
        decode_median_ratio=decode["median_ratio"],
        decode_p90_ratio=decode["p90_ratio"],
        first_token_rows=sum(row["rows"] for row in first.values()),
        first_token_ratio={engine: row["median_ratio"] for engine, row in first.items()},
        source=data["source"],
    )
