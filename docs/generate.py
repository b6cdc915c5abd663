"""Writes the generated pages of this folder; a test fails when one of them is out of step with its source."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import os
import re
import shlex
from pathlib import Path

from rooflens.analyzer.rules import RULES
from rooflens.catalogue import CATALOGUE
from rooflens.cli import VERBS, Verb
from rooflens.cli import main as run
from rooflens.findings import FINDINGS, FindingCode
from rooflens.metric_records import OPEN_LABELS, Metric
from rooflens.records import STEP_COLUMNS
from rooflens.trace_records import KEY_COLUMNS, KEYFRAME_COLUMNS, ROOF_COLUMNS
from rooflens.trace_tables import COUNTER_COLUMNS, EVENT_COLUMNS

HERE = Path(__file__).resolve().parent

FINDINGS_INTRODUCTION = """# Findings

Generated from `src/rooflens/findings.toml` by `make docs`; edit the texts there.

A finding is `firing`, `cleared` or `cannot_tell`. Firing needs evidence that exceeds the model's own error;
`cannot_tell` names the input that is missing. `critical` means look now, `warning` today, `info` when there is time.

`rooflens sidecar` raises those that say below how their rule judges; the others are the vocabulary of rules to come.
A code fires when two of its last three windows say so (a stalled engine at once) and clears after three clean ones.
Remedies may name commands that come with later rules.
"""

CLI_INTRODUCTION = """# Commands

Generated from the command line itself by `make docs`; edit the docstring or the option there.

A fault is one line on standard error and the exit code 2. A verb whose extra is not installed names it.
"""

METRICS_INTRODUCTION = """# Metrics

Generated from `src/rooflens/catalogue.py` by `make docs`; edit the texts there.

`/metrics` serves these in the Prometheus text format 0.0.4 and, where asked, in OpenMetrics 1.0 with the time at which
each counter began. Of a histogram Prometheus stores `_bucket`, `_sum` and `_count`. A value that is not known is
absent, never 0. Counters begin at zero when the sidecar starts and go on across a restart of the engine.

