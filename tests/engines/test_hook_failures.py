"""The hook made to fail on purpose: the engine goes on, the fault is counted, and what comes later is exact again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from books import ring_of
from compare import read_ring
from scenarios import Scenario, drive
from witness import Witness

from rooflens.adapters.vllm import capture as capture_module
from rooflens.adapters.vllm import patch

pytestmark = pytest.mark.engine
LONG = Scenario("long prompts in chunks", asynchronous=False, depth=1, budget=96, sequences=64, requests=12)
DRAFTS = Scenario("drafts in flight", spec=3, requests=16)


def fail_at(monkeypatch: pytest.MonkeyPatch, method: str, calls: set[int]) -> None:
    """Let a method of the capture raise at these calls, counted from 1."""
    original, seen = getattr(capture_module.Capture, method), [0]

    def failing(self: Any, *args: Any) -> Any:
        seen[0] += 1
        if seen[0] in calls:
            raise RuntimeError("made to fail")
        return original(self, *args)

    monkeypatch.setattr(capture_module.Capture, method, failing)


def wrong_steps(witness: Witness, path: Path) -> list[str]:
    """Steps of the ring whose known lengths are not those of any step of the engine, in order."""
    batch, lengths, _ = read_ring(path)
    truth = [([row.before for row in rows], [row.query for row in rows]) for rows in witness.steps]
    wrong, at = [], 0
    for step in range(len(batch.steps)):
        found = lengths.get(step)
        if found is None:
            at += 1
            continue
        mine = (found.contexts.tolist(), found.queries.tolist())
        try:
            at = truth.index(mine, at) + 1
        except ValueError:
            wrong.append(f"step {step}: {mine}")
    return wrong


@pytest.mark.parametrize("scenario", [LONG, DRAFTS], ids=lambda scenario: scenario.name)
@pytest.mark.parametrize("method", ["scheduled", "before_update", "updated"])
def test_a_failure_costs_the_steps_in_flight_and_no_later_one(
    scenario: Scenario, method: str, rings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_at(monkeypatch, method, {5, 19})
    witness = drive(scenario)
    capture = getattr(witness.scheduler, patch.CAPTURE)
    assert capture.failures in (1, 2)  # before_update is not asked for a plain step
    capture.failures = 0
    path = ring_of(witness, rings)
    batch, _, doubted = read_ring(path)
    assert doubted == 0
    assert wrong_steps(witness, path) == []
    missed = len(witness.steps) - len(batch.steps)
    assert 1 <= missed <= 12
    tail = slice(-10, None)
    generated = [sum(1 for _ in rows) for rows in witness.steps][tail]
    if not scenario.spec:
        assert batch.steps["generated_tokens"][tail].tolist() == generated, "every request decodes at the end"


def test_a_hook_that_goes_on_failing_switches_itself_off(rings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_at(monkeypatch, "updated", set(range(10, 1000)))
    witness = drive(Scenario("failing", asynchronous=False, depth=1, requests=16))
    assert len(witness.steps) > 60, "the engine went on"
    assert getattr(witness.scheduler, patch.CAPTURE) is None
    (capture,) = patch.captures
    assert capture.failures == patch.MOST_FAILURES
    capture.ring.close()
    patch.captures.clear()
    (path,) = rings.glob("*.ring")
    batch, _, _ = read_ring(path)
    assert len(batch.steps) == 9
    assert [event.name for event in batch.events][-1] == "hook_off"
