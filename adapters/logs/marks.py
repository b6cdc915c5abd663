"""The stretches of text by which lines are recognised, and fewer, shorter ones that rule a line out quickly."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import NamedTuple

from rooflens.adapters.logs import llama_cpp, trtllm_stats
from rooflens.adapters.logs.table import Fact, Line, table_of

GATE = 6  # characters of a gate: shorter ones stand in every line, longer ones are shared by few marks


class Mark(NamedTuple):
    """A stretch of text, and what is read where it stands: a line, a sentence, or one of the two that are code."""

    text: str
    engine: str
    what: Line | Fact | str


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
    return tuple(marks)


@cache
def gates_of(engines: tuple[str, ...]) -> tuple[str, ...]:
    """Stretches of which each mark holds at least one: a line without any of them holds no mark."""
    left = {mark.text for mark in marks_of(engines)}
    gates: list[str] = []
    while left:
        counted = Counter(part for text in left for part in _parts(text))
        gates.append(max(counted, key=lambda part: (counted[part], part)))
        left = {text for text in left if gates[-1] not in text}
    return tuple(gates)


def _parts(text: str) -> set[str]:
    return {text[at : at + GATE] for at in range(max(1, len(text) - GATE + 1))}
