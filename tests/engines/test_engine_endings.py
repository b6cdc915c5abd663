"""A core that is told to end between two steps closes its ring; one that fails, or is in a step, does not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from core_harness import make_core, run_core
from scenarios import Scenario, drive
from scheduler_harness import make_request
from vllm.v1.engine.core import EngineCore

from rooflens.adapters.vllm import core, patch
from rooflens.cli.report import ending_text
from rooflens.pipeline import LIVE, read_ring

pytestmark = pytest.mark.engine


def ended_by(error: BaseException | None, end: Callable[[], None]) -> None:
    """As run_engine_core does: the core is shut down while what ended its loop is under way."""
    try:
        if error is not None:
            raise error
    except BaseException:
        end()
    else:
        end()


@pytest.mark.parametrize(
    ("error", "said"),
    [(None, "ended in order"), (SystemExit(), "ended in order"), (RuntimeError("fatal"), LIVE)],
)
def test_what_ended_it_is_told(hook: None, rings: Path, error: BaseException | None, said: str) -> None:
    assert hasattr(EngineCore.shutdown, patch.WRAPPED)
    scheduler = drive(Scenario("any", requests=8)).scheduler
    made = make_core(scheduler, 1)
    run_core(made, {0: [make_request(100, list(range(20, 40)), 3)]})
    capture = getattr(scheduler, patch.CAPTURE)
    ended_by(error, lambda: core._shutdown(lambda _self: None)(made))
    (path,) = rings.glob("*.ring")
    assert (capture in patch.captures) == (said == LIVE)
    assert ending_text(read_ring(path)) == said


def test_in_the_middle_of_a_step_it_stays_open(hook: None, rings: Path) -> None:
    scheduler: Any = drive(Scenario("any", requests=8)).scheduler
    scheduler.add_request(make_request(100, list(range(20, 40)), 3))
    assert scheduler.schedule().total_num_scheduled_tokens
    made = make_core(scheduler, 1)
    ended_by(SystemExit(), lambda: core._shutdown(lambda _self: None)(made))
    assert [capture.scheduler for capture in patch.captures] == [scheduler]
