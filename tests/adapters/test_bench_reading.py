"""What cannot be in a result is complained about and the rest kept; nothing a file holds makes a reader fail."""

from __future__ import annotations

import gzip
import json
import math
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rooflens.adapters.bench import reading
from rooflens.adapters.bench.draft import model_name
from rooflens.adapters.bench.reading import looks_like, parse, read_results
from rooflens.observation_records import Observation
from rooflens.records import RooflensError

FILE = Path(__file__).resolve().parents[1] / "data" / "benchmarks" / "samples.toml"
TEXTS = [one["text"] for one in tomllib.loads(FILE.read_text(encoding="utf-8"))["sample"]]
# The shape of vllm/benchmarks/serve.py 0.32, made up figures.
SERVED: dict[str, Any] = {
    "date": "20260101-120000", "endpoint_type": "vllm", "backend": "vllm", "label": None, "model_id": "Qwen/Qwen3-8B",
    "tokenizer_id": "Qwen/Qwen3-8B", "num_prompts": 4, "request_rate": "inf", "burstiness": 1.0, "max_concurrency": 2,
    "duration": 10.0, "completed": 4, "failed": 1, "total_input_tokens": 400, "total_output_tokens": 40,
    "request_throughput": 0.4, "request_goodput": None, "output_throughput": 4.0, "total_token_throughput": 44.0,
    "max_output_tokens_per_s": 9.0, "max_concurrent_requests": 3, "rtfx": 0.0, "mean_ttft_ms": 50.0,
    "mean_tpot_ms": 20.0, "p99_tpot_ms": 30.0, "mean_itl_ms": 20.5, "p99.9_itl_ms": 60.0, "mean_e2el_ms": 230.0,
}  # fmt: skip


def only(text: str) -> Observation:
    (one,) = parse(text).observations
    return one


def served(**changes: Any) -> Observation:
    return only(json.dumps(SERVED | changes))


def test_a_result_of_vllm_is_read() -> None:
    seen = served()
    assert (seen.origin, seen.engine, seen.model_name) == ("vllm bench serve", "vllm", "Qwen/Qwen3-8B")
    assert (seen.requests, seen.failed_requests, seen.concurrency) == (4, 1, 2.0)
    assert seen.itl_s == {"mean": 0.0205, "p99.9": 0.06}
    assert seen.context_tokens == 105.0
    assert seen.request_rate_per_s is None
    assert any(reason.startswith("request rate") for reason in seen.withheld)
    assert not seen.complaints
    assert not seen.unknown


@pytest.mark.parametrize(
    ("field", "value", "lost"),
    [
        ("duration", 0, "duration_s"),
        ("duration", -3.0, "duration_s"),
        ("duration", math.nan, "duration_s"),
        ("completed", 3.5, "requests"),
        ("total_output_tokens", -40, "generated_tokens"),
        ("output_throughput", math.inf, "generated_tokens_per_s"),
        ("output_throughput", 1e30, "generated_tokens_per_s"),
    ],
)
def test_what_cannot_be_is_left_out_in_one_line(field: str, value: float, lost: str) -> None:
    seen = served(**{field: value})
    assert getattr(seen, lost) is None
    assert any(field in line and "left out" in line for line in seen.complaints)
    assert seen.ttft_s == {"mean": 0.05}


@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf, 0.0, -0.0])
def test_a_latency_that_cannot_be_is_left_out(value: float) -> None:
    seen = served(mean_tpot_ms=value)
    assert "mean" not in seen.tpot_s
    assert seen.tpot_s["p99"] == 0.03
    assert any("mean_tpot_ms" in line for line in seen.complaints), seen.complaints


def test_sums_that_contradict_rates_are_named() -> None:
    assert any("generated tokens in" in line for line in served(total_output_tokens=80).complaints)
    assert any("together" in line for line in served(input_throughput=10.0, total_token_throughput=44.0).complaints)
    assert any("p50 is above p99" in line for line in served(median_tpot_ms=40.0).complaints)


