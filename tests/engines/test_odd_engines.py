"""Engines that leave out what others do: results without tokens, empty steps that are scheduled and never updated."""

from __future__ import annotations

import random
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from books import check, ring_of, some
from compare import differences, read_ring
from scenarios import POOLED, Scenario, drive
from scheduler_harness import Model, Scheduler, make_scheduler
from witness import Witness, identity_gap

from rooflens.adapters.vllm import patch
from rooflens.records import StepKind

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("hook")]
SPINS = 300


@pytest.mark.parametrize("scenario", POOLED, ids=lambda scenario: scenario.name)
def test_a_pooling_model_samples_nothing_and_its_aborted_requests_are_discarded(
    scenario: Scenario, rings: Path
) -> None:
    witness = drive(scenario)
    terms = witness.close()
    assert identity_gap(terms) == 0
    path = ring_of(witness, rings)
    assert differences(witness, path) == []
    steps = read_ring(path)[0].steps
    assert terms["prompt"] > 10000
    assert (terms["generated"], int(steps["generated_tokens"].sum())) == (0, 0)
    assert terms["discarded"] > 100, "some were aborted in flight"
    assert set(steps["kind"].tolist()) == {StepKind.POOL}
    assert int(steps["finished_requests"].sum()) == scenario.requests


def test_empty_steps_that_are_never_updated_do_not_pile_up(rings: Path) -> None:
    """Up to vLLM 0.10.0 a batch queue forgets them, for as long as all that it has waits for something."""
    from vllm.sampling_params import StructuredOutputsParams

    rng = random.Random(6)
    scheduler = make_scheduler(Scheduler)
    witness, model = Witness(scheduler), Model(scheduler, 6)
    capture = getattr(scheduler, patch.CAPTURE)
    (held,) = some(rng, 1, structured_outputs=StructuredOutputsParams(regex="a*"))
    grammar: Future[Any] = Future()
    held.structured_output_request.grammar = grammar
    scheduler.add_request(held)
    for _ in range(SPINS):
        assert scheduler.schedule().total_num_scheduled_tokens == 0
        assert len(capture.pending) < SPINS / 2
    for request in some(rng, 8, first=1):
        scheduler.add_request(request)
    while scheduler.requests.keys() != {held.request_id}:
        output = scheduler.schedule()
        model.scheduled(output)
        assert output.total_num_scheduled_tokens > 0
        scheduler.update_from_output(output, model.run(output))
        assert len(capture.pending) == 0, "the forgotten ones went with the first step that was updated"
    terms = check(witness, rings)
    assert terms["generated"] > 8
    assert terms["first_tokens"] == 8
