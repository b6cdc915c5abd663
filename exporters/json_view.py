"""A Snapshot as JSON-ready dicts: what the HTTP API serves and every view is drawn from.

Keys are the names of the records' fields: times in seconds, sizes in bytes, ratios from 0 to 1 (``mbu``, ``mfu``,
``kv_used_*``, ``waiting_share``), all else counts. None is not known. Nothing here is a path or a request's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rooflens.device_records import DeviceView
from rooflens.exporters.plain_json import column, plain, words
from rooflens.exporters.roofline_points import points, roofs
from rooflens.findings import FINDINGS, Code, Finding, Status
from rooflens.group_records import GroupView
from rooflens.live_records import NOT_READ_YET, EngineView, Snapshot
from rooflens.model_records import Bound
from rooflens.records import GraphMode, RooflensError, StepKind

if TYPE_CHECKING:
    from rooflens.model_records import StepAnalysis

# Facts of an engine that a reader may see; the others name a host, a device or a file.
FACTS = (
    "engine", "engine_version", "rank", "runner", "start_unix_s", "weight_dtype", "quantization", "kv_dtype",
    "state_dtype", "kv_blocks", "block_tokens", "max_sequences", "max_batched_tokens", "max_context_tokens",
    "graph_mode", "attention_backend", "moe_backend", "async_scheduling", "concurrent_batches", "prefix_caching",
    "chunked_prefill", "tensor_parallel", "pipeline_parallel", "data_parallel", "expert_parallel", "context_parallel",
    "speculative_method", "speculative_tokens", "device", "role",
)  # fmt: skip
MOST_PROBLEMS = 64  # as many as there may be pages, or files that somebody looks at one by one
MOST_SOURCES = 256  # those with a problem last; a folder may be full of rings that cannot be read
MOST_STEPS = 512  # a Snapshot holds no more of one engine
BOUND_COLUMNS = ("floor_s", "expected_s", "reachable_s", "serial_floor_s", "memory_s", "compute_s", "link_floor_s")
RATIO_COLUMNS = ("mbu", "mfu")


def engines_json(snapshot: Snapshot) -> dict[str, Any]:
    """Every engine with its state, facts and windows, oldest first; the sources, and what hinders the sidecar."""
    return {
        **_about(snapshot),
        "problems": plain(problems(snapshot)),
        "sources": plain(sorted(snapshot.sources, key=lambda source: source.problem is not None)[:MOST_SOURCES]),
        "sources_left_out": max(0, len(snapshot.sources) - MOST_SOURCES),
        "devices": [_device(device) for device in snapshot.devices],
        "engines": [_engine(engine) for engine in snapshot.engines],
        "groups": [_group(group) for group in snapshot.groups],
    }


def problems(snapshot: Snapshot) -> tuple[str, ...]:
    """What hinders the sidecar and its sources, one line each; those of a source name it. The last line of very many
    says how many more there are.
    """
    lines = dict.fromkeys(snapshot.problems)
    for source in snapshot.sources:
        problem = source.problem
        if problem and problem != NOT_READ_YET and problem not in lines:
            lines[problem if source.name in problem else f"{source.name}: {problem}"] = None
    if len(lines) <= MOST_PROBLEMS:
        return tuple(lines)
    return (*tuple(lines)[:MOST_PROBLEMS], f"and {len(lines) - MOST_PROBLEMS:,} more")


def findings_json(snapshot: Snapshot, status: Status | None = None, code: Code | None = None) -> dict[str, Any]:
    """The findings of all engines, those of one status or code only where that is given."""
    return {
        **_about(snapshot),
        "findings": [
            {**_name(engine), **_finding(finding)}
            for engine in snapshot.engines
            for finding in engine.findings
            if status in (None, finding.status) and code in (None, finding.code)
        ],
    }


def steps_json(snapshot: Snapshot, model_name: str | None, engine: str | None, last: int = 100) -> dict[str, Any]:
    """The last steps of one engine as columns, oldest first, with their bounds beside them.

    ``model_name`` or ``engine`` may be left out where the other one, or there being one engine only, says which.
    RooflensError in one line if none or several fit; ``last`` is cut to 1 to MOST_STEPS.
    """
    view = _choose(snapshot, model_name, engine)
    last = min(max(last, 1), MOST_STEPS)
    columns = {name: column(view.recent, name, last) for name in view.recent.columns}
    for name, kinds in (("kind", StepKind), ("graph_mode", GraphMode)):
        if name in columns:
            columns[name] = words(kinds, columns[name])
    if view.recent_analysis is not None:
        columns |= _bounds(view.recent_analysis, last)
    counted = view.recent_dram_bytes() if view.recent_dram_bytes is not None else None
    if counted is not None:
        columns["apportioned_dram_bytes"] = [plain(value) for value in counted[-last:].tolist()]
    count = max(map(len, columns.values()), default=0)
    return {**_about(snapshot), **_name(view), "source": str(view.source), "steps": count, "columns": columns}


def roofline_json(snapshot: Snapshot) -> dict[str, Any]:
    """For each engine the roofs of its devices together and the points of its steps and windows below them."""
    return {
        **_about(snapshot),
        "engines": [
            {**_name(engine), "problem": plain(engine.problem), "roofs": roofs(engine), "points": points(engine)}
            for engine in snapshot.engines
        ],
    }


def _about(snapshot: Snapshot) -> dict[str, Any]:
    """Which Snapshot this is."""
    return {
        "version": snapshot.version,
        "snapshot": {
            "number": snapshot.number,
            "created_unix_s": plain(snapshot.created_unix_s),
            "started_unix_s": plain(snapshot.started_unix_s),
            "loop_s": plain(snapshot.loop_s),
        },
    }


def _name(engine: EngineView) -> dict[str, Any]:
    return {"model_name": plain(engine.model_name), "engine": plain(engine.engine)}


def _engine(engine: EngineView) -> dict[str, Any]:
    facts = {name: plain(getattr(engine.info, name)) for name in FACTS} if engine.info else None
    return {
        **_name(engine),
        "source": str(engine.source),
        "state": str(engine.state),
        "facts": facts,
        "hardware": plain(engine.hardware.id) if engine.hardware else None,
        "first_seen_unix_s": plain(engine.first_seen_unix_s),
        "last_step_unix_s": plain(engine.last_step_unix_s),
        "problem": plain(engine.problem),
        "progress": plain(engine.progress),
        "derived": plain(engine.derived),
        "notes": _notes(engine),
        "efficiency": _efficiency(engine),
        "regimes": plain(engine.regimes),
        "ceilings": plain(engine.ceilings),
        "device_uuids": plain(engine.device_uuids),
        "windows": plain(engine.windows),
        "findings_firing": [str(finding.code) for finding in engine.findings if finding.status is Status.FIRING],
    }


def _group(view: GroupView) -> dict[str, Any]:
    """One group: its engines by their labels with the part that each does, then each and together."""
    record = plain(view)
    group = record.pop("group")
    names = [{"model_name": plain(model), "engine": plain(engine)} for model, engine in view.group.members]
    parts = [{**name, "role": role} for name, role in zip(names, group.pop("roles"), strict=True)]
    return {**group, "members": parts, "figures": record.pop("members"), **record}


def _device(device: DeviceView) -> dict[str, Any]:
    """One device: its facts but for the processes on it, and its newest sample with how long that was."""
    facts, sample = plain(device.facts), plain(device.sample)
    del facts["pids"]
    if device.sample is not None:
        for ours in ("uuid", "source", "start_monotonic_s", "end_monotonic_s"):
            del sample[ours]
        sample["span_s"] = plain(device.sample.span_s)
    return {**facts, "source": str(device.source), "sample": sample, "problem": plain(device.problem)}


def _notes(engine: EngineView) -> list[Any]:
    """What the bounds leave out or take for granted, without what is said of the device as a whole."""
    told = engine.recent_analysis.notes if engine.recent_analysis else ()
    return [plain(note) for note in told if engine.hardware is None or note not in engine.hardware.flags]


def _efficiency(engine: EngineView) -> dict[str, Any] | None:
    """Whose kernels what is reachable is of: published, assumed of a kin; None where it is not known."""
    found = engine.recent_analysis.efficiency if engine.recent_analysis else None
    return None if found is None else {"origin": found.origin, "source": plain(found.source)}


def _finding(finding: Finding) -> dict[str, Any]:
    """All fields but the run's own id, with the title and where the on-call page is."""
    record = plain(finding)
    del record["instance"]
    return {**record, "title": FINDINGS[finding.code].title, "runbook": finding.runbook}


