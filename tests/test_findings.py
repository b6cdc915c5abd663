"""The vocabulary of findings is closed, complete and says something."""

from __future__ import annotations

import json

import pytest

from rooflens.findings import FINDINGS, Code, Evidence, Finding, Price, Severity, Status, lookup

# The closed vocabulary, written out a second time on purpose: adding or renaming a code breaks dashboards and alerts.
CODES = [
    "engine_stalled",
    "memory_bound_waste",
    "host_overhead",
    "communication_bound",
    "kv_pressure",
    "kv_waste",
    "missed_batching",
    "speculation_missed",
    "speculation_harmful",
    "speculation_depth",
    "prefill_interference",
    "disaggregation",
    "long_context",
    "moe_expert_reads",
    "quantization",
    "prefix_cache",
    "throttling",
    "rank_imbalance",
    "underutilized",
    "configuration",
    "drift",
    "measurement_invalid",
    "insufficient_input",
]

FIRING = Finding(
    Code.KV_PRESSURE,
    Severity.WARNING,
    Status.FIRING,
    "12 requests wait while the KV cache is full",
    instance="host-1",
    evidence=(Evidence("kv_used_ratio", 0.99, "1"), Evidence("preempted", 4)),
    price=Price(saved_s=1.5, judged_s=10.0, saved_low_s=1.0, saved_high_s=2.0, derivation="recomputed steps"),
    confidence=0.9,
    remedy="--kv-cache-dtype fp8",
    since_unix_s=1.75e9,
)


def test_the_vocabulary_is_exactly_this() -> None:
    assert [str(code) for code in FINDINGS] == CODES


@pytest.mark.parametrize("code", Code)
def test_every_text_says_something(code: Code) -> None:
    entry = FINDINGS[code]
    assert 15 < len(entry.title) < 80
    assert not entry.title.endswith(".")
    for text in (entry.meaning, entry.decided, entry.remedy, entry.wrong_when):
        assert len(text) > 40
        assert text.endswith(".")
    assert set(entry.flags) == {"vllm", "sglang"}
    assert entry.runbook == f"docs/findings.md#{code}"


def test_titles_and_meanings_differ() -> None:
    assert len({entry.title for entry in FINDINGS.values()}) == len(FINDINGS)
    assert len({entry.meaning for entry in FINDINGS.values()}) == len(FINDINGS)


def test_the_table_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        FINDINGS[Code.DRIFT] = FINDINGS[Code.KV_WASTE]  # type: ignore[index]
    with pytest.raises(AttributeError):
        FINDINGS[Code.DRIFT].title = "x"  # type: ignore[misc]


@pytest.mark.parametrize(
    "finding",
    [
        FIRING,
        Finding(Code.DRIFT, Severity.INFO, Status.CLEARED, "back to the baseline", until_unix_s=1.75e9),
        Finding(Code.THROTTLING, Severity.INFO, Status.CANNOT_TELL, "no clocks", missing=("device counters",)),
    ],
)
def test_a_finding_survives_json(finding: Finding) -> None:
    data = json.loads(json.dumps(finding.to_json()))
    assert data["runbook"] == finding.runbook
    assert None not in data.values()
    assert Finding.from_json(data) == finding


def test_json_of_a_newer_writer_is_read() -> None:
    assert Finding.from_json({**FIRING.to_json(), "mood": "hopeful"}) == FIRING


def test_cannot_tell_names_what_is_missing() -> None:
    with pytest.raises(ValueError, match="must name what is missing"):
        Finding(Code.DRIFT, Severity.INFO, Status.CANNOT_TELL, "no baseline")


@pytest.mark.parametrize("confidence", [-0.1, 1.1, float("nan")])
def test_confidence_is_a_probability(confidence: float) -> None:
    with pytest.raises(ValueError, match="not a probability"):
        Finding(Code.DRIFT, Severity.INFO, Status.FIRING, "slower", confidence=confidence)


def test_an_unknown_code_names_the_known_ones() -> None:
    assert lookup("drift").code is Code.DRIFT
    with pytest.raises(KeyError, match=r"no finding is called 'slow'.*kv_pressure"):
        lookup("slow")
