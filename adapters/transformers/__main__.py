"""``python -m rooflens.adapters.transformers -- serve MODEL ...``: transformers' own command line, recorded.

A script's path instead of a verb runs that script, recorded as well.
"""

from __future__ import annotations

import importlib
import runpy
import sys

from rooflens.adapters.transformers import install

USAGE = "usage: python -m rooflens.adapters.transformers -- (serve MODEL --continuous-batching ... | SCRIPT.py ...)"


def main(arguments: list[str]) -> int:
    """Install the hook, then hand over; 2 where nothing is named to run."""
    if arguments[:1] == ["--"]:
        arguments = arguments[1:]
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE, file=sys.stderr)
        return 2
    install()
    if arguments[0].endswith(".py"):
        sys.argv = arguments
        runpy.run_path(arguments[0], run_name="__main__")
        return 0
    sys.argv = ["transformers", *arguments]
    importlib.import_module("transformers.cli.transformers").main()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
