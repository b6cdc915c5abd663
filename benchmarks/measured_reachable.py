"""What is reachable beside published decode steps: which rows can be compared, and how far off the model is.

Three looks: as it comes, without any figure of the rows; with one scale for each pair of hardware and engine, found
from its other models (leave one model of a pair out); with two parameters for one configuration, found from every
other point of its sweep over the batch.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from measured_rows import Row, rows

from rooflens.analyzer.correction import PRIOR_MODELS, Fit, Point, fit, fit_pair
from rooflens.analyzer.plan import Plan
from rooflens.analyzer.predict import predict
from rooflens.records import RooflensError

MOST_PROMPTS_RATIO = 0.25  # of a decode step: where prompts take more, requests wait for them and fewer decode
LEAST_SWEEP = 4  # points of one configuration
STEPS = ("tok_s", "tpot_ms", "step_ms")


@dataclass(frozen=True)
class Step:
    """A published decode step: seconds observed, of its decode and of the prompts that ride along as far as reachable.

    ``assumed``: kernels of such a device are not published, those of its nearest kin stand in.
    """

    row: Row
    observed_s: float
    decode_s: float
    prompts_s: float
    layers: int
    assumed: bool

    @property
    def reachable_s(self) -> float:
        """Uncalibrated."""
        return self.decode_s + self.prompts_s

    @property
    def point(self) -> Point:
        return Point(self.observed_s, self.reachable_s, self.layers)

    @property
    def pair(self) -> tuple[str, str]:
        return (self.row.hardware, self.row.maker)

    def off(self, found: Fit = Fit(1.0, 0.0)) -> float:  # noqa: B008
        """Predicted over observed, less 1."""
        return found.seconds(self.reachable_s, self.layers) / self.observed_s - 1


def step_of(row: Row, most_prompts_ratio: float = MOST_PROMPTS_RATIO) -> Step | str:
    """The step of a row, or why it cannot be compared."""
    if row.phase != "decode" or row.metric not in STEPS:
        return "no single decode steps"
    if row.flag:
        return f"flagged: {row.flag}"
    if row.recalled_not_reread:
        return "from memory, not read again"
    if row.n < 1:
        return "half of a package"
    spread = row.deployment
    devices = spread.tensor
    try:
        plan = Plan(devices, spread, row.batch, row.ctx)
        found = predict(row.arch, row.hardware_spec, row.likely, plan)
        prompts_s = _prompts_s(row) if row.isl and row.osl else 0.0
    except RooflensError:
        return "cut otherwise than by heads"
    if found.reachable_s is None:
        return "no kernels of such a device"
    if not found.fits:
        return "batch not known: it does not fit"
    if prompts_s > most_prompts_ratio * found.reachable_s:
        return "batch not known: prompts take over a quarter of a step"
    observed_s = row.batch / row.value if row.metric == "tok_s" else row.value / 1e3
    layers = sum(layer.count for layer in row.arch.layers)
    return Step(row, observed_s, found.reachable_s, prompts_s, layers, found.reachable_origin == "assumed")


def _prompts_s(row: Row) -> float:
    """What the prompts of others add to each step of a server under constant concurrency.

    A request lasts ``osl`` steps, so in each step one of osl of the others ends and the prompt of the next is
    computed: (batch - 1) / osl prompts a step. A request's own prompt is in its time to first token.
    """
    spread = row.deployment
    plan = Plan(spread.tensor, spread, 1, row.isl, "prefill")
    prompt_s = predict(row.arch, row.hardware_spec, row.likely, plan).reachable_s or 0.0
    return float((row.batch - 1) / row.osl * prompt_s)


def steps(most_prompts_ratio: float = MOST_PROMPTS_RATIO) -> tuple[list[Step], dict[str, str]]:
    """Every row that can be compared, and of the others (by id) the reason; a figure printed twice counts once."""
    found: list[Step] = []
    left: dict[str, str] = {}
    seen = set()
    for row in rows():
        key = (row.hardware, row.n, row.family, row.w_dtype, row.maker, row.metric, row.batch, row.ctx, row.value)
        step = step_of(row, most_prompts_ratio)
        if isinstance(step, Step) and key in seen:
            step = "the same figure twice"
        if isinstance(step, str):
            left[str(row.id)] = step
        else:
            seen.add(key)
            found.append(step)
    return found, left


def by_pair(found: Iterable[Step]) -> dict[tuple[str, str], dict[str, list[Step]]]:
    """Steps of each pair of hardware and engine, by architecture."""
    pairs: dict[tuple[str, str], dict[str, list[Step]]] = defaultdict(lambda: defaultdict(list))
    for step in found:
        pairs[step.pair][step.row.family].append(step)
    return pairs


def left_out(found: Sequence[Step], prior_models: float | None = PRIOR_MODELS) -> list[tuple[Step, Fit]]:
    """Each step of a pair with several models, with the fit that saw the other models alone.

    ``prior_models`` None finds the weight of the prior from the other pairs.
    """
    result = []
    for pair, models in by_pair(found).items():
        weight = prior_models
        if weight is None:
            within, between = spreads(step for step in found if step.pair != pair)
            weight = (within / between) ** 2
        for tested, its in models.items():
            others = {name: [step.point for step in of] for name, of in models.items() if name != tested}
            if others:
                result += [(step, fit_pair(others, weight)) for step in its]
    return result


def spreads(found: Iterable[Step]) -> tuple[float, float]:
    """(within, between): how far the log scales of one pair's models differ, and those of pairs, standard deviations.

    Of the pairs with several models; between them is what the means show beyond what models alone would.
    """
    within, freedom, means, share = 0.0, 0, [], []
    for models in by_pair(found).values():
        scales = [median(math.log(step.observed_s / step.reachable_s) for step in its) for its in models.values()]
        if len(scales) > 1:
            within += sum((scale - fmean(scales)) ** 2 for scale in scales)
            freedom += len(scales) - 1
            means.append(fmean(scales) ** 2)
            share.append(1 / len(scales))
    variance = within / freedom
    return math.sqrt(variance), math.sqrt(max(0.0, fmean(means) - variance * fmean(share)))


@dataclass(frozen=True)
class Sweep:
    """One configuration: how far its points at ``batches`` are off by a fit that did not see them."""

    name: str
    batches: tuple[int, ...]
    off: tuple[float, ...]


def sweeps(found: Iterable[Step]) -> list[Sweep]:
    """Each point by the fit on every other one: the second, fourth and so on for the first, third and so on."""
    result = []
    for name, its in _configurations(found):
        if len(its) >= LEAST_SWEEP:
            fits = [fit(step.point for step in its[half::2]) for half in (1, 0)]
            off = tuple(step.off(fits[place % 2]) for place, step in enumerate(its))
            result.append(Sweep(name, tuple(step.row.batch for step in its), off))
    return result


def triples(found: Iterable[Step]) -> list[Sweep]:
    """Three points of one configuration: the middle one from the two ends, by a scale alone."""
    return [
        Sweep(name, (its[1].row.batch,), (its[1].off(fit((its[0].point, its[2].point))),))
        for name, its in _configurations(found)
        if len(its) == LEAST_SWEEP - 1
    ]


def _configurations(found: Iterable[Step]) -> list[tuple[str, Sequence[Step]]]:
    """Steps that differ in the batch alone, in its order."""
    groups: dict[str, dict[int, Step]] = defaultdict(dict)
    for step in found:
        row = step.row
        name = f"{row.hardware} x {row.n}, {row.maker}, {row.family.split('/')[-1]} {row.w_dtype}, {row.isl or row.ctx}"
        groups[f"{name} tokens, {row.origin}"].setdefault(row.batch, step)
    return [(name, [its[batch] for batch in sorted(its)]) for name, its in groups.items()]


def summary(errors: Iterable[float]) -> tuple[int, float, float]:
    """(number, median, 90th percentile) of their magnitudes; the percentile is the lowest that 90 % do not exceed."""
    ordered = sorted(abs(error) for error in errors)
    return len(ordered), median(ordered), ordered[math.ceil(0.9 * len(ordered)) - 1]


def prompts() -> dict[str, list[float]]:
    """Observed over reachable of prompts, by what was measured: a tool's own rate, a server's first token."""
    found: dict[str, list[float]] = defaultdict(list)
    for row in rows():
        many = row.batch is None and row.maker == "sglang"  # a rate of a deployment of many prompts at once
        if row.phase != "prefill" or row.flag or row.metric == "mfu" or many:
            continue
        spread, batch = row.deployment, row.batch or 1
        plan = Plan(spread.tensor, spread, batch, row.isl, "prefill")
        reachable_s = predict(row.arch, row.hardware_spec, row.likely, plan).reachable_s
        observed_s = batch * row.isl / row.value if row.metric == "prefill_tok_s" else row.value / 1e3
        if reachable_s is not None:
            served = f"first token of a server, {row.maker}"
            kind = served if row.metric == "ttft_ms" else f"a tool's own measure, {row.origin}"
            found[kind].append(observed_s / reachable_s)
    return found
