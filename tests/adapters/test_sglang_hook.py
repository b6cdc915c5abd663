"""The SGLang hook on a made scheduler with the surface of the real one; SGLang itself needs a GPU to be imported."""

from __future__ import annotations

import logging
import sys
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from rooflens.adapters import sglang
from rooflens.adapters.sglang import install
from rooflens.pipeline import read_ring
from rooflens.records import StepKind


class Mode:
    def __init__(self, name: str) -> None:
        self.name = name

    def is_decode(self) -> bool:
        return self.name == "decode"

    def is_extend(self) -> bool:
        return self.name in ("extend", "mixed")

    def is_mixed(self) -> bool:
        return self.name == "mixed"

    def is_idle(self) -> bool:
        return self.name == "idle"


class Request:
    def __init__(self, seqlen: int) -> None:
        self._seqlen = seqlen

    @property
    def seqlen(self) -> int:
        return self._seqlen


@dataclass
class Batch:
    forward_mode: Any
    reqs: list[Any] = field(default_factory=list)
    seq_lens_cpu: Any = None
    prefix_lens: Any = None
    extend_lens: Any = None
    decoding_reqs: Any = None


class Lengths(list[int]):
    """As a tensor on the host gives them."""

    def tolist(self) -> list[int]:
        return list(self)


class NoSpeculation:
    def __init__(self, none: bool = True) -> None:
        self._none = none

    def is_none(self) -> bool:
        return self._none


def made(version: str = "0.5.23") -> dict[str, ModuleType]:
    """The modules that the hook looks at, as they are imported in a scheduler's process."""

    class Scheduler:
        def __init__(self, **given: Any) -> None:
            self.server_args = SimpleNamespace(pp_size=1, tp_size=2, quantization="fp8", kv_cache_dtype="auto")
            self.spec_algorithm: Any = NoSpeculation()
            self.model_config = SimpleNamespace(
                hf_config=SimpleNamespace(to_dict=lambda: {"hidden_size": 64, "_name_or_path": "/srv/models/m"})
            )
            self.waiting_queue = [1, 2]
            self.is_generation, self.dp_rank, self.attn_tp_rank = True, 3, 0
            self.__dict__.update(given)

        def run_batch(self, batch: Any, pp_proxy_tensors: Any = None) -> Any:
            if batch.forward_mode.name == "broken":
                raise ValueError("the engine's own")
            return object()

        def process_batch_result(self, batch: Any, result: Any) -> str:
            return "processed"

    def module(name: str, **members: Any) -> ModuleType:
        found = ModuleType(name)
        found.__dict__.update(members)
        return found

    return {
        sglang.SCHEDULER: module(sglang.SCHEDULER, Scheduler=Scheduler),
        "sglang": module("sglang"),
        "sglang.version": module("sglang.version", __version__=version),
        "sglang.srt.managers.schedule_batch": module("schedule_batch", ScheduleBatch=Batch, Req=Request),
        "sglang.srt.model_executor.forward_batch_info": module("forward_batch_info", ForwardMode=Mode),
    }


@pytest.fixture(autouse=True)
def rings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ROOFLENS_DIR", str(tmp_path))
    monkeypatch.setattr("rooflens.adapters.recorder.default_folder", lambda: tmp_path)
    return tmp_path


def hooked(monkeypatch: pytest.MonkeyPatch, version: str = "0.5.23", **given: Any) -> Any:
    modules = made(version)
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    sglang.register()
    return modules[sglang.SCHEDULER].Scheduler(**given)


def decode(*lengths: int) -> Batch:
    return Batch(Mode("decode"), [Request(n) for n in lengths], Lengths(lengths))


def step_columns(folder: Path, *names: str) -> list[tuple[int, ...]]:
    (path,) = folder.glob("*.ring")
    steps = read_ring(path).steps
    return list(zip(*(steps[name].tolist() for name in names), strict=True))


