"""vLLM's real API server on this CPU, hook installed by pip, no flag of ours: ring and server say the same."""

from __future__ import annotations

import pytest
import server_checks
from server_checks import DRAFTS, Run, observe

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One launch for all the tests of this file that can share it."""
    return observe(tmp_path_factory.mktemp("server"), *DRAFTS)


def test_every_iteration_is_there_in_order(run: Run) -> None:
    server_checks.check_every_iteration_is_there_in_order(run)
    assert len(run.logged()) == len(run.iterations()), "this release logs no empty turns"


def test_each_step_has_the_requests_and_tokens_of_the_iteration_log(run: Run) -> None:
    server_checks.check_each_step_has_the_requests_and_tokens_of_the_iteration_log(run)


def test_kv_blocks_agree_with_the_server_in_every_step(run: Run) -> None:
    server_checks.check_kv_blocks_agree_with_the_server_in_every_step(run)


def test_kv_blocks_agree_with_the_metrics_at_the_end(run: Run) -> None:
    server_checks.check_kv_blocks_agree_with_the_metrics_at_the_end(run)


def test_times_agree_with_the_iteration_log(run: Run) -> None:
    server_checks.check_times_agree_with_the_iteration_log(run)


def test_no_step_took_less_than_the_iteration_log_says(run: Run) -> None:
    server_checks.check_no_step_took_less_than_the_iteration_log_says(run)


def test_the_identity_is_exact_and_its_terms_are_the_servers(run: Run) -> None:
    server_checks.check_the_identity_is_exact_and_its_terms_are_the_servers(run)


def test_drafts_are_the_servers(run: Run) -> None:
    server_checks.check_drafts_are_the_servers(run)


def test_nothing_but_lengths_and_counts_is_in_the_ring(run: Run) -> None:
    server_checks.check_nothing_but_lengths_and_counts_is_in_the_ring(run)


def test_a_killed_engine_is_read_to_its_last_step(run: Run) -> None:
    server_checks.check_a_killed_engine_is_read_to_its_last_step(run)


def test_the_server_said_one_thing_about_us(run: Run) -> None:
    server_checks.check_the_server_said_one_thing_about_us(run)
