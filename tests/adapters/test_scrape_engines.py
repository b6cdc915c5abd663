"""Pages of every engine: recognised by itself, what their values mean, and what happens between two of them."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from engine_pages import Told, column, sglang
from scrape_pages import PAGES

from rooflens.adapters.scrape.names import ENGINES, names_of, wanted_names
from rooflens.adapters.scrape.recognised import SPOKEN, read_page
from rooflens.live_records import State
from rooflens.records import StepKind

SAMPLES = {each["id"]: each for each in tomllib.loads((PAGES / "samples.toml").read_text("utf-8"))["sample"]}
LLAMA_CPP = Path(__file__).parents[1] / "data" / "llamacpp"


def values(text: str) -> tuple[str | None, dict[tuple[str, str], dict[str, float]]]:
    """Whose page it is, and what each engine on it says, by model and rank."""
    found = read_page(text, 1e9, 0.0)
    return found.engine, {key: dict(reading.values) for key, reading in found.reading.engines.items()}


READ: dict[str, tuple[str, dict[tuple[str, str], dict[str, float]]]] = {
    "VM-01": ("vllm", {("facebook/opt-125m", "0"): {"generation_rate": 0.0}}),
    "VM-02": ("vllm", {}),
    "VM-03": ("vllm", {("Qwen/Qwen2.5-Coder-32B-Instruct", "0"): {"running": 0.0}}),
    "VM-04": ("vllm", {}),
    "SM-01": ("sglang", {("google/gemma-2-9b-it", "0"): {"running": 0.0}}),
    "SM-02": (
        "sglang",
        {("<path>/Meta-Llama-3-8B-Instruct", "0"): {"running": 0.0, "kv_used_tokens": 0.0, "kv_used": 0.0}},
    ),
    "SM-03": ("sglang", {("deepseek-r1", "5"): {"retracted": 0.0}}),
    "LC-03": (
        "llama.cpp",
        {
            ("", "0"): {
                "computed_prompt_tokens": 143.0,
                "completed_tokens": 673.0,
                "completed_generation": 29.567,
                "completed_prompt": 8.168,
            }
        },
    ),
    "TG-01": ("tgi", {("", "0"): {"running": 0.0, "waiting": 0.0}}),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_a_published_page_is_read_as_what_it_is(name: str) -> None:
    assert SAMPLES[name]["provenance"]
    if name == "TR-06":
        return  # a bucket alone, of which nothing is read: below
    engine, found = values(SAMPLES[name]["text"])
    assert (engine, found) == READ[name]


def test_a_first_tensorrt_llm_without_a_prefix_is_known_by_its_labels() -> None:
    bucket = SAMPLES["TR-06"]["text"]
    assert values(bucket) == (None, {})
    labels = '{engine_type="undefined",model_name="undefined"}'
    whole = f"{bucket}time_to_first_token_seconds_sum{labels} 3.5\ntime_to_first_token_seconds_count{labels} 2.0\n"
    assert values(whole) == (
        "tensorrt-llm", {("undefined", "0"): {"first_token_sum": 3.5, "first_token_count": 2.0}}
    )  # fmt: skip
    assert values("time_to_first_token_seconds_count 2.0\n")[1] == {}, "anybody's"


def test_every_table_is_whole() -> None:
    for engine in ENGINES:
        names = names_of(engine)
        assert names.engine == engine
        assert engine in SPOKEN
        keys = {meaning.key for meanings in names.meanings.values() for meaning in meanings}
        assert names.counters <= keys
        assert set(names.most) == keys
    assert {name for name in wanted_names() if "estimated" in name or "cache_hit_rate" in name} == set()


def test_an_engine_behind_a_frontend_is_read_and_not_the_frontend() -> None:
    front = 'dynamo_frontend_inflight_requests{model="m"} 4\n'
    assert values(front) == ("dynamo", {("m", "0"): {"running": 4.0}})
    both = front + 'vllm:num_requests_running{engine="0",model_name="m"} 3\n'
    assert values(both) == ("vllm", {("m", "0"): {"running": 3.0}})


def test_sglang_steps_are_the_passes_that_it_counts() -> None:
    told = Told()
    told.at(0, sglang(0))
    (batch,) = told.at(5, sglang(5))
    assert (column(batch, "resolution_steps"), column(batch, "requests")) == (250, 2000)
    assert column(batch, "kind") == StepKind.DECODE
    assert column(batch, "generated_tokens") == 2000
    assert column(batch, "observed_s") == pytest.approx(5.0)
    assert column(batch, "context_tokens") == 250 * 64_000, "the engine's own sum, not what the pool holds"
    assert column(batch, "kv_blocks_used") == 4096
    info = batch.info
    assert info is not None
    assert (info.engine, info.model_name, info.kv_blocks, info.block_tokens) == ("sglang", "q", 16_384, 16)


def test_sglang_with_drafts_has_fewer_rows_than_tokens() -> None:
    told = Told()
    length = 'sglang:spec_accept_length{model_name="q",tp_rank="0"}'
    tokens = 'sglang:inter_token_latency_seconds_count{model_name="q",is_streaming="true"}'
    told.at(0, sglang(0, **{length: 2.0}))
    (batch,) = told.at(5, sglang(5, **{length: 2.0, tokens: 4000}))
    assert (column(batch, "requests"), column(batch, "generated_tokens")) == (2000, 4000)
    assert column(batch, "observed_s") == pytest.approx(5.0)
    assert column(batch, "kind") == StepKind.VERIFY


def test_the_prefix_with_an_underscore_is_the_same() -> None:
    """MET-10: both spellings."""
    told = Told()
    told.at(0, sglang(0).replace("sglang:", "sglang_"))
    (batch,) = told.at(5, sglang(5).replace("sglang:", "sglang_"))
    assert column(batch, "resolution_steps") == 250


def test_ranks_that_say_the_same_are_one_engine_and_data_parallel_ones_are_several() -> None:
    tensor = "".join(f'sglang:num_running_reqs{{model_name="q",tp_rank="{rank}"}} {8 + rank}\n' for rank in range(4))
    assert values(tensor)[1] == {("q", "0"): {"running": 8.0}}
    rank = 'sglang:num_running_reqs{{model_name="q",dp_rank="{0}",tp_rank="{0}"}} {1}\n'
    page = rank.format(0, 5) + rank.format(1, 7) + 'sglang:num_requests_total{model_name="q"} 90\n'
    found = read_page(page, 1e9, 0.0).reading
    assert {key: dict(one.values) for key, one in found.engines.items()} == {
        ("q", "0"): {"running": 5.0}, ("q", "1"): {"running": 7.0},
    }  # fmt: skip
    assert any("for all ranks together" in complaint for complaint in found.complaints)
    alone = 'sglang:num_running_reqs{model_name="q",dp_rank="0"} 5\nsglang:num_requests_total{model_name="q"} 90\n'
    assert values(alone)[1] == {("q", "0"): {"running": 5.0, "finished": 90.0}}


def test_a_prefill_engine_of_a_pair_says_its_part() -> None:
    told = Told()
    (batch,) = told.at(0, 'sglang:num_running_reqs{model_name="q",engine_type="prefill"} 1\n')
    assert batch.info is not None
    assert batch.info.role == "prefill"


def test_llama_cpp_recorded_from_a_real_server() -> None:
    """97 calls of llama_decode with 385 busy slots in them, while no token was counted yet (README of the data)."""
    told = Told()
    told.at(0, (LLAMA_CPP / "metrics_idle.txt").read_text())
    (batch,) = told.at(1.0, (LLAMA_CPP / "metrics_busy.txt").read_text())
    assert batch.info is not None
    assert batch.info.engine == "llama.cpp"
    assert (column(batch, "resolution_steps"), column(batch, "requests")) == (97, 385)
    assert column(batch, "kind") == StepKind.MIXED
    assert (column(batch, "prefill_tokens"), column(batch, "waiting")) == (764, 1)
    assert batch.progress is not None
    assert batch.progress.state is State.LIVE


def test_llama_cpp_before_its_first_call_says_not_a_number() -> None:
    """MET-08: a mean before the first call."""
    page = (LLAMA_CPP / "metrics_idle.txt").read_text().replace("per_decode 0", "per_decode -nan")
    engine, found = values(page)
    assert engine == "llama.cpp"
    assert "busy_slots_sum" not in found["", "0"]
    told = Told()
    told.at(0, page)
    (batch,) = told.at(1.0, page)
    assert not len(batch.steps)
    assert not batch.complaints


def tgi(passes: int, method: str = "decode") -> str:
    told = {
        "tgi_batch_current_size": 6, "tgi_queue_size": 2, "tgi_request_success": 0,
        f'tgi_batch_forward_duration_sum{{method="{method}"}}': 0.03 * passes,
        f'tgi_batch_forward_duration_count{{method="{method}"}}': passes,
        f'tgi_batch_inference_duration_sum{{method="{method}"}}': 9.0 * passes,
        f'tgi_batch_inference_duration_count{{method="{method}"}}': passes,
        "tgi_request_generated_tokens_sum": 0, "tgi_request_generated_tokens_count": 0,
    }  # fmt: skip
    return "".join(f"{name} {value}\n" for name, value in told.items())


@pytest.mark.parametrize("method", ["decode", "{'method': 'decode'}"])
def test_tgi_has_its_steps_from_the_time_of_its_passes(method: str) -> None:
    """Tokens are counted when a request ends: of requests that all go on, those of the passes are taken."""
    told = Told()
    told.at(0, tgi(0, method))
    (batch,) = told.at(5, tgi(100, method))
    assert (column(batch, "resolution_steps"), column(batch, "requests")) == (100, 600)
    assert column(batch, "generated_tokens") == 600
    assert column(batch, "observed_s") == pytest.approx(3.0)
    assert column(batch, "kind") == StepKind.DECODE


def test_prompts_among_decode_are_mixed_whatever_the_engine() -> None:
    """MET-06: A window in which prompts were computed has no decode latency of its own."""
    told = Told()
    told.at(0, sglang(0))
    prefill = sglang(5).replace('mode="prefill_none"} 8', 'mode="prefill_none"} 12')
    (batch,) = told.at(5, prefill)
    assert column(batch, "kind") == StepKind.MIXED
    assert column(batch, "resolution_steps") == 254
    both = tgi(0) + 'tgi_batch_forward_duration_count{method="prefill"} 0\n'
    told = Told()
    told.at(0, both)
    (batch,) = told.at(5, tgi(100) + 'tgi_batch_forward_duration_count{method="prefill"} 3\n')
    assert column(batch, "kind") == StepKind.MIXED


def test_a_hit_rate_of_zero_says_nothing_while_hits_are_counted() -> None:
    """MET-10: the gauge is set back, the counter is not."""
    told = Told()
    told.at(0, sglang(0))
    text = sglang(5).replace(
        'cached_tokens_total{model_name="q",is_streaming="true"} 320', 'cached_tokens_total{model_name="q"} 960'
    )
    (batch,) = told.at(5, text)
    assert column(batch, "prefix_hit_local_tokens") == 640


def test_a_prefill_pass_of_sglang_reads_no_context_of_decode() -> None:
    """139 decode passes over 440,000 tokens of context alternate with as many over prompts of 100 tokens."""
    told, context = Told(), 'sglang:decode_sum_seq_lens{model_name="q",engine_type="unified",tp_rank="0",pp_rank="0"'
    page = sglang(0).replace(f'{context},moe_ep_rank="0"}} 64000', f'{context},moe_ep_rank="0"}} 440000')
    page = page.replace("sglang:kv_used_tokens", "sglang:not_told")
    told.at(0, page)
    after = page.replace('mode="decode_cuda_graph"} 0', 'mode="decode_cuda_graph"} 139')
    after = after.replace('mode="prefill_none"} 8', 'mode="prefill_none"} 147')
    tokens = 'inter_token_latency_seconds_count{model_name="q",is_streaming="true"}'
    (batch,) = told.at(5, after.replace(f"{tokens} 0", f"{tokens} 7784"))
    assert column(batch, "resolution_steps") == 278
    assert column(batch, "context_tokens") == 139 * 440_000


def test_sglang_counts_what_is_not_streamed_by_its_passes() -> None:
    """Answers of 64 tokens that are sent 50 at a time: the time between tokens knows 465 of 2,000."""
    told = Told()
    decode = (
        'sglang:realtime_tokens_total{model_name="q",engine_type="unified",tp_rank="0",pp_rank="0",moe_ep_rank="0",'
        'mode="decode"}'
    )
    tokens = 'sglang:inter_token_latency_seconds_count{model_name="q",is_streaming="true"}'
    told.at(0, sglang(0, **{decode: 0}))
    (batch,) = told.at(5, sglang(5, **{decode: 2000, tokens: 465}))
    assert (column(batch, "requests"), column(batch, "generated_tokens")) == (2000, 2000)


def test_a_sum_of_contexts_of_long_ago_is_not_taken() -> None:
    told, name = Told(), 'sglang:decode_sum_seq_lens{model_name="q",engine_type="unified",tp_rank="0",pp_rank="0"'
    context = f'{name},moe_ep_rank="0"}} 64000'
    told.at(0, sglang(0).replace(context, context.replace("64000", "2000000")))
    (batch,) = told.at(5, sglang(5))
    assert column(batch, "context_tokens") == 250 * 64_000


def test_a_mean_since_the_start_is_not_taken_once_its_digits_are_gone() -> None:
    """A week of calls: 4 slots in each of 500 more are lost in the sixth digit."""
    page = "llamacpp:requests_processing 4\nllamacpp:n_decode_total {}\nllamacpp:n_busy_slots_per_decode {}\n"
    told = Told()
    told.at(0, page.format(60_000_000, 3.96907))
    (batch,) = told.at(5, page.format(60_000_500, 3.96908))
    assert (column(batch, "resolution_steps"), column(batch, "requests")) == (500, 2000)
    assert column(batch, "kind") == StepKind.MIXED, "prompts may be among the calls"
    assert not batch.steps.where("generated_tokens").any()


def test_prompts_that_tgi_took_in_are_not_computed_yet() -> None:
    told = Told()
    both = 'tgi_batch_forward_duration_count{{method="prefill"}} {}\ntgi_request_input_length_sum {}\n'
    told.at(0, tgi(0) + both.format(0, 0))
    (batch,) = told.at(5, tgi(100) + both.format(2, 1_000_000))
    assert not batch.steps.where("prefill_tokens").any()
    assert column(batch, "kind") == StepKind.MIXED
    (batch,) = told.at(10, tgi(200) + both.format(2, 1_000_000))
    assert column(batch, "prefill_tokens") == 0
    assert column(batch, "kind") == StepKind.DECODE


def test_tensorrt_llm_has_rows_from_its_iterations() -> None:
    labels = '{engine_type="trt",model_name="m"}'
    page = (
        (
            f"trtllm_num_requests_running{labels} 4\ntrtllm_kv_cache_utilization{labels} 0.5\n"
            f"trtllm_iteration_latency_seconds_sum{labels} {{}}\ntrtllm_iteration_latency_seconds_count{labels} {{}}\n"
        )
        .replace("{engine_type", "{{engine_type")
        .replace('"m"}', '"m"}}')
    )
    told = Told()
    told.at(0, page.format(1.0, 100))
    (batch,) = told.at(5, page.format(5.0, 300))
    assert (column(batch, "resolution_steps"), column(batch, "requests")) == (200, 800)
    assert column(batch, "observed_s") == pytest.approx(4.0)
