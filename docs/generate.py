"""Writes the generated pages of this folder; a test fails when one of them is out of step with its source."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path

from rooflens.cli import VERBS, Verb
from rooflens.findings import FINDINGS, FindingCode

HERE = Path(__file__).resolve().parent

FINDINGS_INTRODUCTION = """# Findings

Generated from `src/rooflens/findings.toml` by `make docs`; edit the texts there.

A finding is `firing`, `cleared` or `cannot_tell`. Firing needs evidence that exceeds the model's own error;
`cannot_tell` names the input that is missing. `critical` means look now, `warning` today, `info` when there is time.

This version holds the vocabulary; no command raises a finding yet. Remedies may name commands that come with them.
"""

CLI_INTRODUCTION = """# Commands

Generated from the command line itself by `make docs`; edit the docstring or the option there.

A fault is one line on standard error and the exit code 2. A verb whose extra is not installed names it.
"""


def section(entry: FindingCode) -> str:
    """One code's runbook page in Markdown, with the code as its heading and anchor."""
    flags = "\n".join(f"- {engine}: {text}" for engine, text in entry.flags.items())
    return (
        f"## {entry.code}\n\n**{entry.title}** ({entry.severity})\n\n{entry.meaning}\n\n"
        f"*How it is decided.* {entry.decided}\n\n*What to do.* {entry.remedy}\n\n{flags}\n\n"
        f"*When to distrust it.* {entry.wrong_when}\n"
    )


def findings_page() -> str:
    """The whole page: a table of all codes, then one section for each."""
    rows = [f"| [`{e.code}`](#{e.code}) | {e.severity} | {e.title} |" for e in FINDINGS.values()]
    table = "\n".join(["| code | usual severity | what it says |", "|---|---|---|", *rows])
    return "\n".join([FINDINGS_INTRODUCTION, table, "", *(section(entry) for entry in FINDINGS.values())])


def option_row(action: argparse.Action, formatter: argparse.HelpFormatter) -> str:
    """One option or argument as a row of a Markdown table, its help with the defaults filled in."""
    value = action.metavar or ("" if action.nargs == 0 else "|".join(map(str, action.choices or [action.dest])))
    names = ", ".join(f"{name} {value}".strip() for name in action.option_strings) or str(value)
    text = formatter._expand_help(action) if action.help else ""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in (f"`{names}`", text)) + " |"


def verb_section(name: str, verb: Verb) -> str:
    """One verb: its docstring, then a table of what it takes."""
    module = importlib.import_module(verb.module)
    first, _, rest = (module.__doc__ or verb.help).strip().partition("\n")
    parser = argparse.ArgumentParser(prog=f"rooflens {name}", add_help=False)
    module.add_arguments(parser)
    rows = [option_row(action, parser._get_formatter()) for action in parser._actions]
    parts = [f"## rooflens {name}", first]
    parts += [f"```text\n{rest.strip()}\n```"] if rest.strip() else []
    parts += ["\n".join(["| option | what it does |", "|---|---|", *rows])] if rows else []
    return "\n\n".join(parts) + "\n"


def cli_page() -> str:
    """The whole page: a table of all verbs, then one section for each."""
    rows = [f"| [`{name}`](#rooflens-{name}) | {verb.help} |" for name, verb in VERBS.items()]
    table = "\n".join(["| verb | what it shows |", "|---|---|", *rows])
    return "\n".join([CLI_INTRODUCTION, table, "", *(verb_section(name, verb) for name, verb in VERBS.items())])


PAGES = {"cli.md": cli_page, "findings.md": findings_page}


def main() -> None:
    """Rewrite every generated page in place, none if one of them fails."""
    pages = {name: render() for name, render in PAGES.items()}
    for name, text in pages.items():
        (HERE / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