def test_rounding_is_no_contradiction() -> None:
    text = "Successful requests: 100\nBenchmark duration (s): 393.02\nRequest throughput (req/s): 0.25\n"
    assert not only(text).complaints


def test_gaps_of_chunks_are_not_gaps_of_tokens() -> None:
    detailed = served(output_lens=[10, 10], itls=[[0.1] * 3, [0.1] * 3])
    assert not detailed.itl_s
    assert any("3 tokens each" in reason for reason in detailed.withheld)
    assert served(output_lens=[10], itls=[[0.02] * 9]).itl_s
    assert not served(mean_itl_ms=60.0).itl_s
    drafted = served(spec_decode_acceptance_length=2.5)
    assert (drafted.acceptance_length, dict(drafted.itl_s)) == (2.5, {})


def test_an_unknown_label_is_named_and_its_value_is_not() -> None:
    assert served(flux_capacity="/srv/secret").unknown == ("flux_capacity",)
    block = "============ Serving Benchmark Result ============\nSuccessful requests: 3\nFlux (GW): 1.21\n"
    assert only(block).unknown == ("Flux (GW)",)


def test_several_results_of_one_file(tmp_path: Path) -> None:
    file = tmp_path / "sweep.jsonl"
    lines = [json.dumps(SERVED | {"max_concurrency": n}) for n in (1, 2, 4)]
    file.write_text("\n".join([lines[0], "{broken", *lines[1:]]))
    found = read_results(file)
    assert [one.concurrency for one in found.observations] == [1.0, 2.0, 4.0]
    assert len(found.complaints) == 1
    assert "line 2" in found.complaints[0]


def test_packed_files_and_those_of_other_shells(tmp_path: Path) -> None:
    for name, content in {
        "a": gzip.compress(json.dumps(SERVED).encode()),
        "b": json.dumps(SERVED).encode("utf-16"),
        "c": b"\xef\xbb\xbf" + json.dumps(SERVED).encode(),
    }.items():
        (tmp_path / name).write_bytes(content)
        assert read_results(tmp_path / name).observations[0].requests == 4


@pytest.mark.parametrize("content", [b"", b"\x1f\x8b\x08nothing", b"hello: world\n", b"{}", b"[" * 100_000])
def test_a_file_without_results_is_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(RooflensError) as caught:
        read_results(tmp_path / "x")
    assert "\n" not in str(caught.value)


def test_a_bomb_is_not_unpacked_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MOST_BYTES", 1 << 20)
    (tmp_path / "x.gz").write_bytes(gzip.compress(b" " * (4 << 20)))
    with pytest.raises(RooflensError, match="larger than 1 MiB"):
        read_results(tmp_path / "x.gz")


def test_no_path_is_kept() -> None:
    assert model_name("Qwen/Qwen3-8B") == "Qwen/Qwen3-8B"
    assert model_name("/srv/models/Llama-3.1-8B-Instruct/") == "Llama-3.1-8B-Instruct"
    assert model_name("C:\\models\\a.gguf") == "a.gguf"
    assert model_name("/srv/cache/huggingface/hub/models--Qwen--Qwen3-8B/snapshots/abc") == "Qwen/Qwen3-8B"
    assert "/srv" not in repr(served(model_id="/srv/x", tokenizer_id="/srv/y", generated_texts=["/srv"]))


