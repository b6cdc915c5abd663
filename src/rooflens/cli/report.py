"""A recording's figures as text and as JSON."""

from __future__ import annotations

import datetime
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from rooflens.analyzer.figures import Floor, Phase, Summary
from rooflens.analyzer.history.records import History
from rooflens.analyzer.unsteady import UNSTEADY
from rooflens.cli.output import one_line
from rooflens.cli.units import age_text, aligned, factor_text, seconds_text, si_text
from rooflens.info_fields import unread_text
from rooflens.model_records import HardwareSpec
from rooflens.pipeline import DIED, LIVE, Recording

TIMES = ("where the time went", "steps", "time", "share", "p50", "p90", "max")
BOUNDS = ("floor", "expected", "reachable", "serial", "x floor", "MBU", "MFU", "bound by")
EXPECTED_RATIO = 1.0005  # of the floor: below it the two read the same
SERIAL_RATIO = 1.1  # of the floor: below it the column tells little, and the table is wide
PROSE_WIDTH, INDENT = 118, " " * 10


def time_text(unix_s: float) -> str:
    """A moment in UTC, to the second."""
    return f"{datetime.datetime.fromtimestamp(unix_s, datetime.UTC):%Y-%m-%d %H:%M:%S} UTC"


def phase_table(summary: Summary | History) -> list[str]:
    """The phases with the floor beside the observed time, as far as it is known."""
    rows: list[Sequence[str]] = [(*TIMES, *BOUNDS)]
    for phase in summary.phases:
        rows.append(_phase_row(phase))
        if phase.name == "decode" and len(summary.decode_by_batch) > 1:
            rows += [_phase_row(replace(part, name=f"  {part.name}")) for part in summary.decode_by_batch]
    left_out = _left_out([phase.floor for phase in summary.phases if phase.floor])
    shown = [at for at, name in enumerate(rows[0]) if name not in left_out]
    return aligned([[row[at] for at in shown] for row in rows])


def _left_out(floors: Sequence[Floor]) -> Sequence[str]:
    """Columns of bounds that say nothing here: all of them without a floor, and those near the floor or not known."""
    if not floors:
        return BOUNDS
    as_floor = all(floor.expected_s <= EXPECTED_RATIO * floor.floor_s for floor in floors)
    unknown = all(floor.reachable_s is None for floor in floors)
    overlapped = all(floor.serial_floor_s + floor.link_s < SERIAL_RATIO * floor.floor_s for floor in floors)
    dropped = {"expected": as_floor, "reachable": unknown, "serial": overlapped}
    return [name for name, is_dropped in dropped.items() if is_dropped]


def _phase_row(phase: Phase) -> Sequence[str]:
    step, floor = phase.step_s, phase.floor
    bound = max(floor.bound_steps, key=floor.bound_steps.__getitem__, default="") if floor else ""
    if floor and len(floor.bound_steps) > 1:
        bound = f"{bound} {floor.bound_steps[bound] / floor.steps:.0%}"
    return (
        phase.name,
        f"{phase.steps:,}" if phase.steps else "",
        seconds_text(phase.seconds),
        "" if phase.share_ratio is None else f"{phase.share_ratio:.1%}",
        seconds_text(step.p50) if step else "",
        seconds_text(step.p90) if step else "",
        seconds_text(step.max) if step else "",
        seconds_text(floor.floor_s) if floor else "",
        seconds_text(floor.expected_s) if floor else "",
        seconds_text(floor.reachable_s) if floor else "",
        seconds_text(floor.serial_floor_s + floor.link_s) if floor else "",
        factor_text(floor.observed_s / floor.floor_s) if floor and floor.floor_s else "",
        f"{floor.mbu:.0%}" if floor else "",
        ("?" if floor.mfu is None else f"{floor.mfu:.0%}") if floor else "",
        bound,
    )


def text(recording: Recording, summary: Summary, hardware: HardwareSpec | None, problem: str | None) -> str:
    """The whole report of one ring."""
    lines = _head(recording, summary)
    if hardware is not None and (warning := hardware_warning(recording, hardware)):
        lines.append(f"warning   {warning}")  # above the table, whose ratios say nothing then
    lines += ["", *phase_table(summary), *_below_table(summary), ""]
    lines += [*_facts(recording, summary), *_floor_lines(summary, hardware, problem)]
    lines += _warnings(recording, summary)
    return "\n".join(map(one_line, lines))


def _head(recording: Recording, summary: Summary) -> list[str]:
    info = recording.info
    words = ["facts not recorded"]
    if info is not None:
        parts = (info.engine, info.engine_version, info.model_name, info.quantization or info.weight_dtype)
        words = [str(part) for part in parts if part]
    return [
        f"engine    {', '.join(words)}; {ending_text(recording)}",
        f"ring      {recording.path}",
        origin_text(recording),
        f"recorded  {summary.steps:,} steps in {seconds_text(summary.span_s)}; lost {recording.lost_steps:,}, "
        f"torn {recording.torn_steps:,}, lengths doubted {recording.doubted_frames:,}, "
        f"hook failures {recording.hook_failures:,}",
    ]


