"""MIG: slices are devices of their own, with counters of their own and what they share with the whole GPU."""

from __future__ import annotations

from nvml_fixture import Double

from rooflens.collector.nvml import NvmlProbe
from rooflens.device_records import Throttle
from rooflens.protocols import Probed

WHOLE = "GPU-00000000-0000-0000-0000-000000000000"
FIRST, SECOND = (f"MIG-00000000-0000-0000-0000-{number:012d}" for number in range(2))
DIVIDED = """device 0 mem_total=1000 c2c=1
at 0 0 dram=70 sm=60 power_w=500 sm_clk=1400 mem_clk=3100 temp=61 throttle=4 gpu_util=99
"""
SLICES = """mig 0 0 gi=3 mem_total=100 name="NVIDIA H200 MIG 1g.18gb"
mig 0 1 gi=5 mem_total=300 name="NVIDIA H200 MIG 3g.71gb"
at 0 0/0 dram=20 sm=30 tensor=4 mem_used=40
at 0 0/1 dram=40 sm=50 tensor=6 mem_used=200
proc 0/1 99
"""


def run(double: Double, profile: str, seconds: list[float], watched: frozenset[str] | None = None) -> list[Probed]:
    double.play(profile)
    probe = NvmlProbe(clock=double.clock)
    probe.watch(watched)
    found = []
    for second in seconds:
        double.clock.at(second)
        found.append(probe.sample())
    probe.close()
    return found


def test_a_divided_device_is_its_slices(double: Double) -> None:
    found = run(double, DIVIDED + SLICES, [0, 1])[1]
    first, second = found.devices
    assert [(f.uuid, f.parent_uuid, f.mig_profile, f.name) for f in (first, second)] == [
        (FIRST, WHOLE, "1g.18gb", "NVIDIA H200"),
        (SECOND, WHOLE, "3g.71gb", "NVIDIA H200"),
    ]
    assert [(f.memory_bytes, f.counters, f.pids, f.index) for f in (first, second)] == [
        (100, True, (), 0),
        (300, True, (99,), 0),
    ]
    assert [(f.sm_clock_max_hz, f.memory_clock_max_hz) for f in (first, second)] == [(1.98e9, 3.201e9)] * 2
    # What share of the GPU's bandwidth is a slice's is documented nowhere, and its power is not its own.
    assert [(f.memory_bandwidth_bytes_per_s, f.power_limit_w) for f in (first, second)] == [(None, None)] * 2
    assert found.problems == ()


def test_a_slice_has_its_own_counters_and_the_clocks_of_the_whole(double: Double) -> None:
    first, second = run(double, DIVIDED + SLICES, [0, 1])[1].samples
    assert [(s.dram_ratio, s.sm_ratio, s.tensor_ratio) for s in (first, second)] == [(0.2, 0.3, 0.04), (0.4, 0.5, 0.06)]
    assert [s.memory_used_bytes for s in (first, second)] == [40, 200]
    for sample in (first, second):
        assert (sample.sm_clock_hz, sample.memory_clock_hz, sample.temperature_celsius) == (1.4e9, 3.1e9, 61)
        assert sample.throttles == (Throttle.POWER_CAP,)
        assert (sample.power_w, sample.energy_j, sample.kernel_ratio) == (None, None, None)


def test_only_the_watched_slice_is_sampled(double: Double) -> None:
    found = run(double, DIVIDED + SLICES, [0, 1], frozenset({SECOND}))[1]
    assert [sample.uuid for sample in found.samples] == [SECOND]
    assert len(found.devices) == 2


def test_an_engine_that_names_a_divided_device_is_told_to_name_its_slice(double: Double) -> None:
    """It is here, in its slices: nothing fell off the bus, and NVML is not opened anew for it."""
    double.play(DIVIDED + SLICES)
    probe = NvmlProbe(clock=double.clock)
    probe.watch(frozenset({WHOLE, SECOND}))
    for second in range(40):
        double.clock.at(second)
        found = probe.sample()
        assert [sample.uuid for sample in found.samples] == [SECOND] * (second > 0)  # no window is cut by an opening
        (line,) = found.problems
        assert line.startswith(f"NVML: {WHOLE} is divided into MIG slices")
        assert "nvidia-smi -L" in line
    probe.watch(None)
    assert probe.sample().problems == ()
    probe.close()


def test_an_instance_made_anew_under_the_old_number_starts_a_new_window(double: Double) -> None:
    """Between two samples: the counters of before and after it are not subtracted from each other."""
    profile = (
        DIVIDED
        + f"mig 0 0 gi=3 mem_total=100 to=3.4\nmig 0 1 gi=3 mem_total=300 from=3.4 uuid={SECOND}\n"
        + "at 0 0/0 dram=20\nat 0 0/1 dram=90\n"
    )
    found = run(double, profile, [0, 1, 2, 3, 4, 5, 6])
    told = [[(s.uuid, s.dram_ratio, s.start_monotonic_s) for s in probed.samples] for probed in found]
    before = [[(FIRST, 0.2, start_s)] for start_s in (0, 1, 2)]
    assert told == [[], *before, [], [(SECOND, 0.9, 4)], [(SECOND, 0.9, 5)]]
    assert [facts.uuid for facts in found[4].devices] == [SECOND]


def test_one_made_anew_with_the_old_uuid_is_told_apart_by_its_size(double: Double) -> None:
    profile = (
        DIVIDED
        + f"mig 0 0 gi=3 mem_total=100 to=9.4\nmig 0 1 gi=3 mem_total=300 from=9.4 uuid={FIRST}\n"
        + "at 0 0/0 dram=20\nat 0 0/1 dram=90\n"
    )
    found = run(double, profile, [*range(13)])
    assert [s.dram_ratio for s in found[9].samples] == [0.2]
    assert found[10].samples == ()
    assert [(s.start_monotonic_s, s.dram_ratio) for s in found[11].samples] == [(10, 0.9)]


def test_slices_that_are_made_later_are_found(double: Double) -> None:
    profile = "device 0 mig=1\nmig 0 0 gi=1 from=4.5\nat 0 0/0 dram=30\n"
    found = run(double, profile, [*range(13)])
    assert [facts.uuid for facts in found[4].devices] == [WHOLE]
    assert [facts.uuid for facts in found[12].devices] == [FIRST]
    assert [sample.dram_ratio for sample in found[12].samples] == [0.3]
    assert found[12].problems == ()  # that it was divided is no loss


def test_compute_instances_that_share_a_gpu_instance_have_no_counters_of_their_own(double: Double) -> None:
    profile = DIVIDED + "mig 0 0 gi=3\nmig 0 1 gi=3\nat 0 0/0 dram=20\nat 0 0/1 dram=20\n"
    found = run(double, profile, [0, 1])[1]
    assert [facts.counters for facts in found.devices] == [False, False]
    assert [(s.dram_ratio, s.sm_clock_hz) for s in found.samples] == [(None, 1.4e9)] * 2
    assert len(found.problems) == 2
    assert all("shares its GPU instance" in line for line in found.problems)


def test_slices_of_a_device_without_gpm_tell_of_memory_and_clocks(double: Double) -> None:
    profile = "device 0 gpm=0 arch=7\nat 0 0 sm_clk=1400\n" + SLICES
    found = run(double, profile, [0, 1])[1]
    assert [facts.counters for facts in found.devices] == [False, False]
    assert [(s.dram_ratio, s.memory_used_bytes, s.sm_clock_hz) for s in found.samples] == [
        (None, 40, 1.4e9),
        (None, 200, 1.4e9),
    ]
