"""dcgm-exporter as a probe: the counters of devices that NVML is not asked for here, as old as its page is."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import NamedTuple

from rooflens.collector.dcgm_names import throttles
from rooflens.collector.dcgm_pace import Pace
from rooflens.collector.dcgm_text import DeviceValues, Key, PageReading, Values, read_page
from rooflens.collector.plausible import plausible
from rooflens.device_records import CounterSource, DeviceFacts, DeviceSample, Throttle
from rooflens.protocols import Probed

SHORTEST_PERIOD_S = 0.05
# A stretch between two changes that is longer than this many periods holds values of only its last period.
STRETCHED = 1.5
COUNTED = frozenset(["energy_j", *(f"throttled_s.{reason}" for reason in Throttle)])


class Window(NamedTuple):
    """As in DeviceSample."""

    start_monotonic_s: float
    end_monotonic_s: float
    slack_s: float


class Told(IntEnum):
    """How much of a page holds for a window: what was counted in it, what is so at its end, the exporter's means."""

    COUNTED = 0
    NOW = 1
    ALL = 2


class DcgmProbe:
    """The devices of one dcgm-exporter page.

    ``name`` is what its problem lines call it, ``fetch`` brings the page's bytes and may raise anything. The page is
    read every ``period_s`` (the exporter's own default), or sooner where its values are seen to change sooner.

    A sample's window runs from one change of the values to the next, each put one pause between reads before the read
    that showed it. Either end is off by the page's period at most: the values changed since the read before, which is
    less, and an exporter that renders its page on a timer of its own shows what is up to a period old. Means of the
    exporter (every ratio and rate) are over its period: they are left out until that is known, at first for about two
    periods, while clocks and counters are not.
    Over a page that could not be read for a while, and over a stretch in which changes were missed, a sample has what
    was counted from its one end to the other, and nothing else.
    Values that do not change are the same again, unless an energy counter is among them: then the exporter is stuck.
    """

    def __init__(
        self, name: str, fetch: Callable[[], bytes], period_s: float = 30.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.name = name
        self._fetch, self._clock = fetch, clock
        self._pace = Pace(max(period_s, SHORTEST_PERIOD_S))
        self._due_s = -math.inf
        self._page: PageReading | None = None
        self._values: dict[Key, Values] = {}  # of the newest page
        self._read_s = -math.inf  # when it was asked for
        self._window_s: float | None = None  # where the next sample's window begins
        self._held: dict[Key, Values] = {}  # the values from then on
        self._missed = False  # whether a read failed since
        self._seen_s: float | None = None  # since when the page is read without a failure
        self._problems: tuple[str, ...] = ()

    def sample(self) -> Probed:
        """The samples since the last call; between two reads of the page only its devices and problems again."""
        samples: tuple[DeviceSample, ...] = ()
        try:
            began_s = self._clock()
            if began_s >= self._due_s:
                samples = self._read(began_s)
                self._due_s = began_s + self._pace.interval_s
        except Exception as error:  # a page must not end the thread that reads the next one
            self._due_s = self._clock() + self._pace.slowest_s
            self._problems = (f"{self.name} could not be understood ({type(error).__name__}): please report it",)
        devices = self._page.devices.values() if self._page is not None else ()
        return Probed(tuple(map(_facts, devices)), samples, problems=self._problems)

    def _read(self, began_s: float) -> tuple[DeviceSample, ...]:
        try:
            raw = self._fetch()
        except Exception as error:
            reason = str(error).partition("\n")[0][:200] or type(error).__name__
            reason = reason.removeprefix(self.name).strip()
            self._problems = (f"{self.name} {reason}: no counters from it, is dcgm-exporter running there?",)
            self._miss()
            return ()
        page = read_page(raw)
        self._problems = tuple(f"{self.name} {problem}" for problem in page.problems)
        self._page = page
        values, last_values = page.values(), self._values
        last_read_s, self._read_s, self._values = self._read_s, began_s, values
        if not values:
            self._values = last_values
            self._miss()
            return ()
        if self._seen_s is None:
            self._seen_s = began_s
        if not last_values:
            self._begin_anew(values)
            return ()
        if values == last_values:
            self._pace.same()
            return self._still(last_read_s, began_s)
        if not self._missed:
            self._pace.changed(began_s)
        return self._changed(max(began_s - self._pace.interval_s, last_read_s), self._clock() - last_read_s)

    def _miss(self) -> None:
        """The page is not there now: the window goes on over that, for what is counted, where its begin is known."""
        self._pace.missed()
        self._missed, self._seen_s = True, None
        counts = any(key in COUNTED for values in self._held.values() for key in values)
        if self._window_s is None or not counts:
            self._begin_anew({})

    def _begin_anew(self, values: dict[Key, Values]) -> None:
        """Nothing before this is known."""
        self._values = self._held = values
        self._window_s, self._missed = None, False
        self._pace.missed()

    def _changed(self, end_s: float, bracket_s: float) -> tuple[DeviceSample, ...]:
        """Samples of what changed at about ``end_s``, in a stretch of ``bracket_s`` between two reads."""
        period_s = self._pace.page_period_s
        start_s, held, missed = self._window_s, self._held, self._missed
        self._window_s, self._held, self._missed = end_s, self._values, False
        if start_s is None or end_s <= start_s:  # it is not known when the values before these ones came
            return ()
        if missed:
            bracket_s = self._pace.interval_s  # the page had values before this read, and since when nobody saw
        slack_s = 2 * bracket_s if period_s is None else max(period_s, bracket_s)
        window = Window(start_s, end_s, slack_s)
        if missed or (period_s is not None and end_s - start_s > STRETCHED * period_s):
            return self._samples(held, window, Told.COUNTED)
        return self._samples(held, window, Told.NOW if period_s is None else Told.ALL)

    def _still(self, last_read_s: float, began_s: float) -> tuple[DeviceSample, ...]:
        """Samples of values that have been the same for longer than the page's period; none where that cannot be."""
        if self._window_s is None:
            self._window_s = last_read_s
        since_s = self._window_s if self._seen_s is None else max(self._window_s, self._seen_s)
        still_s = began_s - since_s
        if still_s < max(self._pace.slowest_s, STRETCHED * (self._pace.page_period_s or 0.0)):
            return ()
        if any("energy_j" in values for values in self._values.values()):
            if still_s < STRETCHED * self._pace.slowest_s:  # as the exporter's own default may be seen at first
                return ()
            line = f"{self.name} has shown the same energy for {still_s:.0f} s: it is stuck, restart dcgm-exporter"
            self._problems = (*self._problems, line)
            return ()
        window = Window(self._window_s, began_s, self._pace.slowest_s)
        told = Told.COUNTED if self._missed else Told.ALL
        self._window_s, self._missed = began_s, False
        return self._samples(self._held, window, told)

    def _samples(self, held: Mapping[Key, Values], window: Window, told: Told) -> tuple[DeviceSample, ...]:
        """Of each device that was there at both ends of a window, without what cannot be, which is said."""
        page = self._page
        samples, beyond = [], dict[str, list[str]]()
        for key, device in page.devices.items() if page is not None else ():
            if key in held:
                sample, left_out = plausible(_sample(device, held[key], window, told), _facts(device))
                samples.append(sample)
                for words in left_out:
                    beyond.setdefault(words, []).append(device.uuid)
        self._problems += tuple(
            f"{self.name} {words} of {uuids[0]}{f' and {len(uuids) - 1} more' * (len(uuids) > 1)} "
            "is outside of what it can be and is left out"
            for words, uuids in beyond.items()
        )
        return tuple(samples)


def _facts(device: DeviceValues) -> DeviceFacts:
    values = device.values
    parts = [values.get(key) for key in ("memory_used_bytes", "memory_free_bytes", "memory_reserved_bytes")]
    memory_bytes = values.get("memory_bytes")
    if memory_bytes is None and None not in parts:
        memory_bytes = sum(part for part in parts if part is not None)
    return DeviceFacts(
        device.uuid,
        CounterSource.DCGM,
        name=device.name,
        index=device.index,
        parent_uuid=device.parent_uuid,
        mig_profile=device.mig_profile,
        memory_bytes=None if memory_bytes is None else round(memory_bytes),
        sm_clock_max_hz=values.get("sm_clock_max_hz") or None,
        memory_clock_max_hz=values.get("memory_clock_max_hz") or None,
        power_limit_w=values.get("power_limit_w") or None,
        driver_version=device.driver_version,
        counters=True if "dram_ratio" in values else None,
    )


def _sample(device: DeviceValues, then: Values, window: Window, told: Told) -> DeviceSample:
    """One sample: ``then`` are the counters where its window begins."""
    counted = device.values
    now, mean = (counted if told >= least else {} for least in (Told.NOW, Told.ALL))
    used_bytes, mask = now.get("memory_used_bytes"), now.get("throttles")
    spent = {reason: _grown(counted, then, f"throttled_s.{reason}") for reason in Throttle}
    return DeviceSample(
        device.uuid,
        CounterSource.DCGM,
        *window,
        dram_ratio=mean.get("dram_ratio"),
        tensor_ratio=mean.get("tensor_ratio"),
        sm_ratio=mean.get("sm_ratio"),
        sm_occupancy_ratio=mean.get("sm_occupancy_ratio"),
        graphics_ratio=mean.get("graphics_ratio"),
        pcie_tx_bytes_per_s=mean.get("pcie_tx_bytes_per_s"),
        pcie_rx_bytes_per_s=mean.get("pcie_rx_bytes_per_s"),
        nvlink_tx_bytes_per_s=mean.get("nvlink_tx_bytes_per_s"),
        nvlink_rx_bytes_per_s=mean.get("nvlink_rx_bytes_per_s"),
        c2c_tx_bytes_per_s=mean.get("c2c_tx_bytes_per_s"),
        c2c_rx_bytes_per_s=mean.get("c2c_rx_bytes_per_s"),
        sm_clock_hz=now.get("sm_clock_hz"),
        memory_clock_hz=now.get("memory_clock_hz"),
        power_w=now.get("power_w"),
        energy_j=_grown(counted, then, "energy_j"),
        temperature_celsius=now.get("temperature_celsius"),
        memory_used_bytes=None if used_bytes is None else round(used_bytes),
        throttles=None if mask is None else throttles(mask),
        throttled_s={reason: spent_s for reason, spent_s in spent.items() if spent_s is not None},
        kernel_ratio=now.get("kernel_ratio"),
    )


def _grown(values: Values, held: Values, key: str) -> float | None:
    """How much a counter grew; None where it is not known, or began anew."""
    now, then = values.get(key), held.get(key)
    return None if now is None or then is None or now < then else now - then
