from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rooflens.adapters.embedded.engine import Engine, Settings, recorder_for
from rooflens.adapters.embedded.faults import Faults, noisy_neighbours
from rooflens.adapters.embedded.load import Load, Phase
from rooflens.adapters.embedded.model import Model, Sequence, _norm, _rotate, _rotation
from rooflens.adapters.embedded.scheduler import Plan, Request
from rooflens.adapters.embedded.shape import CACHES, LEAST_BYTES, MOST_BYTES, SMALL, shape_for
from rooflens.adapters.recorder import Recorder
from rooflens.collector.lengths import Lengths
from rooflens.collector.ring_source import RingSource
from rooflens.records import RooflensError

SETTINGS = Settings(kv_blocks=64, block_tokens=4, max_sequences=4, max_batched_tokens=16)
PRECISE = np.float64  # so that another order of summing cannot change a token


def prompt(tokens: int, seed: int) -> list[int]:
    draw = random.Random(seed)
    return [draw.randrange(SMALL.vocab_size) for _ in range(tokens)]


def reference_logits(model: Model, tokens: list[int]) -> Any:
    """The last token's logits by full attention over the whole sequence: no cache, no blocks, one head at a time."""
    shape = model.shape
    x = model.embedding[tokens]
    rotation = _rotation(np.arange(len(tokens)), shape.head_dim, x.dtype)
    mask = np.tril(np.ones((len(tokens), len(tokens)), dtype=bool))
    for layer in model.layers:
        qkv = _norm(x) @ layer.qkv
        heads = qkv.reshape(len(tokens), shape.heads + 2 * shape.kv_heads, shape.head_dim)
        q = _rotate(heads[:, : shape.heads], rotation)
        k = _rotate(heads[:, shape.heads : shape.heads + shape.kv_heads], rotation)
        v = heads[:, shape.heads + shape.kv_heads :]
        mixed = []
        for head in range(shape.heads):
            group = head // (shape.heads // shape.kv_heads)
            scores = np.where(mask, q[:, head] @ k[:, group].T / shape.head_dim**0.5, -np.inf)
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            mixed.append(weights / weights.sum(axis=1, keepdims=True) @ v[:, group])
        x = x + np.concatenate(mixed, axis=1) @ layer.output
        gate, up = np.split(_norm(x) @ layer.gate_up, 2, axis=1)
        x = x + (gate / (1 + np.exp(-gate)) * up) @ layer.down
    return _norm(x[-1:]) @ model.head


def model() -> Model:
    return Model(SMALL, kv_blocks=32, block_tokens=4, dtype=PRECISE)


def test_paged_attention_equals_full_attention() -> None:
    decoder, tokens, other = model(), prompt(21, 1), prompt(9, 2)
    tables = ([17, 3, 30, 0, 9, 22], [5, 31, 1])
    logits = decoder.forward([Sequence(tokens, 0, tables[0]), Sequence(other, 0, tables[1])])
    expected = np.concatenate([reference_logits(decoder, tokens), reference_logits(decoder, other)])
    np.testing.assert_allclose(logits, expected, rtol=1e-9, atol=1e-9)
    step = decoder.forward([Sequence([7], 9, tables[1]), Sequence([8], 21, tables[0])])
    expected = np.concatenate([reference_logits(decoder, [*other, 7]), reference_logits(decoder, [*tokens, 8])])
    np.testing.assert_allclose(step, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("chunks", [[21], [1, 20], [4, 4, 13], [1] * 21, [7, 7, 7]])
def test_chunked_prefill_equals_whole_prefill(chunks: list[int]) -> None:
    decoder, tokens, table = model(), prompt(21, 3), [2, 9, 4, 11, 6, 13]
    done = 0
    for chunk in chunks:
        logits = decoder.forward([Sequence(tokens[done : done + chunk], done, table)])
        done += chunk
    np.testing.assert_allclose(logits, reference_logits(decoder, tokens), rtol=1e-9, atol=1e-9)


@pytest.fixture
def recorders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Recorder]]:
    monkeypatch.setenv("ROOFLENS_DIR", str(tmp_path / "rings"))
    made: list[Recorder] = []
    yield made
    for recorder in made:
        recorder.close()