def _choose(snapshot: Snapshot, model_name: str | None, engine: str | None) -> EngineView:
    fits = [
        view
        for view in snapshot.engines
        if model_name in (None, view.model_name) and engine in (None, view.engine)
    ]  # fmt: skip
    if len(fits) == 1:
        return fits[0]
    found = "several engines fit" if fits else "no engine fits"
    raise RooflensError(f"{found}: give model_name and engine of one that /api/v1/engines lists")


def _bounds(analysis: StepAnalysis, last: int) -> dict[str, list[Any]]:
    """Columns of bounds, None where a step has none, and what of them is said of the observed time."""
    modelled, compared = analysis.modelled[-last:].tolist(), analysis.compared[-last:].tolist()

    def where(mask: list[bool], values: list[Any]) -> list[Any]:
        return [plain(value) if known else None for known, value in zip(mask, values, strict=True)]

    bounds = {name: column for name in BOUND_COLUMNS if (column := getattr(analysis, name)) is not None}
    columns = {name: where(modelled, column[-last:].tolist()) for name, column in bounds.items()}
    columns |= {name: where(compared, getattr(analysis, name)[-last:].tolist()) for name in RATIO_COLUMNS}
    columns["bound"] = words(Bound, where(modelled, analysis.bound[-last:].tolist()))
    columns["below_floor"] = where(compared, analysis.below_floor[-last:].tolist())
    if not analysis.compute_known:
        for name in ("compute_s", "mfu"):
            columns[name] = [None] * len(modelled)
    return columns
