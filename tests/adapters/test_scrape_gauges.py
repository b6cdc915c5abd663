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
