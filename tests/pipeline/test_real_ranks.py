"""Embedded engines that really run side by side, watched by a real Watch: one slow, one that waits for prompts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from rooflens.findings import Code, Finding, Status
from rooflens.group_records import GroupKind
from rooflens.live_records import Snapshot
from rooflens.pipeline.watch import Watch

MakeWatch = Callable[..., Watch]
STEADY = {"name": "steady", "seconds": 120, "concurrency": 4, "prompt_tokens": [4, 4], "output_tokens": [400, 400]}
PROMPTS = {**STEADY, "long_prompt_tokens": 120, "long_every_steps": 6, "long_output_tokens": 1}
PATIENCE_S = 90.0  # all of it only where something else takes the processors


@contextmanager
def rank(folder: Path, number: int, least_s: float, **more: Any) -> Iterator[subprocess.Popen[str]]:
    asked = {"folder": str(folder), "rank": number, "least_s": least_s, "token_s": 0.0, "phase": STEADY, **more}
    command = [sys.executable, "-P", str(Path(__file__).with_name("real_rank.py")), json.dumps(asked)]
    kept = asked.get("barrier") or ()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, pass_fds=kept) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().strip().endswith(".ring")
            yield process
        finally:
            process.kill()


def firing(snapshot: Snapshot) -> dict[str, Finding]:
    return {
        view.engine: finding
        for view in snapshot.engines
        for finding in view.findings
        if finding.code is Code.RANK_IMBALANCE and finding.status is Status.FIRING
    }


def watched(it: Watch, enough: Callable[[Snapshot], bool]) -> Snapshot:
    """Turns until it is enough; the last snapshot in any case."""
    until_s = time.monotonic() + PATIENCE_S
    while not enough(snapshot := it.turn()) and time.monotonic() < until_s:
        time.sleep(0.1)
    return snapshot


def with_windows(least: int) -> Callable[[Snapshot], bool]:
    return lambda snapshot: len(snapshot.engines) == 2 and all(len(view.windows) >= least for view in snapshot.engines)


def test_a_slowed_engine_of_two_is_found(watch: MakeWatch, folder: Path) -> None:
    with rank(folder, 0, 0.02), rank(folder, 1, 0.05):
        last = watched(watch(), lambda snapshot: bool(firing(snapshot)))
    found = firing(last)
    assert list(found) == ["1"]
    facts = {fact.name: fact.value for fact in found["1"].evidence}
    assert 1.5 < float(facts["times_its_peers"]) < 2.8
    assert [(view.group.kind, view.worst) for view in last.groups] == [(GroupKind.DATA_PARALLEL, "1")]


def test_twins_stay_silent(watch: MakeWatch, folder: Path) -> None:
    seen: list[str] = []
    with rank(folder, 0, 0.02), rank(folder, 1, 0.02):
        it = watch()

        def enough(snapshot: Snapshot) -> bool:
            seen.extend(firing(snapshot))
            return with_windows(6)(snapshot)

        last = watched(it, enough)
    assert with_windows(6)(last)
    assert seen == []


@pytest.fixture
def barrier() -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    (first_in, second_out), (second_in, first_out) = os.pipe(), os.pipe()
    yield (first_in, first_out), (second_in, second_out)
    for descriptor in (first_in, first_out, second_in, second_out):
        os.close(descriptor)


def test_a_decode_rank_in_lockstep_waits_for_prompts(
    watch: MakeWatch, folder: Path, barrier: tuple[tuple[int, int], tuple[int, int]]
) -> None:
    with ExitStack() as stack:
        stack.enter_context(rank(folder, 0, 0.008, barrier=barrier[0]))
        stack.enter_context(rank(folder, 1, 0.008, barrier=barrier[1], token_s=5e-4, phase=PROMPTS))
        last = watched(watch(), lambda snapshot: "0" in firing(snapshot))
    found = firing(last)["0"]
    facts = {fact.name: fact.value for fact in found.evidence}
    assert facts["most_prompts_of_engine"] == "1"
    assert float(facts["step_while_a_peer_prefills"]) > 2 * float(facts["step_otherwise"])
    assert "lockstep" in found.summary
    assert "1" not in firing(last)
