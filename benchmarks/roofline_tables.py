"""The roofline against published measurements as Markdown, for docs/accuracy.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from measured_floors import Bound
from measured_reachable import Step, Sweep, by_pair, left_out, summary
from measured_rows import Row

from rooflens.analyzer.correction import PRIOR_MODELS, Fit

FAR_RATIO = 0.35  # off by more than the goal of the 90th percentile
TERMS = """Words of the tables below:

- **off by**: predicted / observed - 1, where predicted is what is reachable. With a sign where one is shown: -16% is a
  step that took longer than predicted, +16% one that was faster. Medians and percentiles over rows are of its size
  alone, but for the column *signed*, the median with its sign.
- **uncalibrated**: the model as it comes, without any figure of these rows.
- **model left out**: with one scale for the pair of hardware and engine, found from its other models; **scales** are
  the factors found so.
- **kernels**: *published* where the device has a kernel table, *kin* where its nearest kin's stands in."""
# Why rows are far off, as far as the rows themselves or their pages tell.
CAUSES: Mapping[tuple[str, ...], str] = {
    ("m0546", "m0548", "m0549"): "prompts: in the same run the first token of 8,192 came after 3.2 s (m0547), 22 times "
    "what is reachable; 3, 7 and 31 of 1,024 such prompts in each step are 9, 22 and 98 ms",
    ("m0452", "m0454", "m0455", "m0458"): "not known; the runs contradict each other (16 requests took 22.6 ms at "
    "1,536 tokens and 17.4 ms at 8,704)",
    ("m0379", "m0380"): "kernels outside of graphs, by the look of it: 124 to 236 us a layer more than reachable, and "
    "the same at 1,050 tokens (m0377, m0378)",
    ("m0634", "m0635", "m0637"): "int4 experts on Blackwell: no kernel table has any, so they are taken to be read "
    "like 16-bit weights",
    ("m0260", "m0261"): "llama.cpp of May 2024, as slow on the other A100 (m0257, m0258)",
    ("m0266",): "another source has 46.2 tokens/s for the same sizes and device (m0295)",
    ("m0218", "m0219"): "experts: real routing reaches fewer of 128 than uniform routing",
    ("m0296",): "NVFP4 reads of its kin, the RTX PRO 6000, are slow",
    ("m0305",): "the engine of the board's first day, as the row says",
    ("m0313",): "vLLM 0.5 waited for its scheduler: the page that states it is about that",
    ("m0350",): "prompts in part: 0.46 s to the first token (m0351) add 1.4 ms; the rest is not known",
    ("m0349", "m0353"): "the scale: the other models of the pair are slower, one of them on vLLM 0.5",
    ("m0614",): "the scale: the other model of the pair ran outside of graphs",
}


