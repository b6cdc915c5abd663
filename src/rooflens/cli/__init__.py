"""The command line: one verb, one file; only the chosen verb's module is imported."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, NoReturn

from rooflens import __version__
from rooflens.analyzer.suggest import did_you_mean
from rooflens.cli.output import printable
from rooflens.records import RooflensError

EXIT_FAULT = 2
EXIT_INTERRUPTED = 128 + 2  # SIGINT, as a shell reports it
EXIT_BROKEN_PIPE = 128 + 13  # SIGPIPE


@dataclass(frozen=True, slots=True)
class Verb:
    """A row of the table: the module has a docstring (its help), ``add_arguments(parser)`` and ``run(args) -> int``.

    ``extra`` is what to install where a module that the verb imports is missing and EXTRAS does not know it.
    """

    module: str
    help: str
    extra: str = "sidecar"


VERBS: Mapping[str, Verb] = {
    "analyze": Verb("rooflens.cli.analyze", "where the step time of a recording went, beside its roofline"),
    "diff": Verb("rooflens.cli.diff", "whether the engine changed between two recordings, not the traffic"),
    "predict": Verb("rooflens.cli.predict", "the roofline of a planned deployment"),
    "sidecar": Verb("rooflens.cli.sidecar", "watch engines: findings, metrics for Prometheus, an API"),
    "top": Verb("rooflens.cli.top", "a live view of every engine"),
    "calibrate": Verb("rooflens.cli.calibrate", "measure what this machine really reaches, and keep it"),
    "doctor": Verb("rooflens.cli.doctor", "what was found here, what is missing, and the remedy"),
    "export": Verb("rooflens.cli.export", "recorded steps for viewers, backends and tables", extra="trace"),
    "explain": Verb("rooflens.cli.explain", "what a finding means, what to do, and when to distrust it"),
    "demo": Verb("rooflens.cli.demo", "all of it on an embedded engine, without a GPU", extra="demo"),
}
EXTRAS: Mapping[str, str] = {
    "textual": "top",
    "matplotlib": "plot",
    "duckdb": "trace",
    "pyarrow": "trace",
    "fsspec": "trace",
    "perfetto": "trace",
    "dask": "fleet",
    "distributed": "fleet",
    "msgspec": "feeds",
    "zmq": "feeds",
}


class OneLineParser(argparse.ArgumentParser):
    """An ArgumentParser whose complaint is one line like any other fault, and whose options are written out."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **settings})

    def error(self, message: str) -> NoReturn:
        """Raise RooflensError instead of printing the usage; a mistyped choice is told what it may have meant."""
        choice = re.search(r"invalid choice: '(.*)' \(choose from (.*)\)", message)
        hint = _meant(choice[1], [name.strip("' ") for name in choice[2].split(",")]) if choice else ""
        raise RooflensError(f"{message}{hint} (see '{self.prog} --help')")

    def meant(self, word: str) -> str:
        """What an option that is none may have meant; nothing for one that there is."""
        option = word.partition("=")[0]
        known = self.known_options()
        return "" if option in known else _meant(option, [name for name in known if name.startswith("--")])

    def known_options(self) -> dict[str, argparse.Action]:
        """Its options and those of the verbs below it."""
        found = dict(self._option_string_actions)
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                for below in action.choices.values():
                    found |= below.known_options()
        return found


def _meant(word: str, names: Sequence[str]) -> str:
    return did_you_mean(word, {name: name for name in names})


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and return its exit code; a fault is one line on stderr and the code 2."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        if sys.stdout is None:
            raise RooflensError("standard output is closed: there is nowhere to write to")
        try:
            return _run(words)
        finally:
            sys.stdout.flush()
    except RooflensError as error:
        _complain(str(error))
        return EXIT_FAULT
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        _drop_output()  # the reader of the pipe is gone, nobody listens
        return EXIT_BROKEN_PIPE
    except OSError as error:
        _drop_output()
        why = os.strerror(error.errno).lower() if error.errno else str(error)
        _complain(f"{error.filename}: {why}" if error.filename else f"cannot read or write: {why}")
        return EXIT_FAULT


def _complain(message: str) -> None:
    with contextlib.suppress(OSError):  # standard error may be full or closed as well
        print(f"rooflens: {printable(' '.join(message.split()))}", file=sys.stderr, flush=True)


def _drop_output() -> None:
    """Let what is still to be written vanish: Python would complain again when it flushes at exit."""
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        return
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(words: list[str]) -> int:
    chosen = next((word for word in words if not word.startswith("-")), "")
    verb = VERBS.get(chosen)
    if verb is None:
        parser, _ = _parsers("", None)
        parser.parse_args(words)  # --help, --version and an unknown verb end here
        parser.print_help()
        return EXIT_FAULT
    try:
        module = importlib.import_module(verb.module)
        return int(module.run(_arguments(chosen, module, words)))
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing in ("", "rooflens"):
            raise
        extra = EXTRAS.get(missing, verb.extra)
        raise RooflensError(f"'{chosen}' needs {missing}: pip install 'rooflens[{extra}]'") from error


def _arguments(chosen: str, module: ModuleType, words: list[str]) -> argparse.Namespace:
    """The verb's arguments; one that it does not know points to the verb's own help."""
    parser, sub = _parsers(chosen, module)
    for word in words:
        if word.startswith("--") and sub is not None and (hint := sub.meant(word)):
            raise RooflensError(f"unrecognized arguments: {word}{hint} (see 'rooflens {chosen} --help')")
    args, unknown = parser.parse_known_args(words)
    if unknown:
        raise RooflensError(f"unrecognized arguments: {' '.join(unknown)} (see 'rooflens {chosen} --help')")
    return args


def _parsers(chosen: str, module: ModuleType | None) -> tuple[OneLineParser, OneLineParser | None]:
    """All verbs with their help lines, and the chosen one's own parser with its arguments."""
    mine = None
    parser = OneLineParser(
        prog="rooflens", description="How far each step of an LLM serving engine is from its roofline."
    )
    parser.add_argument("-V", "--version", action="version", version=f"rooflens {__version__}")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", dest="verb")
    for name, verb in VERBS.items():
        sub = verbs.add_parser(
            name,
            help=verb.help,
            description=(module.__doc__ or verb.help) if module and name == chosen else verb.help,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if module and name == chosen:
            module.add_arguments(sub)
            mine = sub
    return parser, mine
