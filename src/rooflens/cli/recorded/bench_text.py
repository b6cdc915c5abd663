"""How results of benchmarks are shown: one in full, several as a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rooflens.cli.output import one_line
from rooflens.cli.recorded.bench_roof import Beside
from rooflens.cli.units import aligned, binary_text, factor_text, seconds_text, tokens_text
from rooflens.observation_records import Observation

Laid = tuple[Observation, tuple[Beside, ...], str | None]
TIMES = (("TTFT", "ttft_s"), ("TPOT", "tpot_s"), ("ITL", "itl_s"), ("request", "e2e_s"))
STATISTICS = ("mean", "std", "min", "p50", "p75", "p90", "p95", "p99", "max")
MOST_ROWS = 200


def result_text(seen: Observation, points: Sequence[Beside], problem: str | None) -> list[str]:
    """One result: what was run, the latencies, each point beside the roofline, and what was left out."""
    lines = [f"benchmark {origin_text(seen)}", *_run(seen)]
    if rows := _latencies(seen):
        lines += ["", *aligned(rows), ""]
    for one in points:
        lines += beside_text(one)
    if problem:
        lines.append(f"roofline  none: {problem}")
    return [one_line(line) for line in [*lines, *remarks((seen,))]]


def origin_text(seen: Observation) -> str:
    """Which program measured what, and on which side."""
    side = "measured by a client" if seen.client_side else "measured in the engine's process"
    engine = " ".join(filter(None, (seen.engine, seen.engine_version)))
    parts = (seen.origin, side, engine, seen.model_name, seen.quantization, seen.hardware)
    return ", ".join(part for part in parts if part)


def _run(seen: Observation) -> list[str]:
    told = []
    if seen.label:
        told.append(seen.label)
    if seen.requests is not None:
        failed = f" ({seen.failed_requests:,} failed)" if seen.failed_requests else ""
        told.append(f"{seen.requests:,} requests{failed}")
    if seen.duration_s is not None:
        told[-1:] = [" ".join([*told[-1:], f"in {seconds_text(seen.duration_s)}"])]
    if seen.concurrency:
        told.append(f"at most {seen.concurrency:,.4g} at a time")
    if seen.concurrency_mean:
        told.append(f"{seen.concurrency_mean:,.4g} on average")
    if seen.request_rate_per_s:
        told.append(f"sent at {seen.request_rate_per_s:,.4g}/s")
    if seen.batch and seen.batch != 1:
        told.append(f"{seen.batch:,.0f} sequences in a batch")
    lines = [f"run       {', '.join(told)}"] if told else []
    rates = [
        f"{value:,.4g} {unit}"
        for value, unit in (
            (seen.generated_tokens_per_s, "generated tokens/s"),
            (seen.prompt_tokens_per_s, "prompt tokens/s"),
            (seen.requests_per_s, "requests/s"),
        )
        if value is not None
    ]
    if seen.rate_std_per_s is not None:
        rates.append(f"spread {seen.rate_std_per_s:,.3g}/s")
    lengths = [
        f"{tokens_text(value)} {what} tokens"
        for value, what in ((seen.prompt_tokens_mean, "prompt"), (seen.generated_tokens_mean, "generated"))
        if value is not None
    ]
    if rates:
        lines.append(f"rates     {', '.join(rates)}")
    if lengths:
        lines.append(f"lengths   {' and '.join(lengths)} on average")
    if seen.weight_bytes:
        lines.append(f"weights   {binary_text(seen.weight_bytes)}")
    return lines


def _latencies(seen: Observation) -> list[list[str]]:
    told = [(name, getattr(seen, field)) for name, field in TIMES if getattr(seen, field)]
    columns = [c for c in STATISTICS if any(c in times for _, times in told)]
    if not columns:
        return []
    rows = [[name, *(seconds_text(times[c]) if c in times else "-" for c in columns)] for name, times in told]
    return [["latency", *columns], *rows]


def beside_text(one: Beside) -> list[str]:
    """One point and its bounds."""
    point, result = one.point, one.answer.result
    what = "decode" if point.phase == "decode" else "prefill"
    most = f", at most {point.batch_of.high:,.4g}" if point.batch_of.high and point.batch_of.high != point.batch else ""
    sequences = "1 sequence" if point.batch == 1 else f"{point.batch:,.3g} sequences"
    devices = one.answer.plan.devices
    lines = [
        f"{what:<9} {sequences}{most}, at {point.context_tokens:,} tokens; {one.model}, "
        f"{one.answer.precision.weights}, {f'{devices} x ' if devices > 1 else ''}{one.answer.hardware.name}"
    ]
    if point.batch_of.low != point.batch_of.high:
        lines.append(f"          the batch by {point.batch_of.derivation}")
    reachable = "not known" if result.reachable_s is None else seconds_text(result.reachable_s)
    lines.append(
        f"          measured {seconds_text(point.measured_s)} ({point.statistic}): {factor_text(one.times_floor)} x "
        f"the floor of {seconds_text(result.floor_s)} ({result.bound or 'bound not known'}); reachable {reachable}"
    )
    if one.alone_s != result.floor_s:
        lines.append(f"          floor of one sequence alone {seconds_text(one.alone_s)}")
    return [*lines, f"          {point.words}", *(f"note      {text}" for text in one.remarks)]


def remarks(seen: Iterable[Observation]) -> list[str]:
    """What was withheld, not known and wrong in several results, each line once."""
    several = list(seen)
    lines: list[str] = []
    for head, field in (("withheld", "withheld"), ("warning", "complaints")):
        told = dict.fromkeys(text for one in several for text in getattr(one, field))
        lines += [f"{head:<9} {text}" for text in list(told)[:MOST_ROWS]]
    unknown = list(dict.fromkeys(text for one in several for text in one.unknown))
    if unknown:
        lines.append(f"unknown   {', '.join(unknown[:20])}")
    return lines


def table_text(laid: Sequence[Laid]) -> list[str]:
    """Several results: one row each, with its first point beside the roofline."""
    heads = ["point", "at a time", "prompt", "output", "tokens/s", "TTFT", "TPOT", "batch", "floor", "reachable",
             "x floor"]  # fmt: skip
    rows = [[f"{number}", *_row(one)] for number, one in enumerate(laid[:MOST_ROWS], 1)]
    for row, one in zip(rows, laid, strict=False):
        row[0] = one[0].label or row[0]
    origins = dict.fromkeys(origin_text(seen) for seen, _, _ in laid)
    lines = [f"benchmark {text}" for text in list(origins)[:MOST_ROWS]]
    keep = [n for n in range(len(heads)) if n == 0 or any(row[n] for row in rows)]
    lines += ["", *aligned([[row[n] for n in keep] for row in ([heads, *rows])]), ""]
    if len(laid) > MOST_ROWS:
        lines.append(f"and {len(laid) - MOST_ROWS:,} more: --json has all")
    words = dict.fromkeys(text for _, points, _ in laid for one in points for text in (one.point.words, *one.remarks))
    problems = dict.fromkeys(problem for _, _, problem in laid if problem)
    lines += [f"note      {text}" for text in words]
    lines += [f"roofline  none: {text}" for text in problems]
    return [one_line(line) for line in [*lines, *remarks(seen for seen, _, _ in laid)]]


def _row(laid: Laid) -> list[str]:
    seen, points, _ = laid
    rate = seen.prompt_tokens_per_s if seen.phase == "prefill" else seen.generated_tokens_per_s
    cells = [
        "" if seen.concurrency is None else f"{seen.concurrency:,.4g}",
        "" if seen.prompt_tokens_mean is None else tokens_text(seen.prompt_tokens_mean),
        "" if seen.generated_tokens_mean is None else tokens_text(seen.generated_tokens_mean),
        "" if rate is None else f"{rate:,.4g}",
        _middle(seen, "ttft_s"),
        _middle(seen, "tpot_s"),
    ]
    if not points:
        return [*cells, "", "", "", ""]
    one, result = points[0], points[0].answer.result
    reachable = "" if result.reachable_s is None else seconds_text(result.reachable_s)
    return [*cells, f"{one.point.batch:,.3g}", seconds_text(result.floor_s), reachable, factor_text(one.times_floor)]


def _middle(seen: Observation, field: str) -> str:
    times = getattr(seen, field)
    found = times.get("mean", times.get("p50"))
    return "" if found is None else seconds_text(found)