def engine(recorders: list[Recorder], settings: Settings = SETTINGS, faults: Faults | None = None) -> Engine:
    recorders.append(recorder_for(SMALL, settings, 256, strict=True))
    return Engine(SMALL, settings, recorders[-1], faults, dtype=PRECISE)


def requests(count: int = 8) -> list[Request]:
    return [Request(prompt(5 + 7 * (n % 4), n), 6 + n) for n in range(count)]


def serve(machine: Engine, wanted: list[Request]) -> list[Plan]:
    for request in wanted:
        machine.add(request)
    plans = []
    while machine.busy:
        plans.append(machine.step())
    return plans


def test_a_preempted_request_gives_the_tokens_of_one_that_was_not(recorders: list[Recorder]) -> None:
    roomy, cramped = requests(), requests()
    serve(engine(recorders), roomy)
    plans = serve(engine(recorders, replace(SETTINGS, kv_blocks=14)), cramped)
    assert sum(plan.preempted for plan in plans) > 3
    assert [r.generated for r in cramped] == [r.generated for r in roomy]


def test_generated_tokens_are_those_of_greedy_decoding_without_a_batch(recorders: list[Recorder]) -> None:
    machine, wanted = engine(recorders), requests(3)
    serve(machine, wanted)
    for request in wanted:
        known = list(request.prompt)
        for token in request.generated:
            assert token == int(reference_logits(machine.model, known).argmax())
            known.append(token)


@pytest.mark.parametrize("kv_blocks", [64, 14])
def test_what_was_captured_is_what_the_engine_did(recorders: list[Recorder], kv_blocks: int) -> None:
    """Lengths row by row against the engine's own books, and the identity of query tokens term by term."""
    machine = engine(recorders, replace(SETTINGS, kv_blocks=kv_blocks))
    wanted = requests()
    for request in wanted:
        machine.add(request)
    books = []
    while machine.busy:
        before = {id(request): request.cached_tokens for request in wanted}
        plan = machine.step()
        kept = [before[id(request)] for request in plan.requests]
        books.append((kept, plan.queries, plan))
    assert recorders[0].path is not None
    seen: dict[int, Lengths] = {}
    source = RingSource(recorders[0].path)
    table = source.read(seen.__setitem__).steps
    assert len(table) == len(books) == machine.steps
    assert source.doubted_frames == 0
    for at, (contexts, queries, plan) in enumerate(books):
        assert seen[at].contexts.tolist() == contexts
        assert seen[at].queries.tolist() == queries
        assert seen[at].prefill_rows.tolist() == plan.prefill
        assert table["preempted"][at] == plan.preempted
    total = {name: int(table[name].sum()) for name in table.columns if table[name].dtype == np.int64}
    assert total["prompt_tokens"] == sum(len(r.prompt) for r in wanted)
    assert total["generated_tokens"] == sum(len(r.generated) for r in wanted)
    assert total["new_requests"] == len(wanted)
    assert (total["recomputed_tokens"] > 0) == (kv_blocks == 14)
    assert total["query_tokens"] == (
        total["prompt_tokens"] + total["generated_tokens"] - len(wanted) + total["recomputed_tokens"]
    )
    assert total["query_tokens"] == sum(sum(queries) for _, queries, _ in books)
    assert table["kv_blocks_used"].max() <= kv_blocks
    assert machine.pool.used == 0


def test_the_batch_cap_makes_a_queue(recorders: list[Recorder]) -> None:
    serve(engine(recorders, replace(SETTINGS, max_sequences=1)), requests())
    table = read(recorders[0])
    assert table["requests"].max() == 1
    assert table["waiting"].max() == 7
    assert table["oldest_wait_s"].max() > 0


