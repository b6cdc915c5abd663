"""transformers' continuous batching, run for real on the CPU and recorded by the hook: every step and every term."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from continuous_harness import Witness, differences, engine, gap, greedy, prompts, ring, small_llama, terms
from live_harness import ROOF, firing, quiet, sidecar

import rooflens.adapters.transformers as hook
from rooflens.adapters.transformers import patch, rings, surface
from rooflens.adapters.transformers.capture import Capture
from rooflens.records import StepKind

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def model() -> Any:
    return small_llama()


@pytest.fixture(autouse=True)
def hooked(rings: Path) -> Iterator[None]:
    """The hook, off again and its rings closed after each test."""
    assert hook.install()
    yield
    hook.uninstall()
    assert patch._captures == []


def close_rings() -> None:
    """A ring stays open for the next engine with the same facts."""
    rings.close_idle()


def test_prompts_in_parts_beside_decodes(model: Any, rings: Path) -> None:
    given = prompts(12)
    with Witness(model) as witness:
        results = model.generate_batch(inputs=given, generation_config=greedy(20), continuous_batching_config=engine())
    hook.uninstall()
    batch, lengths = ring(rings)
    assert differences(batch, lengths, witness.passes) == []
    sums = terms(batch)
    assert gap(sums, len(given)) == 0
    assert sums["prompt_tokens"] == sum(map(len, given))
    assert sums["generated_tokens"] == sum(len(one.generated_tokens) for one in results.values()) == 240
    assert sums["new_requests"] == sums["finished_requests"] == len(given)
    assert sums["prefill_tokens"] == sums["prompt_tokens"]
    assert [sums[name] for name in ("recomputed_tokens", "discarded_tokens", "preempted")] == [0, 0, 0]
    kinds = set(batch.steps["kind"].tolist())
    assert {int(StepKind.PREFILL), int(StepKind.MIXED), int(StepKind.DECODE)} <= kinds
    assert batch.steps["waiting"][0] > 0
    assert batch.steps["oldest_wait_s"][0] > 0
    assert (batch.steps["observed_s"] > 0).all()
    assert (batch.steps["executor_s"] <= batch.steps["observed_s"]).all()


def test_facts_of_the_engine(model: Any, rings: Path) -> None:
    model.generate_batch(inputs=prompts(2), generation_config=greedy(2), continuous_batching_config=engine(128))
    hook.uninstall()
    info = ring(rings)[0].info
    assert info is not None
    assert (info.engine, info.weight_dtype, info.kv_dtype) == ("transformers", "bfloat16", "bfloat16")
    assert (info.kv_blocks, info.block_tokens, info.max_batched_tokens) == (128, 16, 64)
    assert (info.attention_backend, info.graph_mode, info.device) == ("sdpa", "none", "cpu")
    assert (info.async_scheduling, info.concurrent_batches) == (False, 1)
    assert [(one.kind, one.layers, one.block_tokens) for one in info.kv_groups] == [("full_attention", 4, 16)]
    assert info.model_config is not None
    assert info.model_config["hidden_size"] == 256
    assert info.model_config["num_key_value_heads"] == 4
    assert not any("/" in str(value) for value in info.model_config.values())


def test_requests_thrown_out_are_computed_again(model: Any, rings: Path) -> None:
    given = prompts(8, 20, 40)
    with Witness(model) as witness:
        settings = engine(blocks=12, budget=128)
        results = model.generate_batch(inputs=given, generation_config=greedy(40), continuous_batching_config=settings)
    hook.uninstall()
    batch, lengths = ring(rings)
    assert differences(batch, lengths, witness.passes) == []
    sums = terms(batch)
    assert sums["preempted"] > 0
    assert sums["recomputed_tokens"] > 0
    assert gap(sums, len(given)) == 0
    assert sums["prompt_tokens"] == sum(map(len, given))
    assert sums["generated_tokens"] == sum(len(one.generated_tokens) for one in results.values()) == 320
    assert sums["finished_requests"] == len(given)
    assert batch.steps["kv_blocks_used"].max() <= 12


def test_shared_prefixes_are_hits(model: Any, rings: Path) -> None:
    (common,) = prompts(1, 64, 65)
    given = [common + one for one in prompts(6, 5, 20, seed=3)]
    with Witness(model) as witness:
        settings = engine(budget=96)
        model.generate_batch(inputs=given, generation_config=greedy(12), continuous_batching_config=settings)
    hook.uninstall()
    batch, lengths = ring(rings)
    assert differences(batch, lengths, witness.passes) == []
    sums = terms(batch)
    assert sums["prefix_hit_local_tokens"] > 0
    assert sums["prefix_hit_local_tokens"] % 16 == 0
    assert gap(sums, len(given)) == 0


def test_parallel_answers_share_their_prompt(model: Any, rings: Path) -> None:
    given = prompts(3)
    with Witness(model) as witness:
        config = greedy(8, num_return_sequences=3, do_sample=True)
        model.generate_batch(inputs=given, generation_config=config, continuous_batching_config=engine())
    hook.uninstall()
    batch, lengths = ring(rings)
    assert differences(batch, lengths, witness.passes) == []
    sums = terms(batch)
    assert sums["new_requests"] == sums["finished_requests"] == 9
    assert sums["prompt_tokens"] == 3 * sum(map(len, given))
    assert sums["prefix_hit_local_tokens"] > 0
    assert gap(sums, 9) == 0


def test_requests_that_come_and_are_called_off(model: Any, rings: Path) -> None:
    given = prompts(5, 100, 200)
    finished = []
    with Witness(model) as witness:
        manager = model.init_continuous_batching(greedy(30), engine(budget=32))
        manager.start()
        names = [manager.add_request(one) for one in given[:4]]
        manager.cancel_request(names[3])  # while it waits or prefills
        for one in iter(lambda: manager.get_result(timeout=20), None):
            finished.append(one)
            if len(finished) == 1:
                manager.add_request(given[4])
            if len(finished) == 4:
                break
        manager.stop(block=True)
    hook.uninstall()
    batch, lengths = ring(rings)
    assert differences(batch, lengths, witness.passes) == []
    sums = terms(batch)
    assert gap(sums, 4) == 0
    assert sums["generated_tokens"] == 120
    assert sums["new_requests"] == sums["finished_requests"]


def test_calls_that_follow_are_one_recording(model: Any, rings: Path) -> None:
    for _ in range(3):
        model.generate_batch(inputs=prompts(2), generation_config=greedy(4), continuous_batching_config=engine())
    hook.uninstall()
    batch, _ = ring(rings)
    assert terms(batch)["finished_requests"] == 6
    assert gap(terms(batch), 6) == 0


def test_off_and_gone_again(model: Any, rings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hook.uninstall()
    processor = patch.classes()["ContinuousBatchProcessor"]
    assert not hasattr(processor.update_batch, "__wrapped__")
    monkeypatch.setenv("ROOFLENS_DISABLE", "1")
    assert not hook.install()
    monkeypatch.delenv("ROOFLENS_DISABLE")
    model.generate_batch(inputs=prompts(1), generation_config=greedy(2), continuous_batching_config=engine())
    assert not list(rings.glob("*.ring"))
    with hook.recording():
        assert hook.install()  # a second time changes nothing
        model.generate_batch(inputs=prompts(1), generation_config=greedy(2), continuous_batching_config=engine())
    assert not patch.installed()
    assert len(ring(rings)[0].steps) == 2


def test_a_release_that_it_does_not_know_is_left_alone(
    model: Any, rings: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    hook.uninstall()
    monkeypatch.setattr(patch, "_warned", False)
    monkeypatch.setattr(surface, "REQUEST_FIELDS", (*surface.REQUEST_FIELDS, "made_up"))
    with caplog.at_level(logging.WARNING, "rooflens"):
        assert not hook.install()
        assert not hook.install()
    assert [one for one in caplog.messages if "RequestState.made_up" in one] == caplog.messages[:1]
    assert len(caplog.messages) == 1
    model.generate_batch(inputs=prompts(1), generation_config=greedy(2), continuous_batching_config=engine())
    assert not list(rings.glob("*.ring"))


def test_a_failing_hook_changes_nothing_of_the_engine(model: Any, rings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hook.uninstall()
    given = prompts(2)

    def run() -> list[list[int]]:
        got = model.generate_batch(inputs=given, generation_config=greedy(20), continuous_batching_config=engine())
        return [one.generated_tokens for one in got.values()]

    plain = run()
    assert hook.install()
    assert run() == plain
    for name in (
        "begin",
        "deciding",
        "decided",
        "left",
        "cancelling",
        "prepared",
        "ran",
        "updating",
        "came",
        "updated",
    ):
        with monkeypatch.context() as broken:
            broken.setattr(Capture, name, lambda self, *rest: 1 / 0)
            assert run() == plain, name
    hook.uninstall()


def test_the_command_line_runs_a_script(rings: Path, tmp_path: Path) -> None:
    script = tmp_path / "run.py"
    script.write_text(
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from continuous_harness import *\n"
        "small_llama().generate_batch(inputs=prompts(2), generation_config=greedy(3), "
        "continuous_batching_config=engine())\n"
    )
    command = [sys.executable, "-P", "-m", "rooflens.adapters.transformers", "--", str(script)]
    subprocess.run(command, check=True, timeout=60, env=os.environ, capture_output=True)
    batch, _ = ring(rings)
    assert terms(batch)["generated_tokens"] == 6
    assert time.time() - batch.steps["unix_s"][-1] < 60


@pytest.mark.parametrize(("places", "fires"), [(4, True), (64, False)])
def test_a_batch_held_small_beside_a_queue_is_found(rings: Path, tmp_path: Path, places: int, fires: bool) -> None:
    roof = tmp_path / "roof.toml"
    roof.write_text(ROOF)
    rings.mkdir(mode=0o700, exist_ok=True)
    code = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "import rooflens.adapters.transformers as hook; hook.install()\n"
        f"from continuous_harness import serve; serve(90, {places}, {32 if fires else 0})\n"
    )
    with sidecar(tmp_path, "ring", "--window", "2", "--hardware", str(roof), rings=rings) as watching:
        served = subprocess.Popen([sys.executable, "-P", "-c", code], env=os.environ, stderr=subprocess.DEVNULL)
        try:
            seen = watching.until(lambda one: len((one.engine() or {}).get("windows", ())) >= 2, 60)
            assert seen
            if fires:
                found = watching.until(firing("missed_batching"), 20)
                assert found, watching.findings()
                assert "max_requests_per_batch = " in found["remedy"]
            else:
                assert watching.until(quiet("missed_batching"), 5), watching.findings()
        finally:
            served.kill()
            served.wait(10)
