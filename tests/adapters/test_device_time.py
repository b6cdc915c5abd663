"""Device time of a worker: the real wrappers around a made-up runner, on a device whose time the test moves."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake_device import OneCall, Second, Stream, TwoCalls, output, ring, step, timer, worker

from rooflens.adapters.vllm import device as device_time
from rooflens.adapters.vllm.device_timer import MOST_FAILURES, MOST_PAIRS
from rooflens.collector.ring_source import RingSource
from rooflens.ring_folder import DEVICE_SUFFIX, list_rings


def test_each_pass_is_one_span_with_the_devices_own_time(gpu: Any, tmp_path: Path) -> None:
    made = worker(rank=1)
    for tokens, ms, requests in ((300, 12.5, 4), (4, 3.25, 4), (4, 11_000.0, 4), (1, 1.0, 1)):
        step(made, gpu, tokens, ms, requests)
    found = ring(tmp_path)
    assert [(s.ordinal, s.device_s, s.query_tokens, s.requests) for s in found.spans] == [
        (1, 0.0125, 300, 4), (2, 0.00325, 4, 4), (3, 11.0, 4, 4),
    ]  # fmt: skip  # the last one is read back when the next begins
    assert all(0 <= s.end_monotonic_s - s.start_monotonic_s < 1 for s in found.spans)
    assert all(s.host_gap_s is not None and 0 <= s.host_gap_s < 1 for s in found.spans)
    assert (found.skipped, found.lost_spans, found.torn_spans) == (0, 0, 0)
    assert (found.facts["kind"], found.facts["rank"], found.facts["device"]) == ("device", 1, "Made-up GPU")
    assert found.facts["device_uuids"] == ["GPU-1234-56"]
    assert found.belongs_to(found.header)
    assert not found.belongs_to(SimpleNamespace(pid=0))  # type: ignore[arg-type]


def test_sampling_inside_execute_model_ends_the_pass_there(gpu: Any, tmp_path: Path) -> None:
    made = worker(OneCall)
    for tokens in (5, 6, 7):
        assert made.model_runner.execute_model(output(tokens)) == f"output of {tokens}"
        gpu.work(2.0)
    assert [(s.query_tokens, s.device_s, s.host_gap_s) for s in ring(tmp_path).spans] == [(5, 0.002, 0), (6, 0.002, 0)]


def test_a_result_without_sampling_ends_the_pass(gpu: Any, tmp_path: Path) -> None:
    """Pooling, and all but the last stage of a pipeline, where vLLM calls sample_tokens with nothing to do."""
    made = worker()
    made.model_runner.instead = "intermediate tensors"
    for _ in range(3):
        assert made.model_runner.execute_model(output(9)) == "intermediate tensors"
        gpu.work(2.0)
        assert made.model_runner.sample_tokens(None) == "sampled"
    assert [s.ordinal for s in ring(tmp_path).spans] == [1, 2]
    assert timer(made).skipped.total() == 0


def test_the_device_is_looked_at_and_never_waited_for(gpu: Any, tmp_path: Path) -> None:
    made = worker()
    for _ in range(3):
        made.model_runner.execute_model(output(1))
        made.model_runner.sample_tokens(None)
    assert ring(tmp_path).spans == ()
    gpu.work(9.0)
    step(made, gpu, 1, 1.0)
    assert len(ring(tmp_path).spans) == 3


def test_more_passes_in_flight_than_events_are_skipped_and_counted(gpu: Any, tmp_path: Path) -> None:
    made = worker()
    for _ in range(MOST_PAIRS + 3):
        made.model_runner.execute_model(output(1))
        made.model_runner.sample_tokens(None)
    assert timer(made).skipped == {"no free event": 3}
    assert gpu.records == 2 * MOST_PAIRS
    gpu.work(9.0)
    timer(made)._told_ns = 0  # reasons are told once a second
    step(made, gpu, 1, 1.0)
    step(made, gpu, 1, 1.0)
    found = ring(tmp_path)
    assert [s.ordinal for s in found.spans] == [*range(1, MOST_PAIRS + 1), MOST_PAIRS + 4]
    assert (found.skipped, found.skipped_by_reason) == (3, {"no free event": 3})


def _twice(made: Any, gpu: Any) -> None:
    made.model_runner.execute_model(output(2))


def _other_stream(made: Any, gpu: Any) -> None:
    made.model_runner.execute_model(output(2))
    gpu.stream = Stream()
    made.model_runner.sample_tokens(None)


def _alone(made: Any, gpu: Any) -> None:
    made.model_runner.sample_tokens(None)


def _dummy_between(made: Any, gpu: Any) -> None:
    made.model_runner.execute_model(output(2))
    assert made.model_runner._dummy_run(8) == "dummy"
    made.model_runner.sample_tokens(None)


def _raising(runner: Any, call: Callable[[], Any]) -> None:
    def fault() -> None:
        raise ValueError("the engine's own")

    runner.during = fault
    with pytest.raises(ValueError, match="the engine's own"):
        call()
    runner.during = None


def _raises_first(made: Any, gpu: Any) -> None:
    _raising(made.model_runner, lambda: made.model_runner.execute_model(output(2)))


def _raises_last(made: Any, gpu: Any) -> None:
    made.model_runner.execute_model(output(2))
    _raising(made.model_runner, lambda: made.model_runner.sample_tokens(None))


def _captured(made: Any, gpu: Any) -> None:
    gpu.capturing = True
    made.model_runner.execute_model(output(2))
    made.model_runner.sample_tokens(None)
    gpu.capturing = False


def _captured_late(made: Any, gpu: Any) -> None:
    made.model_runner.execute_model(output(2))
    gpu.capturing = True
    made.model_runner.sample_tokens(None)
    gpu.capturing = False


@pytest.mark.parametrize(("happens", "reason", "passes"), [
    (_twice, "begun twice", 1),
    (_other_stream, "another stream", 1),
    (_alone, "sampled without a pass", 0),
    (_dummy_between, "dummy run", 1),
    (_raises_first, "exception", 1),
    (_raises_last, "exception", 1),
    (_captured, "graph capture", 1),
    (_captured_late, "graph capture", 1),
])  # fmt: skip
@pytest.mark.parametrize("runner", [TwoCalls, Second])
def test_a_doubtful_pass_is_skipped_counted_and_forgotten(
    gpu: Any, tmp_path: Path, runner: type, happens: Callable[[Any, Any], None], reason: str, passes: int
) -> None:
    made = worker(runner)
    step(made, gpu, 1, 1.0)
    happens(made, gpu)
    gpu.stream.marks.clear()
    for ms in (4.0, 5.0, 6.0):
        step(made, gpu, 3, ms)
    found = ring(tmp_path)
    assert timer(made).skipped == {reason: 1}
    assert timer(made).failures == 0
    assert [(s.ordinal, s.device_s) for s in found.spans] == [(1, 0.001), (2 + passes, 0.004), (3 + passes, 0.005)]
    assert found.skipped == 1


@pytest.mark.parametrize("runner", [TwoCalls, Second])
def test_warm_up_dummy_runs_and_empty_steps_are_no_passes(gpu: Any, tmp_path: Path, runner: type) -> None:
    made = worker(runner)
    assert made.compile_or_warm_up_model() == "warm"
    assert made.model_runner._dummy_run(8) == "dummy"
    assert made.model_runner.execute_model(output(0)) is None
    made.model_runner.sample_tokens(None)
    made.model_runner.execute_model(output(8), dummy_run=True)
    assert (gpu.records, timer(made).ordinal, list_rings(tmp_path, DEVICE_SUFFIX)) == (0, 0, [])
    for _ in range(2):
        step(made, gpu, 3, 1.0)
    assert [s.ordinal for s in ring(tmp_path).spans] == [1]
    assert timer(made).skipped.total() == 0


def test_faults_of_the_device_reach_no_worker_and_end_the_timing(
    gpu: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = worker()
    step(made, gpu, 1, 1.0)
    its = timer(made)
    gpu.broken = True
    for _ in range(MOST_FAILURES + 3):
        assert made.model_runner.execute_model(output(1)) is None
        assert made.model_runner.sample_tokens(None) == "sampled"
    assert (its.failures, its.off) == (MOST_FAILURES, True)
    assert [r.levelname for r in caplog.records] == ["WARNING"]
    (path,) = list_rings(tmp_path, DEVICE_SUFFIX)
    source = RingSource(path)
    assert [event.name for event in source.read().events if event.name == "hook_off"] == ["hook_off"]
    assert source.file.state().hook_failures == MOST_FAILURES
    source.close()


def test_a_ring_that_cannot_be_opened_is_one_warning(
    gpu: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ROOFLENS_DIR", str(tmp_path / "file"))
    made = worker()
    for _ in range(3):
        step(made, gpu, 1, 1.0)
    assert device_time.timer_of(made.model_runner) is None
    assert [r.levelname for r in caplog.records] == ["WARNING"]


def test_a_worker_without_a_gpu_is_left_alone(gpu: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    made = worker(device_type="cpu")
    before = type(made.model_runner).execute_model
    assert before is TwoCalls.execute_model
    step(made, gpu, 1, 1.0)
    assert len(caplog.records) == 1
    assert "device time stays off, this worker runs on cpu" in caplog.messages[0]
    assert list_rings(tmp_path, DEVICE_SUFFIX) == []
