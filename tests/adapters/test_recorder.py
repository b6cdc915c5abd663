from __future__ import annotations

import json
import logging
import os
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

from rooflens.adapters.recorder import Recorder
from rooflens.collector.ring_source import RingSource
from rooflens.pipeline.recording import read_ring
from rooflens.records import RooflensError, StepKind


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    return tmp_path


def record(folder: Path, **facts: Any) -> Recorder:
    return Recorder("test", folder=folder, strict=True, block_tokens=16, **facts)


def read(recorder: Recorder) -> tuple[dict[str, list[Any]], RingSource]:
    assert recorder.path is not None
    source = RingSource(recorder.path)
    batch = source.read()
    table = batch.steps
    return {n: [v if k else None for v, k in zip(table[n].tolist(), table.where(n).tolist(), strict=True)]
            for n in table.columns}, source  # fmt: skip


def test_three_lines_record_a_step(folder: Path) -> None:
    recorder = record(folder)
    with recorder.step(contexts=[10, 20]) as step:
        step.generated_tokens = 2
    columns, source = read(recorder)
    assert columns["kind"] == [StepKind.DECODE]
    assert columns["context_tokens"] == [30]
    assert columns["causal_pairs"] == [32]
    assert columns["context_blocks"] == [3]
    assert columns["generated_tokens"] == [2]
    assert source.info is not None
    assert source.info.engine == "test"


def test_what_is_not_said_is_not_known(folder: Path) -> None:
    recorder = record(folder)
    with recorder.step(contexts=[10]):
        pass
    columns, _ = read(recorder)
    for name in ("running", "waiting", "deferred", "kv_blocks_used", "kv_blocks_cached", "executor_s", "wait_s",
                 "padded_tokens", "oldest_wait_s"):  # fmt: skip
        assert columns[name] == [None], name


def test_every_fact_arrives_under_its_name(folder: Path) -> None:
    facts = {
        "running": 3, "waiting": 4, "deferred": 5, "preempted": 6, "kv_blocks_used": 7, "kv_blocks_cached": 8,
        "padded_tokens": 9, "graph_mode": 2, "schedule_s": 0.25, "executor_s": 0.5, "wait_s": 0.125,
        "oldest_wait_s": 1.5, "summed_wait_s": 2.5, "prompt_tokens": 11, "new_requests": 12,
        "prefix_hit_local_tokens": 13, "prefix_hit_external_tokens": 14, "recomputed_tokens": 15,
        "discarded_tokens": 16, "unprefilled_tokens": 17, "finished_requests": 18, "structured_rows": 19,
        "lora_rows": 20, "prompt_logprob_rows": 21, "encoder_inputs": 22,
    }  # fmt: skip
    recorder = record(folder)
    with recorder.step(contexts=[1, 2, 3], **facts):
        pass
    columns, _ = read(recorder)
    assert {name: columns[name][0] for name in facts} == facts
    assert recorder.failures == 0


def test_kinds_and_speculation(folder: Path) -> None:
    recorder = record(folder)
    with recorder.step(contexts=[0], queries=[8]):
        pass
    with recorder.step(contexts=[8, 0], queries=[1, 5]) as step:
        step.generated_tokens = 2
    with recorder.step(contexts=[9, 5], drafts=[3, 2]) as step:
        step.rejected = [1, 0]
    with recorder.step(contexts=[12, 8], queries=[1, 1], prefill=[1]):
        pass
    with recorder.step():
        pass
    columns, source = read(recorder)
    kinds = [StepKind.PREFILL, StepKind.MIXED, StepKind.VERIFY, StepKind.MIXED, StepKind.DUMMY]
    assert columns["kind"] == kinds
    assert columns["query_tokens"] == [8, 6, 7, 2, 0]
    assert columns["prefill_tokens"] == [8, 5, 0, 1, 0]
    assert columns["drafted_tokens"] == [0, 0, 5, 0, 0]
    assert columns["accepted_tokens"] == [0, 0, 4, 0, 0]
    assert columns["generated_tokens"] == [0, 2, 6, 1, 0]
    assert source.doubted_frames == 0
    assert columns["causal_pairs"] == [36, 24, 10 + 11 + 12 + 13 + 6 + 7 + 8, 13 + 9, 0]


