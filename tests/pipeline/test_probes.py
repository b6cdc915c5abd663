"""Probes in threads, and what is kept of their answers: a hung or failing one holds nothing up and is one line."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
from pipeline.made_probes import MadeProbe, facts, sample, sampled, wait_for

from rooflens.device_records import CounterSource, DeviceSample
from rooflens.pipeline.device_history import MOST_DEVICES, DeviceHistory
from rooflens.pipeline.probes import MOST_WAITING, Probes, ProbeThread, Sampled
from rooflens.pipeline.watch import Watch
from rooflens.pipeline.watch_settings import WatchSettings
from rooflens.protocols import Probed
from rooflens.records import RooflensError

NVML, AMDSMI, DCGM = CounterSource
MakeProbes = Callable[..., Probes]


class Clock:
    """A clock that a test moves."""

    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def probes() -> Iterator[MakeProbes]:
    made: list[Probes] = []

    def make(*each: Sampled, clock: Callable[[], float] | None = None) -> Probes:
        made.append(Probes(each, clock) if clock else Probes(each))
        return made[-1]

    yield make
    for each in made:
        each.close()


def brought(it: Probes) -> list[DeviceSample]:
    return [found for _, _, probed in it.drain() for found in probed.samples]


def test_what_a_probe_brings_comes_once_and_in_order(probes: MakeProbes) -> None:
    probe = MadeProbe(facts())
    it = probes(sampled(probe))
    samples = [sample(float(n), n + 1.0) for n in range(3)]
    for each in samples:
        probe.put(each)
    found: list[DeviceSample] = []
    wait_for(lambda: found.extend(brought(it)) or len(found) >= 3, "three samples")
    probe.settled()
    assert [*found, *brought(it)] == samples


def test_a_probe_that_hangs_delays_nothing_and_is_said_once_it_is_late(probes: MakeProbes) -> None:
    hung, well, clock = MadeProbe(), MadeProbe(facts()), Clock()
    hung.gate.clear()
    it = probes(sampled(hung, asked_for=True), sampled(well, "host", "the host"), clock=clock)
    wait_for(lambda: hung.asked, "the first question")
    well.put(sample(0.0, 1.0))
    wait_for(lambda: brought(it), "what the other one brings")
    assert it.problems(wanted=True) == []
    clock.now_s += 11
    (line,) = it.problems(wanted=False)
    assert "NVML has not answered for more than 10 s" in line
    list(it.drain())
    list(it.drain())
    assert it.failures() == {"nvml": 1, "host": 0}
    hung.gate.set()
    wait_for(lambda: not it.problems(wanted=True), "that it answers again")


def test_a_probe_that_raises_is_one_line_and_is_asked_again(probes: MakeProbes) -> None:
    probe = MadeProbe(facts())
    probe.raises = ValueError("the driver\nsays no")
    it = probes(sampled(probe, asked_for=True))
    assert wait_for(lambda: it.problems(wanted=False), "the line") == [
        "NVML failed (ValueError: the driver says no): please report it"
    ]
    assert it.failures()["nvml"] >= 1
    probe.raises = None
    probe.put(sample(0.0, 1.0))
    assert wait_for(lambda: brought(it), "a sample")
    assert it.problems(wanted=True) == []


def test_a_library_without_a_device_is_no_problem_unless_counters_are_wanted(probes: MakeProbes) -> None:
    it = probes(
        sampled(MadeProbe(problems=("NVML: no library",))), sampled(MadeProbe(problems=("amdsmi: none",)), "amdsmi")
    )
    it.wait(10)
    list(it.drain())
    assert it.problems(wanted=False) == []
    assert it.problems(wanted=True) == ["NVML: no library", "amdsmi: none"]
    assert it.failures() == {"nvml": 0, "amdsmi": 0}


def test_a_library_that_told_of_a_device_is_heard_and_silences_the_others(probes: MakeProbes) -> None:
    nvml = MadeProbe(facts())
    it = probes(sampled(nvml), sampled(MadeProbe(problems=("amdsmi: none",)), "amdsmi"))
    it.wait(10)
    list(it.drain())
    assert it.problems(wanted=True) == []
    nvml.devices, nvml.problems = (), ("NVML: the GPU is lost",)
    nvml.settled()
    list(it.drain())
    assert it.problems(wanted=False) == ["NVML: the GPU is lost"]
    assert it.failures()["nvml"] >= 1


def test_what_a_device_does_not_have_is_said_and_is_no_failure(probes: MakeProbes) -> None:
    nvml = MadeProbe(facts(), problems=("GPU-1 measures no bandwidth",))
    nvml.lacks = (("GPU-1", "GPU-1 measures no bandwidth"),)
    it = probes(sampled(nvml))
    nvml.settled()
    list(it.drain())
    assert it.failures() == {"nvml": 0}
    assert it.problems(wanted=True) == ["GPU-1 measures no bandwidth"]
    assert it.problems(True, lambda place, uuid: (place, uuid) == (0, "GPU-1")) == []
    nvml.problems += ("GPU-1 has no power",)
    nvml.settled()
    list(it.drain())
    assert it.failures()["nvml"] >= 1
    assert it.problems(True, lambda *_: True) == ["GPU-1 has no power"]


def test_a_page_that_was_asked_for_is_always_heard(probes: MakeProbes) -> None:
    it = probes(sampled(MadeProbe(problems=("http://a is refused",)), "dcgm", "dcgm-exporter", asked_for=True))
    it.wait(10)
    list(it.drain())
    assert it.problems(wanted=False) == ["http://a is refused"]


def test_answers_that_nobody_takes_are_lost_oldest_first_and_counted() -> None:
    probe = MadeProbe()
    thread = ProbeThread(Sampled("x", "nvml", probe, 1.0))
    for number in range(MOST_WAITING + 3):
        probe.put(sample(float(number), number + 1.0))
        thread._ask()
    found = thread.drain()
    assert len(found) == MOST_WAITING
    assert found[0].samples[0].start_monotonic_s == 3.0
    assert thread.failures == 3


def test_probes_are_closed_by_their_own_threads(probes: MakeProbes) -> None:
    probe, before = MadeProbe(), threading.active_count()
    it = probes(sampled(probe))
    it.wait(10)
    it.close()
    wait_for(lambda: probe.closed, "that it is closed")
    wait_for(lambda: threading.active_count() <= before, "the end of the thread")


# What is kept.


def take(history: DeviceHistory, place: int, *samples: DeviceSample, **more: object) -> list[DeviceSample]:
    source = str(samples[0].source) if samples else "nvml"
    kept = Sampled(f"page {place}", source, MadeProbe(), float(more.pop("period_s", 1.0)))  # type: ignore[arg-type]
    told = tuple(facts(uuid, samples[0].source if samples else NVML) for uuid in {s.uuid for s in samples})
    return history.take(place, kept, Probed(told, samples))


def test_a_watch_that_cannot_begin_asks_nobody() -> None:
    probe = MadeProbe()
    settings = WatchSettings(scrape_urls=("ftp://nowhere",), probes=(sampled(probe),))
    before = set(threading.enumerate())
    with pytest.raises(RooflensError, match="only http"):
        Watch(settings)
    assert set(threading.enumerate()) == before


def test_samples_are_kept_for_as_long_as_a_window_may_last() -> None:
    history = DeviceHistory(kept_s=5.0)
    for second in range(20):
        take(history, 0, sample(float(second), second + 1.0))
    found = history.samples(["GPU-1"], 0.0, 100.0)["GPU-1"]
    assert [s.start_monotonic_s for s in found] == [float(n) for n in range(14, 20)]
    assert [s.start_monotonic_s for s in history.samples(["GPU-1"], 15.5, 17.0)["GPU-1"]] == [15.0, 16.0]


def test_nvml_comes_before_amdsmi_and_dcgm() -> None:
    history = DeviceHistory(60.0)
    for place, source in enumerate((DCGM, AMDSMI, NVML)):
        take(history, place, sample(0.0, 1.0, source=source))
    (found,) = history.samples(["GPU-1"], 0.0, 1.0)["GPU-1"]
    assert found.source is NVML
    view = history.view("GPU-1", 1.0)
    assert view is not None
    assert (view.source, view.facts.source) == (NVML, NVML)


def test_one_that_tells_of_the_dram_comes_before_one_that_cannot() -> None:
    """Before Hopper a driver tells no bandwidth, and dcgm-exporter does."""
    history = DeviceHistory(60.0)
    take(history, 0, sample(0.0, 1.0, dram_ratio=None))
    take(history, 1, sample(0.0, 1.0, source=DCGM), period_s=30.0)
    (found,) = history.samples(["GPU-1"], 0.0, 1.0)["GPU-1"]
    assert found.source is DCGM


def test_one_that_fell_silent_comes_after_one_that_did_not() -> None:
    history = DeviceHistory(60.0)
    take(history, 0, sample(0.0, 1.0))
    take(history, 1, sample(0.0, 30.0, source=DCGM), period_s=30.0)
    assert [s.source for s in history.samples(["GPU-1"], 0.0, 2.0)["GPU-1"]] == [NVML]
    assert [s.source for s in history.samples(["GPU-1"], 0.0, 30.0)["GPU-1"]] == [DCGM]


def test_of_two_pages_the_first_is_taken_and_it_is_said() -> None:
    history = DeviceHistory(60.0)
    take(history, 1, sample(0.0, 1.0, uuid="gpu-1", source=DCGM, dram_ratio=0.2))
    assert list(history.problems(1.0)) == []
    take(history, 0, sample(0.0, 1.0, source=DCGM, dram_ratio=0.1))
    assert [s.dram_ratio for s in history.samples(["GPU-1"], 0.0, 1.0)["GPU-1"]] == [0.1]
    assert list(history.problems(1.0)) == [
        "device gpu-1 is told of by page 0 and page 1: page 0 is taken; leave the others out"
    ]


def test_two_pages_of_one_node_are_one_line_however_many_devices_they_tell_of() -> None:
    history = DeviceHistory(60.0)
    for place in (0, 1):
        take(history, place, *(sample(0.0, 1.0, uuid=f"GPU-{n:03}", source=DCGM) for n in range(200)))
    assert list(history.problems(1.0)) == [
        "200 devices, GPU-000 the first, are told of by page 0 and page 1: page 0 is taken; leave the others out"
    ]


def page_of(*uuids: str) -> Probed:
    return Probed(
        tuple(facts(uuid, DCGM) for uuid in uuids), tuple(sample(0.0, 1.0, uuid=uuid, source=DCGM) for uuid in uuids)
    )


def test_a_page_of_too_many_devices_takes_none_of_another_probe_or_of_an_engine_away() -> None:
    history, page = DeviceHistory(60.0), sampled(MadeProbe(), "dcgm", "the page")
    take(history, 0, sample(0.0, 1.0, uuid="GPU-own"))
    history.claim(frozenset({"gpu-last"}))
    history.take(1, page, page_of(*(f"GPU-{n}" for n in range(3 * MOST_DEVICES)), "GPU-last"))
    found = history.samples(["GPU-own", "GPU-last", "GPU-0"], 0.0, 1.0)
    assert [len(samples) for samples in found.values()] == [1, 1, 1]
    assert (history.count(0), history.count(1), len(history.facts())) == (1, MOST_DEVICES, MOST_DEVICES + 1)
    (line,) = history.problems(1.0)
    assert line == f"the page tells of {3 * MOST_DEVICES + 1} devices: {MOST_DEVICES} of them are read"


def test_devices_that_come_and_go_are_forgotten_but_not_those_of_engines() -> None:
    history, page = DeviceHistory(60.0), sampled(MadeProbe(), "dcgm", "the page")
    history.claim(frozenset({"gpu-0"}))
    for turn in range(2000):
        history.take(0, page, page_of(f"GPU-{turn}", f"gpu-{turn}"))
    kept = history.facts_of(f"GPU-{turn}" for turn in range(2000))
    assert len(kept) == MOST_DEVICES + 2
    assert {"GPU-0", "GPU-1999"} <= kept.keys()
    assert {len(each) for each in (history._series, history._facts, history._spelling)} == {MOST_DEVICES + 2}


def test_counters_that_come_from_elsewhere() -> None:
    history = DeviceHistory(60.0)
    take(history, 0, sample(0.0, 1.0, dram_ratio=None))
    assert not history.elsewhere(0, "GPU-1", 1.0)
    take(history, 1, sample(0.0, 1.0, source=DCGM))
    assert (history.elsewhere(0, "gpu-1", 1.0), history.elsewhere(1, "gpu-1", 1.0)) == (True, False)
    assert not history.elsewhere(0, "GPU-1", 100.0), "once it has fallen silent the lack is felt again"


def test_a_uuid_is_one_device_however_it_is_spelt() -> None:
    history = DeviceHistory(60.0)
    take(history, 0, sample(0.0, 1.0, uuid="GPU-ab"))
    take(history, 0, sample(1.0, 2.0, uuid="gpu-AB"))
    found = history.samples(["gpu-ab"], 0.0, 2.0)["gpu-ab"]
    assert [s.uuid for s in found] == ["GPU-ab", "GPU-ab"]
    assert [each.uuid for each in history.facts()] == ["GPU-ab"]


def test_what_one_source_does_not_know_another_one_tells() -> None:
    history = DeviceHistory(60.0)
    history.take(0, sampled(MadeProbe()), Probed((facts(name=None, pids=(7,)),), (sample(0.0, 1.0),)))
    history.take(1, sampled(MadeProbe(), "dcgm"), Probed((facts(source=DCGM, name="NVIDIA H100"),)))
    (found,) = history.facts()
    assert (found.source, found.name, found.pids) == (NVML, "NVIDIA H100", (7,))


def test_a_device_that_is_lost_keeps_its_facts_and_has_no_sample() -> None:
    history = DeviceHistory(60.0)
    take(history, 0, sample(0.0, 1.0))
    seen, lost = history.view("GPU-1", 2.0), history.view("GPU-1", 30.0)
    assert seen is not None
    assert seen.sample is not None
    assert lost is not None
    assert lost.sample is None
    assert lost.problem is not None
    assert history.view("GPU-9", 2.0) is None


def test_a_window_of_no_length_is_no_sample() -> None:
    history = DeviceHistory(60.0)
    assert take(history, 0, sample(1.0, 1.0), sample(2.0, 1.5)) == []
    assert history.samples(["GPU-1"], 0.0, 5.0) == {"GPU-1": []}
