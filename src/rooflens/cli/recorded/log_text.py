"""A log's report as text: what it is, what it says, beside which floor."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rooflens.adapters.logs.files import LogFiles
from rooflens.cli.output import one_line
from rooflens.cli.recorded.said import MOST_PROBLEMS, Said
from rooflens.cli.report import phase_table, time_text
from rooflens.cli.units import aligned, factor_text, seconds_text, si_text
from rooflens.live_records import KindFigures, WindowFigures
from rooflens.model_records import HardwareSpec
from rooflens.records import EngineInfo

if TYPE_CHECKING:
    from rooflens.cli.recorded.log import Laid

MOST_SHOWN = 16  # engines as text; --json has all
MOST_LABELS = 12
TIMES = {
    "vllm": "times     of an iteration are elapsed time as vLLM tells it, without scheduling",
    "tensorrt-llm": "times     of an iteration are the host's as TensorRT-LLM tells them; the device's, one line later",
}
INTERVALS = (
    "times     of intervals are from line to line: pauses between steps are in them; steps are derived, not counted"
)
NO_PROMPT_LENGTHS = "no floor of these steps: the lines do not tell how long the prompts are that were computed in them"
REQUESTS = (
    "times     of requests are those of their decode, as the engine tells them: a step a token but for accepted drafts,"
    " of those that ran alone"
)
SHOWN_FACTS = (
    "engine_version", "model_name", "base_model_name", "architecture", "weight_dtype", "quantization", "kv_dtype",
    "tensor_parallel", "pipeline_parallel", "data_parallel", "max_sequences", "max_batched_tokens",
    "max_context_tokens", "kv_blocks", "block_tokens", "kv_capacity_tokens", "graph_mode", "attention_backend",
    "speculative_method", "speculative_tokens",
)  # fmt: skip


def text_of(
    path: Path,
    paths: Sequence[Path],
    files: LogFiles,
    said: Said,
    engines: Sequence[Laid],
    hardware: HardwareSpec | None,
) -> str:
    """The whole report."""
    counts = ", ".join(f"{count:,} {kind}" for kind, count in said.counts.most_common())
    several = f", {len(paths)} files" if len(paths) > 1 else ""
    lines = [
        f"log       {path}{several}; {_written_by(said)}",
        f"recorded  {_span(said)}; {files.lines:,} lines: {counts}",
    ]
    lines += _startup(said)
    for engine in list(engines)[:MOST_SHOWN]:
        lines += ["", *_engine(engine)]
    if len(engines) > MOST_SHOWN:
        lines += ["", f"          and {len(engines) - MOST_SHOWN:,} more engines, which --json has"]
    lines += ["", *_gauges(said), *_beside(said)]
    lines += [TIMES[name] for name in said.by_engine if name in TIMES and said.counts["iteration"]]
    lines += [INTERVALS] if said.counts["interval"] or said.counts["decode"] else []
    lines += [REQUESTS] if said.counts["timing"] and any(_timed(engine) for engine in engines) else []
    lines += _floor(engines, hardware)
    return "\n".join(map(one_line, [*lines, *_warnings(files, said, engines)]))


def _timed(engine: Laid) -> bool:
    return "observed_s" in engine.steps.columns and bool(engine.steps.where("observed_s").any())


def _written_by(said: Said) -> str:
    names = [name for name, _ in said.by_engine.most_common()]
    version = said.facts.get("engine_version")
    return " and ".join(names) + (f" {version}" if version and len(names) == 1 else "")


def _span(said: Said) -> str:
    first, last = said.first_unix_s, said.last_unix_s
    if first is None or last is None:
        return "without times"
    return f"{time_text(first)} to {time_text(last)} ({seconds_text(last - first)})"


def _startup(said: Said) -> list[str]:
    known = [
        f"{name.replace('_', ' ')} {_value(said.facts[name])}"
        for name in SHOWN_FACTS
        if said.facts.get(name, "auto") != "auto"
    ]
    return [f"start-up  {', '.join(known)}"] if known else []


def _value(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:,.0f}" if value == int(value) else f"{value:g}"


def _engine(engine: Laid) -> list[str]:
    lines = [f"engine    {engine_text(engine.info)}{_kept(engine)}"]
    if engine.summary is not None:
        lines += phase_table(engine.summary)
        if engine.summary.measurement_invalid:
            lines.append(
                "measurement_invalid: steps were faster than the floor allows: model, hardware or times are wrong"
            )
    elif engine.figures is not None:
        lines += interval_table(engine.figures)
        if engine.analysis is not None:
            lines += _without_floor(engine.figures)
    return lines


def _without_floor(figures: WindowFigures) -> list[str]:
    """Why the row of a kind with prompts in it has blank cells."""
    kinds = (name for name, kind in figures.kinds.items() if kind.steps and not kind.compared_steps)
    return [f"{name:<10}{NO_PROMPT_LENGTHS}" for name in kinds if name in ("mixed", "prefill")]


def engine_text(info: EngineInfo) -> str:
    """Which engine it is, in a few words."""
    engine = f"{info.engine} {info.engine_version or ''}".rstrip()
    parts = (engine, info.model_name, info.quantization or info.weight_dtype)
    rank = f", rank {info.rank}" if info.rank or info.data_parallel > 1 else ""
    return ", ".join(str(part) for part in parts if part) + rank


def _kept(engine: Laid) -> str:
    what = "steps" if engine.summary is not None else "intervals with work"
    what = "requests" if engine.info.engine == "llama.cpp" else what
    newest = f", of which the last {len(engine.steps):,} are read here" if engine.rows > len(engine.steps) else ""
    return f": {engine.rows:,} {what}{newest}" if engine.rows else ""


def interval_table(figures: WindowFigures) -> list[str]:
    """The kinds of intervals with the floor of a step beside its mean time."""
    rows: list[Sequence[str]] = [
        ("intervals by kind", "steps", "time", "step p50", "batch", "context", "floor", "reachable", "x floor")
    ]
    rows += [_kind_row(name, kind) for name, kind in figures.kinds.items()]
    shown = [at for at in range(len(rows[0])) if at == 0 or any(row[at] for row in rows[1:])]
    return aligned([[row[at] for at in shown] for row in rows])


def _kind_row(name: str, kind: KindFigures) -> Sequence[str]:
    steps = kind.compared_steps
    floor_s = kind.floor_s / steps if kind.floor_s and steps else None
    reachable_s = kind.reachable_s / steps if kind.reachable_s and steps else None
    return (
        name,
        f"{kind.steps:,}",
        seconds_text(kind.observed_s) if kind.observed_s else "",
        seconds_text(kind.step_p50_s) if kind.step_p50_s else "",
        f"{kind.batch_mean:,.1f}" if kind.batch_mean else "",
        f"{kind.context_tokens_mean:,.0f}" if kind.context_tokens_mean else "",
        seconds_text(floor_s) if floor_s else "",
        seconds_text(reachable_s) if reachable_s else "",
        factor_text(kind.compared_s / kind.floor_s) if kind.compared_s and kind.floor_s else "",
    )


def _gauges(said: Said) -> list[str]:
    names = {
        "running": "running requests",
        "waiting": "waiting requests",
        "deferred": "deferred requests",
        "swapped": "swapped requests",
        "kv_used_ratio": "KV cache used",
        "prefix_hit_ratio": "prefix hits",
        "generated_tokens_per_s": "generated tokens/s",
        "prompt_tokens_per_s": "prompt tokens/s",
    }
    rows: list[Sequence[str]] = [("as the lines tell it, of each rank", "mean", "max")]
    for name, label in names.items():
        if (gauge := said.gauges.get(name)) is not None:
            ratio = name.endswith("_ratio")
            rows.append((label, *(f"{v:.1%}" if ratio else f"{v:,.1f}" for v in (gauge.mean, gauge.most))))
    return aligned(rows) if len(rows) > 1 else []


def _beside(said: Said) -> list[str]:
    lines = []
    if (drafts := said.speculation()) is not None:
        words = []
        if "drafted_tokens" in drafts:
            words.append(f"{drafts['drafted_tokens']:,.0f} drafted, {drafts['accepted_tokens']:,.0f} accepted")
        if "acceptance_ratio" in drafts:
            words.append(f"{drafts['acceptance_ratio']:.1%}")
        if "acceptance_length_mean" in drafts:
            words.append(f"{drafts['acceptance_length_mean']:.2f} tokens a verification")
        lines.append(f"drafts    {'; '.join(words)}")
    if said.preempted:
        lines.append(f"preempted {said.preempted:,.0f} requests lost their KV blocks")
    return lines


def _floor(engines: Sequence[Laid], hardware: HardwareSpec | None) -> list[str]:
    problems = dict.fromkeys(engine.problem for engine in engines if engine.problem)
    lines = [f"floor     none: {problem}" for problem in problems]
    if hardware is not None and any(engine.analysis is not None for engine in engines):
        bandwidth = si_text(hardware.memory_bandwidth_bytes_per_s, "B/s")
        lines.insert(0, f"floor     {hardware.id} ({hardware.origin}): {bandwidth}")
        notes = dict.fromkeys(n for engine in engines if engine.analysis is not None for n in engine.analysis.notes)
        lines += [f"          {note}" for note in notes if note not in hardware.flags]
    return lines


def _warnings(files: LogFiles, said: Said, engines: Iterable[Laid]) -> list[str]:
    found = [f"warning   {problem}" for problem in files.problems]
    if said.unknown:
        labels = list(said.unknown)
        more = f" and {len(labels) - MOST_LABELS} more" if len(labels) > MOST_LABELS else ""
        found.append(f"unknown   labels that this version does not read: {', '.join(labels[:MOST_LABELS])}{more}")
    complaints: dict[str, int] = {}
    for engine in engines:
        for complaint, times in engine.complaints.items():
            complaints[complaint] = complaints.get(complaint, 0) + times
    found += [f"warning   {line}{f' ({times:,} times)' if times > 1 else ''}" for line, times in complaints.items()]
    if said.left_out:
        found.append("warning   the log tells of more engines, or starts of them, than are kept")
    return found[:MOST_PROBLEMS]