# Shapes of the JSON of aiperf, guidellm, inference-perf and trtllm-bench as they write them; the figures are made up.
PROFILE = {
    "aiperf_version": "0.4.0",
    "input_config": {"endpoint": {"model_names": ["Qwen/Qwen3-0.6B"]}, "loadgen": {"concurrency": 8}},
    "start_time": "2026-01-01T00:00:00", "end_time": "2026-01-01T00:00:10",
    "request_count": {"unit": "requests", "avg": 20.0},
    "request_throughput": {"unit": "requests/sec", "avg": 2.0},
    "output_token_throughput": {"unit": "tokens/sec", "avg": 200.0},
    "time_to_first_token": {"unit": "ms", "avg": 100.0, "p50": 90.0, "std": 4.0},
    "inter_token_latency": {"unit": "ms", "avg": 20.0, "p99": 25.0},
    "inter_chunk_latency": {"unit": "ms", "avg": 40.0},
    "input_sequence_length": {"unit": "tokens", "avg": 500.0},
    "output_sequence_length": {"unit": "tokens", "avg": 100.0},
}  # fmt: skip
GUIDE = {
    "args": {"model": "Qwen/Qwen3-8B"},
    "benchmarks": [
        {"duration": 10.0, "config": {"strategy": {"type_": "concurrent", "streams": 8}},
         "metrics": {
             "request_totals": {"successful": 20, "errored": 1, "incomplete": 2},
             "output_tokens_per_second": {"successful": {"mean": 200.0}},
             "inter_token_latency_ms": {"successful": {"mean": 20.0, "median": 19.0, "percentiles": {"p99": 25.0}}},
             "time_per_output_token_ms": {"successful": {"mean": 22.0}},
             "prompt_token_count": {"successful": {"mean": 500.0}},
             "output_token_count": {"successful": {"mean": 100.0}}}},
    ],
}  # fmt: skip
INFERENCE = {
    "load_summary": {"count": 20, "requested_rate": 2.0},
    "successes": {
        "count": 20,
        "latency": {"time_per_output_token": {"mean": 0.02, "p99": 0.025},
                    "normalized_time_per_output_token": {"mean": 0.03}},
        "throughput": {"output_tokens_per_sec": 200.0, "total_tokens_per_sec": 1200.0, "requests_per_sec": 2.0},
        "prompt_len": {"mean": 500.0}, "output_len": {"mean": 100.0}},
    "failures": {"count": 1},
}  # fmt: skip
REPORT = {
    "engine": {"model": "meta-llama/Llama-3.1-8B", "version": "1.1.0", "quantization": "FP8", "kv_cache_dtype": "FP8"},
    "machine": {"name": "NVIDIA H100 80GB HBM3", "memory.total": 79.1},
    "world_info": {"tp_size": 2, "pp_size": 1, "world_size": 2},
    "request_info": {"num_requests": 20, "avg_num_concurrent_requests": 8.0, "avg_input_length": 500.0,
                     "avg_output_length": 100.0},
    "performance": {"total_latency_ms": 10000.0, "request_throughput_req_s": 2.0,
                    "system_output_throughput_tok_s": 200.0, "system_total_throughput_tok_s": 1200.0},
    "streaming_metrics": {"avg_tpot_ms": 20.0, "tpot_percentiles": {"p99": 25.0, "minimum": 10.0}},
    "dataset": {},
}  # fmt: skip


@pytest.mark.parametrize("data", [PROFILE, GUIDE, INFERENCE, REPORT], ids=["aiperf", "guidellm", "inference", "trtllm"])
def test_the_same_run_in_the_json_of_every_tool(data: dict[str, Any]) -> None:
    assert looks_like(json.dumps(data))
    seen = only(json.dumps(data, indent=2))
    assert (seen.requests, seen.generated_tokens_per_s) == (20, 200.0)
    assert (seen.tpot_s["mean"], seen.tpot_s["p99"]) == pytest.approx((0.02, 0.025))
    assert seen.context_tokens == 550.0
    assert not seen.complaints
    assert not seen.unknown
    assert seen.client_side is (data is not REPORT)


def test_a_time_that_holds_the_first_token_is_withheld() -> None:
    assert any("first token" in reason for reason in only(json.dumps(GUIDE)).withheld)
    assert any("first token" in reason for reason in only(json.dumps(INFERENCE)).withheld)


