"""Counters beside a live engine, from nvidia-ml-py over threads, history and join to windows, metrics and the API."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from made_engine import MadeEngine, made_engine
from nvml_fixture import Double, DoubleError, build, loaded
from pipeline.made_probes import MadeProbe, facts, sample, sampled, wait_for

from rooflens import catalogue, device_metrics
from rooflens.collector.nvml import NvmlProbe
from rooflens.collector.windows import WindowSettings
from rooflens.device_records import CounterSource, ProcessRole, ProcessSample, Throttle, WindowCounters
from rooflens.exporters.json_view import engines_json, steps_json
from rooflens.exporters.prometheus import render
from rooflens.live_records import EngineView, Snapshot
from rooflens.metric_records import Metric
from rooflens.pipeline import device_watch, engine_devices
from rooflens.pipeline.probes import Sampled
from rooflens.pipeline.watch import Watch
from rooflens.protocols import Probed

MakeWatch = Callable[..., Watch]
UUID = "GPU-0a0a0a0a-0000-0000-0000-000000000001"
BANDWIDTH = 6144 / 8 * 2 * 3201e6  # bytes/s: bus width in bytes x 2 x the highest memory clock
DECODE = f"""driver 580.82
device 0 name="NVIDIA H200" uuid={UUID} arch=9 cc=9.0 bus_width=6144 mem_clk_max=3201 sm_max=1980 mem_total=150754820096 power_limit_w=700
at 0 * gr=100 sm=92 occ=31 tensor=9 dram=71 pcie_tx=120 pcie_rx=60 nvl_tx=30 nvl_rx=40 gpu_util=100 mem_util=68 sm_clk=1980 mem_clk=3201 power_w=430 temp=51 mem_used=130000000000
"""  # noqa: E501
STEP_S, STEPS = 0.01, 1200
TEN_SECONDS = WindowSettings(window_s=5.0, least_steps=20, most_window_s=60.0, most_steps=5000)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("pynvml")
    try:
        return build(tmp_path_factory.mktemp("nvml"))
    except DoubleError as error:
        pytest.skip(str(error))


@pytest.fixture
def double(library: Path, tmp_path: Path) -> Iterator[Double]:
    place = tmp_path / "played"
    place.mkdir()
    with loaded(library, place) as found:
        yield found


class Played:
    """The real NvmlProbe on the double; the test moves both clocks, the thread of the Watch hands over what came."""

    def __init__(self, double: Double, profile: str, ago_s: float) -> None:
        double.play(profile)
        self._double, self._handed = double, MadeProbe()
        self.begun_s = time.monotonic() - ago_s
        self.probe = NvmlProbe(period_s=1.0, clock=lambda: self.begun_s + double.clock.now_s)
        self.sample, self.settled = self._handed.sample, self._handed.settled

    def watch(self, uuids: frozenset[str]) -> None:
        self.probe.watch(uuids)

    def to(self, *seconds: float) -> list[Probed]:
        """Sample at these moments of the double."""
        found = []
        for at in seconds:
            self._double.clock.at(at)
            found.append(self.probe.sample())
            self._handed.devices, self._handed.problems = found[-1].devices, found[-1].problems
            self._handed.put(*found[-1].samples)
        self.settled()
        return found


def one(snapshot: Snapshot) -> EngineView:
    (view,) = snapshot.engines
    return view


def values(snapshot: Snapshot, metric: Metric) -> dict[tuple[str, ...], float]:
    return {s.labels: s.value for s in snapshot.samples if s.metric is metric}  # type: ignore[misc]


def counters(snapshot: Snapshot) -> WindowCounters:
    found = one(snapshot).windows[-1].counters
    assert found is not None
    return found


@contextmanager
def decoding(
    watch: MakeWatch, folder: Path, *probes: Sampled, **facts_of_engine: Any
) -> Iterator[tuple[Watch, MadeEngine]]:
    """A Watch that has seen the engine and told its probes of the devices it names."""
    it = watch(probes=probes, windows=TEN_SECONDS)
    with made_engine(folder, **{"device": "cuda", "device_uuids": [UUID], **facts_of_engine}) as engine:
        it.turn()
        it.turn()
        yield it, engine


def test_the_whole_way_of_a_decode_phase(watch: MakeWatch, folder: Path, double: Double) -> None:
    played = Played(double, DECODE, ago_s=STEP_S * STEPS + 1)
    with decoding(watch, folder, Sampled("NVML", "nvml", played, 1.0, ask_s=0.05)) as (it, engine):
        played.to(*(float(second) for second in range(14)))
        engine.steps(STEPS, step_s=STEP_S)
        snapshot = it.turn()
    view = one(snapshot)
    assert snapshot.problems == ()
    assert view.device_uuids == (UUID,)
    analysis = view.recent_analysis
    assert analysis is not None
    step_bytes = float(sum(column[-1] for column in analysis.group_bytes.values()))
    expected = 0.71 * BANDWIDTH * STEP_S / step_bytes

    found = counters(snapshot)
    assert (found.source, found.devices, found.devices_expected) == (CounterSource.NVML, 1, 1)
    assert found.covered_ratio > 0.7
    assert found.ratio == pytest.approx(expected, rel=0.02)
    assert found.ratio_low is not None
    assert found.ratio_high is not None
    assert found.ratio_low <= expected <= found.ratio_high
    assert found.dram_ratio == pytest.approx(0.71, abs=1e-9)
    assert (found.sm_clock_hz, found.sm_clock_ratio, found.power_w) == (1980e6, 1.0, 430.0)
    assert found.complaints == ()

    (device,) = snapshot.devices
    assert (device.source, device.facts.uuid, device.facts.name) == (CounterSource.NVML, UUID, "NVIDIA H200")
    assert device.sample is not None
    key = (UUID, "nvml")
    assert values(snapshot, device_metrics.DEVICE_UP) == {key: 1.0}
    assert values(snapshot, device_metrics.DEVICE_INFO) == {
        (*key, "h200-sxm-141", "NVIDIA H200", "580.82", "none"): 1.0
    }
    assert values(snapshot, device_metrics.DRAM_RATIO) == {key: pytest.approx(0.71, abs=1e-9)}
    assert values(snapshot, device_metrics.DRAM_BYTES) == {key: pytest.approx(0.71 * BANDWIDTH * 13, rel=1e-9)}
    assert values(snapshot, device_metrics.ENERGY) == {key: pytest.approx(430.0 * 13, rel=1e-9)}
    assert values(snapshot, device_metrics.PCIE_BYTES)[(*key, "tx")] == pytest.approx(120 * 2**20 * 13, rel=1e-9)
    assert values(snapshot, device_metrics.ENGINE_DEVICE) == {("llama", "0", UUID): 1.0}
    assert values(snapshot, device_metrics.COUNTED_RATIO) == {("llama", "0"): found.ratio}
    assert ("llama", "0", "datasheet") in values(snapshot, device_metrics.CEILING_BANDWIDTH)
    assert b"rooflens_device_dram_bytes_total{" in render(snapshot)

    steps = steps_json(snapshot, None, None, last=200)
    told = [value for value in steps["columns"]["apportioned_dram_bytes"] if value is not None]
    assert len(told) > 50
    assert told == pytest.approx([0.71 * BANDWIDTH * STEP_S] * len(told), rel=1e-6)


def leaves(told: Any) -> Iterator[Any]:
    """Every value in what was told that holds no others; a number in another one's digits is none of them."""
    inside = told.values() if isinstance(told, dict) else told if isinstance(told, list) else None
    if inside is None:
        yield told
    else:
        for each in inside:
            yield from leaves(each)


