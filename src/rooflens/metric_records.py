"""What a metric of the catalogue is: its fields, the labels that are open, and short names to declare it with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

PREFIX = "rooflens_"
ENGINE_LABELS = ("model_name", "engine")


class Kind(StrEnum):
    """The kinds of the Prometheus exposition; INFO is a gauge that is always 1 and carries facts as labels."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. ``name`` is as Prometheus shows it, with the unit and, of a counter, `_total`.

    ``unit`` is a base unit that the name ends with, or empty for a count. ``values`` closes the set of a label; a
    label without an entry is one of OPEN_LABELS. ``buckets`` are upper bounds in the unit, ascending.
    ``reading`` says what to do with it, PromQL first; ``page`` what it is worth of an engine that is read from its
    metrics page, empty where it is counted there as well as by the hook.
    """

    name: str
    kind: Kind
    unit: str
    help: str
    labels: tuple[str, ...]
    reading: str
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False, compare=False)
    buckets: tuple[float, ...] = ()
    page: str = ""

    @property
    def family(self) -> str:
        """The name without what the kind adds to it: what OpenMetrics declares, unique in the catalogue."""
        return self.name.removesuffix("_total").removesuffix("_info")


# Labels whose values are not listed here, and what keeps them few. A value is never the id of a request or a user, a
# pid or a path; a device's uuid is what other exporters call it by, and without it nothing of theirs could be joined.
OPEN_LABELS = {
    "model_name": "the models served here",
    "engine": "the rank, and a number behind it where several runs share one",
    "group": "the engine label of its first member",
    "engine_kind": "the engines there are adapters for",
    "engine_version": "one of each engine",
    "hardware": "the devices known by their id",
    "format": "the number formats of a device",
    "version": "one of each sidecar",
    "device_uuid": "the devices of this host, slices of MIG included",
    "device_name": "what a driver calls its devices",
    "driver_version": "one of each host",
    "mig_profile": "the ways to slice a device, none for a whole one",
}

# What a figure of a metrics page is worth that rests on contexts.
BY_INTERVALS = "Estimated, from means over the interval between two readings and from contexts by KV use at its ends."


def engine_metric(
    name: str, kind: Kind, unit: str, text: str, reading: str, *labels: str,
    values: Mapping[str, tuple[str, ...]] | None = None, buckets: tuple[float, ...] = (), page: str = "",
) -> Metric:  # fmt: skip
    """A metric of one engine: model_name and engine come first."""
    return Metric(PREFIX + name, kind, unit, text, (*ENGINE_LABELS, *labels), reading, values or {}, buckets, page)


@dataclass(frozen=True, slots=True)
class HistogramValue:
    """``counts`` of each bucket of the metric, not cumulative, the last one above every bound; ``total`` is the sum."""

    counts: tuple[int, ...]
    total: float


@dataclass(frozen=True, slots=True)
class Sample:
    """One series at one moment: ``labels`` are the values of ``metric.labels`` in their order.

    ``created_unix_s`` is when a counter or histogram began at zero; None for the other kinds.
    """

    metric: Metric
    labels: tuple[str, ...]
    value: float | HistogramValue
    created_unix_s: float | None = None
