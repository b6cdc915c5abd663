"""What rooflens knows, for other tools: recorded steps as a trace that a viewer opens.

examples:
  rooflens export trace vllm.ring -o trace.json.gz
  rooflens export trace --help
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Mapping

# One file each, with a docstring (its help), ``add_arguments(parser)`` and ``run(args) -> int``.
WHAT: Mapping[str, tuple[str, str]] = {
    "trace": ("rooflens.cli.export_trace", "recorded steps for Perfetto, speedscope, an OTLP backend or a table"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The things that can be exported, each with options of its own."""
    verbs = parser.add_subparsers(title="what", metavar="WHAT", dest="what", required=True)
    for name, (module, help_text) in WHAT.items():
        found = importlib.import_module(module)
        sub = verbs.add_parser(
            name,
            help=help_text,
            description=found.__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        found.add_arguments(sub)


def run(args: argparse.Namespace) -> int:
    """Export it; the exit code is that of its file."""
    return int(importlib.import_module(WHAT[args.what][0]).run(args))
