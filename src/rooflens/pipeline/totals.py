"""Monotone sums and histograms since an engine was first seen; what Prometheus takes rates of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from rooflens import catalogue as metrics
from rooflens import device_metrics
from rooflens.analyzer.rules import RULES
from rooflens.analyzer.sums import steps_of
from rooflens.findings import Finding, Status
from rooflens.live_records import SourceKind
from rooflens.metric_records import Metric, Sample
from rooflens.model_records import StepAnalysis
from rooflens.pipeline.counters import Histogram, Sum
from rooflens.pipeline.labels import Key
from rooflens.pipeline.time_parts import TimeParts
from rooflens.protocols import Batch
from rooflens.records import StepKind, StepTable

MOST_ENGINES = 256  # labels kept; a launcher that names every run anew must not fill the memory
USUAL_KINDS = ("prefill", "decode", "mixed", "verify")  # there from the start; the others once they were seen
# Columns summed into each kind of token.
TOKEN_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "prefill": ("prefill_tokens",),
    "generated": ("generated_tokens",),
    "drafted": ("drafted_tokens",),
    "accepted": ("accepted_tokens",),
    "recomputed": ("recomputed_tokens",),
    "discarded": ("discarded_tokens",),
    "prefix_hit": ("prefix_hit_local_tokens", "prefix_hit_external_tokens"),
}
SUMMED: tuple[tuple[Metric, str], ...] = (
    (metrics.BATCH_SUM, "requests"),
    (metrics.CONTEXT_SUM, "context_tokens"),
    (metrics.PREEMPTIONS, "preempted"),
    (metrics.FINISHED, "finished_requests"),
)
KINDS = frozenset(int(kind) for kind in StepKind)


class EngineTotals:
    """The sums of one label, over all runs of an engine that had it."""

    def __init__(self, key: Key, now_unix_s: float) -> None:
        self.key, self.created_unix_s = key, now_unix_s
        self._source: SourceKind | None = None
        self.live = True
        self._sums: dict[tuple[str, ...], Sum] = {}
        self._histograms: dict[str, Histogram] = {}
        self._times: TimeParts | None = None
        self._lost_s = 0.0  # of the stall seen last, up to the moment it was seen
        self._lost_until_s = 0.0  # monotonic; up to there stalls are counted
        self._begin()

    def _begin(self) -> None:
        """What every source tells, at zero: a rate from the first scrape on needs the zero before it.

        The others begin when they are first known; until then a zero would say that there was none.
        """
        for kind in USUAL_KINDS:
            self._sum(metrics.STEPS, kind)
        for part in ("not_modelled", "not_recorded"):
            self._sum(metrics.TIME, part)
        for metric in (metrics.LOST, metrics.RESTARTS):
            self._sum(metric)
        for code in RULES:
            self._sum(metrics.FINDING_COST, str(code))
            self._sum(metrics.FINDINGS_RAISED, str(code))

    def begin_run(self, source: SourceKind, from_monotonic_s: float, before: StepTable, now_unix_s: float) -> None:
        """A run of the engine takes the label; its time is watched from this moment on.

        A second run of the same kind of source is a restart; of another kind it is the same engine, seen otherwise.
        """
        if source is self._source:
            self._add(metrics.RESTARTS, 1)
        if source is SourceKind.RING:
            self._sum(metrics.HOOK, created_unix_s=now_unix_s)
        if source.single_steps:
            for kind in USUAL_KINDS:
                self._histogram(kind, now_unix_s)
        self._tell(before)
        for entry in self._entries():
            entry.refused = 0
        self._source, self.live = source, True
        self._times = TimeParts(from_monotonic_s, before, intervals=not source.single_steps)
        self._lost_until_s = max(self._lost_until_s, from_monotonic_s)

    def _tell(self, steps: StepTable) -> None:
        """Begin the sums of what is known of some of these steps, and no others."""
        for metric, column in SUMMED:
            if steps.where(column).any():
                self._sum(metric)
        for kind, columns in TOKEN_COLUMNS.items():
            if any(steps.where(column).any() for column in columns):
                self._sum(metrics.TOKENS, kind)

    @property
    def problem(self) -> str | None:
        """What could not be counted of this run, in one line; None where nothing was wrong."""
        found = [entry for entry in self._entries() if entry.refused]
        if not found:
            return None
        names = ", ".join(dict.fromkeys(entry.metric.name for entry in found))
        count = sum(entry.refused for entry in found)
        return f"values that no counter can rise by were left out of {names} ({count} so far): see measurement_invalid"

    def add(self, batch: Batch, analysis: StepAnalysis | None, now_unix_s: float) -> None:
        """Count what one read brought; ``analysis`` has one row for each of its steps, or is None."""
        if self._times is not None:
            self._add_times(self._times.add(batch.steps, analysis))
        ended = sum(
            count
            for event in batch.events
            if event.name == "requests_ended" and isinstance(count := event.detail.get("finished_requests"), int)
        )
        if ended:
            self._add(metrics.FINISHED, ended)
        self._add(metrics.LOST, batch.lost_steps + batch.torn_steps)
        if not len(batch.steps):
            return
        self._count_kinds(batch.steps, now_unix_s)
        for metric, column in SUMMED:
            self._add_column(metric, batch.steps, column)
        for kind, columns in TOKEN_COLUMNS.items():
            for column in columns:
                self._add_column(metrics.TOKENS, batch.steps, column, kind)
        if self._source is SourceKind.RING:
            self._add_column(metrics.HOOK, batch.steps, "hook_s")
        if analysis is not None:
            self._add_bounds(analysis, now_unix_s)

    def rest_until(self, until_monotonic_s: float, sure: bool) -> float:
        """Count idle time of an engine that makes no steps, as TimeParts.rest_until; the seconds that it was."""
        parts = self._times.rest_until(until_monotonic_s, sure) if self._times is not None else {}
        self._add_times(parts)
        return sum(parts.values())

    def end_run(self, now_monotonic_s: float) -> None:
        """The engine is gone."""
        if self._times is not None:
            self._add_times(self._times.end_at(now_monotonic_s))
        self._times, self.live = None, False

    def judged(self, findings: Iterable[Finding]) -> None:
        """A window was judged: what each firing finding cost in it."""
        for finding in findings:
            if finding.status is Status.FIRING and finding.price is not None:
                self._add(metrics.FINDING_COST, max(0.0, finding.price.saved_s), str(finding.code))

    def stands(self, code: str, lost_s: float, now_monotonic_s: float) -> None:
        """The engine stands still, and its last ``lost_s`` seconds are lost: counted are those that were not yet.

        Nothing from before it was watched counts. A source that says the same again has seen nothing new: a page is
        asked in every turn and read every few seconds.
        """
        if lost_s == self._lost_s:
            return
        begun_s = max(now_monotonic_s - lost_s, self._lost_until_s)
        self._add(metrics.FINDING_COST, max(0.0, now_monotonic_s - begun_s), code)
        self._lost_s, self._lost_until_s = lost_s, max(self._lost_until_s, now_monotonic_s)

    def spend(self, role: str, cpu_s: float) -> None:
        """The engine's processes of this role used so much processor time."""
        self._add(device_metrics.HOST_CPU, cpu_s, role)

    def raised(self, codes: Iterable[str]) -> None:
        """These findings began to fire."""
        for code in codes:
            self._add(metrics.FINDINGS_RAISED, 1, str(code))

    def samples(self) -> Iterator[Sample]:
        """Every series as it stands."""
        yield from (entry.sample() for entry in self._entries())

    def _entries(self) -> Iterator[Sum | Histogram]:
        yield from self._sums.values()
        yield from self._histograms.values()

    def _sum(self, metric: Metric, *labels: str, created_unix_s: float | None = None) -> Sum:
        place = (metric.name, *labels)
        found = self._sums.get(place)
        if found is None:
            found = Sum(metric, (*self.key, *labels), created_unix_s or self.created_unix_s)
            self._sums[place] = found
        return found

    def _add(self, metric: Metric, value: float, *labels: str) -> None:
        self._sum(metric, *labels).grow(float(value))

    def _add_column(self, metric: Metric, steps: StepTable, column: str, *labels: str) -> None:
        amounts, known = steps.columns.get(column), steps.known.get(column)
        if amounts is not None and known is not None:
            amounts = amounts[known]
        if amounts is not None and len(amounts):
            self._sum(metric, *labels).grow_by_all(amounts)

    def _add_times(self, parts: Mapping[str, float]) -> None:
        for part, seconds in parts.items():
            self._add(metrics.TIME, max(0.0, seconds), part)

    def _histogram(self, kind: str, created_unix_s: float) -> Histogram:
        if kind not in self._histograms:
            self._histograms[kind] = Histogram(metrics.STEP_SECONDS, (*self.key, kind), created_unix_s)
        return self._histograms[kind]

    def _count_kinds(self, steps: StepTable, now_unix_s: float) -> None:
        if "kind" not in steps.columns:
            return
        stand_for, timed, kinds = steps_of(steps), steps.where("observed_s"), steps["kind"]
        for number in sorted(set(kinds[steps.where("kind")].tolist())):
            if number not in KINDS:
                continue
            rows = kinds == number
            kind = StepKind(number).name.lower()
            self._sum(metrics.STEPS, kind, created_unix_s=now_unix_s).grow_by_all(stand_for[rows])
            rows = rows & timed
            # A page tells the mean of many steps: how they spread, and so any quantile, is not known.
            if self._source is not None and self._source.single_steps and rows.any():
                self._histogram(kind, now_unix_s).take(steps["observed_s"][rows], stand_for[rows])

    def _add_bounds(self, analysis: StepAnalysis, now_unix_s: float) -> None:
        # A mask of all rows, or None for every one of them.
        modelled, compared = (None if rows.all() else rows for rows in (analysis.modelled, analysis.compared))
        sums = (
            (metrics.BYTES, ("weights",), analysis.weight_bytes, modelled),
            (metrics.BYTES, ("kv_read",), analysis.kv_read_bytes, modelled),
            (metrics.BYTES, ("kv_write",), analysis.kv_write_bytes, modelled),
            (metrics.FLOPS, (), analysis.flops, modelled),
            (metrics.COMPARED, (), analysis.observed_s, compared),
            (metrics.FLOOR, (), analysis.floor_s, compared),
            (metrics.EXPECTED, (), analysis.expected_s, compared),
            (metrics.REACHABLE, (), analysis.reachable_s, compared),
            (metrics.MEMORY_FLOOR, (), analysis.memory_s, compared),
        )
        for metric, labels, column, rows in sums:
            if column is not None:
                self._sum(metric, *labels, created_unix_s=now_unix_s).grow_by_all(
                    column if rows is None else column[rows]
                )


class Totals:
    """The sums of every label that was seen, at most MOST_ENGINES; the one dead for the longest goes first."""

    def __init__(self, most_engines: int = MOST_ENGINES) -> None:
        self._most = most_engines
        self._engines: dict[Key, EngineTotals] = {}

    def of(self, key: Key, now_unix_s: float) -> EngineTotals:
        """The sums of a label for a run that takes it now."""
        found = self._engines.pop(key, None)
        if found is None:
            self._make_room()
            found = EngineTotals(key, now_unix_s)
        self._engines[key] = found  # the newest last
        return found

    def _make_room(self) -> None:
        while len(self._engines) >= self._most:
            dead = next((key for key, totals in self._engines.items() if not totals.live), None)
            if dead is None:
                return
            del self._engines[dead]

    def samples(self, shown: Sequence[Key]) -> list[Sample]:
        """Every series of these labels."""
        return [s for key in shown if key in self._engines for s in self._engines[key].samples()]
