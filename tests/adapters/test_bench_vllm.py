"""Results that vLLM 0.32.0 wrote: what it prints and what it saves of one run are one observation."""

from __future__ import annotations

from pathlib import Path

import pytest

from rooflens.adapters.bench.reading import read_results
from rooflens.observation_records import Observation

FOLDER = Path(__file__).resolve().parents[1] / "data" / "benchmarks" / "vllm-0.32.0-cpu"


def read(name: str) -> Observation:
    found = read_results(FOLDER / name)
    assert found.complaints == ()
    (one,) = found.observations
    assert one.complaints == ()
    assert one.unknown == ()
    return one


@pytest.mark.parametrize("name", ["serve_detailed", "serve_plain", "latency"])
def test_text_and_json_of_a_run_say_the_same(name: str) -> None:
    text, data = read(f"{name}.txt"), read(f"{name}.json")
    assert text.origin == data.origin
    assert text.client_side == data.client_side
    for field in ("requests", "duration_s", "concurrency", "request_rate_per_s", "generated_tokens", "prompt_tokens"):
        told, saved = getattr(text, field), getattr(data, field)
        assert (told is None) == (saved is None), field
        assert told is None or told == pytest.approx(saved, abs=0.006), field
    for field in ("ttft_s", "tpot_s", "itl_s", "e2e_s"):
        told, saved = getattr(text, field), getattr(data, field)
        assert set(told) <= set(saved)
        assert told == pytest.approx({key: saved[key] for key in told}, abs=1e-5), field


def test_a_run_of_three_at_a_time() -> None:
    seen = read("serve_detailed.json")
    assert (seen.origin, seen.engine, seen.concurrency) == ("vllm bench serve", "vllm", 3.0)
    assert (seen.prompt_tokens_mean, seen.generated_tokens_mean) == (32.0, 24.0)
    assert seen.itl_s  # a token a chunk: none is withheld
    assert seen.unix_s is not None


def test_the_peak_of_requests_counts_those_of_one_second() -> None:
    """It says 12 where 3 were allowed at a time: the limit is what counts."""
    assert "Peak concurrent requests:                12.00" in (FOLDER / "serve_detailed.txt").read_text()
    assert read("serve_detailed.txt").concurrency == 3.0


def test_throughput_tells_its_output_in_text_alone() -> None:
    text, data = read("throughput.txt"), read("throughput.json")
    assert text.generated_tokens_per_s == pytest.approx(735, rel=0.01)
    assert (data.generated_tokens_per_s, data.requests) == (None, 16)
    assert text.requests_per_s == pytest.approx(data.requests_per_s, abs=0.006)
