"""The device's own counters beside a loop: NVML sampled in a thread, and joined with the bytes of the model."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

SAMPLE_S = 0.25  # the fastest that the probe allows; the driver refreshes its counters every 100 ms
JOIN_S = 5.0


class Sampling:
    """A context in which the devices of ``probe`` are sampled; without a probe it does nothing.

    One sample is taken on entering and one on leaving, so that the first window begins and the last one ends there.
    """

    def __init__(self, probe: Any, pause: Callable[[threading.Event, float], bool] | None = None) -> None:
        self._probe = probe
        self._pause = pause or threading.Event.wait
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._samples: list[Any] = []
        self._facts: dict[str, Any] = {}
        self._problems: dict[str, None] = {}

    def __enter__(self) -> Sampling:
        if self._probe is not None:
            self._take()
            self._samples.clear()  # its window reaches back to before the loop
            self._thread = threading.Thread(target=self._run, name="counters", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_fault: object) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(JOIN_S)
            self._take()

    def taken(self) -> tuple[list[Any], list[Any], list[str]]:
        """The samples in order of time, the facts of each device as last told, and what was wrong."""
        return list(self._samples), list(self._facts.values()), list(self._problems)

    def _run(self) -> None:
        while not self._pause(self._stop, SAMPLE_S):
            self._take()

    def _take(self) -> None:
        probed = self._probe.sample()
        self._samples += probed.samples
        self._facts |= {facts.uuid: facts for facts in probed.devices}
        self._problems |= dict.fromkeys(probed.problems)


def probe_for(uuid: str | None) -> tuple[Any, str | None]:
    """A probe of one device, else None, and in one line what is not counted."""
    if uuid is None:
        return None, "counters: the device is no NVIDIA GPU, or torch does not say which"
    from rooflens.collector.nvml import NvmlProbe

    probe = NvmlProbe(SAMPLE_S)
    probe.watch(frozenset({uuid}))
    probed = probe.sample()
    found = [facts for facts in probed.devices if facts.uuid.lower() == uuid.lower()]
    if not found:
        probe.close()
        return None, f"counters: {'; '.join(probed.problems) or f'NVML does not know {uuid}'}"
    if found[0].counters is False:
        return probe, "counters: this device or its driver has no GPM counters: clocks, power and energy only"
    return probe, None


def joined_with(run: Any, analysis: Any, hardware: Any) -> Any:
    """WindowCounters of a loop: what its device counted beside the model's bytes; None where nothing was sampled."""
    from rooflens.collector.counter_join import join_counters

    if not run.samples:
        return None
    samples: dict[str, list[Any]] = {}
    for sample in run.samples:
        samples.setdefault(sample.uuid, []).append(sample)
    return join_counters(
        float(run.steps["submit_monotonic_s"][0]),
        float(run.steps["output_monotonic_s"][-1]),
        run.steps,
        None if analysis is None else model_bytes(analysis),
        samples,
        {facts.uuid: facts for facts in run.facts if facts.uuid in samples},
        1,
        None if hardware is None else hardware.memory_bandwidth_bytes_per_s,
    )


def model_bytes(analysis: Any) -> Any:
    """All bytes of each step, of every group of operators; NaN of a step that is not modelled."""
    return np.sum(list(analysis.group_bytes.values()), axis=0)
