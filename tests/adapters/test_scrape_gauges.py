"""Gauges that tell of a moment long ago: what may be concluded from them and what not."""

from __future__ import annotations

from engine_pages import RANKS, Told, sglang


def test_gauges_that_outlive_their_requests_are_no_stalled_engine() -> None:
    """SGLang sets its gauges with a batch, and every 30 s without one: requests that ended seem to run until then."""
    told = Told()
    told.at(0, sglang(0))
    still = {}
    for seconds in range(5, 55, 5):
        (batch,) = told.at(seconds, sglang(5))
        assert batch.progress is not None
        still[seconds] = batch.progress.still_s
    assert still[5] == 0
    assert {seconds: value for seconds, value in still.items() if value} == {45: 40, 50: 45}
    (batch,) = told.at(55, sglang(5, **{"sglang:num_running_reqs" + RANKS: 0}))
    assert batch.progress is not None
    assert batch.progress.still_s == 0
    front = 'trtllm_num_requests_running{model_name="m"} 3\ntrtllm_generation_tokens_total{model_name="m"} 90\n'
    told = Told()
    told.at(0, front)
    (batch,) = told.at(50, front)
    assert batch.progress is not None
    assert (batch.progress.still_s, batch.progress.idle_s) == (None, None), "of the last iteration, whenever that was"


def test_a_frontend_has_a_load_and_makes_no_step() -> None:
    """Its counts are of all workers together, and each worker's own page tells of them too."""
    label = '{model="m"}'
    told = Told()
    for seconds in (0, 5):
        text = f"dynamo_frontend_inflight_requests{label} 64\ndynamo_frontend_queued_requests{label} 3\n"
        text += f"dynamo_frontend_output_tokens_total{label} {3200 * seconds}\n"
        text += f"dynamo_frontend_inter_token_latency_seconds_sum{label} {64 * seconds}\n"
        text += f"dynamo_frontend_inter_token_latency_seconds_count{label} {3200 * seconds}\n"
        (batch,) = told.at(seconds, text)
        assert len(batch.steps) == 0
    assert batch.progress is not None
    assert batch.progress.load is not None
    assert (batch.progress.load.running, batch.progress.load.waiting) == (64, 3)
    assert batch.progress.still_s == 0
    assert told.page.problem is not None
    assert "DYN_SYSTEM_PORT" in told.page.problem
