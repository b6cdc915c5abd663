"""Writes the generated pages of this folder; a test fails when one of them is out of step with its source."""

from __future__ import annotations

from pathlib import Path

from rooflens.findings import FINDINGS, FindingCode

HERE = Path(__file__).resolve().parent

INTRODUCTION = """# Findings

Generated from `src/rooflens/findings.toml` by `make docs`; edit the texts there.

A finding is `firing`, `cleared` or `cannot_tell`. Firing needs evidence that exceeds the model's own error;
`cannot_tell` names the input that is missing. `critical` means look now, `warning` today, `info` when there is time.
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
    return "\n".join([INTRODUCTION, table, "", *(section(entry) for entry in FINDINGS.values())])


PAGES = {"findings.md": findings_page}


def main() -> None:
    """Rewrite every generated page in place."""
    for name, render in PAGES.items():
        (HERE / name).write_text(render(), encoding="utf-8")


if __name__ == "__main__":
    main()