def keys(told: Any) -> Iterator[str]:
    if isinstance(told, dict):
        yield from told
    for each in told.values() if isinstance(told, dict) else told if isinstance(told, list) else ():
        yield from keys(each)


def test_the_api_tells_devices_without_their_processes(watch: MakeWatch, folder: Path, double: Double) -> None:
    played = Played(double, f"{DECODE}proc 0 4242\n", ago_s=STEP_S * STEPS + 1)
    with decoding(watch, folder, Sampled("NVML", "nvml", played, 1.0, ask_s=0.05)) as (it, engine):
        played.to(11.0, 12.0, 13.0)
        engine.steps(STEPS, step_s=STEP_S)
        content = engines_json(it.turn())
    (device,) = content["devices"]
    assert (device["uuid"], device["source"], device["name"]) == (UUID, "nvml", "NVIDIA H200")
    assert device["sample"]["dram_ratio"] == pytest.approx(0.71)
    assert 4242 not in set(leaves(content)), "the process of the engine"
    assert not {"pid", "pids", "processes"} & set(keys(content["devices"]))
    (engine_json,) = content["engines"]
    assert engine_json["device_uuids"] == [UUID]
    assert engine_json["windows"][-1]["counters"]["source"] == "nvml"
    assert {"floor", "mbu"} <= set(engine_json["ceilings"][0]["used_for"])