def test_what_a_server_of_sglang_said_of_itself_is_kept() -> None:
    data = {k: v for k, v in SERVED.items() if k not in ("model_id", "endpoint_type", "label", "date")}
    info = {"model_path": "/models/Qwen2.5-32B-Instruct", "tp_size": 2, "version": "0.5.9", "kv_cache_dtype": "auto"}
    seen = only(json.dumps(data | {"backend": "sglang", "server_info": info, "total_output_tokens_retokenized": 40}))
    assert (seen.origin, seen.model_name, seen.tensor_parallel) == ("sglang bench_serving", "Qwen2.5-32B-Instruct", 2)
    assert (seen.engine_version, seen.kv_dtype) == ("0.5.9", None)


@given(st.text(max_size=400))
def test_no_text_makes_it_fail(text: str) -> None:
    looks_like(text)
    parse(text)


@settings(max_examples=300)
@given(st.sampled_from(TEXTS), st.data())
def test_no_damage_to_a_result_makes_it_fail(text: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 60)))
    middle = data.draw(st.text(max_size=20) | st.sampled_from(["nan", "-", "1e999", "|", "\n", '"', "{", "'", "-nan"]))
    for one in parse(text[:start] + middle + text[end:]).observations:
        check(one)


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
SHAPES: list[dict[str, Any]] = [SERVED, PROFILE, GUIDE, INFERENCE, REPORT]


@settings(max_examples=300)
@given(st.sampled_from(SHAPES), st.data())
def test_no_value_in_a_result_makes_it_fail(shape: dict[str, Any], data: st.DataObject) -> None:
    changed = json.loads(json.dumps(shape))
    place = changed
    while True:
        key = data.draw(st.sampled_from(sorted(place)))
        inner = place[key]
        if not isinstance(inner, dict) or not inner or data.draw(st.booleans()):
            place[key] = data.draw(JSON)
            break
        place = inner
    for one in parse(json.dumps(changed)).observations:
        check(one)


HOSTILE = {
    "brackets": "[" * 300_000,
    "braces": '{"a":' * 100_000,
    "blank lines": "\n" * 250_000,
    "blanks": "|" + " " * 250_000 + "x",
    "bars": "|" * 250_000 + "x",
    "a label without end": "A" + " " * 250_000,
    "labels": "Abcdef " * 40_000 + ":",
    "quotes": "INSERT INTO llama_bench (a) VALUES (" + "'" * 250_001,
    "rules": "=" * 250_000 + " Serving",
    "broken lines": '{"completed": "duration\n' * 20_000,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_text_takes_no_more_calls_than_it_has_lines(text: str) -> None:
    """Each pattern is bounded: a quarter of a million characters that fit none are read in a moment."""
    looks_like(text)
    assert parse(text).observations == ()


def check(one: Observation) -> None:
    """Every figure is finite and not below zero, every remark one short line."""
    numbers = [getattr(one, name) for name in Observation.__slots__]
    assert all(math.isfinite(n) and n >= 0 for n in numbers if isinstance(n, int | float))
    for times in (one.ttft_s, one.tpot_s, one.itl_s, one.e2e_s):
        assert all(math.isfinite(n) and n >= 0 for n in times.values())
    remarks = (*one.withheld, *one.unknown, *one.complaints)
    assert all(len(text) < 400 and "\n" not in text for text in remarks)
    assert len(remarks) <= 3 * 30


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(SERVED)[1:-1],
        json.dumps(SERVED | {"itls": [[0.1] * 9] * 9})[:-80],
        json.dumps(SERVED)[:-1] + ', "itls": [..., ...]}',
        repr(SERVED),
    ],
    ids=["without braces", "cut off", "shortened by hand", "as Python prints it"],
)
def test_what_is_there_of_a_result_is_read(text: str) -> None:
    found = parse(text)
    (seen,) = found.observations
    assert (seen.requests, seen.generated_tokens, seen.tpot_s["mean"]) == (4, 40, 0.02)
    assert found.complaints == ("no whole JSON: its figures are read one by one",)
    assert looks_like(text)
