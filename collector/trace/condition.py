"""The condition of ``--where``: one SQL expression over the columns of steps, and nothing that reads elsewhere."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Any

from rooflens.records import STEP_COLUMNS, RooflensError
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
            _one_expression(connection, where)
            columns = ", ".join(f"{quoted(name)} {COLUMN_TYPES.get(name, 'DOUBLE')}" for name in names)
            connection.execute(f"CREATE TABLE steps ({columns})")
            values = ", ".join(EXAMPLE.get(COLUMN_TYPES.get(name, "DOUBLE"), "1") for name in names)
            connection.execute(f"INSERT INTO steps VALUES ({values})")  # a text that is no number shows only with a row
            connection.execute(f"SELECT count(*) FROM steps WHERE (\n{where}\n)").fetchall()
        except duckdb.Error as error:
            raise RooflensError(_line(where, str(error), names)) from None
    return where


def failed(where: str, error: Exception) -> RooflensError | None:
    """What to say of a condition that is well formed and fails over some value; None for an error of another kind."""
    import duckdb

    kinds = (duckdb.ConversionException, duckdb.OutOfRangeException)
    if not isinstance(error, kinds):
        return None
    return RooflensError(f"--where: {one_line(where)[:100]}: {one_line(str(error).split(chr(10), 1)[0])[:200]}")


def quoted(name: str) -> str:
    """A name in an SQL text."""
    return '"' + name.replace('"', '""') + '"'


def _one_expression(connection: Any, where: str) -> None:
    """RooflensError unless DuckDB's own parser finds one expression, without a query inside."""
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
    classes = set(_classes(node["select_list"][0]))
    for refused, words in (("SUBQUERY", "a query"), ("STAR", "a *"), ("WINDOW", "a window"), ("PARAMETER", "a ?")):
        if refused in classes:
            raise RooflensError(f"--where: {words} cannot stand in a condition over the columns of a step")


def _classes(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("class"), str):
            yield node["class"]
        for each in node.values():
            yield from _classes(each)
    elif isinstance(node, list):
        for each in node:
            yield from _classes(each)


def _line(where: str, error: str, names: list[str]) -> str:
    """DuckDB's words in one line, with the columns whose names are near the one that it does not know."""
    first = one_line(error.split("\n", 1)[0])
    found = UNKNOWN.search(error)
    if found is None or ("not found" not in error and "does not" not in error):
        return f"--where: {first}"
    name = next(group for group in found.groups() if group).strip('"')
    near = get_close_matches(name.lower(), names, NEAR, 0.5) or sorted(names)[:NEAR]
    return f"--where: a step has no column {name!r}; near it: {', '.join(near)}"


def one_line(text: str) -> str:
    """White space made single."""
    return " ".join(text.split())