@pytest.mark.parametrize(
    ("function", "absent"),
    [
        ("nvmlGpmSampleGet", device_metrics.DRAM_RATIO),
        ("nvmlDeviceGetClockInfo", device_metrics.SM_CLOCK),
        ("nvmlDeviceGetMemoryInfo", device_metrics.MEMORY_USED),
    ],
)
def test_a_call_that_fails_costs_its_figure_alone_and_comes_back(
    watch: MakeWatch, folder: Path, double: Double, function: str, absent: Metric
) -> None:
    failing = "".join(f"fail 0 {function}{version} 4 0 6.5\n" for version in ("", "_v2"))  # no permission, until then
    failing = DECODE + failing.replace("nvmlGpmSampleGet_v2", "nvmlGpmSampleGet")
    played = Played(double, failing, ago_s=6.0)
    with decoding(watch, folder, Sampled("NVML", "nvml", played, 1.0, ask_s=0.05)) as (it, engine):
        played.to(*(float(second) for second in range(6)))
        engine.steps(STEPS, step_s=STEP_S)
        snapshot = it.turn()
        assert len(one(snapshot).windows) >= 1, "the steps are judged all the same"
        assert one(snapshot).windows[-1].mbu is not None
        assert values(snapshot, absent) == {}
        assert values(snapshot, device_metrics.TEMPERATURE) == {(UUID, "nvml"): 51.0}
        assert len(snapshot.problems) == 1
        assert UUID in snapshot.problems[0]
        assert sum(values(snapshot, device_metrics.PROBE_FAILURES).values()) >= 1
        played.to(7.0, 8.0, 9.0, 17.0, 18.0)  # facts are read anew every ten seconds
        engine.steps(STEPS, step_s=STEP_S)
        snapshot = it.turn()
        assert len(values(snapshot, absent)) == 1
        assert snapshot.problems == ()


def test_a_device_that_comes_back_under_another_index_is_the_same(
    watch: MakeWatch, folder: Path, double: Double
) -> None:
    other = 'device 1 name="NVIDIA H200" uuid=GPU-other arch=9 cc=9.0 bus_width=6144 mem_clk_max=3201 sm_max=1980\n'
    moved = f"{DECODE}{other}at 0 1 dram=11\norder 0 0 1\norder 5.5 1 0\n"
    played = Played(double, moved, ago_s=STEP_S * STEPS + 1)
    with decoding(watch, folder, Sampled("NVML", "nvml", played, 1.0, ask_s=0.05)) as (it, engine):
        played.to(*(float(second) for second in range(14)))
        engine.steps(STEPS, step_s=STEP_S)
        snapshot = it.turn()
    assert [device.facts.uuid for device in snapshot.devices] == [UUID]
    assert counters(snapshot).dram_ratio == pytest.approx(0.71, abs=1e-9)


def test_a_device_that_is_lost_is_down_and_has_no_gauges(watch: MakeWatch, folder: Path) -> None:
    probe = MadeProbe(facts(UUID))
    with decoding(watch, folder, sampled(probe)) as (it, engine):
        now_s = time.monotonic()
        probe.put(sample(now_s - 20, now_s - 19, UUID))
        probe.settled()
        engine.steps(STEPS, step_s=STEP_S)
        snapshot = it.turn()
    assert values(snapshot, device_metrics.DEVICE_UP) == {(UUID, "nvml"): 0.0}
    assert values(snapshot, device_metrics.DRAM_RATIO) == {}
    assert values(snapshot, device_metrics.DRAM_BYTES) == {(UUID, "nvml"): pytest.approx(0.5e12)}
    assert len(one(snapshot).windows) == 2


