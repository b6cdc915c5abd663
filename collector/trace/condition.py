"""The condition of ``--where``: one SQL expression over the columns of steps, and nothing that reads elsewhere."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Any

from rooflens.records import STEP_COLUMNS, RooflensError, StepKind
from rooflens.trace_records import KEY_COLUMNS, KEYFRAME_COLUMNS, ROOF_COLUMNS

LONGEST = 4000  # characters
SQL_OF_KIND = {"i": "BIGINT", "f": "DOUBLE"}
SQL_OF_ARROW = {"string": "VARCHAR", "int8": "TINYINT", "double": "DOUBLE", "list<int32>": "INTEGER[]"}
# What a step may have, by name, as SQL types.
COLUMN_TYPES: dict[str, str] = {
    **{name: SQL_OF_ARROW[kind] for name, kind, _ in KEY_COLUMNS},
    **{name: SQL_OF_KIND[kind] for name, kind, _ in STEP_COLUMNS},
    **{name: SQL_OF_ARROW[kind] for name, kind, _ in (*ROOF_COLUMNS, *KEYFRAME_COLUMNS)},
}
EXAMPLE = {"VARCHAR": "'0'", "INTEGER[]": "[1]"}
UNKNOWN = re.compile(r'column "?([^"\n]+?)"? (?:not found|cannot be)|named "?([^"\n]+?)"? ', re.IGNORECASE)
NEAR = 4  # names that are listed
ELSEWHERE = {
    **dict.fromkeys(("engine", "model", "model_name", "host", "label"), "--engine"),
    **dict.fromkeys(("date", "hour", "minute", "time", "timestamp"), "--from and --to"),
}
KINDS = {kind.name.lower(): int(kind) for kind in StepKind}
KINDS_TOLD = ", ".join(f"{number} {name}" for name, number in KINDS.items())
# What answers the same every time, from its arguments alone, and no more than these are long.
FUNCTIONS = frozenset(
    """
    + - * / // % ^ ** & | ~ << >> || ~~ !~~ ~~* !~~* ~~~ ^@ @> <@ && @  abs ceil ceiling floor round trunc sign
    sqrt cbrt exp ln log log10 log2 pow power mod divide fdiv fmod multiply  add subtract xor bit_count greatest
    least nullif if isnan isinf isfinite  lower lcase upper ucase length len strlen trim ltrim rtrim left right
    substr substring position strpos instr  contains prefix suffix starts_with ends_with like_escape
    not_like_escape regexp_matches regexp_full_match  list_value row list_sum list_min list_max list_avg
    list_count list_median list_contains list_has list_has_any  list_has_all list_extract list_element
    array_extract array_length array_contains list_first list_last  to_timestamp make_timestamp date_part
    date_trunc epoch year month day hour minute second dayofweek dayname
    """.split()  # noqa: SIM905
)
AGGREGATES = ("sum", "avg", "min", "max", "count", "count_star", "median", "quantile", "mean")
SHOWN = "abs, round, log2, greatest, length, list_sum, regexp_matches, hour"
ONE = '--where: one condition over the columns of a step, such as "kind = 1 AND requests > 8"'


def checked(where: str | None, spanned: Iterable[str] = ()) -> str | None:
    """``where`` as it may stand in brackets; ``spanned`` are columns over spans that are there too.

    RooflensError in one line for what is no single condition over the columns of steps: a second statement, a query
    of its own, a name that is no column.
    """
    if where is None or not where.strip():
        return None
    if len(where) > LONGEST:
        raise RooflensError(f"--where: at most {LONGEST} characters, this one has {len(where)}")
    import duckdb

    from rooflens.collector.trace.duck import closed

    names = [*COLUMN_TYPES, *spanned]
    with closed() as connection:
        try:
            _one_expression(connection, where, names)
            columns = ", ".join(f"{quoted(name)} {COLUMN_TYPES.get(name, 'DOUBLE')}" for name in names)
            connection.execute(f"CREATE TABLE rows ({columns})")
            connection.execute("CREATE VIEW steps AS SELECT * FROM rows")  # as files are read: a table has a rowid
            values = ", ".join(EXAMPLE.get(COLUMN_TYPES.get(name, "DOUBLE"), "1") for name in names)
            connection.execute(f"INSERT INTO rows VALUES ({values})")  # a text that is no number shows only with a row
            connection.execute(f"SELECT count(*) FROM steps WHERE (\n{where}\n)").fetchall()
            kind = str(connection.execute(f"DESCRIBE SELECT (\n{where}\n) FROM steps").fetchall()[0][1])
        except duckdb.Error as error:
            raise RooflensError(_line(where, str(error), names)) from None
    if kind != "BOOLEAN":
        raise RooflensError(f"--where: {one_line(where)[:100]} is a value of type {kind}, no condition: compare it")
    return where


def failed(where: str, error: Exception) -> RooflensError | None:
    """What to say of a condition that is well formed and fails over some value; None for an error of another kind."""
    import duckdb

    kinds = (duckdb.ConversionException, duckdb.OutOfRangeException, duckdb.InvalidInputException)
    if not where or not isinstance(error, kinds):
        return None
    return RooflensError(f"--where: {one_line(where)[:100]}: {_first(str(error))[:200]}")


def quoted(name: str) -> str:
    """A name in an SQL text."""
    return '"' + name.replace('"', '""') + '"'


def _first(error: str) -> str:
    """The first sentence of DuckDB's, without what only its own user could set."""
    return one_line(error.split("\n", 1)[0].partition(" Use TRY(")[0].removeprefix("Invalid Input Error: "))


