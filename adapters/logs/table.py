"""The tables of lines: what an engine writes, as data, one file an engine.

A ``[[line]]`` begins at one of its ``marks`` (after it with ``after``; at ``begin`` where that is another stretch) and
consists of pairs; ``values`` and ``words`` say what each label is called here ("" for one that is known and not kept, a
list of a name and a factor where its unit is in the label). ``endings`` are labels that begin with what the device is
called; ``flags`` are values that are 1 where a text stands on the line; ``head`` is a template before the pairs;
``otherwise`` moves a value where another is absent; ``less`` is a difference of two; ``ranks`` are labels of numbers
that the line gives itself. ``reads`` is "pairs" or "config" (only the keys that are named are looked for).
A ``[[fact]]`` is a sentence, a template.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from rooflens.adapters.logs.names import RANKS, WORDS, declared
from rooflens.adapters.logs.template import Template, template
from rooflens.log_records import RecordKind

ENGINES = ("vllm", "sglang", "tensorrt-llm", "llama.cpp")
FILES = {engine: engine.replace("-", "_").replace(".", "_") + ".toml" for engine in ENGINES}


@dataclass(frozen=True, slots=True)
class Value:
    """What a label is called here, and what its number is multiplied with beyond its unit; "" for one not kept."""

    name: str
    factor: float = 1.0


@dataclass(frozen=True, slots=True)
class Line:
    """One kind of line of one engine; the fields are those of the table."""

    engine: str
    marks: tuple[str, ...]
    kind: RecordKind
    reads: str
    values: Mapping[str, Value]
    words: Mapping[str, str]
    endings: Mapping[str, Value]
    flags: Mapping[str, str]
    otherwise: Mapping[str, str]
    less: Mapping[str, tuple[str, str]]
    ranks: Mapping[str, str]
    head: Template | None
    names_unknown: bool
    after: bool
    begin: str


@dataclass(frozen=True, slots=True)
class Fact:
    """One sentence of one engine."""

    engine: str
    kind: RecordKind
    template: Template


@dataclass(frozen=True, slots=True)
class Table:
    """All that is known of what one engine writes."""

    engine: str
    lines: tuple[Line, ...]
    facts: tuple[Fact, ...]


@cache
def table_of(engine: str) -> Table:
    """The shipped table of an engine; ValueError for an engine without one."""
    if engine not in FILES:
        raise ValueError(f"no table of what {engine!r} writes: one of {', '.join(ENGINES)}")
    path = Path(__file__).parent / FILES[engine]
    return table_from(tomllib.loads(path.read_text("utf-8")))


def table_from(data: Mapping[str, Any]) -> Table:
    """A table from its data; ValueError for a name that is not declared."""
    engine = data["engine"]
    lines = tuple(_line(engine, each) for each in data.get("line", ()))
    facts = tuple(
        Fact(engine, RecordKind(each.get("kind", "startup")), template(text))
        for each in data.get("fact", ())
        for text in each["texts"]
    )
    return Table(engine, lines, facts)


def _line(engine: str, data: Mapping[str, Any]) -> Line:
    values = {label: _value(said) for label, said in data.get("values", {}).items()}
    endings = {label: _value(said) for label, said in data.get("endings", {}).items()}
    words = dict(data.get("words", {}))
    less = {name: (first, second) for name, (first, second) in data.get("less", {}).items()}
    for value in (*values.values(), *endings.values()):
        _declare(engine, value.name)
    for name in (*data.get("flags", {}).values(), *data.get("otherwise", {}).values(), *less):
        _declare(engine, name)
    for name in words.values():
        if name and name not in WORDS:
            raise ValueError(f"{engine}: the word {name!r} is not declared in names.py")
    return Line(
        engine=engine,
        marks=tuple(data["marks"]),
        kind=RecordKind(data["kind"]),
        reads=data.get("reads", "pairs"),
        values=values,
        words=words,
        endings=endings,
        flags=dict(data.get("flags", {})),
        otherwise=dict(data.get("otherwise", {})),
        less=less,
        ranks=_ranks(engine, data.get("ranks", {})),
        head=template(data["head"]) if "head" in data else None,
        names_unknown=data.get("names_unknown", True),
        after=data.get("after", False),
        begin=data.get("begin", ""),
    )


def _ranks(engine: str, data: Mapping[str, str]) -> dict[str, str]:
    for name in data.values():
        if name not in RANKS:
            raise ValueError(f"{engine}: the rank {name!r} is not declared in names.py")
    return dict(data)


def _value(said: str | list[Any]) -> Value:
    return Value(said) if isinstance(said, str) else Value(str(said[0]), float(said[1]))


def _declare(engine: str, name: str) -> None:
    if name and not declared(name):
        raise ValueError(f"{engine}: the value {name!r} is not declared in names.py")