def test_two_exporters_for_one_device_count_it_once(watch: MakeWatch, folder: Path) -> None:
    pages = [MadeProbe(facts(UUID, CounterSource.DCGM)), MadeProbe(facts(UUID.upper(), CounterSource.DCGM))]
    probes = [sampled(p, "dcgm", f"page {n}", asked_for=True) for n, p in enumerate(pages)]
    with decoding(watch, folder, *probes) as (it, engine):
        now_s = time.monotonic()
        for number, page in enumerate(pages):
            page.put(sample(now_s - 10, now_s, UUID, CounterSource.DCGM, dram_ratio=0.1 * (number + 1)))
            page.settled()
        engine.steps(STEPS, step_s=STEP_S)
        snapshot = it.turn()
    (line,) = snapshot.problems
    assert "page 0 is taken" in line
    assert values(snapshot, device_metrics.DRAM_BYTES) == {(UUID, "dcgm"): pytest.approx(1e12)}
    assert values(snapshot, device_metrics.DRAM_RATIO) == {(UUID, "dcgm"): 0.1}


def test_windows_that_later_samples_cover_are_joined_again(watch: MakeWatch, folder: Path) -> None:
    """An exporter tells of a window after it has closed; the next window that closes brings it up to date."""
    page = MadeProbe(facts(UUID, CounterSource.DCGM))
    with decoding(watch, folder, sampled(page, "dcgm", "page", period_s=30.0)) as (it, engine):
        engine.steps(STEPS, step_s=STEP_S)
        first = it.turn()
        told = [window.counters for window in one(first).windows]
        assert [counters.covered_ratio for counters in told if counters is not None] == [0.0] * len(told)
        now_s = time.monotonic()
        page.put(sample(now_s - 30, now_s, UUID, CounterSource.DCGM))
        page.settled()
        it.turn()
        engine.steps(STEPS, step_s=STEP_S)
        wait_for(lambda: len(one(it.turn()).windows) > 2, "more windows")
        joined = [window.counters for window in one(it.snapshot).windows]
    assert joined[0] is not None
    assert joined[0].covered_ratio > 0.9


def test_engines_that_share_a_device_are_not_compared_by_it(watch: MakeWatch, folder: Path) -> None:
    probe = MadeProbe(facts(UUID))
    with (
        decoding(watch, folder, sampled(probe)) as (it, engine),
        made_engine(folder, rank=1, device_uuids=[UUID]) as other,
    ):
        other.steps(1)
        it.turn()
        it.turn()
        now_s = time.monotonic()
        probe.put(*(sample(now_s - 14 + n, now_s - 13 + n, UUID) for n in range(14)))
        probe.settled()
        engine.steps(STEPS, step_s=STEP_S)
        (view,) = (view for view in it.turn().engines if view.engine == "0")
    found = view.windows[-1].counters
    assert found is not None
    assert (found.dram_ratio, found.ratio) == (0.5, None)
    assert (found.shared, found.complaints) == (True, ())  # nothing is wrong with what is counted
    assert view.recent_dram_bytes is None


@pytest.mark.parametrize(("stranger", "shared"), [(True, True), (False, False)])
def test_a_neighbour_on_the_device_is_told_and_its_bytes_are_not_compared(
    watch: MakeWatch, folder: Path, monkeypatch: pytest.MonkeyPatch, stranger: bool, shared: bool
) -> None:
    """An embedding server, or an engine without a hook: here pytest's own sibling, a process that sleeps."""
    monkeypatch.setattr(engine_devices, "INITIAL_PID_NAMESPACE", engine_devices.pid_namespace_here())
    probe = MadeProbe()
    with (
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True) as other,
        decoding(watch, folder, sampled(probe)) as (it, engine),
    ):
        pids = (engine.process.pid, *((other.pid,) if stranger else ()))
        probe.devices = (facts(UUID, pids=pids),)
        now_s = time.monotonic()
        probe.put(*(sample(now_s - 14 + n, now_s - 13 + n, UUID) for n in range(14)))
        probe.settled()
        engine.steps(STEPS, step_s=STEP_S)
        snapshot = it.turn()
        other.communicate()
    found = counters(snapshot)
    assert (found.shared, found.complaints, found.dram_ratio) == (shared, (), 0.5)
    assert (found.ratio is None) == (found.model_bytes is None) == shared
    assert found.counter_bytes is not None
    assert (one(snapshot).recent_dram_bytes is None) == shared


