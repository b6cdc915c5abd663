"""The table of names against the names that releases of vLLM really register, and pages with defects against it."""

from __future__ import annotations

import json

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from scrape_pages import CONFIG, PAGES, page, read, recorded

from rooflens.adapters.scrape.names import names_from, names_of
from rooflens.adapters.scrape.readings import MOST_COMPLAINTS, MOST_ENGINES, TOO_MANY

RELEASES = json.loads((PAGES / "vllm_names.json").read_text())["releases"]
ALWAYS = {"running", "waiting", "kv_used", "prompt_tokens", "generated_tokens", "inter_token_count", "finished",
          "inter_token_sum", "first_token_count", "first_token_sum"}  # fmt: skip
STEPS = {"iteration_tokens_count", "iteration_tokens_sum"}
RATES = {"generation_rate", "prompt_rate"}
# What a release has beyond ALWAYS, of what the table knows.
EXPECTED = {
    "0.6.3 V0": {"swapped", "preempted", "drafted", "accepted"} | RATES,
    "0.6.6.post1 V0": {"swapped", "preempted", "drafted", "accepted"} | RATES | STEPS,
    "0.7.3 V0": {"swapped", "preempted", "drafted", "accepted"} | STEPS,
    "0.7.3 V1": {"prefix_hit_blocks"} | STEPS,
    "0.8.5 V0": {"swapped", "preempted", "drafted", "accepted"} | STEPS,
    "0.8.5 V1": {"preempted", "drafted", "accepted", "prefix_hit_blocks"} | STEPS,
    "0.9.2 V0": {"preempted", "drafted", "accepted"} | STEPS,
    "0.9.2 V1": {"preempted", "drafted", "accepted", "prefix_hit_blocks", "prefix_hit_tokens", "prefix_query_tokens"}
    | STEPS,
    "0.10.2 V0": {"preempted"} | STEPS,
    "0.10.2 V1": {"preempted", "drafted", "accepted", "prefix_hit_blocks", "prefix_hit_tokens", "prefix_query_tokens"}
    | STEPS,
    "0.12.0 V1": {"preempted", "drafted", "accepted", "prefix_hit_tokens", "prefix_query_tokens", "awake",
                  "external_hit_tokens"} | STEPS,
}  # fmt: skip
EXPECTED["0.18.1 V1"] = EXPECTED["0.12.0 V1"] | {"computed_prompt_tokens"}
EXPECTED["0.24.0 V1"] = EXPECTED["0.18.1 V1"] | {"waiting_capacity", "waiting_deferred"}
EXPECTED["0.32.0 V1"] = EXPECTED["0.33.0 V1"] = EXPECTED["0.24.0 V1"]
MORE_LABELS = {
    "vllm:request_success": {"finished_reason": "stop"},
    "vllm:request_success_total": {"finished_reason": "stop"},
    "vllm:num_requests_waiting_by_reason": {"reason": "capacity deferred"},
    "vllm:engine_sleep_state": {"sleep_state": "awake weights_offloaded discard_all"},
    "vllm:prompt_tokens_by_source": {"source": "local_compute local_cache_hit external_kv_transfer"},
}


def registered(release: dict[str, list[str]]) -> str:
    """A page with every metric of a release, each value a different one, as the client writes it."""
    registry, value = CollectorRegistry(), 0
    for kind, make in (("gauge", Gauge), ("counter", Counter), ("histogram", Histogram)):
        for name in release[kind]:
            (more, choices), *_ = [*MORE_LABELS.get(name, {}).items(), ("model_name", "m")]
            names = ["model_name", *([more] if more != "model_name" else [])]
            metric = make(name, "help", names, registry=registry)
            for choice in choices.split():
                value += 1
                one = metric.labels(*(["m", choice] if len(names) == 2 else ["m"]))
                getattr(one, {"gauge": "set", "counter": "inc", "histogram": "observe"}[kind])(value / 1000)
    return generate_latest(registry).decode()


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("colon", [":", "_"])
def test_every_release_is_read_under_both_spellings(release: str, colon: str) -> None:
    text = registered(RELEASES[release]).replace("\nvllm:", f"\nvllm{colon}")
    found = read(text)
    assert found.complaints == ()
    values = found.engines["m", "0"].values
    assert set(values) - {"begun"} == ALWAYS | EXPECTED[release]


def test_tables_with_an_unknown_kind_are_refused() -> None:
    with pytest.raises(ValueError, match="has no kind"):
        names_from({"engine": "x", "q": {"kind": "gague", "names": ["x"]}})
    assert names_of("vllm") is names_of("vllm")


def test_newer_name_wins_over_its_old_twin() -> None:
    text = page(kv=0.25) + 'vllm:gpu_cache_usage_perc{engine="0",model_name="m"} 0.5\n'
    assert read(text).engines["m", "0"].get("kv_used") == 0.25
    assert read("\n".join(reversed(text.splitlines()))).engines["m", "0"].get("kv_used") == 0.25


def test_vm_01_page_of_a_release_that_is_too_old_tells_a_rate_alone() -> None:
    text = 'vllm:avg_generation_throughput_toks_per_s{model_name="facebook/opt-125m"} 0.0\n'
    found = read(text + 'requests_total_counter{method="POST",path="/v1/chat/completions"} 1\n').engines
    assert {key: dict(one.values) for key, one in found.items()} == {
        ("facebook/opt-125m", "0"): {"generation_rate": 0.0}
    }


