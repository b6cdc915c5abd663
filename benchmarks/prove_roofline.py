"""The roofline beside published measurements: no plain figure below its floor, and how near what is reachable comes.

Under a minute, nothing but this repository is needed. Writes benchmarks/results/roofline.json, its part of
docs/accuracy.md, and analyzer/data/accuracy.toml, which `rooflens predict` quotes.
"""

from __future__ import annotations

import json
import math
import re
import subprocess
import time
from statistics import median
from typing import Any

import roofline_tables as tables
from measured_floors import Bound, bound_of
from measured_reachable import Step, left_out, prompts, spreads, steps, summary, sweeps, triples
from measured_rows import ROOT, Row, rows
from measured_verdicts import below

from rooflens.analyzer.correction import PRIOR_MODELS

RESULT, PAGE = ROOT / "benchmarks" / "results" / "roofline.json", ROOT / "docs" / "accuracy.md"
ACCURACY = ROOT / "analyzer" / "data" / "accuracy.toml"
SERVED = "first token of a server, "
BEGIN, END = "<!-- roofline: begin (written by benchmarks/prove_roofline.py) -->", "<!-- roofline: end -->"


def main() -> None:
    """Compute every row, write both files, and end with 1 if a plain figure is below its floor."""
    began_s = time.monotonic()
    bounds = [(row, bound_of(row)) for row in rows()]
    found, left = steps()
    page = "\n\n".join(sections(bounds, found, left))
    write_page(page)
    result = results(bounds, found, left) | {"duration_s": round(time.monotonic() - began_s, 1)}
    RESULT.write_text(compact(result) + "\n", encoding="utf-8")
    ACCURACY.write_text(quoted(result), encoding="utf-8")
    print(page)
    out = [row.id for row, bound in bounds if row.flag is None and bound.ratio < 1]
    if out:
        raise SystemExit(f"error: below their floor and not flagged: {', '.join(out)}")


def sections(bounds: list[tuple[Row, Bound]], found: list[Step], left: dict[str, str]) -> list[str]:
    """The generated part of the page."""
    within, between = spreads(found)
    swept, middle = sweeps(found), triples(found)
    busy = [step for step in steps(math.inf)[0] if "prompts" in left.get(step.row.id, "")]
    stated = [(row, b.observed_s / b.product_s) for row, b in bounds if row.tensor and b.product_s]
    plain = [ratio for row, ratio in stated if row.flag is None]
    return [
        "### Floor",
        tables.by_source(bounds),
        f"Of {len(stated)} rows whose tensor parallelism is stated, `floor_s` of that deployment was computed as well; "
        f"the lowest of the {len(plain)} that are not flagged took {min(plain):.2f} times it.",
        "Rows below, what rooflens says of them:",
        tables.below_floor(below(bounds)),
        "### Reachable",
        tables.looks(found, busy, swept, middle),
        f"The scale of a pair is drawn towards 1 as by {PRIOR_MODELS} models that need none: models of one pair differ "
        f"by {within:.2f} (standard deviation of the logarithm of their scales), pairs by {between:.2f}, so the ratio "
        f"of the variances is {within**2 / between**2:.1f}.",
        tables.priors(found),
        tables.pairs(found),
        "Sweeps, each point by the fit on every other one:",
        tables.sweeps(swept),
        "Three batches of one configuration, the middle one by a scale from its ends:",
        tables.sweeps(middle),
        f"Rows off by more than {tables.FAR_RATIO:.0%}, uncalibrated or with their model left out:",
        tables.far(found),
        tables.not_compared(left),
        "Prompts, uncalibrated:",
        tables.prompts(prompts()),
    ]


def results(bounds: list[tuple[Row, Bound]], found: list[Step], left: dict[str, str]) -> dict[str, Any]:
    """Every row and the sums."""
    fits = {str(step.row.id): fit for step, fit in left_out(found)}
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    within, between = spreads(found)
    return {
        "commit": commit.strip(),
        "rows": len(bounds),
        "below_floor": [row.id for row, bound in bounds if bound.ratio < 1],
        "below_floor_not_flagged": [row.id for row, bound in bounds if bound.ratio < 1 and row.flag is None],
        "uncalibrated_rows_median_p90": summary(step.off() for step in found),
        "left_out_rows_median_p90": summary(step.off(fit) for step, fit in left_out(found)),
        "first_token_rows_median": {engine: [len(r), median(r)] for engine, r in sorted(first_tokens().items())},
        "sweep_points_median_p90": summary(off for sweep in sweeps(found) for off in sweep.off),
        "log_scale_within_between": [within, between],
        "id_observed_s_floor_s": [[row.id, bound.observed_s, bound.floor_s] for row, bound in bounds],
        "id_observed_s_decode_s_prompts_s_scale": [
            [s.row.id, s.observed_s, s.decode_s, s.prompts_s, fits[s.row.id].scale if s.row.id in fits else None]
            for s in found
        ],
        "not_compared": left,
    }


def first_tokens() -> dict[str, list[float]]:
    """By engine: observed over reachable of the first tokens of servers."""
    return {kind.removeprefix(SERVED): ratios for kind, ratios in prompts().items() if kind.startswith(SERVED)}


def quoted(result: dict[str, Any]) -> str:
    """What the package says of its own errors, as TOML."""
    number, middle, most = result["uncalibrated_rows_median_p90"]
    tables_of = [f"[decode]  # |predicted / observed - 1| of single decode steps\nrows = {number}"]
    tables_of[0] += f"\nmedian_ratio = {middle:.3f}\np90_ratio = {most:.3f}"
    for engine, (rows_of, ratio) in result["first_token_rows_median"].items():
        figures = f"rows = {rows_of}\nmedian_ratio = {ratio:.2f}"
        tables_of.append(f"[first_token.{engine}]  # observed / reachable\n{figures}")
    source = f"{result['rows']} figures that others published, benchmarks/data/measured.jsonl; docs/accuracy.md"
    head = "# Written by benchmarks/prove_roofline.py: how far published measurements are from what is reachable."
    return "\n\n".join([f'{head}\nsource = "{source}"', *tables_of]) + "\n"


def write_page(text: str) -> None:
    """Put the generated part where it belongs."""
    page = PAGE.read_text(encoding="utf-8")
    head, rest = page.split(BEGIN)
    PAGE.write_text(f"{head}{BEGIN}\n{text}\n{END}{rest.split(END)[1]}", encoding="utf-8")


def compact(result: dict[str, Any]) -> str:
    """JSON with a row on a line of its own, six digits a number."""
    text = json.dumps(json.loads(json.dumps(result), parse_float=lambda n: float(f"{float(n):.6g}")), indent=1)
    return re.sub(r"\[\s+([^\[\]{}]+?)\s+\]", lambda m: "[" + " ".join(m[1].split()) + "]", text)


if __name__ == "__main__":
    main()
