"""TensorRT-LLM's statistics as JSON: one object, a list of them, in a log line; wrong in every way."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from line_samples import read, samples

from rooflens.adapters.logs.names import declared
from rooflens.adapters.logs.trtllm_stats import KEYS, MOST_RECORDS, stats_record
from rooflens.log_records import RecordKind

(FIRST,) = (sample.lines[0] for sample in samples() if sample.name == "TR-02")
DATA = json.loads(FIRST)
# NVIDIA/TensorRT-LLM, pull request 14127.
OVERLAP = json.loads(
    '{"iter":12,"iterLatencyMS":26.4,"hostStepTimeMS":13.1,"prevDeviceStepTimeMS":12.7,"numActiveRequests":4,'
    '"inflightBatchingStats":{"numContextRequests":0,"numCtxTokens":0,"numGenRequests":4,"numScheduledRequests":4},'
    '"schedulerMode":"overlap","timestamp":"05-14-2026 16:54:34.140189"}'
)


def test_the_first_record_has_no_time() -> None:
    """iterLatencyMS is 0.0 in it: a rate over it would be infinite."""
    record = stats_record(DATA)
    assert record.kind is RecordKind.ITERATION
    assert "iteration_s" not in record.values
    assert stats_record({**DATA, "iterLatencyMS": 2104.673455}).values["iteration_s"] == 2.104673455


def test_a_list_of_steps_is_that_many_records() -> None:
    lines = (json.dumps([{**DATA, "iter": index} for index in range(5)]),)
    assert [record.values["iteration"] for record in read(lines)] == [0, 1, 2, 3, 4]
    most = json.dumps([{"iterLatencyMS": 1.0, "iter": index} for index in range(1000)])
    assert len(read((most,))) <= MOST_RECORDS


def test_the_latency_of_drafting_is_not_the_step_s() -> None:
    data = {"iter": 3, "specDecodingStats": {"iterLatencyMS": 4.0, "numDraftTokens": 9, "acceptanceLength": 2.5},
            "iterLatencyMS": 10.0}  # fmt: skip
    record = stats_record(data)
    assert record.values["iteration_s"] == 0.01
    assert record.values["drafted_tokens"] == 9
    assert record.values["acceptance_length"] == 2.5
    assert "iteration_s" not in stats_record({"specDecodingStats": data["specDecodingStats"]}).values


@pytest.mark.parametrize("backwards", [False, True])
def test_the_host_s_time_of_a_step_wins_over_a_latency_of_two_loops(backwards: bool) -> None:
    data = dict(reversed(OVERLAP.items())) if backwards else OVERLAP
    record = stats_record(data)
    assert record.values["iteration_s"] == pytest.approx(0.0131)
    assert record.values["previous_device_s"] == pytest.approx(0.0127)
    assert record.unknown == ()


def test_under_overlap_a_latency_alone_is_no_time_of_a_step() -> None:
    alone = {key: value for key, value in OVERLAP.items() if key != "hostStepTimeMS"}
    assert "iteration_s" not in stats_record(alone).values
    assert "iteration_s" not in stats_record({"hostStepTimeMS": 0.0, **alone}).values
    plain = {**alone, "schedulerMode": "non_overlap"}
    assert stats_record({"hostStepTimeMS": 0.0, **plain}).values["iteration_s"] == pytest.approx(0.0264)


def test_a_text_under_a_key_that_is_not_known_is_named() -> None:
    assert stats_record({**OVERLAP, "novelMode": "x"}).unknown == ("novelMode",)


def test_ranks_of_attention_parallelism_and_keys_of_a_version_to_come() -> None:
    record = stats_record({"iter": 1, "attentionDpRank": 3, "inflightBatchingStats": {"numNovelThings": 4}, "novel": 1})
    assert record.ranks == {"dp": 3}
    assert record.unknown == ("numNovelThings", "novel")


def test_requests_are_not_read() -> None:
    record = stats_record({"iter": 1, "requestStats": [{"id": 7, "prompt": "x"}]})
    assert record.values == {"iteration": 1.0}


def test_every_key_has_a_declared_name() -> None:
    assert [name for name, _ in KEYS.values() if name and not declared(name)] == []


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*KEYS, "kvCacheStats", "x"]), inner),
    max_leaves=20,
)


@given(
    st.dictionaries(st.sampled_from([*KEYS, "inflightBatchingStats", "timestamp", "attentionDpRank", "y"]), json_values)
)
def test_nothing_raises_and_everything_is_finite(data: dict[str, object]) -> None:
    record = stats_record(data)
    assert all(abs(value) < 1e19 for value in record.values.values())
    assert all(isinstance(rank, int) for rank in record.ranks.values())
