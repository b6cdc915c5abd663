"""The table of names: which series of a page is which quantity, read from one file for each engine."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

KINDS = ("counter", "gauge", "histogram", "info", "created", "process")
# More than an engine can mean. Counted ever since it began: thirty million a second for a year, and a float still
# counts them one by one. Requests at one moment: each holds a connection. A pool's share: counted twice over.
MOST_COUNTED = 1e15
MOST_BY_UNIT: Mapping[str, float] = {"requests": 1e7, "ratio": 2.0}


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a series stands for. ``preference`` 0 is the newest name of the quantity.

    ``part`` is "sum" or "count" of a histogram, else empty. ``where`` are labels that a series must have,
    ``add_over`` those over which series are added up.
    """

    quantity: str
    kind: str
    preference: int
    part: str = ""
    where: Mapping[str, str] | None = None
    add_over: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The name of the value in a Reading."""
        return f"{self.quantity}_{self.part}" if self.part else self.quantity


@dataclass(frozen=True, slots=True)
class Names:
    """Every spelling of every name with its meanings; ``counters`` are the keys that may only rise.

    ``most`` is, by key, the largest value that can be meant.
    """

    engine: str
    meanings: Mapping[str, tuple[Meaning, ...]]
    counters: frozenset[str]
    most: Mapping[str, float]


@cache
def names_of(engine: str) -> Names:
    """The table of an engine by name; FileNotFoundError for one that has none."""
    file = Path(__file__).with_name(f"{engine}.toml")
    return names_from(tomllib.loads(file.read_text(encoding="utf-8")))


def names_from(data: Mapping[str, Any]) -> Names:
    """The table in ``data``: quantity -> kind, names, where, add_over."""
    meanings: dict[str, tuple[Meaning, ...]] = {}
    counters: set[str] = set()
    most: dict[str, float] = {}
    for quantity, entry in data.items():
        if not isinstance(entry, Mapping):
            continue
        kind = entry["kind"]
        if kind not in KINDS:
            raise ValueError(f"{quantity} has no kind of {KINDS}: {kind}")
        for preference, name in enumerate(entry["names"]):
            for series, part in _series(name, kind):
                meaning = Meaning(
                    quantity, kind, preference, part, entry.get("where"), tuple(entry.get("add_over", ()))
                )
                if kind in ("counter", "histogram"):
                    counters.add(meaning.key)
                most[meaning.key] = MOST_COUNTED if kind != "gauge" else MOST_BY_UNIT.get(entry["unit"], MOST_COUNTED)
                for spelling in {series, series.replace(":", "_")}:
                    meanings[spelling] = (*meanings.get(spelling, ()), meaning)
    return Names(str(data["engine"]), meanings, frozenset(counters), most)


def _series(name: str, kind: str) -> tuple[tuple[str, str], ...]:
    """The series by which a metric appears on the page, with the part of it that each one is."""
    if kind == "counter":
        return ((name, ""), (f"{name}_total", ""))
    if kind == "histogram":
        return ((f"{name}_sum", "sum"), (f"{name}_count", "count"))
    return ((f"{name}_created" if kind == "created" else name, ""),)
