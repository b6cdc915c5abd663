"""What is pushed becomes the same table as what a recorder writes into a ring, column by column."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pushing import body, raw

from rooflens.adapters.push.receiver import Receiver
from rooflens.adapters.recorder import Recorder
from rooflens.adapters.recorder.slot import FACTS
from rooflens.analyzer.spans import spans_of_engine
from rooflens.collector.ring_source import RingSource
from rooflens.pipeline.pushed import PushFeed
from rooflens.protocols import Batch
from rooflens.records import STEP_COLUMNS

# What a window, a chunk and whole contexts look back over, so that the sums over spans are compared too.
CONFIG = {
    "model_type": "mistral", "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 512, "vocab_size": 1000, "sliding_window": 24,
}  # fmt: skip
ENGINE_FACTS = {"model_name": "made", "block_tokens": 16, "kv_blocks": 512, "model_config": CONFIG}
DURATIONS = ("schedule_s", "executor_s", "wait_s", "oldest_wait_s", "summed_wait_s")
# A ring tells what its hook cost; the wall time of a pushed step is the receiver's.
NOT_COMPARED = ("hook_s", "unix_s")

counts = st.integers(0, 1000)
nanos = st.integers(0, 50_000_000)


@st.composite
def made_steps(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Steps as one pushes them, with times in nanoseconds."""
    found, now_ns = [], draw(st.integers(1, 10**12))
    rows: list[int] = []
    for _ in range(draw(st.integers(1, 12))):
        rows = [context for context in rows if draw(st.integers(0, 9))]
        rows += draw(st.lists(st.integers(0, 60), max_size=3))
        step: dict[str, Any] = {"contexts": list(rows)}
        mode = draw(st.sampled_from(("plain", "prefill", "verify", "positions")))
        queries = [1] * len(rows)
        rejected = [0] * len(rows)
        if mode == "prefill" and rows:
            queries = draw(st.lists(st.integers(1, 40), min_size=len(rows), max_size=len(rows)))
            step["queries"] = queries
        elif mode == "verify" and rows:
            drafts = draw(st.lists(st.integers(0, 4), min_size=len(rows), max_size=len(rows)))
            rejected = [draw(st.integers(0, drafted)) for drafted in drafts]
            queries = [1 + drafted for drafted in drafts]
            step |= {"drafts": drafts, "rejected": rejected}
        elif mode == "positions" and rows:
            step["prefill"] = draw(st.lists(st.integers(0, len(rows) - 1), max_size=2))
        for name in draw(st.lists(st.sampled_from(sorted(FACTS)), max_size=5, unique=True)):
            if name in ("invalid_draft_tokens", "unjudged_draft_tokens", "graph_mode"):
                continue
            step[name] = draw(nanos) / 1e9 if name in DURATIONS else draw(counts)
        if draw(st.booleans()):
            step["generated_tokens"] = draw(counts)
        step["submit_ns"] = now_ns + draw(nanos)
        step["output_ns"] = now_ns = step["submit_ns"] + draw(nanos)
        if draw(st.booleans()):
            step["update_ns"] = draw(nanos)
            now_ns += step["update_ns"]
        found.append(step)
        rows = [context + query - less for context, query, less in zip(rows, queries, rejected, strict=True)]
    return found


def recorded(steps: list[dict[str, Any]], folder: Path) -> Batch:
    """The steps by way of a recorder and its ring."""
    recorder = Recorder("made-up", folder=folder, strict=True, **ENGINE_FACTS)
    times: list[int] = []
    recorder.clock_ns = lambda: times.pop(0) if len(times) > 1 else times[0]  # type: ignore[method-assign]
    for step in steps:
        lengths = {name: step.get(name) for name in ("contexts", "queries", "prefill", "drafts")}
        facts = {name: value for name, value in step.items() if name in FACTS}
        times[:] = [step["submit_ns"]]
        with recorder.step(**lengths, **facts) as entered:
            entered.generated_tokens, entered.rejected = step.get("generated_tokens"), step.get("rejected")
            times[:] = [step["output_ns"]]
            if "update_ns" in step:
                entered.done()
                times[:] = [step["output_ns"] + step["update_ns"]]
    assert recorder.failures == 0
    recorder.close()
    assert recorder.path is not None
    return RingSource(recorder.path, spans_of=spans_of_engine).read()


