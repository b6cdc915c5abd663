"""Handing a prompt's cache over: bytes, seconds, overlap, and whether the link keeps up."""

from __future__ import annotations

import math

import pytest
from made_archs import deepseek, stateful, windowed

from rooflens.analyzer.arch import find_model
from rooflens.analyzer.handover import Handover, Link, handover
from rooflens.analyzer.hardware import find_hardware
from rooflens.analyzer.precision import choose_precision
from rooflens.analyzer.predict import Plan, predict
from rooflens.arch_records import Deployment, ModelArch
from rooflens.records import RooflensError

LLAMA_70B = find_model("meta-llama-3-70b")
H100 = find_hardware("h100-sxm5-80")
FAST = Link(50e9, 20e-6)  # one card of 400 Gbit/s


def given(arch: ModelArch = LLAMA_70B, link: Link = FAST, by_layer: bool = False, **plan: object) -> Handover:
    changes = {"context_tokens": 8192} | plan
    chosen = Plan(8, Deployment(tensor=8), phase="prefill", **changes)  # type: ignore[arg-type]
    return handover(arch, H100, choose_precision(arch), chosen, link, by_layer)


def test_a_prompt_of_8192_tokens() -> None:
    # 8,192 tokens of 327,680 bytes are 2.684 GB: 53.69 ms at 50 GB/s and 20 us until the first byte. Computing the
    # prompt takes at least 141 ms, so the link carries 18.6 prompts/s where 7.1 are made.
    found = given()
    assert found.cache_bytes == 8192 * 327_680
    assert found.transfer_s == pytest.approx(0.05369 + 20e-6, rel=1e-3)
    assert found.exposed_s == found.transfer_s
    assert found.link_prompts_per_s == pytest.approx(18.63, rel=1e-3)
    assert found.prefill_prompts_per_s == pytest.approx(1 / found.prefill_s)
    assert found.needed_bytes_per_s == pytest.approx(found.cache_bytes / found.prefill_s)
    assert found.link_keeps_up
    assert not given(link=Link(5e9)).link_keeps_up


def test_a_prompt_is_computed_whole_whatever_its_chunks() -> None:
    assert given(query_tokens=100) == given()


def test_layer_by_layer_only_the_last_layer_is_left() -> None:
    found = given(by_layer=True)
    assert found.exposed_s == pytest.approx(20e-6 + 0.05369 / 80, rel=1e-3)
    assert found.transfer_s == given().transfer_s
    # A link slower than the computing: 80 layers of 53.69 ms each, the first of which starts after one is computed.
    slow = given(link=Link(0.625e9), by_layer=True)
    sending_s = 8192 * 327_680 / 0.625e9
    assert slow.exposed_s == pytest.approx(slow.prefill_s / 80 + sending_s - slow.prefill_s)


def test_what_replicas_of_latents_do_not_add() -> None:
    # Each of the 8 devices keeps all latents; they are sent once. 61 layers x (512 + 64 + 128 of the indexer) x 2 B.
    found = given(deepseek(), context_tokens=10_000)
    assert found.cache_bytes == 10_000 * 61 * (512 + 64 + 128) * 2


def test_windows_and_states_stop_growing() -> None:
    window, twice = (given(windowed(), context_tokens=n).cache_bytes for n in (4096, 8192))
    assert twice - window == 4096 * 10 * 2 * 16 * 128 * 2  # the ten full layers alone
    # Twelve layers of 2 KV heads x 256 grow, the other states do not.
    precision = choose_precision(stateful())
    short, long = (
        handover(stateful(), H100, precision, Plan(context_tokens=n, phase="prefill"), FAST).cache_bytes
        for n in (1000, 3000)
    )
    assert long - short == 2000 * 12 * 2 * 2 * 256 * 2
    assert short > 1000 * 12 * 2 * 2 * 256 * 2


def test_several_prompts_at_once() -> None:
    one, four = given(), given(batch=4)
    assert four.prompts == 4
    assert four.exposed_s - FAST.latency_s == pytest.approx(4 * (one.exposed_s - FAST.latency_s))
    assert four.transfer_s == one.transfer_s


def test_hits_are_not_computed_and_yet_sent() -> None:
    found = given(cached_tokens=8000)
    assert found.cache_bytes == given().cache_bytes
    assert found.prefill_s < given().prefill_s / 10


@pytest.mark.parametrize(
    "link", [Link(0), Link(-1), Link(math.inf), Link(math.nan), Link(1e9, -1.0), Link(1e9, math.inf)]
)
def test_links_that_make_no_sense(link: Link) -> None:
    with pytest.raises(RooflensError, match="a link needs"):
        given(link=link)


def test_decode_hands_nothing_over() -> None:
    with pytest.raises(RooflensError, match="--phase prefill"):
        handover(LLAMA_70B, H100, choose_precision(LLAMA_70B), Plan(8, Deployment(tensor=8)), FAST)


def test_the_prefill_is_that_of_predict() -> None:
    plan = Plan(8, Deployment(tensor=8), context_tokens=8192, phase="prefill")
    result = predict(LLAMA_70B, H100, choose_precision(LLAMA_70B), plan)
    assert given().prefill_s == (result.reachable_s or result.expected_s)
