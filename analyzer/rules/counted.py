"""The counters of the newest window as rules use them: what they cover, and how much of the time the devices worked."""

from __future__ import annotations

from dataclasses import dataclass

from rooflens.analyzer.rules.answers import active_s
from rooflens.analyzer.rules.blocked import blocked_s
from rooflens.analyzer.rules.case import Case
from rooflens.analyzer.rules.counter_faults import counter_faults, judged_figures, profiling_doubted
from rooflens.device_records import WindowCounters
from rooflens.findings import Evidence
from rooflens.live_records import WindowFigures

LEAST_COVERED_RATIO = 0.5  # of the window: what half of it shows may be of the other kind of steps
WORKING_RATIO = 0.9  # of the time that requests were there: the device is what takes the time
WAITING_RATIO = 0.75  # below it a quarter of the time waits for the host, as by device time
NEIGHBOURS_UNKNOWN = 0.1  # confidence that it costs not to know who else computes on a device
SHARED = "another engine or process computes on the devices"
NO_COUNTERS = "counters of the engine's devices: docs/counters.md"


@dataclass(frozen=True, slots=True)
class Working:
    """The share of the time with requests in which the devices computed anything, and its hard bounds, 0 to 1.

    ``waiting_s`` is the most that they can have stood still in that time, in seconds. Of devices that ``wait_inside``
    kernels for one another (a collective that spins) computing shows no work, while standing still does show waiting:
    of these ``high`` is that of the device that computed least, which the others wait for.
    """

    low: float
    high: float
    waiting_s: float
    wait_inside: bool = False

    @property
    def proven(self) -> float:
        """The share that is known to be work: nothing of devices that wait inside kernels."""
        return 0.0 if self.wait_inside else self.low

    @property
    def middle(self) -> float:
        """Half way between the bounds."""
        return (self.low + self.high) / 2


def counters_of(case: Case) -> WindowCounters | None:
    """Those of the newest window where they cover half of it or more; None without any."""
    counters = case.window.counters if case.window is not None else None
    return counters if counters is not None and counters.covered_ratio >= LEAST_COVERED_RATIO else None


def profiled(case: Case) -> WindowCounters | None:
    """The same where what the devices measured is of this engine alone, and none of it is doubted; None else."""
    counters = counters_of(case)
    if counters is None or counters.shared or profiling_doubted(counter_faults(case)):
        return None
    return counters


def doubt_of_neighbours(case: Case) -> float:
    """Confidence to take off a finding by counters where it is not known whether others compute on the devices."""
    counters = counters_of(case)
    return NEIGHBOURS_UNKNOWN if counters is not None and counters.shared is None else 0.0


def device_time_missing(case: Case) -> str:
    """What would tell device from host, and why counters do not where there are some."""
    counters = counters_of(case)
    first = "device time of the steps, to tell device from host: ROOFLENS_DEVICE_TIME=1"
    if counters is not None and counters.shared:
        return f"{first} ({SHARED}, whose part of the counters cannot be told apart)"
    found = working(case)
    if found is not None and found.wait_inside:
        return f"{first} (devices that wait for one another inside a kernel compute all the time, by their counters)"
    return f"{first}, or docs/counters.md"


def with_requests(figures: WindowFigures, covered_ratio: float, stuck_s: float = 0.0) -> tuple[float, float]:
    """(least, most) share of the covered time in which requests were there that could be computed, 0 to 1.

    Time of which it is not known what it was may be either, and so may all that the samples do not cover, and the
    ``stuck_s`` in which all requests waited for something else.
    """
    span_s = figures.span_s
    if span_s <= 0 or covered_ratio <= 0:
        return 0.0, 1.0
    unknown_s = max(0.0, span_s - active_s(figures) - (figures.idle_s or 0.0))
    covered_s = covered_ratio * span_s
    least_s = active_s(figures) - stuck_s - (span_s - covered_s)
    most_s = active_s(figures) + unknown_s
    least, most = (min(max(each_s, 0.0) / covered_s, 1.0) for each_s in (least_s, most_s))
    return least, most


def working(case: Case) -> Working | None:
    """How much of the time with requests the devices worked; None without a trusted counter of all of them.

    Devices of a pipeline wait for one another by design, so that theirs says nothing of the host. A mean that reaches
    back beyond the window is held against all windows that it may be of.
    """
    counters, judged = profiled(case), judged_figures(case)
    if counters is None or not judged or counters.graphics_ratio is None:
        return None
    if counters.devices < counters.devices_expected or (case.info is not None and case.info.pipeline_parallel > 1):
        return None
    windows = zip(case.windows[-len(judged) :], judged, strict=True)
    shares = [with_requests(each, counters.covered_ratio, blocked_s(window, each)) for window, each in windows]
    least, most = min(share for share, _ in shares), max(share for _, share in shares)
    inside = _wait_inside(case, counters)
    lowest = counters.graphics_ratio_low if inside else None
    ratio = min(max(counters.graphics_ratio if lowest is None else lowest, 0.0), 1.0)
    low = min(1.0, ratio / most) if most else 0.0
    high = min(1.0, ratio / least) if least else 1.0
    waiting_s = (1.0 if inside else 1 - low) * most * judged[-1].span_s
    return Working(low, high, waiting_s, inside)


def _wait_inside(case: Case, counters: WindowCounters) -> bool:
    """Whether the devices of the engine run collectives, whose kernels spin until the last of them has come.

    Experts and contexts are spread over the ranks of tensor and data parallelism, so that these tell of them as well.
    """
    info = case.info
    ranks = (1,) if info is None else (info.tensor_parallel, info.data_parallel)
    return max(counters.devices_expected, *ranks) > 1


def working_evidence(found: Working) -> tuple[Evidence, ...]:
    """The bounds as facts of a finding."""
    return (
        Evidence("devices_worked_share_low", found.low, "1"),
        Evidence("devices_worked_share_high", found.high, "1"),
    )
