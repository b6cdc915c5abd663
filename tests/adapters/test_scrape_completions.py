"""MET-05: tokens that are counted when a request ends make a rate over several lifetimes, and one that says so."""

from __future__ import annotations

import pytest
from engine_pages import Told, sglang

from rooflens.live_records import Derived
from rooflens.protocols import Batch

NAME = "completed_tokens_per_s"


def tgi(ended: int, passes: float) -> str:
    """Sixteen requests of 800 tokens at a time, 40 s each."""
    told = {
        "tgi_batch_current_size": 16, "tgi_queue_size": 0,
        'tgi_batch_forward_duration_sum{method="decode"}': 0.04 * passes,
        'tgi_batch_forward_duration_count{method="decode"}': passes,
        "tgi_request_generated_tokens_sum": 800 * ended, "tgi_request_generated_tokens_count": ended,
        "tgi_request_duration_sum": 40 * ended, "tgi_request_duration_count": ended,
    }  # fmt: skip
    return "".join(f"{name} {value}\n" for name, value in told.items())


def rate(batch: Batch) -> Derived | None:
    return next((value for value in batch.derived if value.name == NAME), None)


def test_a_rate_of_what_ended_waits_for_four_lifetimes_and_says_so() -> None:
    told, rates = Told(), {}
    for seconds in range(0, 405, 5):
        ended = 16 * (1 + seconds // 40)  # all sixteen end at once
        (batch,) = told.at(seconds, tgi(ended, 20 * seconds))
        if (found := rate(batch)) is not None:
            rates[seconds] = found
    assert min(rates) == 160
    assert [found.value for found in rates.values()] == pytest.approx([16 * 800 * 4 / 160] * len(rates)), "every 40 s"
    words = rates[400].derivation
    assert words.startswith("completion-weighted")
    assert "160 s, 4 lifetimes of a request" in words
    assert rates[400].unit == "1/s"


def test_a_rate_of_the_moment_needs_none() -> None:
    told = Told()
    completed = {'sglang:generation_tokens_total{model_name="q",is_streaming="true"}': 0.0}
    for seconds in range(0, 120, 5):
        (batch,) = told.at(seconds, sglang(seconds, **completed))
        assert rate(batch) is None


def test_what_was_counted_before_a_restart_is_no_part_of_it() -> None:
    told = Told()
    for seconds in range(0, 200, 5):
        (batch,) = told.at(seconds, tgi(16 * (1 + seconds // 40), 20 * seconds))
    assert rate(batch) is not None
    for seconds in (200, 205):
        batch = told.at(seconds, tgi(0, 20 * (seconds - 199)))[-1]
        assert rate(batch) is None


def test_a_window_is_bounded_in_what_it_keeps() -> None:
    told = Told()
    for seconds in range(2000):
        told.at(float(seconds), tgi(seconds // 40, 20.0 * seconds))
    (follower,) = told.page._followers.values()
    assert len(follower._completions._past) < 300