def test_lengths_are_exact_with_overlap(rings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results are taken in one batch late, from a copy, while the lengths go on in place."""
    scheduler = hooked(monkeypatch)
    first = Batch(Mode("extend"), [Request(100), Request(900)], None, [0, 64], [100, 512])
    waiting: deque[tuple[Batch, Any]] = deque([(first, scheduler.run_batch(first))])
    lengths = Lengths([101, 577])
    for _ in range(3):
        batch = Batch(Mode("decode"), [Request(101), Request(577)], lengths)
        waiting.append((batch, scheduler.run_batch(batch)))
        assert scheduler.process_batch_result(*waiting.popleft()) == "processed"
        lengths[:] = [n + 1 for n in lengths]
    scheduler.process_batch_result(*waiting.popleft())
    names = ("kind", "requests", "query_tokens", "context_tokens", "causal_pairs", "generated_tokens", "waiting")
    assert step_columns(rings, *names) == [
        # the second prompt has 900 tokens and is not yet done
        (StepKind.PREFILL, 2, 612, 64, 100 * 101 // 2 + 512 * 64 + 512 * 513 // 2, 1, 2),
        (StepKind.DECODE, 2, 2, 676, 678, 2, 2),
        (StepKind.DECODE, 2, 2, 678, 680, 2, 2),
        (StepKind.DECODE, 2, 2, 680, 682, 2, 2),
    ]


def test_a_mixed_batch_holds_its_decoding_requests_last(rings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = hooked(monkeypatch)
    reqs = [Request(50), Request(201)]
    batch = Batch(Mode("mixed"), reqs, None, [0, 200], [50, 1], reqs[1:])
    scheduler.process_batch_result(batch, scheduler.run_batch(batch))
    got = step_columns(rings, "kind", "prefill_requests", "prefill_tokens", "context_tokens", "generated_tokens")
    assert got == [(StepKind.MIXED, 1, 50, 200, 2)]


def test_the_facts_have_no_path(rings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = hooked(monkeypatch)
    scheduler.run_batch(decode(5))
    (path,) = rings.glob("*.ring")
    info = read_ring(path).info
    assert info is not None
    assert (info.engine, info.engine_version, info.rank, info.tensor_parallel) == ("sglang", "0.5.23", 3, 2)
    assert (info.quantization, info.kv_dtype) == ("fp8", None)
    assert info.model_config == {"hidden_size": 64}


def test_an_error_of_the_engine_passes_through(rings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = hooked(monkeypatch)
    scheduler.run_batch(decode(5))
    with pytest.raises(ValueError, match="the engine's own"):
        scheduler.run_batch(Batch(Mode("broken")))


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"spec_algorithm": NoSpeculation(False)}, "with speculation"),
        ({"is_generation": False}, "does not generate"),
        ({"server_args": SimpleNamespace(pp_size=2)}, "pipeline parallelism"),
    ],
)
def test_what_is_not_known_exactly_is_left_alone(
    rings: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, given: dict[str, Any], why: str
) -> None:
    scheduler = hooked(monkeypatch, **given)
    for _ in range(3):
        scheduler.process_batch_result(decode(5), scheduler.run_batch(decode(5)))
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert why in caplog.text
    assert list(rings.glob("*.ring")) == []


def test_other_ranks_of_the_same_batches_record_nothing(rings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = hooked(monkeypatch, attn_tp_rank=1)
    scheduler.run_batch(decode(5))
    assert list(rings.glob("*.ring")) == []


@pytest.mark.parametrize("version", ["0.5.24", "0.5.11", "main"])
def test_an_unknown_version_is_not_touched(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, version: str
) -> None:
    scheduler = hooked(monkeypatch, version)
    assert not hasattr(scheduler.run_batch, install.WRAPPED)
    assert len(caplog.records) == 1
    assert "not one of 0.5.12 to 0.5.23" in caplog.text


def test_broken_batches_are_counted_and_the_hook_ends(
    rings: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    scheduler = hooked(monkeypatch)
    odd = Batch(Mode("decode"), [Request(5)], None)
    for _ in range(40):
        assert scheduler.process_batch_result(odd, scheduler.run_batch(odd)) == "processed"
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert scheduler.__dict__[install.CAPTURE].off


def test_results_that_are_never_taken_in_are_let_go(rings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = hooked(monkeypatch)
    for _ in range(500):
        scheduler.run_batch(decode(5))
    assert len(scheduler.__dict__[install.CAPTURE]._open) == 64


def test_a_process_without_a_scheduler_imports_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, sglang.SCHEDULER, raising=False)
    sglang.register()
    assert sglang.SCHEDULER not in sys.modules


def test_it_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOFLENS_DISABLE", "1")
    scheduler = hooked(monkeypatch)
    assert not hasattr(scheduler.run_batch, install.WRAPPED)


def test_wrapping_twice_records_once(rings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = hooked(monkeypatch)
    sglang.register()
    scheduler.process_batch_result(decode(5), scheduler.run_batch(decode(5)))
    assert len(step_columns(rings, "kind")) == 1