def test_processor_time_of_the_engine_is_counted_and_told(watch: MakeWatch, folder: Path) -> None:
    host = MadeProbe()
    with decoding(watch, folder, sampled(host, "host", "the host"), device_uuids=[]) as (it, engine):
        pid = engine.process.pid
        assert host.watched[-1] == frozenset({pid})
        now_s = time.monotonic()
        for n in range(14):
            host.put(
                processes=(ProcessSample(pid, ProcessRole.ENGINE_CORE, now_s - 14 + n, now_s - 13 + n, 0.5, 1, 0.4),)
            )
        host.settled()
        engine.steps(STEPS, step_s=STEP_S)
        snapshot = it.turn()
    assert values(snapshot, device_metrics.HOST_CPU) == {("llama", "0", "engine_core"): pytest.approx(7.0)}
    found = counters(snapshot)
    assert (found.source, found.devices, found.ratio) == (None, 0, None)
    assert found.engine_core_cores == pytest.approx(0.5)


def test_what_throttled_a_device_adds_up(watch: MakeWatch, folder: Path) -> None:
    probe = MadeProbe(facts(UUID))
    with decoding(watch, folder, sampled(probe)) as (it, engine):
        now_s = time.monotonic()
        held = {"throttled_s": {Throttle.POWER_CAP: 0.75}, "throttles": (Throttle.POWER_CAP,)}
        probe.put(*(sample(now_s - 4 + n, now_s - 3 + n, UUID, **held) for n in range(4)))
        probe.settled()
        engine.steps(STEPS, step_s=STEP_S)
        snapshot = it.turn()
    assert values(snapshot, device_metrics.THROTTLED) == {(UUID, "nvml", "power_cap"): pytest.approx(3.0)}


def test_without_probes_there_is_no_word_of_counters(watch: MakeWatch, folder: Path) -> None:
    it = watch()
    with made_engine(folder) as engine:
        engine.steps(100)
        snapshot = it.turn()
    assert (snapshot.devices, snapshot.problems) == ((), ())
    names = {sample.metric.name for sample in snapshot.samples}
    assert names.isdisjoint(metric.name for metric in device_metrics.DEVICE_CATALOGUE)
    assert catalogue.STEPS.name in names


def test_a_host_without_devices_is_quiet_about_engines_on_its_cpu(watch: MakeWatch, folder: Path) -> None:
    probe = MadeProbe(problems=("NVML: no library",))
    with decoding(watch, folder, sampled(probe), device_uuids=[], device=None) as (it, _):
        probe.settled()
        assert it.turn().problems == ()
    with decoding(watch, folder, sampled(probe), device_uuids=[]) as (it, _):
        probe.settled()
        assert it.turn().problems == ("NVML: no library",)


def test_the_processes_of_engines_are_promised_only_where_they_can_be_read(
    watch: MakeWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = watch(probes=(sampled(MadeProbe(), source="host", name="the host's processes"),))
    assert it.counters.said(20.0) == "processes of engines"
    monkeypatch.setattr(device_watch, "find_spec", lambda name: None if name == "psutil" else object())
    assert it.counters.said(20.0) == device_watch.NO_PSUTIL


def test_each_page_is_said_with_its_own_devices(watch: MakeWatch) -> None:
    pages = [MadeProbe(*(facts(f"GPU-{n}", CounterSource.DCGM) for n in held)) for held in ((1, 2), (2, 3, 4), ())]
    it = watch(probes=tuple(sampled(p, "dcgm", f"page {n}", asked_for=True) for n, p in enumerate(pages)))
    assert it.counters.said(20.0) == (
        "page 0 every 1 s (2 devices), page 1 every 1 s (3 devices), page 2 every 1 s (no device yet)"
    )


def test_a_lack_is_not_said_once_a_page_tells_of_the_device(watch: MakeWatch, folder: Path) -> None:
    line = f"{UUID} measures no bandwidth"
    nvml, page = MadeProbe(facts(UUID), problems=(line,)), MadeProbe(facts(UUID, CounterSource.DCGM))
    nvml.lacks = ((UUID, line),)
    with decoding(watch, folder, sampled(nvml), sampled(page, "dcgm", "the page")) as (it, _):
        nvml.settled()
        assert it.turn().problems == (line,)
        now_s = time.monotonic()
        page.put(sample(now_s - 1, now_s, UUID, CounterSource.DCGM))
        page.settled()
        snapshot = it.turn()
        assert snapshot.problems == ()
    assert values(snapshot, device_metrics.PROBE_FAILURES) == {("nvml",): 0.0, ("dcgm",): 0.0}