def origin_text(recording: Recording) -> str:
    """When and where the engine began, and how long ago it was last seen at work: what tells rings apart."""
    info, age_s = recording.info, recording.last_step_age_s
    host = info.pod or info.host if info else None
    return (
        f"started   {time_text(recording.start_unix_s)}"
        f"{f', last step {age_text(age_s)} ago' if age_s is not None else ''}; process {recording.pid}, "
        f"rank {recording.rank}, {f'host {host}' if host else 'host not known'}"
    )


def hardware_warning(recording: Recording, hardware: HardwareSpec) -> str | None:
    """What is odd about this hardware for this engine; None if nothing is, or the engine does not say its device."""
    device = recording.info.device if recording.info else None
    if device is None:
        return None
    on_cpu, is_cpu = device == "cpu", hardware.id == "this-cpu"
    if on_cpu and not is_cpu and (hardware.nvml_names or hardware.vendor == "NVIDIA"):
        return f"this engine ran on a CPU, so the floor of {hardware.id} says nothing of it: give --hardware this-cpu"
    if is_cpu and not on_cpu:
        return f"this engine ran on {device}, so this machine's CPU is no floor for it: give --hardware ID"
    return None


def ending_text(recording: Recording) -> str:
    """Whether the engine lives, and what became of its last step."""
    step = recording.in_flight
    if recording.ending not in (LIVE, DIED):
        return "ended in order"
    if step is None:
        return "live" if recording.ending == LIVE else "gone (stopped or killed) between two steps"
    what = f"step {step.ordinal:,} ({step.requests:,} sequences, {step.tokens:,} tokens)"
    if recording.ending == LIVE:
        return f"live, {what} running for {seconds_text(recording.in_flight_s)}"
    after = "before its first output"
    if len(recording.steps):
        last_s, last_unix_s = (float(recording.steps[name][-1]) for name in ("output_monotonic_s", "unix_s"))
        when = time_text(last_unix_s + step.submit_monotonic_s - last_s)
        after = f"which began at {when}, {seconds_text(step.submit_monotonic_s - last_s)} after "
        after += "the last output"
    return f"gone (died, or was killed) in {what}, {after}"


def _below_table(summary: Summary) -> list[str]:
    lines = []
    if (step := summary.slowest_step) is not None:
        which = f"number {step.number:,}" if step.number is not None else "of unknown number"
        when = f", began {time_text(step.start_unix_s)}" if step.start_unix_s is not None else ""
        lines.append(f"slowest step: {which}, {seconds_text(step.seconds)}{when}, {step.kind}")
    if summary.idle_s is None:
        lines.append("idle time: unknown, for the engine does not tell its queue; it counts as between steps")
    return lines


def _facts(recording: Recording, summary: Summary) -> list[str]:
    spreads, totals, ratios = summary.spreads, summary.totals, summary.ratios
    rows: list[Sequence[str]] = [("", "p50", "p90", "max")]
    names = {
        "requests": "batch, sequences",
        "query_tokens": "tokens a step",
        "max_context_tokens": "longest context, tokens",
        "context_tokens": "context of the batch, tokens",
        "waiting": "waiting requests",
        "deferred": "deferred requests",
        "kv_blocks_used": "KV blocks used",
    }
    for name, label in names.items():
        if (spread := spreads.get(name)) is not None:
            rows.append((label, f"{spread.p50:,.0f}", f"{spread.p90:,.0f}", f"{spread.max:,.0f}"))
    if ratios["kv_used_max"] is not None:
        used = (ratios["kv_used_p50"], ratios["kv_used_p90"], ratios["kv_used_max"])
        rows.append(("KV cache used", *(f"{ratio:.0%}" for ratio in used if ratio is not None)))
    if "oldest_wait_s" in spreads:
        wait = spreads["oldest_wait_s"]
        values = ("unknown",) * 3 if wait is None else (*map(seconds_text, (wait.p50, wait.p90, wait.max)),)
        rows.append(("oldest wait", *values))
    told = {name: "unknown" if value is None else seconds_text(value) for name, value in summary.host_s.items()}
    host = ", ".join(f"{name.removesuffix('_s')} {value}" for name, value in told.items())
    lines = [*aligned(rows), "", f"host      {host} (between steps, or overlapped with them)"]
    rate = ratios["generated_tokens_per_s"]
    lines.append(
        f"tokens    {_count(totals['generated_tokens'])} generated{f' ({rate:,.1f}/s)' if rate else ''}, "
        f"{_count(totals['prefill_tokens'])} prefilled, {_count(totals['recomputed_tokens'])} recomputed after "
        f"{_count(totals['preempted'])} preemptions"
    )
    if totals["drafted_tokens"]:
        lines.append(f"drafts    {_count(totals['drafted_tokens'])}, accepted {_percent(ratios['draft_acceptance'])}")
    if totals["prefix_hit_local_tokens"] or totals["prefix_hit_external_tokens"]:
        lines.append(f"prefixes  {_percent(ratios['prefix_hit'])} of prompt tokens found in a cache")
    if recording.dropped_payloads:
        lines.append(f"dropped   {recording.dropped_payloads:,} frames were too large for the ring: lengths not known")
    return lines


