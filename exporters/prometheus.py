"""A Snapshot's samples as a page: the Prometheus text format 0.0.4, or OpenMetrics 1.0 with creation times.

Written out here because the client library takes ten times as long (half a second for 64 engines, see
benchmarks/metrics_page.py); the tests hold every page against that library's parsers.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import accumulate

from rooflens.catalogue import CATALOGUE
from rooflens.live_records import Snapshot
from rooflens.metric_records import HistogramValue, Kind, Metric, Sample

TEXT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
# Longer label values are cut and told apart by a digest: a name that somebody else chose must not swell every page.
MOST_LABEL_CHARACTERS = 200
DIGEST_CHARACTERS = 12
# Label values come back at every Snapshot: 64 engines have 9,000 series, 450 of them histograms of 4 kB of bounds.
KEPT_SERIES = 1 << 14
KEPT_HISTOGRAMS = 1 << 10

_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029]")


def render(snapshot: Snapshot, openmetrics: bool = False) -> bytes:
    """The page of all samples, metrics in the order of the catalogue, each series once (the first one counts).

    A value that is not finite is not known and left out. ValueError if a sample does not fit its metric.
    """
    by_metric: dict[str, tuple[Metric, list[Sample]]] = {}
    for sample in snapshot.samples:
        by_metric.setdefault(sample.metric.name, (sample.metric, []))[1].append(sample)
    lines: list[str] = []
    for name in sorted(by_metric, key=_position):
        metric, samples = by_metric[name]
        lines += _head(metric, openmetrics)
        lines += _series(metric, samples, openmetrics)
    lines.append("# EOF\n" if openmetrics else "")
    return "".join(lines).encode("utf-8")


_ORDER = {metric.name: position for position, metric in enumerate(CATALOGUE)}


def _position(name: str) -> tuple[int, str]:
    return _ORDER.get(name, len(_ORDER)), name


def _head(metric: Metric, openmetrics: bool) -> Iterator[str]:
    """HELP, TYPE and, where the format knows it, UNIT."""
    text = metric.help.replace("\\", r"\\").replace("\n", r"\n")
    if openmetrics:
        text = text.replace('"', r"\"")
        yield f"# HELP {metric.family} {text}\n# TYPE {metric.family} {metric.kind}\n"
        if metric.unit:
            yield f"# UNIT {metric.family} {metric.unit}\n"
        return
    kind = Kind.GAUGE if metric.kind is Kind.INFO else metric.kind
    yield f"# HELP {metric.name} {text}\n# TYPE {metric.name} {kind}\n"


def _series(metric: Metric, samples: Sequence[Sample], openmetrics: bool) -> Iterator[str]:
    seen: set[str] = set()
    for sample in samples:
        labels = _labels(metric.labels, sample.labels)
        if labels in seen:
            continue
        seen.add(labels)
        if isinstance(sample.value, HistogramValue):
            yield from _histogram(metric, labels, sample.value)
        elif math.isfinite(sample.value):
            yield f"{metric.name}{{{labels}}} {float(sample.value)!r}\n"
        else:
            continue
        if openmetrics and sample.created_unix_s is not None:
            yield f"{metric.family}_created{{{labels}}} {float(sample.created_unix_s)!r}\n"


def _histogram(metric: Metric, labels: str, value: HistogramValue) -> Iterator[str]:
    """Cumulative buckets, then count and sum."""
    if len(value.counts) != len(metric.buckets) + 1:
        raise ValueError(f"{metric.name}: {len(value.counts)} counts for {len(metric.buckets)} bounds and the rest")
    count = 0
    for head, count in zip(_bucket_heads(metric, labels), accumulate(value.counts), strict=True):
        yield f"{head}{count}\n"
    yield f"{metric.name}_count{{{labels}}} {count}\n{metric.name}_sum{{{labels}}} {float(value.total)!r}\n"


@lru_cache(maxsize=KEPT_HISTOGRAMS)
def _bucket_heads(metric: Metric, labels: str) -> tuple[str, ...]:
    bounds = (*(repr(float(bound)) for bound in metric.buckets), "+Inf")
    start = f"{metric.name}_bucket{{{labels}{',' if labels else ''}le="
    return tuple(f'{start}"{bound}"}} ' for bound in bounds)


@lru_cache(maxsize=KEPT_SERIES)
def _labels(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    """``name="value",...`` with every value bounded and escaped."""
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in zip(names, values, strict=True))


def _escaped(value: str) -> str:
    if len(value) > MOST_LABEL_CHARACTERS:
        digest = hashlib.sha256(value.encode("utf-8", "replace")).hexdigest()[:DIGEST_CHARACTERS]
        value = f"{value[:MOST_LABEL_CHARACTERS]}...{digest}"
    # Lone surrogates cannot be encoded; control characters would reach somebody's terminal.
    value = _CONTROL.sub("\ufffd", value.encode("utf-8", "replace").decode("utf-8"))
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