def test_vm_02_announced_without_a_value() -> None:
    found = read("# HELP vllm:num_requests_running Number of requests\n# TYPE vllm:num_requests_running gauge\n")
    assert found.engines == {}
    assert found.announced


def test_vm_03_no_engine_label_and_prefix_hits_in_blocks() -> None:
    text = page(engine=None, model="Qwen/Qwen2.5-Coder-32B-Instruct", hits=None)
    text += 'vllm:gpu_prefix_cache_hits_total{model_name="Qwen/Qwen2.5-Coder-32B-Instruct"} 3.0\n'
    (key, reading), *more = read(text).engines.items()
    assert (key, more) == (("Qwen/Qwen2.5-Coder-32B-Instruct", "0"), [])
    assert reading.get("prefix_hit_blocks") == 3
    assert reading.config["block_size"] == CONFIG["block_size"]


def test_vm_04_created_series_are_no_values() -> None:
    text = """vllm:gpu_prefix_cache_queries_created{engine="0",model_name="zai-org/GLM-4.5"} 1.7537953269352946e+09
vllm:kv_cache_usage_perc{engine="0",model_name="zai-org/GLM-4.5"} 9.75010481363281e-06
vllm:num_requests_running{engine="0",model_name="zai-org/GLM-4.5"} 0.0
vllm:prefix_cache_queries_total{engine="0",model_name="zai-org/GLM-4.5"} 32.0
"""
    reading = read(text).engines["zai-org/GLM-4.5", "0"]
    assert dict(reading.values) == {"kv_used": 9.75010481363281e-06, "running": 0, "prefix_query_tokens": 32}


def test_vm_05_recorded_page_of_0_32() -> None:
    text, when = recorded("vllm-0.32-single-decode2")
    found = read(text, when)
    reading = found.engines["m", "0"]
    assert found.complaints == ()
    assert found.process_started_unix_s is not None
    assert found.process_started_unix_s < when
    assert (reading.get("running"), reading.get("waiting_capacity"), reading.get("awake")) == (8, 0, 1)
    assert (reading.config["num_gpu_blocks"], reading.config["block_size"]) == ("2730", "128")


def test_met_05_tokens_are_counted_as_they_come_and_not_as_requests_end() -> None:
    meanings = names_of("vllm").meanings
    assert "vllm:generation_tokens_total" in meanings
    assert not [name for name in meanings if "request_generation_tokens" in name or "request_prompt_tokens" in name]


@pytest.mark.parametrize("value", ["-nan", "NaN", "+Inf", "-Inf"])
def test_met_08_what_is_no_number_is_not_known(value: str) -> None:
    text = page(kv=0.5).replace(" 0.5\n", f" {value}\n")
    found = read(text)
    assert "kv_used" not in found.engines["m", "0"].values
    assert found.complaints == ()


def test_met_04_negative_gauge_is_complained_about_and_a_negative_counter_is_read() -> None:
    found = read(page(waiting=-1, generated=-3))
    assert found.complaints == ("waiting is negative: -1",)
    assert "waiting" not in found.engines["m", "0"].values
    assert found.engines["m", "0"].get("generated_tokens") == -3


def test_met_01_gauge_of_each_process_is_refused() -> None:
    text = page(running=None)
    text += "".join(f'vllm:num_requests_running{{engine="0",model_name="m",pid="{pid}"}} {pid}\n' for pid in (7, 8))
    found = read(text)
    assert found.engines["m", "0"].get("running") is None
    assert len(found.complaints) == 1
    assert "label pid" in found.complaints[0]


@pytest.mark.parametrize(("second", "value"), [("4.0", 4.0), ("5.0", None)])
def test_series_given_twice(second: str, value: float | None) -> None:
    found = read(page(running=4) + f'vllm:num_requests_running{{model_name="m",engine="0"}} {second}\n')
    assert found.engines["m", "0"].get("running") == value
    assert ["given twice" in complaint for complaint in found.complaints] == [True]


def test_series_told_apart_by_unknown_labels_are_not_added() -> None:
    text = page(kv=None) + "".join(
        f'vllm:kv_cache_usage_perc{{engine="0",model_name="m",worker="{worker}"}} 0.4\n' for worker in "ab"
    )
    found = read(text)
    assert found.engines["m", "0"].get("kv_used") is None
    assert "unknown labels" in found.complaints[0]


def test_two_models_and_two_engines_stay_apart() -> None:
    text = page(running=1) + page(running=2, engine="1") + page(running=3, model="n")
    found = {key: reading.get("running") for key, reading in read(text).engines.items()}
    assert found == {("m", "0"): 1, ("m", "1"): 2, ("n", "0"): 3}


def test_page_of_endless_engines_is_cut_and_said() -> None:
    text = "".join(f'vllm:num_requests_running{{engine="{n}",model_name="m"}} 1\n' for n in range(MOST_ENGINES + 50))
    found = read(text)
    assert len(found.engines) == MOST_ENGINES
    assert found.complaints == (TOO_MANY,)
    assert len(found.complaints) <= MOST_COMPLAINTS


def test_what_a_page_calls_its_model_cannot_reach_a_terminal() -> None:
    (reading,) = read('vllm:num_requests_running{model_name="\x1b[2Jm"} 1\n').engines.values()
    assert reading.model_name == "?[2Jm"