def table(head: Sequence[str], lines: Iterable[Sequence[object]]) -> str:
    """A Markdown table."""
    rows = [list(head), ["---"] * len(head), *([str(cell) for cell in line] for line in lines)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def by_source(found: Sequence[tuple[Row, Bound]]) -> str:
    """How far each source's figures lie above their floor."""
    lines = []
    for origin, count in Counter(row.origin for row, _ in found).most_common():
        its = [(row, bound) for row, bound in found if row.origin == origin]
        plain = [bound.ratio for row, bound in its if row.flag is None]
        marked = [bound.ratio for row, bound in its if row.flag is not None]
        what = ", ".join(sorted({bound.of for _, bound in its}))
        figures = [f"{median(plain):.2f}", f"{min(plain):.2f}"] if plain else ["", ""]
        out = sum(ratio < 1 for ratio in plain)
        lines.append((origin, what, count, *figures, out, f"{sum(r < 1 for r in marked)} of {len(marked)}"))
    head = ("source", "floor of", "rows", "median ratio", "lowest", "below", "flagged rows below")
    return table(head, lines)


def below_floor(found: Iterable[tuple[Row, Bound, str]]) -> str:
    """The rows below, and why."""
    lines = [
        (row.id, f"{row.model.split('/')[-1]} on {row.hardware}", row.flag, f"{bound.ratio:.2f}", reason)
        for row, bound, reason in found
    ]
    return table(("row", "model", "flag", "observed / floor", "reason"), lines)


def looks(found: Sequence[Step], busy: Iterable[Step], swept: Sequence[Sweep], middle: Sequence[Sweep]) -> str:
    """What the words mean, then every look; ``busy`` are rows that were left out because of their prompts."""
    published = [step for step in found if not step.assumed]
    out = left_out(found)
    same = [step for step, _ in out]
    lines: list[tuple[str, Iterable[float], str]] = [
        ("uncalibrated, all rows", (step.off() for step in found), ""),
        ("uncalibrated, kernels of the device published", (step.off() for step in published), ""),
        ("uncalibrated, kernels of its nearest kin", (step.off() for step in found if step.assumed), ""),
        ("uncalibrated, rows left out as prompts take over a quarter", (step.off() for step in busy), ""),
        ("one scale a pair, model left out", (step.off(fit) for step, fit in out), "15 % / 35 %"),
        ("the same, weight of the prior from other pairs", (step.off(fit) for step, fit in left_out(found, None)), ""),
        ("the same rows uncalibrated", (step.off() for step in same), ""),
        ("sweeps, every other point left out", (off for sweep in swept for off in sweep.off), "7 %"),
        ("three batches of a configuration, the middle one left out", (o for sweep in middle for o in sweep.off), ""),
    ]
    shown = []
    for name, errors, goal in lines:
        count, mid, most = summary(errors)
        shown.append((name, count, f"{mid:.1%}", f"{most:.1%}", goal))
    return f"{TERMS}\n\n{table(('look', 'rows', 'off by, median', '90th percentile', 'goal'), shown)}"


def priors(found: Sequence[Step]) -> str:
    """What the weight of the prior does."""
    lines = []
    for models in (0, 1, 2, 3, 4, 8):
        _, mid, most = summary(step.off(fit) for step, fit in left_out(found, models))
        lines.append((f"{models}{' (chosen)' if models == PRIOR_MODELS else ''}", f"{mid:.1%}", f"{most:.1%}"))
    return table(("models of no correction", "off by, median", "90th percentile"), lines)


def pairs(found: Sequence[Step]) -> str:
    """Each pair of hardware and engine."""
    fits: dict[tuple[str, str], list[tuple[Step, Fit]]] = {}
    for step, fit in left_out(found):
        fits.setdefault(step.pair, []).append((step, fit))
    lines = []
    for pair, models in sorted(by_pair(found).items()):
        its = [step for of in models.values() for step in of]
        tested = fits.get(pair, [])
        shown = f"{median(abs(step.off(fit)) for step, fit in tested):.0%}" if tested else ""
        scales = sorted({f"{fit.scale:.2f}" for _, fit in tested})
        middle, origin = median(step.off() for step in its), "kin" if its[0].assumed else "published"
        names = ", ".join(sorted(name.split("/")[-1] for name in models))
        lines.append((*pair, names, len(its), origin, f"{middle:+.0%}", shown, ", ".join(scales)))
    head = ("hardware", "engine", "models", "rows", "kernels", "uncalibrated, signed", "model left out", "scales")
    return table(head, lines)


def sweeps(swept: Iterable[Sweep]) -> str:
    """Each sweep."""
    head = ("configuration", "batches", "off by")
    lines = [
        (sweep.name, ", ".join(map(str, sweep.batches)), ", ".join(f"{off:+.0%}" for off in sweep.off))
        for sweep in swept
    ]
    return table(head, lines)


def far(found: Sequence[Step]) -> str:
    """Every row that is far off, uncalibrated or with its model left out, and the cause."""
    why = {name: cause for names, cause in CAUSES.items() for name in names}
    fits = {str(step.row.id): fit for step, fit in left_out(found)}
    lines = []
    for step in sorted(found, key=lambda one: -abs(one.off())):
        row, fit = step.row, fits.get(str(step.row.id))
        off = step.off(fit) if fit else 0.0
        if max(abs(step.off()), abs(off)) > FAR_RATIO:
            what = f"{row.model.split('/')[-1]} {row.w_dtype}, {row.hardware} x {row.n}, {row.engine.strip()}"
            size = f"{row.batch} x {row.ctx:,}"
            seconds = f"{step.observed_s * 1e3:.1f} ms"
            left = f"{off:+.0%}" if fit else ""
            lines.append((row.id, what, size, seconds, f"{step.off():+.0%}", left, why.get(str(row.id), "not known")))
    return table(("row", "what", "batch x context", "observed", "uncalibrated", "left out", "cause"), lines)


def not_compared(left: Mapping[str, str]) -> str:
    """How many rows were not compared, by reason."""
    lines = ((count, why) for why, count in Counter(left.values()).most_common())
    return table(("rows", "not compared with what is reachable"), lines)


def prompts(found: Mapping[str, Sequence[float]]) -> str:
    """Observed over reachable of prompts."""
    lines = [
        (kind, len(ratios), f"{median(ratios):.2f}", f"{min(ratios):.2f} to {max(ratios):.2f}")
        for kind, ratios in sorted(found.items())
    ]
    return table(("prompts", "rows", "observed / reachable, median", "range"), lines)
