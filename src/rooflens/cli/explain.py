"""What a finding means: how it is decided, what to do, each engine's own flags, and when to distrust it.

Needs neither an engine nor a network. Without a code every finding is one line.

examples:
  rooflens explain
  rooflens explain kv_pressure
  rooflens explain engine_stalled --json
"""

from __future__ import annotations

import argparse
import shutil
import textwrap
from dataclasses import fields
from typing import Any

from rooflens.cli.output import json_text
from rooflens.cli.units import aligned
from rooflens.findings import FINDINGS, FindingCode, lookup
from rooflens.records import RooflensError

MOST_WIDTH, LEAST_WIDTH, NAME_WIDTH = 118, 40, 10  # columns


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `rooflens explain`."""
    parser.add_argument("code", nargs="?", metavar="CODE", help="a finding's code, such as kv_pressure (default: all)")
    parser.add_argument("--json", action="store_true", help="one JSON object, or an array of all")


def run(args: argparse.Namespace) -> int:
    """Print one code's texts, or the list of codes. RooflensError for a code that there is not."""
    if args.code is None:
        entries = list(FINDINGS.values())
        print(json_text([_as_json(entry) for entry in entries]) if args.json else _table(entries))
        return 0
    try:
        entry = lookup(args.code.strip().lower())
    except KeyError as error:
        raise RooflensError(str(error.args[0])) from None
    print(json_text(_as_json(entry)) if args.json else text(entry))
    return 0


def text(entry: FindingCode, width: int | None = None) -> str:
    """All texts of a code, wrapped at ``width`` columns (default: those of the terminal)."""
    columns = width or min(MOST_WIDTH, max(LEAST_WIDTH, shutil.get_terminal_size((MOST_WIDTH, 0)).columns))
    parts = [
        (str(entry.severity), f"{entry.code}: {entry.title}"),
        ("meaning", entry.meaning),
        ("decided", entry.decided),
        ("remedy", entry.remedy),
        *entry.flags.items(),
        ("distrust", entry.wrong_when),
    ]
    indent = " " * NAME_WIDTH
    wrapped = (
        textwrap.wrap(told, columns, initial_indent=f"{name:<{NAME_WIDTH}}", subsequent_indent=indent,
                      break_long_words=False, break_on_hyphens=False)
        for name, told in parts
    )  # fmt: skip
    return "\n\n".join("\n".join(lines) for lines in wrapped)


def _table(entries: list[FindingCode]) -> str:
    rows = [(entry.code, entry.severity.ljust(8), entry.title) for entry in entries]
    names = aligned([(code, severity) for code, severity, _ in rows])
    return "\n".join(f"{name.ljust(len(max(names, key=len)))}  {row[2]}" for name, row in zip(names, rows, strict=True))


def _as_json(entry: FindingCode) -> dict[str, Any]:
    named = {field.name: getattr(entry, field.name) for field in fields(entry)}
    return {**named, "flags": dict(entry.flags)}