@pytest.mark.parametrize(
    "bad",
    [
        {"contexts": [1, -2]},
        {"contexts": [1 << 40]},
        {"contexts": ["ten"]},
        {"contexts": 5},
        {"contexts": [1, 2], "queries": [1]},
        {"contexts": [1], "queries": [0]},
        {"contexts": [1, 2], "queries": [4, 1], "prefill": [1]},
        {"contexts": [1], "prefill": [1]},
        {"contexts": [1], "drafts": [1, 1]},
        {"contexts": [1], "wating": 3},
        {"contexts": [1], "waiting": -1},
        {"contexts": [1], "waiting": "many"},
        {"contexts": [1], "schedule_s": float("nan")},
    ],
)
def test_a_bad_argument_never_reaches_the_loop(
    folder: Path, bad: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    recorder = record(folder)
    for _ in range(3):
        with recorder.step(**bad):
            pass
    with recorder.step(contexts=[7]):
        pass
    columns, source = read(recorder)
    assert columns["context_tokens"] == [7]
    assert recorder.failures == source.file.state().hook_failures == 3
    assert len(caplog.records) == 1


def test_a_bad_result_never_reaches_the_loop(folder: Path) -> None:
    recorder = record(folder)
    with recorder.step(contexts=[7], drafts=[2]) as step:
        step.rejected = [3]
    with recorder.step(contexts=[7]) as step:
        step.generated_tokens = "some"  # type: ignore[assignment]
    with recorder.step(contexts=[7]) as step:
        step.note(colour=3)
    recorder.event("not a word")
    recorder.event("name", secret="a prompt")  # type: ignore[arg-type]
    assert recorder.failures == 5
    with recorder.step(contexts=[8]):
        pass
    assert read(recorder)[0]["context_tokens"] == [8]


def test_a_step_that_cannot_be_recorded_does_not_stay_in_flight(folder: Path) -> None:
    recorder = record(folder)
    with recorder.step(contexts=[7]) as other:
        with recorder.step(contexts=[7, 8]) as step:
            step.generated_tokens = -1
        assert recorder.path is not None
        file = RingSource(recorder.path).file
        assert [stamp.requests for stamp in file.in_flight()] == [1], "that of the other step"
        other.generated_tokens = -1
    assert recorder.failures == 2
    assert file.in_flight() == []
    assert read_ring(recorder.path).in_flight is None


def test_the_engines_own_exception_passes_and_is_an_event(folder: Path) -> None:
    recorder = record(folder)
    with pytest.raises(ZeroDivisionError), recorder.step(contexts=[7]):
        _ = 1 / 0
    with recorder.step(contexts=[8]):
        pass
    assert recorder.path is not None
    batch = RingSource(recorder.path).read()
    assert [event.name for event in batch.events] == ["step_failed"]
    assert batch.steps["context_tokens"].tolist() == [8]


def test_an_unfit_folder_is_one_warning_and_no_recording(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    target = tmp_path / "real"
    target.mkdir(mode=0o700)
    link = tmp_path / "link"
    link.symlink_to(target)
    recorder = Recorder("test", folder=link)
    with recorder.step(contexts=[1]) as step:
        step.generated_tokens = 1
        step.done()
    recorder.event("sleep")
    recorder.close()
    assert recorder.path is None
    assert [r.levelno for r in caplog.records] == [logging.WARNING]
    with pytest.raises(RooflensError, match="symbolic link"):
        Recorder("test", folder=link, strict=True)


def test_disabled_does_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOFLENS_DISABLE", "1")
    assert record(folder).path is None
    assert list(folder.iterdir()) == []


def test_lengths_and_counts_only(folder: Path) -> None:
    recorder = record(
        folder, model_name="/secret/place/model-7b", model_config={"_name_or_path": "/secret/place", "hidden_size": 8}
    )
    with recorder.step(contexts=[1]):
        pass
    assert recorder.path is not None
    assert b"secret" not in recorder.path.read_bytes()
    _, source = read(recorder)
    assert source.info is not None
    assert source.info.model_name == "model-7b"
    assert json.loads(json.dumps(source.info.to_json()))["model_config"] == {"hidden_size": 8}


def test_the_engine_may_reuse_its_lists(folder: Path) -> None:
    recorder = record(folder)
    contexts = [1, 2]
    with recorder.step(contexts=contexts):
        contexts[0] = 99
    assert read(recorder)[0]["context_tokens"] == [3]


def test_repeats_cost_no_arena(folder: Path) -> None:
    recorder = record(folder)
    for number in range(20):
        with recorder.step(contexts=[100 + number] * 64):
            pass
    _, source = read(recorder)
    payload_bytes = 4 + 64 * 4 + 16 + 4
    assert source.file.state().arena_head == payload_bytes


def test_the_bookkeeping_after_the_output_is_update_time(folder: Path) -> None:
    recorder = record(folder)
    with recorder.step(contexts=[1]) as step:
        step.done()
        threading.Event().wait(0.02)
    columns, _ = read(recorder)
    assert columns["update_s"][0] >= 0.02
    assert columns["observed_s"][0] < 0.02


def test_a_step_in_flight_is_stamped(folder: Path) -> None:
    recorder = record(folder)
    with recorder.step(contexts=[5, 6], queries=[1, 4]):
        stamp = read(recorder)[1].file.in_flight()[0]
        assert (stamp.ordinal, stamp.tokens, stamp.requests) == (1, 5, 2)


def test_a_forked_child_does_not_write(folder: Path) -> None:
    recorder = record(folder)
    with recorder.step(contexts=[5]):
        pass
    pid = os.fork()
    if pid == 0:
        try:
            with recorder.step(contexts=[6]):
                pass
            recorder.event("child")
            recorder.close()
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    with recorder.step(contexts=[6]):
        pass
    columns, source = read(recorder)
    assert columns["context_tokens"] == [5, 6]
    assert source.file.live()
    assert not source.file.state().closed


def test_close_ends_the_ring_in_order(folder: Path) -> None:
    with record(folder) as recorder, recorder.step(contexts=[5]):
        pass
    recorder.close()
    _, source = read(recorder)
    assert source.file.state().closed
    assert not source.file.live()
    assert recorder.path is not None
    assert stat.S_IMODE(recorder.path.stat().st_mode) == 0o600