def _one_expression(connection: Any, where: str, names: list[str]) -> None:
    """RooflensError unless DuckDB's own parser finds one expression over these columns, without a query inside, of
    functions whose answer depends on their arguments alone, and is not much longer than they are."""
    said = json.loads(connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [f"SELECT\n{where}\n"]).fetchone()[0])
    if said.get("error_type") == "not implemented":  # another statement than SELECT
        raise RooflensError(ONE)
    if said.get("error"):
        raise RooflensError(f"--where: no SQL condition: {one_line(str(said.get('error_message')))}")
    statements = said["statements"]
    node = statements[0]["node"] if len(statements) == 1 else {}
    plain = (
        node.get("type") == "SELECT_NODE"
        and len(node["select_list"]) == 1
        and not node["select_list"][0].get("alias")
        and (node.get("from_table") or {}).get("type") == "EMPTY"
        and not any(node.get(part) for part in ("where_clause", "group_expressions", "having", "modifiers", "qualify"))
        and not (node.get("cte_map") or {}).get("map")
    )
    if not plain:
        raise RooflensError(ONE)
    _refuse(list(_nodes(node["select_list"][0])), names)


def _refuse(nodes: list[dict[str, Any]], names: list[str]) -> None:
    """RooflensError for what cannot stand in a condition."""
    classes = {node["class"] for node in nodes}
    for refused, words in (
        ("SUBQUERY", "a query"), ("STAR", "a *"), ("WINDOW", "a window"), ("PARAMETER", "a ?"), ("LAMBDA", "a lambda")
    ):  # fmt: skip
        if refused in classes:
            raise RooflensError(f"--where: {words} cannot stand in a condition over the columns of a step")
    there = {name.lower() for name in names}
    for node in nodes:
        if node["class"] == "COLUMN_REF" and node["column_names"][-1].lower() not in there:
            raise RooflensError(_no_column(node["column_names"][-1], names))
        if node["class"] == "FUNCTION" and (name := node["function_name"].lower()) not in FUNCTIONS:
            if name in AGGREGATES:
                raise RooflensError(f"--where: {name}: a condition is over one step, it cannot hold aggregates")
            raise RooflensError(
                f"--where: {one_line(name)[:60]}() cannot stand here; what can is {SHOWN} and their like"
            )


def _nodes(node: Any) -> Iterator[dict[str, Any]]:
    """All expressions in an expression."""
    if isinstance(node, dict):
        if isinstance(node.get("class"), str):
            yield node
        for each in node.values():
            yield from _nodes(each)
    elif isinstance(node, list):
        for each in node:
            yield from _nodes(each)


def _line(where: str, error: str, names: list[str]) -> str:
    """DuckDB's words in one line, with the columns whose names are near the one that it does not know."""
    first = _first(error)
    if (quoted_kind := re.search(r"[Cc]ould not convert string '(\w+)'", error)) and quoted_kind[1].lower() in KINDS:
        return _no_column(quoted_kind[1], names)
    found = UNKNOWN.search(error)
    if found is None or ("not found" not in error and "does not" not in error):
        return f"--where: {first}"
    return _no_column(next(group for group in found.groups() if group).strip('"'), names)


def _no_column(name: str, names: list[str]) -> str:
    """What to say of a name that is no column: an option that means it, or columns whose names are near."""
    name = one_line(name)[:60]
    if (number := KINDS.get(name.lower())) is not None:
        return f"--where: kinds of steps are numbers: kind = {number} is {name.lower()}; all: {KINDS_TOLD}"
    if name.lower() in ELSEWHERE:
        return f"--where: a step has no column {name!r}: {ELSEWHERE[name.lower()]} is for that"
    near = get_close_matches(name.lower(), names, NEAR, 0.5) or sorted(names)[:NEAR]
    return f"--where: a step has no column {name!r}; near it: {', '.join(near)}"


def one_line(text: str) -> str:
    """White space made single."""
    return " ".join(text.split())
