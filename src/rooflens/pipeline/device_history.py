"""What probes told of devices, kept for as long as a window may last; of several sources for one device, which one."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace

from rooflens.device_records import CounterSource, DeviceFacts, DeviceSample, DeviceView, ProcessSample
from rooflens.pipeline.probes import Sampled
from rooflens.protocols import Probed

MOST_SAMPLES = 4096  # of one device and source; at the fastest period that is 17 minutes
MOST_DEVICES = 256  # of one probe, and of all those that none tells of any longer
FRESH_PERIODS, FRESH_S = 3.0, 2.0  # a source that missed so many periods, and some more, does not tell of now
ORDER = tuple(CounterSource)


@dataclass(slots=True)
class _Series:
    """The samples of one device from one probe."""

    source: CounterSource
    sampled: Sampled
    samples: deque[DeviceSample] = field(default_factory=lambda: deque(maxlen=MOST_SAMPLES))
    dram_s: float | None = None  # when a sample last told of the DRAM

    def fresh(self, now_s: float) -> bool:
        """Whether it tells of now."""
        if not self.samples:
            return False
        newest = self.samples[-1]
        patience_s = FRESH_PERIODS * self.sampled.period_s + newest.slack_s + FRESH_S
        return now_s - newest.end_monotonic_s <= patience_s


class DeviceHistory:
    """Facts and samples by device, compared by uuid without regard to its case, and the processes of engines.

    Of a device that several probes tell of, one that tells of its DRAM comes first, then by CounterSource, then by the
    order in which the probes were named; one that has fallen silent comes after all that have not.
    """

    def __init__(self, kept_s: float) -> None:
        self._kept_s = kept_s
        self._series: dict[str, dict[int, _Series]] = {}  # by uuid, then by place of the probe
        self._facts: dict[str, dict[int, DeviceFacts]] = {}
        self._here: dict[int, tuple[str, ...]] = {}  # the devices that each probe told of last
        self._spelling: dict[str, str] = {}
        self._claimed: frozenset[str] = frozenset()
        self._overfull: dict[int, str] = {}  # by place: what is said of a probe that tells of too many
        self._processes: deque[ProcessSample] = deque(maxlen=MOST_SAMPLES)

    def take(self, place: int, sampled: Sampled, probed: Probed) -> list[DeviceSample]:
        """Keep what one answer brought; the samples of devices whose chosen source this probe is, spelt alike."""
        if probed.devices:
            self._know(place, sampled, probed.devices)
        self._processes.extend(probed.processes)
        chosen = []
        for sample in probed.samples:
            key = sample.uuid.casefold()
            if place not in self._facts.get(key, ()):
                continue
            series = self._series.setdefault(key, {}).setdefault(place, _Series(sample.source, sampled))
            if sample.span_s <= 0:
                continue
            spelt = self._spelling[key]
            kept = sample if sample.uuid == spelt else replace(sample, uuid=spelt)
            series.samples.append(kept)
            if kept.dram_ratio is not None:
                series.dram_s = kept.end_monotonic_s
            self._shorten(series)
            if self._place(key, kept.end_monotonic_s) == place:
                chosen.append(kept)
        return chosen

    def claim(self, keys: frozenset[str]) -> None:
        """Engines run on these devices, case-folded: they come first where a probe tells of too many."""
        self._claimed = keys

    def count(self, place: int) -> int:
        """How many devices this probe told of last."""
        return len(self._here.get(place, ()))

    def elsewhere(self, place: int, uuid: str, now_s: float) -> bool:
        """Whether the device's counters come from another probe than this one now."""
        key = uuid.casefold()
        chosen = self._place(key, now_s)
        return chosen is not None and chosen != place and self._series[key][chosen].fresh(now_s)

    def tells(self, source: str, uuid: str) -> bool:
        """Whether this source told of the device, or none did so far."""
        told = self._facts.get(uuid.casefold())
        return not told or any(str(facts.source) == source for facts in told.values())

    def facts(self) -> list[DeviceFacts]:
        """The devices that are told of now, each once."""
        keys = dict.fromkeys(key for keys in self._here.values() for key in keys)
        return [facts for key in keys if (facts := self._told(key)) is not None]

    def facts_of(self, uuids: Iterable[str]) -> dict[str, DeviceFacts]:
        """The facts of these devices by uuid, as they were last told."""
        return {uuid: facts for uuid in uuids if (facts := self._told(uuid.casefold())) is not None}

    def samples(self, uuids: Iterable[str], start_s: float, end_s: float) -> dict[str, list[DeviceSample]]:
        """By uuid the samples of these devices that overlap this stretch, from each device's chosen source."""
        found: dict[str, list[DeviceSample]] = {}
        for uuid in uuids:
            key = uuid.casefold()
            place = self._place(key, end_s)
            found[uuid] = [] if place is None else _overlapping(self._series[key][place].samples, start_s, end_s)
        return found

    def processes(self, pid: int, start_s: float, end_s: float) -> list[ProcessSample]:
        """The samples of this engine's processes that overlap this stretch."""
        near = (p for p in self._processes if p.end_monotonic_s > start_s and p.start_monotonic_s < end_s)
        return [process for process in near if process.engine_pid == pid]

    def view(self, uuid: str, now_s: float) -> DeviceView | None:
        """The device as it is now; without a sample where none is fresh. None where nothing was told of it."""
        key = uuid.casefold()
        place, facts = self._place(key, now_s), self._told(key, now_s)
        if facts is None:
            return None
        series = self._series[key][place] if place is not None else None
        if series is None or not series.fresh(now_s):
            return DeviceView(facts, facts.source, None, "its counters are not read now")
        return DeviceView(facts, series.source, series.samples[-1])

    def problems(self, now_s: float) -> Iterator[str]:
        """Pages of one kind that tell of the same devices, one line for all of these; and probes of too many."""
        yield from self._overfull.values()
        doubles: dict[tuple[str, ...], list[str]] = {}
        for key, places in self._series.items():
            alike: dict[CounterSource, list[str]] = {}
            for place in sorted(places):
                if places[place].fresh(now_s):
                    alike.setdefault(places[place].source, []).append(places[place].sampled.name)
            for names in alike.values():
                if len(names) > 1:
                    doubles.setdefault(tuple(names), []).append(self._spelling[key])
        for pages, uuids in doubles.items():
            told = f"device {uuids[0]} is" if len(uuids) == 1 else f"{len(uuids)} devices, {uuids[0]} the first, are"
            yield f"{told} told of by {' and '.join(pages)}: {pages[0]} is taken; leave the others out"

    def _know(self, place: int, sampled: Sampled, devices: Sequence[DeviceFacts]) -> None:
        """Keep what a probe tells of its devices, of too many those of engines and then the first."""
        self._overfull.pop(place, None)
        if len(devices) > MOST_DEVICES:
            self._overfull[place] = f"{sampled.name} tells of {len(devices)} devices: {MOST_DEVICES} of them are read"
            devices = sorted(devices, key=lambda facts: facts.uuid.casefold() not in self._claimed)[:MOST_DEVICES]
        told = {facts.uuid.casefold(): facts for facts in devices}
        self._here[place] = tuple(told)
        fresh = not told.keys() <= self._facts.keys()
        for key, facts in told.items():
            self._spelling.setdefault(key, facts.uuid)
            self._facts.setdefault(key, {})[place] = facts
        if fresh:
            self._forget()

    def _forget(self) -> None:
        """Drop the oldest of too many devices that no probe tells of any longer and no engine runs on."""
        kept = self._claimed.union(*self._here.values())
        gone = [key for key in self._facts if key not in kept]
        for key in gone[: max(0, len(gone) - MOST_DEVICES)]:
            self._facts.pop(key)
            self._series.pop(key, None)
            self._spelling.pop(key)

    def _told(self, key: str, now_s: float | None = None) -> DeviceFacts | None:
        """The facts from the chosen source, what it does not know from the others; None where nobody tells any."""
        told = self._facts.get(key)
        if not told:
            return None
        newest = max(
            (s.samples[-1].end_monotonic_s for s in self._series.get(key, {}).values() if s.samples), default=0
        )
        chosen = self._place(key, newest if now_s is None else now_s)
        places = sorted(told, key=lambda place: (place != chosen, *self._rank(place, told[place])))
        facts = told[places[0]]
        for place in places[1:]:
            facts = _filled(facts, told[place])
        return replace(facts, uuid=self._spelling[key]) if facts.uuid != self._spelling[key] else facts

    def _rank(self, place: int, facts: DeviceFacts) -> tuple[int, int]:
        return ORDER.index(facts.source), place

    def _place(self, key: str, now_s: float) -> int | None:
        """Which probe's samples of a device count."""
        found = self._series.get(key)
        if not found:
            return None
        if len(found) == 1:
            return next(iter(found))

        def rank(place: int) -> tuple[bool, bool, int, int]:
            series = found[place]
            return not series.fresh(now_s), series.dram_s is None, ORDER.index(series.source), place

        return min(found, key=rank)

    def _shorten(self, series: _Series) -> None:
        oldest_s = series.samples[-1].end_monotonic_s - self._kept_s
        while series.samples[0].end_monotonic_s < oldest_s:
            series.samples.popleft()
        if series.dram_s is not None and series.dram_s < oldest_s:
            series.dram_s = None


def _filled(facts: DeviceFacts, others: DeviceFacts) -> DeviceFacts:
    """Facts with what another source knows beside them."""
    missing = [each.name for each in fields(facts) if getattr(facts, each.name) in (None, ())]
    return replace(facts, **{name: getattr(others, name) for name in missing})


def _overlapping(samples: Sequence[DeviceSample], start_s: float, end_s: float) -> list[DeviceSample]:
    """Those that overlap the stretch; a few at the newest end of many."""
    found = []
    for sample in reversed(samples):
        if sample.end_monotonic_s <= start_s:
            break
        if sample.start_monotonic_s < end_s:
            found.append(sample)
    return found[::-1]
