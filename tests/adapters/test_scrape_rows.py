"""Rows between two readings: what is derived, within which bounds, and what is left out and why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scrape_pages import CONFIG, DECODE_1, DECODE_2, STARTED, numbers, page, recorded

from rooflens.adapters.scrape.fetch import Page
from rooflens.adapters.scrape.follow import FALLS_APART, LONGEST_GAP_S, MOST_ROWS
from rooflens.adapters.scrape.lives import ANSWERS_ALONE
from rooflens.adapters.scrape.page_source import MetricsPage
from rooflens.analyzer.hardware import find_hardware
from rooflens.analyzer.roofline import analyse_engine
from rooflens.live_records import State
from rooflens.protocols import Batch
from rooflens.records import COLUMN_KINDS, StepKind

LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 512, "intermediate_size": 1408,
    "num_hidden_layers": 6, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 16000,
    "max_position_embeddings": 4096, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip
PERIOD_S = 5.0


class Feed:
    """A metrics page that is fed texts at given moments, five seconds apart unless said otherwise."""

    def __init__(self, **given: Any) -> None:
        self.source = MetricsPage("http://engine:8000", **given)
        self.now_s = 1_700_001_000.0

    def __call__(self, text: str, later_s: float = PERIOD_S, clock_s: float | None = None) -> list[Batch]:
        self.now_s += later_s
        self.source.take(Page(text, clock_s), self.now_s, self.now_s)
        return self.source.read()

    def one(self, text: str, later_s: float = PERIOD_S) -> Batch:
        (batch,) = self(text, later_s)
        return batch


def between(first: dict[str, Any], second: dict[str, Any], later_s: float = PERIOD_S) -> Batch:
    feed = Feed()
    feed(page(**first))
    return feed.one(page(**second), later_s)


def run_of(batch: Batch) -> str:
    assert batch.info is not None
    return batch.info.instance


def derived(batch: Batch, name: str) -> Any:
    return next(entry for entry in batch.derived if entry.name == name)


def test_decode_only_window() -> None:
    batch = between(DECODE_1, DECODE_2)
    row = numbers(batch)
    assert batch.complaints == ()
    assert set(row) <= set(COLUMN_KINDS)
    assert {name: row[name] for name in ("kind", "resolution_steps", "requests", "running", "query_tokens")} == {
        "kind": StepKind.DECODE, "resolution_steps": 100, "requests": 1000, "running": 10, "query_tokens": 1000
    }  # fmt: skip
    assert row["observed_s"] == pytest.approx(5.0)
    assert row["output_monotonic_s"] - row["submit_monotonic_s"] == PERIOD_S
    # 100 and 200 blocks of 16 at the ends, half a block and the new token's slot off for each of ten sequences.
    held = (1600 + 3200) / 2 - 10 * 8.5
    assert row["kv_blocks_used"] == 150
    assert row["context_tokens"] == held * 100
    assert row["context_blocks"] == 150 * 100
    assert row["causal_pairs"] == held * 100 + 1000
    context = derived(batch, "context")
    assert context.value == held / 10
    assert context.low < 160 < 320 < context.high
    assert derived(batch, "batch").low < 10 < derived(batch, "batch").high
    assert batch.info is not None
    assert (batch.info.kv_blocks, batch.info.block_tokens, batch.info.kv_dtype) == (1000, 16, "auto")
    assert (batch.info.engine, batch.info.rank, batch.info.prefix_caching) == ("vllm", 0, True)


def test_bounds_fall_away_when_requests_come_or_go() -> None:
    context = derived(between(DECODE_1, DECODE_2 | {"finished": 1}), "context")
    assert (context.low, context.high) == (None, None)


def test_there_is_no_upper_bound_where_sequences_may_share_a_prefix() -> None:
    alone = derived(between(DECODE_1, DECODE_2), "context")
    shared = derived(between(DECODE_1 | {"hits": 16}, DECODE_2 | {"hits": 16}), "context")
    assert "shared prefix" in shared.derivation
    assert "shared prefix" not in alone.derivation
    assert (shared.value, shared.low, shared.high) == (alone.value, alone.low, None)
    silent = derived(between(DECODE_1 | {"hits": None}, DECODE_2 | {"hits": None}), "context")
    assert silent.high is None, "it does not tell, and has a prefix cache"
    off = {"config": CONFIG | {"enable_prefix_caching": "False"}, "hits": None}
    assert derived(between(DECODE_1 | off, DECODE_2 | off), "context").high == alone.high


@pytest.mark.parametrize("mode", ["single", "dp2"])
def test_recorded_decode_window_agrees_with_what_was_asked_of_the_server(mode: str) -> None:
    feed = Feed()
    texts = [recorded(f"vllm-0.32-{mode}-{name}") for name in ("decode1", "decode2")]
    feed(texts[0][0])
    batches = feed(texts[1][0], texts[1][1] - texts[0][1])
    assert [batch.info.rank for batch in batches if batch.info] == ([0] if mode == "single" else [0, 1])
    for batch in batches:
        row, context = numbers(batch), derived(batch, "context")
        assert row["kind"] == StepKind.DECODE
        assert row["requests"] / row["resolution_steps"] == pytest.approx(8 / len(batches), rel=0.01)
        # Eight prompts of 100 to 380 tokens have grown by the tokens of half the window; blocks hold 128 tokens.
        assert context.low < context.value < context.high
        assert context.high - context.low < 5 * 128
        assert batch.info is not None
        assert batch.info.kv_blocks == 2729
        assert row["observed_s"] == pytest.approx(texts[1][1] - texts[0][1], rel=0.05)
    rows = [numbers(batch) for batch in batches]
    assert rows[0]["generated_tokens"] == pytest.approx(rows[-1]["generated_tokens"], rel=0.05)


def test_recorded_prompts_make_the_window_mixed_met_06() -> None:
    feed = Feed()
    for name in ("decode2", "mixed2"):
        text, when = recorded(f"vllm-0.32-single-{name}")
        feed.now_s = when
        batches = feed(text, 0.0)
    row = numbers(batches[0])
    assert row["kind"] == StepKind.MIXED
    assert (row["prefill_requests"], row["prefix_hit_local_tokens"], row["prefill_tokens"]) == (4, 768, 4 * 900 - 768)


@pytest.mark.parametrize(
    ("prompt", "kind"), [(0, StepKind.DECODE), (300, StepKind.DECODE), (600, StepKind.MIXED), (17100, StepKind.MIXED)]
)
def test_met_06_prompt_tokens_beyond_half_of_the_generated_ones_mix_a_window(prompt: int, kind: StepKind) -> None:
    after = DECODE_2 | {"prompt": 1000 + prompt, "first_n": 10 + (prompt > 0)}
    assert numbers(between(DECODE_1, after))["kind"] == kind


def test_a_long_prompt_that_is_not_finished_mixes_a_window_too() -> None:
    silent = DECODE_2 | {"running": 11}
    assert numbers(between(DECODE_1 | {"running": 11}, silent))["kind"] == StepKind.MIXED


def test_prompts_alone() -> None:
    after = {"running": 3, "kv": 0.3, "prompt": 3000, "generated": 3, "first_n": 3, "first_s": 2.0, "steps": 3}
    batch = between({"running": 0}, after)
    row = numbers(batch)
    assert (row["kind"], row["prefill_tokens"], row["sampled_rows"]) == (StepKind.PREFILL, 3000, 3)
    assert row["prefill_pairs"] == 3000 * 1001 / 2
    assert row["observed_s"] == pytest.approx(2.0)
    pairs = derived(batch, "prefill_pairs")
    assert pairs.low <= pairs.value <= pairs.high == 3000 * 3001 / 2


def test_speculation() -> None:
    first = DECODE_1 | {"drafted": 0, "accepted": 0}
    row = numbers(between(first, DECODE_2 | {"generated": 1810, "drafted": 2000, "accepted": 800}))
    assert (row["kind"], row["requests"], row["generated_tokens"]) == (StepKind.VERIFY, 1000, 1800)
    assert (row["drafted_tokens"], row["accepted_tokens"], row["rejected_tokens"]) == (2000, 800, 1200)
    assert (row["query_tokens"], row["sampled_rows"]) == (3000, 3000)


def test_v0_without_the_histogram_of_steps() -> None:
    batch = between(DECODE_1 | {"steps": None, "step_tokens": None}, DECODE_2 | {"steps": None, "step_tokens": None})
    assert numbers(batch)["resolution_steps"] == 100
    assert "no step is counted" in derived(batch, "resolution_steps").derivation
    assert derived(batch, "batch").low is None


def test_several_api_servers_that_share_a_page_count_steps_more_than_once() -> None:
    shared = {"started": None}
    batch = between(DECODE_1 | shared, DECODE_2 | shared | {"steps": 190})
    steps = derived(batch, "resolution_steps")
    assert numbers(batch)["resolution_steps"] == 100
    assert steps.high == 189
    assert "each API server counts" in steps.derivation


def test_recorded_page_of_two_api_servers() -> None:
    feed = Feed()
    batches = []
    for name in ("decode1", "decode2", "mixed2", "after"):
        text, when = recorded(f"vllm-0.32-multi2-{name}")
        assert "process_start_time_seconds" not in text
        feed.now_s = when
        batches += feed(text, 0.0)
    rows = [numbers(batch) for batch in batches[1:]]
    assert [row["kind"] for row in rows] == [StepKind.DECODE, StepKind.MIXED, StepKind.DECODE]
    # Eight sequences decode in the first and the last; both servers together count every step twice.
    for row, batch in ((rows[0], batches[1]), (rows[2], batches[3])):
        assert row["requests"] / row["resolution_steps"] == pytest.approx(8, rel=0.02)
        assert derived(batch, "resolution_steps").high == pytest.approx(2 * row["resolution_steps"], rel=0.02)
    assert all(batch.complaints == () for batch in batches)


def test_without_a_pool_contexts_are_not_known() -> None:
    nothing = {"config": {"num_gpu_blocks": "None", "block_size": "16"}}
    row = numbers(between(DECODE_1 | nothing, DECODE_2 | nothing))
    assert not {"context_tokens", "causal_pairs", "kv_blocks_used"} & set(row)
    assert row["requests"] == 1000


def test_blocks_of_a_server_of_two_engines_are_its_sum() -> None:
    feed = Feed()
    (first, _) = feed(page() + page(engine="1"))
    assert first.info is not None
    assert (first.info.kv_blocks, first.info.data_parallel) == (1001 // 2 - 1, 2)


@pytest.mark.parametrize("more", [{"kv_cache_size_tokens": "8008"}, {"mamba_block_size": "256"}])
def test_met_07_blocks_of_layers_of_several_kinds_tell_no_contexts(more: dict[str, str]) -> None:
    mixed = {"config": CONFIG | more}
    row = numbers(between(DECODE_1 | mixed, DECODE_2 | mixed))
    assert not {"context_tokens", "causal_pairs"} & set(row)
    assert row["kv_blocks_used"] == 150
    plain = {"config": CONFIG | {"kv_cache_size_tokens": str(1001 * 16), "mamba_block_size": "None"}}
    assert "context_tokens" in numbers(between(DECODE_1 | plain, DECODE_2 | plain))


def test_rows_without_some_columns_have_masks() -> None:
    feed = Feed()
    feed(page(**DECODE_1))
    feed.source.take(Page(page(**DECODE_2)), feed.now_s + 5, feed.now_s + 5)
    third = DECODE_2 | {"generated": 2010, "itl_n": 2000, "itl_s": 100.0, "steps": 201, "kv": float("nan")}
    feed.source.take(Page(page(**third).replace(" nan\n", " NaN\n")), feed.now_s + 10, feed.now_s + 10)
    (batch,) = feed.source.read()
    assert len(batch.steps) == 2
    assert batch.steps.where("requests").tolist() == [True, True]
    assert batch.steps["requests"].dtype == np.int64
    assert batch.steps["sequence"].tolist() == [1, 2]


@pytest.mark.parametrize("names", [("decode1", "decode2"), ("decode2", "mixed2")])
def test_roofline_accepts_the_rows(names: tuple[str, str]) -> None:
    feed = Feed(model_config=LLAMA, weight_dtype="bfloat16")
    for name in names:
        text, when = recorded(f"vllm-0.32-single-{name}")
        feed.now_s = when
        (batch,) = feed(text, 0.0)
    assert batch.info is not None
    analysis = analyse_engine(batch.steps, batch.info, find_hardware("h100-sxm5-80"))
    assert analysis.compared.tolist() == [True]
    row = numbers(batch)
    # Every token of every context has been read once at least: two halves of 2 heads of 64, 6 layers, 2 bytes.
    assert analysis.kv_read_bytes[0] >= row["context_tokens"] * 2 * 2 * 64 * 6 * 2 * 0.999
    assert analysis.floor_s[0] < row["observed_s"]


# Restarts, falls, stillness


def test_restart_is_another_instance_and_no_complaint() -> None:
    feed = Feed()
    feed(page(**DECODE_1))
    first = feed.one(page(**DECODE_2))
    started = feed.now_s + 3
    old, new = feed(page(started=started, running=2, generated=5, steps=2))
    assert (old.progress and old.progress.state, new.progress and new.progress.state) == (State.ENDED, State.LIVE)
    assert run_of(old) == run_of(first) != run_of(new)
    assert new.info is not None
    assert new.info.start_unix_s == started
    assert (len(old.steps), len(new.steps), old.complaints, new.complaints) == (0, 0, (), ())


def test_rows_that_wait_at_a_restart_go_to_the_run_that_made_them() -> None:
    feed = Feed()
    feed(page(**DECODE_1))
    feed.source.take(Page(page(**DECODE_2)), feed.now_s + 5, feed.now_s + 5)
    old, new = feed(page(started=feed.now_s + 7), 10)
    assert (len(old.steps), len(new.steps)) == (1, 0)


def test_restart_without_a_start_time_is_seen_by_everything_falling() -> None:
    feed = Feed()
    feed(page(started=None, **DECODE_1))
    first = feed.one(page(started=None, **DECODE_2))
    _, new = feed(page(started=None, running=1, generated=5, first_n=1, prompt=10, steps=5, itl_n=4, itl_s=0.2))
    assert run_of(first) != run_of(new)
    assert new.complaints == ()


def test_met_01_counters_that_go_down_without_a_restart() -> None:
    feed = Feed()
    feed(page(**DECODE_1))
    first = feed.one(page(**DECODE_2))
    fallen = feed.one(page(**DECODE_1))
    assert len(fallen.steps) == 0
    assert len(fallen.complaints) == 1
    assert "went down by" in fallen.complaints[0]
    assert "PROMETHEUS_MULTIPROC_DIR" in fallen.complaints[0]
    assert run_of(fallen) == run_of(first)
    assert len(feed.one(page(**DECODE_2)).steps) == 1


def test_met_01_pages_of_two_processes_in_turn_give_no_rates() -> None:
    feed = Feed()
    complaints: set[str] = set()
    for turn in range(8):
        values = DECODE_2 if turn % 2 else DECODE_1
        batches = feed(page(started=STARTED + turn % 2, **values | {"steps": 100 * turn, "generated": 1000 * turn}))
        complaints |= {complaint for batch in batches for complaint in batch.complaints}
        assert [len(batch.steps) for batch in batches] == [0] * len(batches)
        assert len({batch.info.instance for batch in batches if batch.info}) == 1
    assert len(complaints) == 1
    assert "several processes answer in turn" in complaints.pop()
    for turn in range(ANSWERS_ALONE + 2):
        alone = {"steps": 1000 + turn, "generated": 9000 + turn, "itl_n": 9000 + turn, "itl_s": 900 + turn}
        rows = [len(batch.steps) for batch in feed(page(**DECODE_2 | alone))]
    assert rows == [1]


def test_met_01_all_falls_without_a_start_time_again_and_again_are_no_restarts() -> None:
    feed = Feed()
    complaints = []
    for turn in range(FALLS_APART):
        values = DECODE_1 if turn % 2 else DECODE_2
        complaints += [c for batch in feed(page(started=None, **values)) for c in batch.complaints]
    assert len(complaints) >= 3
    for words in ("does not say when its process started", "the engine restarts every few", "or several API servers"):
        assert all(words in complaint for complaint in complaints)


def test_met_04_accounting_that_goes_backwards_drops_the_window() -> None:
    batch = between(DECODE_1, DECODE_2 | {"hits": -1})
    assert len(batch.steps) == 0
    assert "prefix_hit_tokens went down by 1" in batch.complaints[0]


def test_met_11_one_process_under_two_addresses_is_one_run() -> None:
    text, when = recorded("vllm-0.32-dp2-decode1")
    runs = []
    for url in ("http://localhost:8000", "http://127.0.0.1:8000/metrics"):
        source = MetricsPage(url)
        source.take(Page(text), when, when)
        runs.append([batch.info.instance for batch in source.read() if batch.info])
    assert runs[0] == runs[1]
    assert len(set(runs[0])) == 2


def test_two_scrapes_without_an_update_in_between_do_not_split_a_step() -> None:
    feed = Feed()
    feed(page(**DECODE_1))
    assert len(feed.one(page(**DECODE_1)).steps) == 0
    batch = feed.one(page(**DECODE_2))
    row = numbers(batch)
    assert row["output_monotonic_s"] - row["submit_monotonic_s"] == 2 * PERIOD_S
    assert row["resolution_steps"] == 100


def test_idle_time_is_not_part_of_a_window() -> None:
    feed = Feed()
    for _ in range(3):
        feed(page(generated=10, first_n=10, steps=1, prompt=1000))
    row = numbers(feed.one(page(**DECODE_2)))
    assert row["output_monotonic_s"] - row["submit_monotonic_s"] == PERIOD_S


def test_a_gap_in_reading_is_not_a_window() -> None:
    feed = Feed()
    feed(page(**DECODE_1))
    assert len(feed.one(page(**DECODE_2), LONGEST_GAP_S + 1).steps) == 0


def test_stillness_is_counted_while_requests_are_there_and_nothing_moves() -> None:
    feed = Feed()
    states = [
        feed.one(page(**values)).progress
        for values in (
            DECODE_1,
            DECODE_2,
            DECODE_2,
            DECODE_2,
            DECODE_2 | {"kv": 0.21},
            {**DECODE_2, "running": 0, "kv": 0},
        )
    ]
    assert [state.still_s for state in states if state] == [None, 0, 5, 10, 0, 0]


def test_an_idle_engine_that_gets_a_request_has_not_been_still_before() -> None:
    feed = Feed()
    for _ in range(4):
        feed(page())
    found = [feed.one(page(waiting=1, capacity=1)).progress for _ in range(2)]
    assert [each and (each.state, each.still_s) for each in found] == [(State.LIVE, 0.0), (State.LIVE, 5.0)]


def test_sleep_is_told() -> None:
    feed = Feed()
    feed(page())
    batch = feed.one(page(awake=0))
    assert batch.progress is not None
    assert batch.progress.asleep


def test_waiting_is_capacity_alone_where_reasons_are_told() -> None:
    told = {"waiting": 5, "capacity": 2, "deferred": 3}
    row = numbers(between(DECODE_1 | told, DECODE_2 | told))
    assert (row["waiting"], row["deferred"]) == (2, 3)
    old = {"waiting": 5, "capacity": None, "deferred": None}
    row = numbers(between(DECODE_1 | old, DECODE_2 | old))
    assert (row["waiting"], "deferred" in row) == (5, False)


def test_rows_that_nobody_reads_are_bounded_and_counted() -> None:
    feed = Feed()
    for turn in range(MOST_ROWS + 11):
        step = {"steps": turn, "generated": turn * 10, "itl_n": turn * 10, "itl_s": turn * 0.5, "running": 10}
        feed.source.take(Page(page(**step)), feed.now_s + turn, feed.now_s + turn)
    (batch,) = feed.source.read()
    assert (len(batch.steps), batch.lost_steps) == (MOST_ROWS, 10)


def test_engine_that_leaves_its_page_has_ended() -> None:
    feed = Feed()
    feed(page() + page(engine="1"))
    batches = feed(page())
    assert sorted((b.info.rank, b.progress.state) for b in batches if b.info and b.progress) == [
        (0, State.LIVE), (1, State.ENDED),
    ]  # fmt: skip
    assert len(feed(page())) == 1


def test_names_of_folders_stay_out() -> None:
    feed = Feed()
    (batch,) = feed(page(model="/data/someone/models/secret-7b/"))
    assert batch.info is not None
    assert batch.info.model_name == "secret-7b"
    assert "someone" not in json.dumps(batch.info.to_json())


def test_source_is_data_of_the_package() -> None:
    import rooflens.adapters.scrape as package

    assert (Path(package.__file__).parent / "vllm.toml").is_file()


@pytest.mark.parametrize(
    ("held", "still_s"),
    [
        ({"running": 0, "waiting": 3, "capacity": 0, "deferred": 3}, 0.0),
        ({"running": 0, "waiting": 3, "capacity": 1, "deferred": 2}, 20.0),
        ({"running": 1, "waiting": 3, "capacity": 0, "deferred": 3}, 20.0),
        ({"running": 0, "waiting": 3, "capacity": None, "deferred": None}, None),
        ({"running": 1, "waiting": 3, "capacity": None, "deferred": None}, 20.0),
        ({"running": 0, "waiting": 0, "capacity": None, "deferred": None}, 0.0),
    ],
)
def test_only_what_runs_or_waits_for_capacity_can_stand_still(held: dict[str, Any], still_s: float | None) -> None:
    source = MetricsPage("http://h.example:1/metrics")
    for at_s in range(0, 25, 5):
        source.take(Page(page(**DECODE_1 | held)), 1e9 + at_s, float(at_s))
    (batch,) = source.read()
    assert batch.progress is not None
    assert batch.progress.still_s == still_s
