"""Calibration through a real torch, on the CPU: everything that a device would be asked, a few seconds of it."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import pytest
import torch

from rooflens.collector.calibrate import all_reduce, calibrate, identity_of_cpu, identity_of_torch, load, run, save
from rooflens.collector.calibrate import torch_kernels as kernels
from rooflens.collector.calibrate import torch_products as products
from rooflens.collector.calibrate.rounds import Rounds, wall_timer
from rooflens.collector.calibrate.torch_device import measure
from rooflens.model_records import DISTURBED
from rooflens.records import RooflensError

pytestmark = pytest.mark.engine

CPU = torch.device("cpu")
ROUNDS = 4


class CountedRounds:
    """A clock by which warming up takes no time and every round one second, however slow this machine is today."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    def round_over(self) -> None:
        self.now_s += 1.0


@pytest.fixture
def bench() -> kernels.Bench:
    """Eight MiB to read, with a cache of one."""
    pool = torch.ones(4 << 20, dtype=torch.bfloat16)
    return kernels.Bench(torch, CPU, wall_timer(time.perf_counter), pool, 1 << 20)


def by_rounds(quantities: list[Any]) -> Any:
    counted = CountedRounds()
    return Rounds(counted, lambda _words: None, counted.round_over).run(quantities, ROUNDS - 0.5)


def test_everything_is_measured(bench: kernels.Bench) -> None:
    with torch.inference_mode():
        found = by_rounds([*kernels.launch_quantities(bench), *kernels.memory_quantities(bench)])
        found.measured |= by_rounds(products.product_quantities(bench, 64 * 512 * 512)).measured
    assert found.problems == []
    assert bench.problems == []
    assert {field: set(values) for field, values in found.measured.items()} == {
        "launch_s": {None},
        "copies": {2 << 20, 8 << 20},
        "reads": {2 << 20, 8 << 20},
        "attention": {2 << 20, 8 << 20},
        "products": {"bf16", "fp16", "fp32"},
    }
    for field, values in found.measured.items():
        for value in values.values():
            assert value.count == ROUNDS
            assert value.best <= value.median if field == "launch_s" else value.best >= value.median > 0


def test_a_turn_reads_what_it_is_said_to_read(bench: kernels.Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes of all arguments of a kernel over one turn, against those that its rate is computed with."""
    read: list[int] = []
    said: list[float] = []

    def counted(_bench: Any, turns: Any, read_bytes: int) -> Any:
        before = len(read)
        turns()
        said.append(float(read_bytes))
        assert sum(read[before:]) == read_bytes
        return lambda: None

    def mm(_row: Any, matrix: Any, out: Any) -> None:
        read.append(matrix.numel() * matrix.element_size())

    def attend(_query: Any, keys: Any, values: Any, enable_gqa: bool) -> None:
        read.append(sum(one.numel() * one.element_size() for one in (keys, values)))

    def reduced(view: Any, dim: int, out: Any) -> None:
        read.append(view.numel() * view.element_size())

    monkeypatch.setattr(kernels, "_timed", counted)
    monkeypatch.setattr(torch, "mm", mm)
    monkeypatch.setattr(torch, "sum", reduced)
    monkeypatch.setattr(torch, "amax", reduced)
    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", attend)
    for quantity in kernels.memory_quantities(bench):
        quantity.sample.build()  # type: ignore[attr-defined]
    assert set(said) == {8 << 20, 4 << 20} or set(said) == {8 << 20}


def test_buffers_are_distinct_and_more_than_the_cache_holds(bench: kernels.Bench) -> None:
    views = bench.buffers(2 << 20)
    assert len(views) == 2
    assert len({view.data_ptr() for view in views}) == 2
    bench.cache_bytes = 2 << 20
    assert len(bench.buffers(2 << 20)) == 4  # as many as the pool holds
    assert len(bench.buffers(8 << 20)) == 1


def test_a_format_that_fails_is_not_known_and_the_others_are(
    bench: kernels.Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_arguments: Any) -> Any:
        raise RuntimeError("_int_mm is not for this device\nat some line")

    monkeypatch.setattr(torch, "_int_mm", broken)
    monkeypatch.setattr(products, "_formats", lambda _bench: ["int8", "fp32"])
    found = by_rounds(products.product_quantities(bench, 1))
    assert list(found.measured["products"]) == ["fp32"]
    assert found.problems == ["products in int8 are not known: RuntimeError: _int_mm is not for this device"]


def test_eight_bit_products_are_the_right_ones(bench: kernels.Bench) -> None:
    """As far as torch has them on the CPU; the same calls are made on a device."""
    whole = products._product(bench, "int8", 64)()
    assert (whole.dtype, tuple(whole.shape)) == (torch.int32, (64, 64))
    scaled = products._product(bench, "fp8", 64)()
    assert (scaled.dtype, tuple(scaled.shape)) == (torch.bfloat16, (64, 64))


def test_settings_of_torch_are_given_back() -> None:
    torch.set_float32_matmul_precision("medium")
    try:
        measure(torch, CPU, 0.1, -1.0, lambda: 0.0, lambda _words: None)
        assert torch.get_float32_matmul_precision() == "medium"
        assert not torch.is_inference_mode_enabled()
    finally:
        torch.set_float32_matmul_precision("highest")


def test_a_calibration_through_torch(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run.busy, "cpu_busy", lambda: "others use it")
    with pytest.raises(RooflensError, match="this processor is in use: others use it"):
        calibrate("torch-cpu", 3.0)
    told: list[float] = []
    # A clock that goes on when it is read: it ends however slow this machine is. No clock stops a large product.
    ticks = iter(range(10**9))
    monkeypatch.setattr(products, "SIZES", (64, 128))
    found = calibrate("torch-cpu", 0.5, lambda _words, ratio: told.append(ratio), True, lambda: next(ticks) * 2e-4)
    assert found.identity == identity_of_torch("cpu") == identity_of_cpu()
    assert found.versions["torch"] == torch.__version__
    assert found.products["fp32"].median > 0
    assert found.flags[:2] == ("measured through torch", f"{DISTURBED}: others use it")
    assert told == sorted(told)
    assert told[-1] == 1.0
    assert load(save(found, tmp_path)) == found


@pytest.mark.parametrize(
    ("device", "why"),
    [("cuda:99", "torch sees no cuda:99 here"), ("mps", "torch sees no mps here"), ("tpux", "tpux is no device")],
)
def test_a_device_that_is_not_there(device: str, why: str) -> None:
    with pytest.raises(RooflensError, match=why):
        calibrate(device)


def test_an_all_reduce_between_two_processes() -> None:
    """gloo stands in for nccl: the same processes, meeting place and rounds."""
    curve, problem = all_reduce.between("gloo", 2, 300.0)
    assert problem is None
    assert curve is not None
    assert [size for size, _ in curve] == [16 << 10, 256 << 10, 4 << 20, 64 << 20]
    assert all(value.count == 15 and 0 < value.best <= value.median for _, value in curve)
    assert curve[-1][1].median > curve[0][1].median  # four thousand times the bytes


def test_an_all_reduce_that_fails_or_takes_too_long() -> None:
    between = partial(all_reduce.between, devices=2)
    curve, problem = between("no-such-backend", seconds=300.0)
    assert curve is None
    assert problem is not None
    assert problem.startswith("all_reduce between 2 devices is not known: a process failed: ")
    assert between("gloo", seconds=0.0) == (None, "all_reduce between 2 devices is not known: no time was left")