def test_host_delay_is_scheduling_time_between_steps(recorders: list[Recorder]) -> None:
    serve(engine(recorders, faults=Faults(host_delay_s=0.01)), requests(2))
    table = read(recorders[0])
    assert table["schedule_s"].min() >= 0.01
    gaps = table["submit_monotonic_s"][1:] - table["output_monotonic_s"][:-1]
    assert gaps.min() >= 0.01


def test_host_delay_follows_the_step_before(recorders: list[Recorder]) -> None:
    serve(engine(recorders, faults=Faults(host_delay_steps=3.0)), requests(2))
    table = read(recorders[0])
    compute_s = table["observed_s"][:-1]
    assert (table["schedule_s"][1:] > 2.0 * compute_s).mean() > 0.8  # observed holds a little more than the pass


def test_a_stall_is_a_step_that_hangs(recorders: list[Recorder]) -> None:
    serve(engine(recorders, faults=Faults(stall_at_step=4, stall_s=0.4)), requests(2))
    observed = read(recorders[0])["observed_s"]
    assert observed.argmax() == 3
    assert observed[3] >= 0.4


def test_long_prompts_arrive_during_decode(recorders: list[Recorder]) -> None:
    machine = engine(recorders)
    phase = Phase("mixed", 30.0, 2, (4, 8), (30, 40), long_prompt_tokens=60, long_every_steps=8, least_steps=60)
    load = Load(machine, clock=count().__next__)  # a second a step
    load.run(phase, lambda _gone_s: None)
    assert machine.steps == 60
    assert load.drain(1000.0)
    table = read(recorders[0])
    assert 4 <= (table["prompt_tokens"] >= 60).sum() <= machine.steps / 8 + 1
    mixed = (table["prefill_requests"] > 0) & (table["prefill_requests"] < table["requests"])
    assert mixed.sum() >= 4
    assert table["query_tokens"].max() == SETTINGS.max_batched_tokens


def test_a_neighbour_streams_memory_while_it_is_there() -> None:
    used_s = time.process_time()
    with noisy_neighbours(1, size_bytes=1 << 20):
        time.sleep(0.2)
    assert time.process_time() - used_s > 0.02


@pytest.mark.parametrize("bad", [Request([], 3), Request([1], 0), Request([1] * 300, 3)])
def test_a_request_that_can_never_run_is_refused(recorders: list[Recorder], bad: Request) -> None:
    with pytest.raises(RooflensError):
        engine(recorders).add(bad)


@pytest.mark.parametrize("cache_mb", [1, 8, 16, 32, 64, 480])
def test_weights_are_several_caches_large_and_a_step_stays_short(cache_mb: int) -> None:
    shape, why_smaller = shape_for(cache_mb << 20, 64 << 30)
    assert why_smaller is None
    assert LEAST_BYTES <= 4 * shape.read_elements <= 1.1 * MOST_BYTES
    assert 4 * shape.read_elements >= min(CACHES * (cache_mb << 20), MOST_BYTES)
    assert shape.heads % shape.kv_heads == 0


def test_a_phase_lasts_until_it_has_its_steps_but_not_for_ever() -> None:
    phase = Phase("slow", 10.0, 1, (1, 1), (1, 1), least_steps=100)
    assert [phase.over(*at) for at in ((9, 500), (10, 100), (10, 99), (24, 99), (25, 99))] == [0, 1, 0, 0, 1]


def test_little_memory_makes_a_smaller_model_and_says_so() -> None:
    shape, why_smaller = shape_for(64 << 20, 300 << 20)
    assert 4 * shape.read_elements < 150e6
    assert why_smaller is not None
    assert "because only 315 MB of memory are available" in why_smaller


def read(recorder: Recorder) -> Any:
    assert recorder.path is not None
    return RingSource(recorder.path).read().steps