Every series of an engine has `model_name` and `engine`; together they are unique in one sidecar. Ranges such as `[5m]`
are examples: at least four scrapes long.
"""


def section(entry: FindingCode) -> str:
    """One code's runbook page in Markdown, with the code as its heading and anchor."""
    flags = "\n".join(f"- {engine}: {text}" for engine, text in entry.flags.items())
    rule = RULES.get(entry.code)
    judged = " ".join((rule.__doc__ or "").split()) if rule else ""
    return (
        f"## {entry.code}\n\n**{entry.title}** ({entry.severity})\n\n{entry.meaning}\n\n"
        f"*How it is decided.* {entry.decided}\n\n"
        + (f"*How the rule judges.* {judged}\n\n" if judged else "")
        + f"*What to do.* {entry.remedy}\n\n{flags}\n\n"
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
    parts = [f"## rooflens {name}", first]
    parts += [f"```text\n{rest.strip()}\n```"] if rest.strip() else []
    below = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    parts += option_table(parser)
    for sub, its in (entry for action in below for entry in action.choices.items()):
        first, _, rest = str(its.description).strip().partition("\n")
        parts += [f"### rooflens {name} {sub}", first, f"```text\n{rest.strip()}\n```", *option_table(its)]
    return "\n\n".join(parts) + "\n"


def option_table(parser: argparse.ArgumentParser) -> list[str]:
    """What a parser takes but its verbs and --help, as a table; none where it takes nothing."""
    others = (argparse._SubParsersAction, argparse._HelpAction)
    rows = [option_row(each, parser._get_formatter()) for each in parser._actions if not isinstance(each, others)]
    return ["\n".join(["| option | what it does |", "|---|---|", *rows])] if rows else []


def cli_page() -> str:
    """The whole page: a table of all verbs, then one section for each."""
    rows = [f"| [`{name}`](#rooflens-{name}) | {verb.help} |" for name, verb in VERBS.items()]
    table = "\n".join(["| verb | what it shows |", "|---|---|", *rows])
    return "\n".join([CLI_INTRODUCTION, table, "", *(verb_section(name, verb) for name, verb in VERBS.items())])


def metric_row(metric: Metric) -> str:
    """One metric as a row of a Markdown table."""
    labels = ", ".join(f"`{label}`" for label in metric.labels) or "none"
    cells = (f"[`{metric.name}`](#{metric.name})", metric.kind, metric.unit or "count", labels, metric.help)
    return "| " + " | ".join(cells) + " |"


def metric_section(metric: Metric) -> str:
    """One metric: what it is, how to read it, and what its labels and buckets can be."""
    parts = [f"## {metric.name}", metric.help, f"*How to read it.* {metric.reading}"]
    parts += [f"*From a metrics page.* {metric.page}"] if metric.page else []
    closed = [f"- `{label}`: {', '.join(metric.values[label])}" for label in metric.labels if label in metric.values]
    parts += ["\n".join(closed)] if closed else []
    if metric.buckets:
        first, second, last = metric.buckets[0], metric.buckets[1], metric.buckets[-1]
        parts.append(
            f"Buckets: {len(metric.buckets)} bounds from {first:g} to {last:g}, a factor of {second / first:.3g} apart."
        )
    return "\n\n".join(parts) + "\n"


def metrics_page() -> str:
    """The whole page: a table of all metrics, what open labels hold, then one section for each metric."""
    table = "\n".join(
        ["| metric | kind | unit | labels | what it is |", "|---|---|---|---|---|", *map(metric_row, CATALOGUE)]
    )
    labels = "\n".join(
        ["| label | its values |", "|---|---|", *(f"| `{n}` | {text} |" for n, text in OPEN_LABELS.items())]
    )
    return "\n".join([METRICS_INTRODUCTION, table, "", labels, "", *map(metric_section, CATALOGUE)])


EXAMPLE = re.compile(r"```sh\nrooflens (?P<words>[^\n]+)\n```\n\n```text\n.*?```", re.DOTALL)
COLUMNS = "100"  # of the terminal that a page's plots are drawn for


def predict_page() -> str:
    """The page as it is written, with what each command prints put below it anew."""
    page = (HERE / "predict.md").read_text(encoding="utf-8")
    return EXAMPLE.sub(
        lambda found: f"```sh\nrooflens {found['words']}\n```\n\n```text\n{printed(found['words'])}```", page
    )


def printed(words: str) -> str:
    """What a command prints on a terminal of COLUMNS."""
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = COLUMNS
    try:
        with contextlib.redirect_stdout(io.StringIO()) as output:
            status = run(shlex.split(words))
    finally:
        if before is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = before
    if status:
        raise SystemExit(f"docs/predict.md: rooflens {words} ended with {status}")
    return output.getvalue()


COLUMNS_OF = re.compile(r"<!-- columns: (?P<table>\w+) -->\n.*?<!-- end -->", re.DOTALL)
TRACE_COLUMNS = {
    "steps": (*KEY_COLUMNS, *STEP_COLUMNS, *ROOF_COLUMNS, *KEYFRAME_COLUMNS),
    "events": EVENT_COLUMNS,
    "counters": COUNTER_COLUMNS,
}
ARROW_NAMES = {"i": "int64", "f": "double"}  # of the kinds of a StepTable


def trace_page() -> str:
    """The page as it is written, with the columns of each table filled in."""
    page = (HERE / "trace.md").read_text(encoding="utf-8")
    return COLUMNS_OF.sub(lambda found: columns_table(found["table"]), page)


def columns_table(name: str) -> str:
    """The columns of one table of a trace between its marks."""
    rows = [f"| `{column}` | {ARROW_NAMES.get(kind, kind)} | {text} |" for column, kind, text in TRACE_COLUMNS[name]]
    table = "\n".join(["| column | type | what it is |", "|---|---|---|", *rows])
    return f"<!-- columns: {name} -->\n{table}\n<!-- end -->"


PAGES = {
    "cli.md": cli_page,
    "findings.md": findings_page,
    "metrics.md": metrics_page,
    "predict.md": predict_page,
    "trace.md": trace_page,
}


def main() -> None:
    """Rewrite every generated page in place, none if one of them fails."""
    pages = {name: render() for name, render in PAGES.items()}
    for name, text in pages.items():
        (HERE / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
