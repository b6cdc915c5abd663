"""Values that no engine can mean: each is refused where it is read, in words, and the rest of the page goes on."""

from __future__ import annotations

from typing import Any

import pytest
from scrape_pages import CONFIG, DECODE_1, DECODE_2, page, read

from rooflens.adapters.scrape.fetch import Page
from rooflens.adapters.scrape.page_source import MetricsPage
from rooflens.adapters.scrape.rows import MOST_WHOLE


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"generated": 1e19}, "generated_tokens"),
        ({"generated": 1.1e15}, "generated_tokens"),
        ({"steps": 1e308}, "iteration_tokens_count"),
        ({"itl_s": 1e308}, "inter_token_sum"),
        ({"running": 1e300}, "running"),
        ({"waiting": 1.1e7}, "waiting"),
        ({"kv": 1e300}, "kv_used"),
        ({"kv": 50}, "kv_used"),
    ],
)
def test_a_value_that_no_engine_can_mean_is_refused(values: dict[str, float], key: str) -> None:
    found = read(page(**DECODE_1 | values))
    assert key not in found.engines["m", "0"].values
    (complaint,) = found.complaints
    assert complaint.startswith(f"{key} is ")
    assert complaint.endswith("more than an engine can mean: it is not taken")


def test_what_engines_do_say_is_taken() -> None:
    """A year of a fleet's tokens, a pool that is counted a little over, a very long queue."""
    found = read(page(**DECODE_1 | {"generated": 9e14, "kv": 1.02, "waiting": 1e6}))
    assert found.complaints == ()


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("num_gpu_blocks", "9" * 18),
        ("num_gpu_blocks", "9" * 5000),
        ("block_size", "9" * 9),
        ("num_gpu_blocks", "10" * 5),
    ],
)
def test_a_pool_that_cannot_be_is_refused(name: str, told: str) -> None:
    found = read(page(**DECODE_1, config=CONFIG | {name: told}))
    assert name not in found.engines["m", "0"].config
    (complaint,) = found.complaints
    assert complaint.startswith(f"{name} is {told[:32]}, more than")


@pytest.mark.parametrize("values", [{"prompt": 4e9}, {"generated": 4e9, "itl_n": 4e9}, {"drafted": 4e9, "accepted": 1}])
def test_no_count_of_a_row_is_beyond_what_a_table_holds(values: dict[str, Any]) -> None:
    source = MetricsPage("http://h.example:1/metrics")
    drafts = {"drafted": 0, "accepted": 0}
    source.take(Page(page(**DECODE_1 | drafts)), 1e9, 0.0)
    source.take(Page(page(**DECODE_2 | drafts | {"first_n": 11} | values)), 1e9 + 5, 5.0)
    (batch,) = source.read()
    assert len(batch.steps) == 1
    for name, column in batch.steps.columns.items():
        known = column[batch.steps.where(name)]
        assert (known >= 0).all(), name
        assert (known < MOST_WHOLE).all(), name


def test_a_counter_that_leaps_is_left_out_and_counting_goes_on() -> None:
    source, made = MetricsPage("http://h.example:1/metrics"), []
    for at, more in enumerate([0, 1000, 9e14, 3000, 4000, 5000]):
        values = DECODE_1 | {"generated": 10 + more, "itl_n": at * 1000, "itl_s": at * 50.0, "steps": 1 + at * 100}
        source.take(Page(page(**values)), 1e9 + 5 * at, 5.0 * at)
        (batch,) = source.read()
        made.append((float(batch.steps["generated_tokens"].sum()) if len(batch.steps) else 0.0, batch.complaints))
    assert [tokens for tokens, _ in made] == [0, 1000, 0, 0, 1000, 1000]
    assert made[2][1] == ("generated_tokens rose faster than any engine works: this interval is left out",)
    assert "went down" in made[3][1][0]