def sent(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The steps as they stand in a body, in seconds."""
    found = []
    for step in steps:
        out = {name: value for name, value in step.items() if not name.endswith("_ns")}
        out |= {f"{name[:-3]}_s": step[name] / 1e9 for name in step if name.endswith("_ns")}
        found.append(out)
    return found


def pushed(steps: list[dict[str, Any]], parts: int, packed: bool) -> Batch:
    """The steps by way of ``parts`` bodies; the sender's clock is this host's."""
    receiver = Receiver()
    feed = PushFeed(receiver)
    size = -(-len(steps) // parts)
    for first in range(0, len(steps), size):
        part = sent(steps[first : first + size])
        sent_s = (steps[-1]["output_ns"] + 1000) / 1e9
        content = body(sent_s=sent_s, facts=ENGINE_FACTS, steps=part, first_sequence=first + 1)
        data = msgspec.msgpack.encode(content) if packed else raw(content)
        answer = receiver.take(data, "application/msgpack" if packed else "application/json", sent_s, True)
        assert (answer.status, answer.content["refused"], answer.content["steps"]) == (200, [], len(part))
    (batch,) = feed.read()
    return batch


def same(ring: Batch, push: Batch) -> None:
    """Every column and every mask."""
    assert len(push.steps) == len(ring.steps)
    assert set(push.steps.columns) == set(ring.steps.columns)
    assert "context_tokens@w24" in push.steps.columns
    assert {name for name, _, _ in STEP_COLUMNS} - {"device_s", "distinct_experts"} <= set(push.steps.columns)
    for name, column in ring.steps.columns.items():
        if name in NOT_COMPARED:
            continue
        mask = ring.steps.where(name)
        assert push.steps.where(name).tolist() == mask.tolist(), name
        assert push.steps.columns[name].dtype == column.dtype, name
        np.testing.assert_allclose(push.steps.columns[name][mask], column[mask], rtol=0, atol=2e-9, err_msg=name)
    assert not push.steps.where("hook_s").any()
    assert (push.lost_steps, push.torn_steps, push.complaints) == (0, 0, ())


@settings(max_examples=80, deadline=None)
@given(made_steps(), st.integers(1, 4), st.booleans())
def test_a_pushed_run_has_the_columns_of_a_recorded_one(steps: list[dict[str, Any]], parts: int, packed: bool) -> None:
    with tempfile.TemporaryDirectory() as name:
        ring = recorded(steps, Path(name))
    same(ring, pushed(steps, parts, packed))


def test_every_fact_of_a_step_arrives() -> None:
    facts: dict[str, Any] = {name: 0.25 if name in DURATIONS else 7 for name in FACTS}
    facts |= {"invalid_draft_tokens": 1, "unjudged_draft_tokens": 2, "graph_mode": 3, "waiting": 5}
    step = {"contexts": [9, 30], "drafts": [4, 4], "rejected": [1, 0], "generated_tokens": 8, **facts}
    step |= {"submit_ns": 10**9, "output_ns": 2 * 10**9, "update_ns": 10**8}
    with tempfile.TemporaryDirectory() as name:
        ring = recorded([step], Path(name))
    batch = pushed([step], 1, packed=False)
    same(ring, batch)
    assert batch.steps["accepted_tokens"].tolist() == [8 - 1 - 2 - 0]
    assert batch.steps["summed_wait_s"].tolist() == [0.25]


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"contexts": [1], "queries": [1, 2]}, "2 queries for 1 contexts"),
        ({"contexts": [1], "queries": [0]}, "computes nothing"),
        ({"contexts": [1], "drafts": [1], "rejected": [2]}, "rejects some or all"),
        ({"contexts": [1], "prefill": [1]}, "outside the 1"),
        ({"contexts": [1], "running": -1}, "not a count"),
        ({"contexts": [1], "tokens": 1}, "no fact 'tokens'"),
        ({"contexts": [1], "generated_tokens": -1}, "not a count of tokens"),
        ({"contexts": [1], "invalid_draft_tokens": 1}, "more than there are"),
    ],
)
def test_what_the_recorder_refuses_is_refused_in_its_words(wrong: dict[str, Any], why: str) -> None:
    facts = {name: value for name, value in wrong.items() if name not in ("contexts", "queries", "prefill", "drafts")}
    rejected, generated = facts.pop("rejected", None), facts.pop("generated_tokens", None)
    with tempfile.TemporaryDirectory() as name:
        recorder = Recorder("made-up", folder=Path(name), strict=True)
        lengths = {name: wrong[name] for name in ("contexts", "queries", "prefill", "drafts") if name in wrong}
        with recorder.step(**lengths, **facts) as entered:
            entered.rejected, entered.generated_tokens = rejected, generated
        assert recorder.failures == 1
        recorder.close()
    receiver = Receiver()
    step = {"submit_s": 1.0, "output_s": 1.5, **wrong}
    answer = receiver.take(raw(body(sent_s=2.0, steps=[step])), "application/json", 2.0, True)
    (line,) = answer.content["refused"]
    assert why in line
    assert (answer.content["steps"], answer.content["lost_steps"], receiver.failures) == (0, 1, 1)
    json.dumps(answer.content)