def _floor_lines(summary: Summary, hardware: HardwareSpec | None, problem: str | None) -> list[str]:
    if problem or hardware is None:
        return [f"floor     none: {problem}"]
    rates = ", ".join(f"{si_text(rate, 'FLOP/s')} {name}" for name, rate in hardware.peak_flops_per_s.items())
    bandwidth = f"{hardware.memory_bandwidth_bytes_per_s / 1e9:,.1f} GB/s"
    lines = _wrapped("floor     ", f"{hardware.id} ({hardware.origin}): {bandwidth}, {rates}")
    # What a curator wrote of a datasheet is for --json; how a roof was measured decides what it is worth.
    curated = () if hardware.origin == "measured" else hardware.flags
    lines += [line for note in summary.notes if note not in curated for line in _wrapped(INDENT, note)]
    if summary.efficiency is not None:
        origin, source = summary.efficiency.origin, summary.efficiency.source
        lines += _wrapped("reachable ", source if source.startswith(origin) else f"{origin}: {source}")
    elif not any(flag.startswith(UNSTEADY) for flag in hardware.flags):  # which is among the notes, with what to do
        lines.append(
            f"reachable not known on {hardware.id}: its bandwidth and arithmetic were measured, none of its kernels; "
            "'rooflens calibrate' measures those too"
        )
    if summary.measurement_invalid:
        lines.append(
            f"measurement_invalid: {summary.below_floor_steps:,} of {summary.compared_steps:,} steps, and "
            f"{summary.invalid_windows:,} of {summary.windows:,} windows of them, were faster than the floor allows: "
            "the roof, the model or the times are wrong, so do not trust the ratios"
        )
        if hardware.origin == "measured":
            lines.append(
                "          a roof measured while others use the machine is too low: run again when it is quiet"
            )
    elif summary.below_floor_steps:
        lines.append(
            f"          {summary.below_floor_steps:,} single steps below it (late outputs shorten the next step)"
        )
    return lines


def _wrapped(name: str, text: str) -> list[str]:
    """A text that is a sentence or more, in lines that a terminal holds."""
    return textwrap.wrap(one_line(text), PROSE_WIDTH, initial_indent=name, subsequent_indent=INDENT)


def _warnings(recording: Recording, summary: Summary) -> list[str]:
    lines = [f"clock     the wall clock jumped by {jump:+.1f} s" for jump in summary.clock_jumps_s]
    other = {name: count for name, count in summary.events.items() if name != "clock_jump"}
    if other:
        lines.append("events    " + ", ".join(f"{n} {c}" if c > 1 else n for n, c in other.items()))
    if recording.info and (odd := unread_text(recording.info.unread)):
        lines.append(f"warning   {odd}")
    return lines


def _count(value: int | None) -> str:
    return "an unknown number" if value is None else f"{value:,}"


def _percent(ratio: float | None) -> str:
    return "not known" if ratio is None else f"{ratio:.1%}"


def as_json(
    recording: Recording, summary: Summary, hardware: HardwareSpec | None, problem: str | None
) -> dict[str, Any]:
    """The same figures in SI units; null for what is not known."""
    step = recording.in_flight
    return {
        "ring": str(recording.path),
        "engine": recording.info.to_json() if recording.info else None,
        "start_unix_s": recording.start_unix_s,
        "last_step_age_s": recording.last_step_age_s,
        "pid": recording.pid,
        "rank": recording.rank,
        "ending": recording.ending,
        "in_flight": asdict(step) | {"age_s": recording.in_flight_s} if step else None,
        "lost_steps": recording.lost_steps,
        "torn_steps": recording.torn_steps,
        "doubted_frames": recording.doubted_frames,
        "hook_failures": recording.hook_failures,
        "dropped_payloads": recording.dropped_payloads,
        **asdict(summary),
        "measurement_invalid": summary.measurement_invalid,
        "hardware": asdict(hardware) if hardware else None,
        "hardware_warning": hardware_warning(recording, hardware) if hardware else None,
        "floor_problem": problem,
    }


def progress(line: str) -> None:
    """One line for a person who waits; nothing where nobody looks."""
    if sys.stderr.isatty():
        print(line, file=sys.stderr)
