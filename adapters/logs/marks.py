"""The stretches of text by which lines are recognised, and fewer, shorter ones that rule a line out quickly."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import NamedTuple

from rooflens.adapters.logs import llama_cpp, trtllm_stats
from rooflens.adapters.logs.table import Fact, Line, table_of

GATE = 6  # characters of a gate: shorter ones stand in every line, longer ones are shared by few marks


class Mark(NamedTuple):
    """A stretch of text, and what is read where it stands: a line, a sentence, or one of the two that are code.

    ``place`` is its place in the table: where two tell the same value, the first one is taken.
    """

    text: str
    engine: str
    what: Line | Fact | str
    place: int = 0


@cache
def marks_of(engines: tuple[str, ...]) -> tuple[Mark, ...]:
    """Every mark of these engines; ValueError for an engine that has no table."""
    marks: list[Mark] = []
    for engine in engines:
        table = table_of(engine)
        marks += [Mark(text, engine, line) for line in table.lines for text in line.marks]
        marks += [Mark(fact.template.mark, engine, fact) for fact in table.facts]
        if engine == llama_cpp.ENGINE:
            marks += [Mark(text, engine, "timing") for text in llama_cpp.MARKS]
        if engine == trtllm_stats.ENGINE:
            marks += [Mark(text, engine, "stats") for text in trtllm_stats.MARKS]
    return tuple(mark._replace(place=place) for place, mark in enumerate(marks))


class Gate(NamedTuple):
    """A stretch of text, and the marks that hold it and no gate before it."""

    text: str
    marks: tuple[Mark, ...]


@cache
def gates_of(engines: tuple[str, ...]) -> tuple[Gate, ...]:
    """Stretches of which each mark holds at least one: a line without any of them holds no mark."""
    left = list(marks_of(engines))
    gates: list[Gate] = []
    while left:
        counted = Counter(part for text in {mark.text for mark in left} for part in _parts(text))
        gate = max(counted, key=lambda part: (counted[part], part))
        gates.append(Gate(gate, tuple(mark for mark in left if gate in mark.text)))
        left = [mark for mark in left if gate not in mark.text]
    return tuple(gates)


def _parts(text: str) -> set[str]:
    return {text[at : at + GATE] for at in range(max(1, len(text) - GATE + 1))}
