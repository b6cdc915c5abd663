"""Parts of the benchmark for a GPU that need none: CUDA events made up, NVML played by a library of ours."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from nvml_fixture import Double, build, loaded

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks" / "gpu"))

import counted
import driver
from decode_loop import Loop
from driver import Case, Run, cases
from expected import doubted, missed, outcome, read_spread
from judge import Roofs, figures, judged, verdicts
from report import _flops, text
from synthetic import ON_CPU, ON_GPU, Shape

from rooflens.analyzer.hardware import find_hardware
from rooflens.calibration_records import Measured
from rooflens.collector.nvml import NvmlProbe

TINY = Shape(64, 128, 2, 4, 256, "bfloat16", batches=(1, 2), context_tokens=16)
STEP_MS = 4.0
STEPS, LONG_S = 40, 600.0  # every loop ends by its number of steps
UUID = "GPU-00000000-0000-0000-0000-000000000000"


class MadeEvent:
    """A CUDA event whose steps all take STEP_MS."""

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing
        self.recorded = 0

    def record(self) -> None:
        self.recorded += 1

    def elapsed_time(self, end: MadeEvent) -> float:
        assert self.recorded == end.recorded
        return STEP_MS


class MadeLoop:
    """Steps on a device that is not there; ``steps`` counts them."""

    def __init__(self, torch: Any, weights: Any, batch: int, passes: int = 1) -> None:
        self.weights, self.batch, self.passes = weights, batch, passes
        self.steps, self.captured = 0, False
        self.tokens = SimpleNamespace(tolist=lambda: [0] * batch)

    def warm_up(self) -> None: ...

    def capture(self) -> None:
        self.captured = True

    def forward(self) -> None:
        self.steps += 1


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """As much of torch as drives a loop."""
    from contextlib import nullcontext

    monkeypatch.setattr(driver, "Loop", MadeLoop)
    monkeypatch.setattr(driver, "MOST_STEPS", STEPS)
    monkeypatch.setattr(driver, "attention_backend", lambda torch: nullcontext())
    return SimpleNamespace(cuda=SimpleNamespace(Event=MadeEvent), inference_mode=nullcontext)


def weights(kind: str = "cuda") -> Any:
    return SimpleNamespace(shape=TINY, device=SimpleNamespace(type=kind))


def run(torch: Any, case: Case, watch: Any = lambda: counted.Sampling(None), kind: str = "cuda") -> Run:
    return driver.run_case(torch, weights(kind), case, LONG_S, UUID if kind == "cuda" else None, watch)


def test_every_step_has_the_time_between_its_own_events(torch: SimpleNamespace) -> None:
    made = run(torch, Case("graph, batch 2", 2, graphs=True))
    assert len(made.steps) == STEPS
    assert made.steps.has("device_s")
    assert set(made.steps["device_s"].tolist()) == {STEP_MS / 1e3}
    assert made.recording.info is not None
    assert (made.recording.info.graph_mode, made.recording.info.device_uuids) == ("FULL", (UUID,))
    assert "device_s" not in run(torch, Case("eager, batch 1", 1), kind="cpu").steps.columns


def test_the_loops_of_a_gpu_have_graphs_and_those_of_a_cpu_have_not() -> None:
    gpu, cpu = cases((1, 16), cuda=True), cases((1, 16), cuda=False)
    assert [case.name for case in gpu if case.graphs] == [
        "graph, batch 1", "graph, batch 16", "pauses of the host, batch 1", "weights read twice, batch 1",
    ]  # fmt: skip
    assert [case.name for case in cpu] == [case.name for case in gpu if not case.name.startswith("graph")]
    assert not any(case.graphs for case in cpu)


@pytest.mark.parametrize("shape", [ON_GPU, ON_CPU, TINY])
def test_the_roofline_counts_the_bytes_that_the_shape_has_on_paper(torch: SimpleNamespace, shape: Shape) -> None:
    made = driver.run_case(
        torch, SimpleNamespace(shape=shape, device=SimpleNamespace(type="cuda")), Case("eager", 2), LONG_S, UUID,
        lambda: counted.Sampling(None),
    )  # fmt: skip
    found = figures(made, shape, Roofs(find_hardware("h200-sxm-141"), None))
    assert found["model_bytes"] == found["bytes_by_hand"] == shape.step_bytes(2)


def test_the_weights_of_the_gpu_exceed_every_cache_many_times() -> None:
    # 16 layers of 4 x 2,048^2 + 3 x 2,048 x 8,192 and two norms, the last norm, a head of 32,000 x 2,048; bf16.
    by_hand = 2 * (16 * (4 * 2048**2 + 3 * 2048 * 8192 + 2 * 2048) + 2048 + 32_000 * 2048)
    assert by_hand == ON_GPU.weight_bytes
    assert by_hand > 16 * 126e6


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def double(library: Path, tmp_path: Path) -> Iterator[Double]:
    with loaded(library, tmp_path) as opened:
        yield opened


PLAYED = 'driver 580.82\ndevice 0 name="NVIDIA H200" bus_width=6144 mem_clk_max=3201 sm_max=1980\n'
BANDWIDTH = 2 * 6144 / 8 * 3.201e9  # of that device, bytes/s


def counted_run(torch: Any, double: Double, dram_percent: float, seconds: float = 4.0) -> Run:
    """Steps of ON_GPU back to back at half the bandwidth, while the device counts ``dram_percent`` of it."""
    double.play(f"{PLAYED}at 0 * gr=100 dram={dram_percent} sm=40 gpu_util=100 mem_util=50 sm_clk=1980 mem_clk=3201\n")
    probe = NvmlProbe(counted.SAMPLE_S, clock=double.clock)
    probe.watch(frozenset({UUID}))
    probe.sample()
    sampling = counted.Sampling(probe, pause=lambda stop, _seconds: stop.wait())
    with sampling:
        for number in range(1, round(seconds / counted.SAMPLE_S)):
            double.clock.at(number * counted.SAMPLE_S)
            sampling._take()
        double.clock.at(seconds)
    shape = SimpleNamespace(shape=ON_GPU, device=SimpleNamespace(type="cuda"))
    made = driver.run_case(torch, shape, Case("eager, batch 1", 1), LONG_S, UUID, lambda: counted.Sampling(None))
    step_s = ON_GPU.step_bytes(1) / (0.5 * BANDWIDTH)
    steps = made.steps.take(np.zeros(int(seconds / step_s), dtype=int))
    ends = step_s * np.arange(1, len(steps) + 1)
    times = {"output_monotonic_s": ends, "submit_monotonic_s": ends - step_s, "observed_s": np.full(len(steps), step_s)}
    made.steps = type(steps)({**steps.columns, **times}, {})
    made.samples, made.facts, made.problems = sampling.taken()
    return made


@pytest.mark.parametrize(("dram_percent", "ratio"), [(50.0, 1.0), (100.0, 2.0)])
def test_counter_bytes_stand_beside_those_of_the_model(
    torch: SimpleNamespace, double: Double, dram_percent: float, ratio: float
) -> None:
    roofs = Roofs(find_hardware("h200-sxm-141"), None)
    found = verdicts(counted_run(torch, double, dram_percent), roofs, ON_GPU.weight_bytes)
    joined = found["counters"]
    assert joined["ratio"] == pytest.approx(ratio, rel=0.02)
    assert joined["ratio_low"] < ratio < joined["ratio_high"]
    assert joined["covered_ratio"] > 0.85  # all but the samples at both ends
    assert {"host_overhead", "memory_bound_waste", "measurement_invalid"} <= found["verdicts"].keys()


def test_without_a_device_or_its_counters_it_is_said(double: Double) -> None:
    assert counted.probe_for(None)[0] is None
    double.play(PLAYED)
    probe, problem = counted.probe_for(UUID)
    assert (probe is not None, problem) == (True, None)
    absent, problem = counted.probe_for(UUID[:-1] + "7")
    assert absent is None
    assert problem is not None
    probe.close()
    double.play(PLAYED.replace("mem_clk_max", "gpm=0 mem_clk_max"))
    probe, problem = counted.probe_for(UUID)
    assert probe is not None
    assert "no GPM counters" in str(problem)


def test_the_report_has_a_line_for_everything(torch: SimpleNamespace, double: Double) -> None:
    roofs = Roofs(find_hardware("h200-sxm-141"), None)
    made = counted_run(torch, double, 50.0)
    loop = judged(made, ON_GPU, roofs)
    graph = {**loop, "name": "graph, batch 1", "graphs": True, "step_p50_s": loop["step_p50_s"] / 2}
    machine = {"cpu": None, "device": "cuda:0", "cores": 2, "versions": {"torch": "2.9", "numpy": None}, "cuda": "13",
               "commit": None}  # fmt: skip
    hardware = {"id": "h200-sxm-141", "origin": "datasheet", "memory_bandwidth_bytes_per_s": 4.8e12}
    result = {"machine": machine, "hardware": hardware, "problem": None, "calibration": None, "not_done": [],
              "loops": [loop, graph]}  # fmt: skip
    lines = text(result).splitlines()
    assert "hardware     h200-sxm-141 (datasheet), 4,800.0 GB/s" in lines
    assert [line.split()[-1] for line in lines if "as a graph" in line] == ["times"]
    assert any("2.00 times" in line for line in lines)
    twice = {**loop, "outcome": {"code": WASTE, "expected": "firing", "got": "cleared", "outcome": "NOT as expected",
                                 "why": None}}  # fmt: skip
    said = text({**result, "loops": [twice]})
    assert "eager, batch 1: memory_bound_waste expected firing, got cleared: NOT as expected" in said
    assert "allowed are 1.05 x " in said
    assert "cannot tell: " not in said
    assert [_flops(rate) for rate in (1.351e11, 9.89e14)] == ["135.1 GFLOP/s", "989.00 TFLOP/s"]
    assert "  nothing was left out" in lines
    (line,) = [line for line in lines if line.startswith("  eager, batch 1") and "1.000" in line]
    assert line.split()[3:5] == [f"{ON_GPU.step_bytes(1) / 1e6:,.3f}"] * 2


def test_the_loop_of_torch_takes_what_the_driver_gives() -> None:
    """The made-up loop stands for the real one, so both must have the same door."""
    import inspect

    for name in ("__init__", "warm_up", "capture", "forward"):
        real, made = (inspect.signature(getattr(kind, name)) for kind in (Loop, MadeLoop))
        assert list(real.parameters) == list(made.parameters)


WASTE, HOST = "memory_bound_waste", "host_overhead"


def made_loop(code: str | None, status: str, slow_s: float = 1.2, device_s: float | None = 1.0) -> dict[str, Any]:
    """A loop of two passes as the benchmark writes it down; usual kernels take a second for one pass."""
    evidence = {"observed": 2.0, "floor": 0.9, "reachable": 1.0, "reachable_slow": slow_s}
    said = {"status": status, "summary": status, "missing": [], "evidence": evidence, "judged_by": None}
    return {"name": "made", "made_for": code, "device_p50_s": device_s, "counters": None, "passes": 2,
            "verdicts": {WASTE: said, HOST: said}}  # fmt: skip


def judged_loop(*args: Any, **given: Any) -> dict[str, Any]:
    loop = made_loop(*args, **given)
    return loop | {"outcome": outcome(loop)}


def test_a_finding_that_did_not_come_is_missed_and_one_that_cannot_be_told_is_not() -> None:
    assert outcome(made_loop(None, "cleared")) is None
    assert not missed([judged_loop(WASTE, "firing"), judged_loop(HOST, "firing"), judged_loop(None, "cleared")])
    assert missed([judged_loop(WASTE, "cleared")])
    assert missed([judged_loop(HOST, "cleared", device_s=None)])  # needs no device
    on_cpu, wide = judged_loop(WASTE, "cleared", device_s=None), judged_loop(WASTE, "cleared", slow_s=1.95)
    assert not missed([on_cpu, wide])
    assert "a CPU has none" in on_cpu["outcome"]["why"]
    assert "spread too far" in wide["outcome"]["why"]


def test_a_calibration_that_spreads_far_clears_nothing() -> None:
    narrow, wide = (Measured(1e9, 2e9, spread, 5) for spread in (0.1, 6.86))
    reads = ((1 << 20, narrow), (1 << 26, narrow), (1 << 30, wide))
    assert read_spread(reads, 1 << 21) == 0.1
    assert read_spread(reads, 1 << 28) == read_spread(reads, 1 << 31) == 6.86
    assert read_spread((), 1) is None
    cleared = made_loop(WASTE, "cleared")["verdicts"][WASTE]
    assert doubted(cleared, WASTE, 0.1) == cleared
    assert doubted(cleared, HOST, 6.86) == cleared
    assert doubted(cleared, WASTE, 6.86)["status"] == "cannot_tell"
    assert "686%" in doubted(cleared, WASTE, 6.86)["summary"]
