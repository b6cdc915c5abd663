"""What an engine is and does now, as samples; sums are kept by Totals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from rooflens import catalogue as metrics
from rooflens import device_metrics
from rooflens.analyzer.rules import EVERY_TURN, RULES
from rooflens.findings import FINDINGS, Code, Severity, Status
from rooflens.group_records import GroupView
from rooflens.live_records import EngineView, SourceHealth, SourceKind, State
from rooflens.metric_records import Metric, Sample

NOT_KNOWN = "unknown"  # a label cannot be left out
# The figures of a window say nothing of an engine that has made no steps for as long as several reads of a page are
# apart, and are old in any case after twice the longest that a window lasts while steps are made.
QUIET_S = 30.0
OLD_S = 120.0
KEPT_FINDINGS = 512  # of an engine each: with its labels and the state of each rule


def gauges(view: EngineView, now_unix_s: float) -> Iterator[Sample]:
    """Every gauge of one engine; one that is not known, or would tell of the past as if it were now, is left out."""
    key = (view.model_name, view.engine)
    up = view.state is State.LIVE
    yield Sample(metrics.ENGINE_UP, key, float(up))
    info, hardware = view.info, view.hardware
    facts = (
        (info.engine if info else NOT_KNOWN),
        (info.engine_version if info else None) or NOT_KNOWN,
        str(view.source),
        hardware.id if hardware else NOT_KNOWN,
    )
    yield Sample(metrics.ENGINE_INFO, (*key, *facts), 1.0)
    if not up:
        return
    yield from _findings(view, key)
    yield from (Sample(device_metrics.ENGINE_DEVICE, (*key, uuid), 1.0) for uuid in view.device_uuids)
    yield from _ceilings(view, key)
    if hardware is not None:
        devices = info.tensor_parallel * info.pipeline_parallel if info else 1
        bandwidth = hardware.memory_bandwidth_bytes_per_s * devices
        yield Sample(metrics.BANDWIDTH, (*key, hardware.origin), bandwidth)
        for number_format, rate in hardware.peak_flops_per_s.items():
            yield Sample(metrics.PEAK_FLOPS, (*key, number_format, hardware.origin), rate * devices)
    held = (*_now(view), *_lately(view, now_unix_s))
    yield from (Sample(metric, key, value) for metric, value in held if value is not None)


def group_gauges(view: GroupView) -> Iterator[Sample]:
    """How many live members a group has, and how far apart they are."""
    group = view.group
    labels = (group.model_name, str(group.kind), group.name)
    yield Sample(metrics.GROUP_MEMBERS, labels, float(len(group.members)))
    spread_of = {spread.name: spread.high - spread.low for spread in view.spreads}
    for name, metric in (("running", metrics.GROUP_RUNNING_SPREAD), ("waiting", metrics.GROUP_WAITING_SPREAD)):
        if name in spread_of:
            yield Sample(metric, labels, spread_of[name])


def _ceilings(view: EngineView, key: tuple[str, str]) -> Iterator[Sample]:
    """The highest of each origin and number format: several rest on one origin, such as a peak at two clocks."""
    highest: dict[tuple[str, ...], float] = {}
    for ceiling in view.ceilings:
        place = (*((ceiling.number_format,) if ceiling.number_format else ()), str(ceiling.origin))
        highest[place] = max(ceiling.per_s, highest.get(place, 0.0))
    for place, per_s in highest.items():
        metric = device_metrics.CEILING_FLOPS if len(place) > 1 else device_metrics.CEILING_BANDWIDTH
        yield Sample(metric, (*key, *place), per_s)


def _findings(view: EngineView, key: tuple[str, str]) -> tuple[Sample, ...]:
    firing = {finding.code: finding.severity for finding in view.findings if finding.status is Status.FIRING}
    untold = tuple(finding.code for finding in view.findings if finding.status is Status.CANNOT_TELL)
    return _told(key, tuple(firing.items()), untold, bool(view.windows))


@lru_cache(maxsize=KEPT_FINDINGS)
def _told(
    key: tuple[str, str], firing: tuple[tuple[Code, Severity], ...], untold: tuple[Code, ...], judged: bool
) -> tuple[Sample, ...]:
    """Two samples a rule; kept, because findings seldom change from one turn to the next."""
    active_of, unknown = dict(firing), {*untold, *(() if judged else RULES.keys() - EVERY_TURN)}
    found: list[Sample] = []
    for code in RULES:
        usual = FINDINGS[code].severity
        active = active_of.get(code)
        found.append(Sample(metrics.FINDING_ACTIVE, (*key, str(code), str(usual)), float(active is usual)))
        if active not in (None, usual):
            found.append(Sample(metrics.FINDING_ACTIVE, (*key, str(code), str(active)), 1.0))
        found.append(Sample(metrics.FINDING_UNKNOWN, (*key, str(code)), float(code in unknown)))
    return tuple(found)


def _now(view: EngineView) -> Iterator[tuple[Metric, float | None]]:
    """What the engine holds: as its source says it of now, else as it was at the last step."""
    load = view.progress.load if view.progress else None

    def held(name: str) -> float | None:
        return _last(view, name) if load is None else getattr(load, name)

    yield metrics.RUNNING, held("running")
    yield metrics.WAITING, held("waiting")
    yield metrics.DEFERRED, held("deferred")
    used, blocks = held("kv_blocks_used"), view.info.kv_blocks if view.info else None
    yield metrics.KV_USED, used / blocks if used is not None and blocks else None


def _lately(view: EngineView, now_unix_s: float) -> Iterator[tuple[Metric, float | None]]:
    """What the last window says, while it tells of now: nobody may be alerted by the ratios of an hour ago."""
    if not view.windows:
        return
    window, progress = view.windows[-1], view.progress
    rests = (progress.idle_s, progress.still_s, progress.open_age_s) if progress else ()
    old_s = max(OLD_S, 2 * window.span_s)
    if max((rest or 0.0 for rest in rests), default=0.0) > QUIET_S or now_unix_s - window.end_unix_s > old_s:
        return
    yield metrics.BATCH, window.batch_mean
    yield metrics.CONTEXT, window.context_tokens_mean
    yield metrics.MBU, window.mbu
    yield metrics.MFU, window.mfu
    yield metrics.FLOOR_FACTOR, window.compared_s / window.floor_s if window.compared_s and window.floor_s else None
    yield device_metrics.COUNTED_RATIO, _counted(view, now_unix_s - old_s)


def _counted(view: EngineView, since_unix_s: float) -> float | None:
    """Counter over model bytes of the newest window with both: samples come up to a period after the steps."""
    for window in reversed(view.windows):
        if window.end_unix_s >= since_unix_s and window.counters is not None and window.counters.ratio is not None:
            return window.counters.ratio
    return None


def _last(view: EngineView, column: str) -> float | None:
    """The column at the last step, None where it is not known there."""
    table: Any = view.recent
    if not len(table) or column not in table.columns or not bool(np.asarray(table.where(column))[-1]):
        return None
    return float(table[column][-1])


def source_samples(
    sources: Sequence[SourceHealth], failures: Mapping[SourceKind, int], started_unix_s: float
) -> Iterator[Sample]:
    """How many sources of each kind are read, and how many reads failed."""
    for kind in SourceKind:
        up = sum(source.kind is kind and source.state is State.LIVE for source in sources)
        yield Sample(metrics.SOURCES_UP, (str(kind),), float(up))
        yield Sample(metrics.SOURCE_FAILURES, (str(kind),), float(failures[kind]), started_unix_s)
