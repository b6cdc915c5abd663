"""AMD devices through amdsmi as a probe: every call is guarded alone, and a library that is lost is opened again."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stdout, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from rooflens.collector.amd_values import (
    MHZ,
    MIB,
    Reading,
    number,
    power_w,
    scaled,
    sm_clock_mhz,
    text,
    window_of,
)
from rooflens.collector.plausible import plausible_facts
from rooflens.device_records import CounterSource, DeviceFacts, DeviceSample
from rooflens.protocols import Probed

DRIVER = Path("/dev/kfd")  # what the kernel's driver for computing gives; without it there is nothing to ask
FACTS_S = 30.0
LONGEST_PAUSE_S = 60.0
# A window shorter than this holds less than the firmware's own refresh.
SHORTEST_WINDOW_S = 0.05
NOT_INSTALLED = "amdsmi is not installed: pip install amdsmi, in the version of the driver"
BEYOND = "a value that cannot be"
# What a device or library does not have, which is no failure.
ABSENT = frozenset(["AMDSMI_STATUS_NOT_SUPPORTED", "AMDSMI_STATUS_NOT_YET_IMPLEMENTED"])
LOST = frozenset(["AMDSMI_STATUS_NOT_INIT", "AMDSMI_STATUS_DRIVER_NOT_LOADED", "AMDSMI_STATUS_NOT_FOUND"])


class AmdProbe:
    """The AMD devices of this machine, by amdsmi's uuid; a partition (CPX) is a device of its own.

    ``driver`` is looked for before anything is loaded. Samples run from the last call to this one.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, driver: Path = DRIVER) -> None:
        self._clock, self._driver = clock, driver
        self._smi: ModuleType | None = None
        self._devices: dict[str, Any] = {}  # handles by uuid
        self._facts: dict[str, DeviceFacts] = {}
        self._facts_due_s = float("-inf")
        self._last: dict[str, Reading] = {}
        self._watched: frozenset[str] | None = None
        self._problem: str | None = None  # why the library is not open
        self._not_before_s = float("-inf")
        self._openings = 0
        self._failed: dict[tuple[str, str], list[str]] = {}  # figures by owner and kind of failure, of this call
        self._fact_failed: dict[tuple[str, str], list[str]] = {}  # the same of the last look at facts

    def watch(self, uuids: frozenset[str] | None) -> None:
        """Sample these devices only, or all of them; their facts are told either way."""
        self._watched = None if uuids is None else frozenset(uuid.lower() for uuid in uuids)

    def sample(self) -> Probed:
        """Facts of every device and the counters of those watched since the last call; never raises."""
        try:
            return self._sample()
        except Exception as error:  # whatever a library of another version answers
            self._close(None)
            return Probed(problems=(f"amdsmi answers what is not understood ({_kind(error)}): please report it",))

    def close(self) -> None:
        """Let the library go."""
        self._close(None)

    def _sample(self) -> Probed:
        if self._smi is None and not self._open():
            return Probed(problems=(self._problem,) if self._problem else ())
        self._failed = {}
        now_s = self._clock()
        if now_s >= self._facts_due_s:
            self._facts_due_s = now_s + FACTS_S
            self._facts = {uuid: self._facts_of(uuid, index) for index, uuid in enumerate(self._devices)}
            self._fact_failed, self._failed = self._failed, {}
        samples = tuple(self._samples())
        lines = tuple(self._lines())
        lacks = tuple((owner, line) for owner, kind, line in lines if kind in ABSENT)
        if any(kind in LOST for _, kind in self._failed):
            self._close("amdsmi lost its driver and is opened again")
        return Probed(tuple(self._facts.values()), samples, problems=tuple(line for _, _, line in lines), lacks=lacks)

    def _open(self) -> bool:
        """Import and initialise; False with ``_problem`` where that fails, or failed a moment ago."""
        now_s = self._clock()
        if now_s < self._not_before_s:
            return False
        self._not_before_s = now_s + min(LONGEST_PAUSE_S, 2.0 ** min(self._openings, 6))
        self._openings += 1
        self._problem = self._opened()
        return self._problem is None

    def _opened(self) -> str | None:
        """Why the library cannot be used, None where it can."""
        if not self._driver.exists():
            return f"no AMD device: {self._driver} is missing, its driver is not loaded or not given to this container"
        try:
            with redirect_stdout(io.StringIO()):  # it prints where it finds no library
                import amdsmi
        except Exception as error:  # KeyError where libamd_smi.so is missing
            if isinstance(error, ModuleNotFoundError) and error.name == "amdsmi":
                return NOT_INSTALLED
            return f"amdsmi cannot be loaded ({_kind(error)}): install amd-smi-lib of the driver's ROCm, which has it"
        try:
            amdsmi.amdsmi_init(amdsmi.AmdSmiInitFlags.INIT_AMD_GPUS)
            handles = amdsmi.amdsmi_get_processor_handles()
        except Exception as error:
            return f"amdsmi cannot be started ({_kind(error)}): see whether amd-smi answers; it is tried again"
        if not handles:
            return "amdsmi finds no device: see whether amd-smi lists one; it is tried again"
        self._smi, self._openings, self._facts_due_s = amdsmi, 0, float("-inf")
        self._devices = {}
        for handle in handles:
            uuid = text(self._ask("a device", "its uuid", "amdsmi_get_gpu_device_uuid", handle))
            if uuid is not None:
                self._devices.setdefault(uuid, handle)
        self._last = {uuid: last for uuid, last in self._last.items() if uuid in self._devices}
        return None

    def _close(self, problem: str | None) -> None:
        smi, self._smi = self._smi, None
        self._problem, self._devices = problem, {}
        if smi is not None:
            with suppress(Exception):
                smi.amdsmi_shut_down()

    def _ask(self, owner: str, what: str, function: str, *arguments: Any) -> Any:
        """One call; None and a note of its kind where it fails."""
        try:
            return getattr(self._smi, function)(*arguments)
        except Exception as error:
            self._failed.setdefault((owner, _kind(error)), []).append(what)
            return None

    def _table(self, owner: str, what: str, function: str, *arguments: Any) -> Mapping[str, Any]:
        answer = self._ask(owner, what, function, *arguments)
        return answer if isinstance(answer, Mapping) else {}

    def _clock_info(self, uuid: str, kind: str) -> Mapping[str, Any]:
        clocks = getattr(getattr(self._smi, "AmdSmiClkType", None), kind, None)
        return self._table(uuid, f"the {kind} clock", "amdsmi_get_clock_info", self._devices[uuid], clocks)

    def _facts_of(self, uuid: str, index: int) -> DeviceFacts:
        handle = self._devices[uuid]
        asic = self._table(uuid, "its name", "amdsmi_get_gpu_asic_info", handle)
        vram = self._table(uuid, "memory", "amdsmi_get_gpu_vram_usage", handle)
        cap = self._table(uuid, "the power limit", "amdsmi_get_power_cap_info", handle)
        driver = self._table(uuid, "the driver's version", "amdsmi_get_gpu_driver_info", handle)
        metrics = self._table(uuid, "metrics", "amdsmi_get_gpu_metrics_info", handle)
        listed = self._ask(uuid, "its processes", "amdsmi_get_gpu_process_list", handle)
        pids = [number(each.get("pid")) for each in listed or () if isinstance(each, Mapping)]
        total_mib = number(vram.get("vram_total"))
        told = DeviceFacts(
            uuid,
            CounterSource.AMDSMI,
            name=text(asic.get("market_name")),
            index=index,
            memory_bytes=None if total_mib is None else round(total_mib) * MIB,
            # In GB/s at the highest memory clock; amdsmi_get_gpu_vram_info has it at the clock of the moment.
            memory_bandwidth_bytes_per_s=scaled(number(metrics.get("vram_max_bandwidth")) or None, 1e9),
            sm_clock_max_hz=scaled(number(self._clock_info(uuid, "GFX").get("max_clk")) or None, MHZ),
            memory_clock_max_hz=scaled(number(self._clock_info(uuid, "MEM").get("max_clk")) or None, MHZ),
            power_limit_w=scaled(number(cap.get("power_cap")) or None, 1e-6),  # micro watts
            driver_version=text(driver.get("driver_version")),
            counters=False,
            pids=tuple(sorted(int(pid) for pid in pids if pid)),
        )
        facts, beyond = plausible_facts(told)
        self._note(uuid, beyond)
        return facts

    def _note(self, uuid: str, beyond: tuple[str, ...]) -> None:
        """Figures that are left out, for the problem lines."""
        if beyond:
            self._failed.setdefault((uuid, BEYOND), []).extend(beyond)

    def _samples(self) -> Iterator[DeviceSample]:
        for uuid in self._devices:
            if self._watched is not None and uuid.lower() not in self._watched:
                self._last.pop(uuid, None)
                continue
            last = self._last.get(uuid)
            if last is not None and self._clock() - last.monotonic_s < SHORTEST_WINDOW_S:
                continue
            now = self._reading(uuid)
            if now is None:
                continue
            self._last[uuid] = now
            if last is not None:
                sample, beyond = window_of(uuid, last, now, self._facts.get(uuid))
                self._note(uuid, beyond)
                yield sample

    def _reading(self, uuid: str) -> Reading | None:
        """What the device says now; None where it says nothing at all."""
        handle, began_s = self._devices[uuid], self._clock()
        metrics = self._table(uuid, "metrics", "amdsmi_get_gpu_metrics_info", handle)
        energy = self._table(uuid, "energy", "amdsmi_get_energy_count", handle)
        vram = self._table(uuid, "memory", "amdsmi_get_gpu_vram_usage", handle)
        late_s = self._clock() - began_s
        gfx = {} if sm_clock_mhz(metrics) is not None else self._clock_info(uuid, "GFX")
        mem = {} if number(metrics.get("current_uclk")) is not None else self._clock_info(uuid, "MEM")
        power: Mapping[str, Any] = {}
        if power_w(metrics) is None:
            power = self._table(uuid, "power", "amdsmi_get_power_info", handle)
        if not any((metrics, energy, vram, gfx, mem, power)):
            return None
        return Reading(began_s, late_s, metrics, energy, vram, gfx, mem, power)

    def _lines(self) -> Iterator[tuple[str, str, str]]:
        """One line for each device and kind of failure, after both."""
        joined: dict[tuple[str, str], list[str]] = {}
        for failed in (self._fact_failed, self._failed):
            for place, figures in failed.items():
                joined.setdefault(place, []).extend(figures)
        for (owner, kind), figures in joined.items():
            names = ", ".join(dict.fromkeys(figures))
            told = f"amdsmi: {kind} for {names} of {owner}: not known until it answers, see whether amd-smi does"
            yield owner, kind, told


def _kind(error: Exception) -> str:
    """The library's own word for what went wrong, or the exception's."""
    said = getattr(error, "err_info", None)
    if isinstance(said, str) and said:
        return said.partition(" - ")[0]
    words = " ".join(f"{type(error).__name__} {error}".split())
    return words[:120]
