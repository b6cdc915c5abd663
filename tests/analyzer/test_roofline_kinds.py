"""The roofline of experts, latents, windows and deployments: what is strict, what is expected, and both in bulk."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rooflens.analyzer.arch import find_model
from rooflens.analyzer.compiled_rows import features_of, strict_flops
from rooflens.analyzer.efficiency import efficiency_of
from rooflens.analyzer.hardware import find_hardware
from rooflens.analyzer.operators import ONE_DEVICE, stage_works
from rooflens.analyzer.point import UniformBatch, point_features
from rooflens.analyzer.precision import choose_precision
from rooflens.analyzer.reachable import seconds_of, terms_of
from rooflens.analyzer.roofline import BETWEEN_RANKS, Roofline
from rooflens.analyzer.sides import names_of, sides_of
from rooflens.analyzer.work import Work
from rooflens.arch_records import (
    Attention,
    DenseMLP,
    Deployment,
    Indexer,
    LatentAttention,
    Layer,
    MixtureOfExperts,
    ModelArch,
)
from rooflens.model_records import Bound
from rooflens.records import StepKind, StepTable
from rooflens.spans import pairs_within, within

H100 = replace(find_hardware("h100-sxm5-80"), cache_bytes=None)
LATENT = LatentAttention(16, 96, 64, 16, 8, 16)
SPARSE = replace(LATENT, indexer=Indexer(4, 16, 512))
EXPERTS = MixtureOfExperts(64, 4, 32, gated=True, shared_intermediate_size=32)
WINDOW = Attention(16, 8, 32, 32, window_tokens=128)
DENSE = DenseMLP(1024, gated=True)
MOE = ModelArch("moe", 512, 4096, False, (Layer(2, LATENT, DENSE), Layer(10, LATENT, EXPERTS)))
SPARSE_MOE = replace(MOE, name="sparse", layers=(Layer(12, SPARSE, EXPERTS),))
WINDOWED = replace(
    MOE, name="windowed", layers=(Layer(10, WINDOW, DENSE), Layer(2, replace(WINDOW, window_tokens=None), DENSE))
)
LLAMA = find_model("meta-llama-3.1-8b")
ARCHS = {arch.name: arch for arch in (MOE, SPARSE_MOE, WINDOWED, LLAMA)}


def decode(batch: int, context: int, count: int = 1, prompt: int = 0) -> StepTable:
    """Steps of ``batch`` sequences with ``context`` tokens each, and a prompt of ``prompt`` tokens beside them."""
    columns: dict[str, int] = {
        "kind": StepKind.MIXED if prompt else StepKind.DECODE,
        "requests": batch + (prompt > 0),
        "sampled_rows": batch + (prompt > 0),
        "query_tokens": batch + prompt,
        "prefill_tokens": prompt,
        "context_tokens": batch * context,
        "causal_pairs": batch * (context + 1) + pairs_within(0, prompt, ""),
        "prefill_pairs": pairs_within(0, prompt, ""),
    }
    for span in ("w128", "w512"):
        columns[f"context_tokens@{span}"] = batch * within(context, span)
        columns[f"prefill_pairs@{span}"] = pairs_within(0, prompt, span)
        columns[f"causal_pairs@{span}"] = batch * pairs_within(context, 1, span) + pairs_within(0, prompt, span)
    return StepTable({name: np.full(count, each) for name, each in columns.items()})


def roofline(arch: ModelArch, deployment: Deployment = ONE_DEVICE) -> Roofline:
    return Roofline(arch, H100, choose_precision(arch), deployment)


DEPLOYMENTS = st.builds(
    Deployment, tensor=st.sampled_from([1, 2, 8]), pipeline=st.sampled_from([1, 3]), data=st.sampled_from([1, 4]),
    expert=st.booleans(),
)  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(sorted(ARCHS)), DEPLOYMENTS, st.integers(1, 600), st.integers(0, 9000), st.sampled_from([0, 700])
)
def test_bounds_alone_are_those_of_the_analysis(
    name: str, deployment: Deployment, batch: int, context: int, prompt: int
) -> None:
    found, steps = roofline(ARCHS[name], deployment), decode(batch, context, 3, prompt)
    steps.columns["kind"][1] = StepKind.DUMMY  # type: ignore[index]
    bounds, analysis = found.bounds(steps), found.analyse(steps)
    assert bounds.modelled.tolist() == analysis.modelled.tolist() == [True, False, True]
    for column in ("bound", "floor_s", "expected_s", "memory_s", "compute_s", "link_floor_s"):
        np.testing.assert_array_equal(getattr(bounds, column), getattr(analysis, column))
    sides = np.array([bounds.memory_s, bounds.compute_s, bounds.link_floor_s])[:, 0]
    assert bounds.floor_s[0] == sides.max()
    assert bounds.bound[0] == sides.argmax()
    assert bounds.expected_s[0] >= bounds.floor_s[0]
    assert analysis.serial_floor_s[0] >= max(sides[0], sides[1]) * (1 - 1e-12)
    assert np.isnan(bounds.floor_s[1])
    for whole, parts in (
        (analysis.flops, analysis.group_flops),
        (analysis.serial_floor_s + analysis.link_s, analysis.group_s),
    ):
        np.testing.assert_allclose(sum(parts.values()), whole)


def test_experts_beyond_the_fewest_are_expected_and_not_in_the_floor() -> None:
    # Batch 64 at short context. Ten layers of 64 experts of 3 x 512 x 32 bf16 weights, 98,304 bytes each: the floor
    # reads 4 of them; 64 tokens reach 64 (1 - (60/64)^64) = 62.97 on average.
    analysis = roofline(MOE).analyse(decode(64, 1))
    more_s = 10 * (64 * (1 - (60 / 64) ** 64) - 4) * 98304 / 3.35e12
    assert analysis.bound[0] == Bound.MEMORY
    assert analysis.expected_s[0] - analysis.floor_s[0] == pytest.approx(more_s)
    assert any("fewest experts" in note for note in analysis.notes)
    # One token reaches the fewest; a dense model has none.
    alone = roofline(MOE).analyse(decode(1, 1))
    assert alone.expected_s[0] == pytest.approx(alone.floor_s[0])
    dense = roofline(LLAMA).analyse(decode(64, 1))
    assert dense.expected_s[0] == dense.floor_s[0]
    assert not any("experts" in note for note in dense.notes)


def test_decode_pairs_cost_what_a_latent_costs() -> None:
    # Absorbed: 2 x 16 heads x (64 + 8 as key, 64 as value) flops a pair; un-absorbed 2 x 16 x (16 + 8 + 16), 12 layers.
    found = roofline(MOE)
    per_pair = (found.analyse(decode(4, 1001)).flops - found.analyse(decode(4, 1000)).flops)[0] / 4
    assert per_pair == pytest.approx(12 * 2 * 16 * 136)
    prompts = [found.analyse(decode(1, 9, prompt=size)).flops[0] for size in (2, 3, 4)]
    # The third and the fourth token see 3 and 4 keys: what one more token costs grows by a pair.
    assert (prompts[2] - prompts[1]) - (prompts[1] - prompts[0]) == pytest.approx(12 * 2 * 16 * 40)


def test_a_window_reads_no_more_however_long_the_context() -> None:
    # Two of twelve layers see all; a token of context is 2 x 8 x 32 bf16 elements, 1024 bytes a layer.
    found = roofline(WINDOWED)
    reads = [found.analyse(decode(3, context)).kv_read_bytes[0] for context in (100, 128, 228, 1128)]
    assert reads == pytest.approx(
        [3 * 1024 * each for each in (1200, 12 * 128, 10 * 128 + 2 * 228, 10 * 128 + 2 * 1128)]
    )


def test_an_indexer_reads_its_keys_and_the_entries_that_it_chose() -> None:
    # A latent is 72 bf16 elements, a key of the indexer 16, in each of 12 layers; up to 512 there is nothing to choose.
    found = roofline(SPARSE_MOE)
    for context in (300, 512, 5000):
        reads = found.analyse(decode(1, context)).kv_read_bytes[0]
        assert reads == pytest.approx(12 * 2 * (72 * min(context, 512) + 16 * (context > 512) * context))


def test_a_pipeline_takes_its_slowest_stage_and_does_all_the_work() -> None:
    steps = decode(16, 1000)
    one, three = (roofline(LLAMA, Deployment(pipeline=stages)).analyse(steps) for stages in (1, 4))
    assert one.floor_s[0] / 4 < three.floor_s[0] < one.floor_s[0] / 2
    for name in ("flops", "weight_bytes", "kv_read_bytes", "kv_write_bytes"):
        assert getattr(three, name)[0] == pytest.approx(getattr(one, name)[0]), name
    assert (one.devices, three.devices) == (1, 4)


# The first of two stages has five dense layers of wide matrices, the second five of much cache and no experts' weights.
UNEVEN = replace(
    MOE,
    name="uneven",
    layers=(
        Layer(5, Attention(16, 1, 32, 32), DenseMLP(8192, gated=True)),
        Layer(5, Attention(16, 16, 32, 32), EXPERTS),
    ),
)


@pytest.mark.parametrize("name", ["uneven", "moe", "windowed"])
@pytest.mark.parametrize(("batch", "context"), [(1, 10), (40, 10), (300, 10), (1, 20_000), (200, 3000)])
def test_every_stage_of_a_pipeline_is_looked_at(name: str, batch: int, context: int) -> None:
    arch, spread = {**ARCHS, "uneven": UNEVEN}[name], Deployment(tensor=2, pipeline=2)
    found = roofline(arch, spread)
    analysis = found.analyse_all(decode(batch, context))
    stages = stage_works(arch, choose_precision(arch), spread)
    point = UniformBatch(batch, context)
    features = point_features(point, names_of(row for rows in stages for row in rows))
    sides = [sides_of(rows, features, H100, 2) for rows in stages]
    # Each side of the floor is that of the stage where it is largest, and so is the floor.
    for column in ("memory_s", "compute_s", "link_floor_s", "floor_s"):
        assert getattr(analysis, column)[0] == pytest.approx(max(getattr(each, column) for each in sides)), column
    assert analysis.expected_s[0] == pytest.approx(max(each.expected_floor_s for each in sides))
    slowest = max(sides, key=lambda each: each.serial_s)
    assert analysis.serial_floor_s[0] == pytest.approx(slowest.serial_s)
    assert analysis.link_s[0] == pytest.approx(slowest.link_s)
    np.testing.assert_allclose(sum(analysis.group_s.values()), analysis.serial_floor_s + analysis.link_s)
    reached = efficiency_of(H100)
    assert reached is not None
    assert analysis.reachable_s is not None
    features = point_features(point, {name for rows in stages for name in terms_of(rows, H100, reached, spread).names})
    each_s = [seconds_of(terms_of(rows, H100, reached, spread), features) for rows in stages]
    assert analysis.reachable_s[0] == pytest.approx(max(*each_s, analysis.expected_s[0]))


def test_which_stage_is_slowest_differs_from_step_to_step() -> None:
    first, second = stage_works(UNEVEN, choose_precision(UNEVEN), Deployment(pipeline=2))
    steps = StepTable(
        {name: np.concatenate([decode(1, 10)[name], decode(200, 3000)[name]]) for name in decode(1, 10).columns}
    )
    analysis = roofline(UNEVEN, Deployment(pipeline=2)).analyse(steps)
    for place, (batch, context, rows) in enumerate(((1, 10, first), (200, 3000, second))):
        features = point_features(UniformBatch(batch, context), names_of((*first, *second)))
        sides = sides_of(rows, features, H100, 1)
        assert analysis.floor_s[place] == pytest.approx(sides.floor_s)
        assert analysis.serial_floor_s[place] == pytest.approx(sides.serial_s)
    # Only the second stage has experts and the head.
    assert analysis.group_s["experts"][0] == analysis.group_s["head"][0] == 0
    assert analysis.group_s["experts"][1] > 0


def test_other_ranks_may_be_idle_and_are_expected_not_to_be() -> None:
    # Without expert parallelism each expert is cut over 4 ranks. The floor knows of one rank's tokens only.
    steps, spread = decode(4096, 1), Deployment(data=4)
    alone, four = roofline(MOE).analyse(steps), roofline(MOE, spread).analyse(steps)
    experts = 2 * 3 * 512 * 32 * 4 * 10 * 4096
    rate = H100.ceiling_flops_per_s["bf16"]
    assert (alone.compute_s - four.compute_s)[0] == pytest.approx(experts * 3 / 4 / rate)
    assert four.flops[0] == pytest.approx(alone.flops[0])  # all ranks alike: each does a rank's work
    row = Work("x", "experts", flops={"rank_tokens@4": 2.0, "query_tokens": 1.0})
    assert strict_flops(row) == {"query_tokens": 3.0}
    assert features_of((row,)) == ("passes", "query_tokens", "rank_tokens@4")
    names = {each.operator for each in roofline(MOE, Deployment(tensor=2, data=4, expert=True)).rows if each.link_bytes}
    assert names & set(BETWEEN_RANKS)


def test_the_same_on_other_hardware() -> None:
    found = Roofline(MOE, H100, choose_precision(MOE), Deployment(tensor=2), 16, 4096, 3)
    other = found.on(find_hardware("h200-sxm-141"))
    again = other.on(H100)
    for name in ("arch", "precision", "deployment", "block_tokens", "longest_tokens", "kv_groups", "names"):
        assert getattr(found, name) == getattr(other, name), name
    steps = decode(64, 1000)
    assert other.analyse(steps).memory_s[0] < found.analyse(steps).memory_s[0] == again.analyse(steps).memory_s[0]


def test_tables_that_follow_each_other_are_taken_one_at_a_time() -> None:
    asked = []

    def tables() -> object:
        for batch in (1, 2, 3):
            asked.append(batch)
            yield decode(batch, 100)

    found = roofline(LLAMA)
    several = found.bounds_of_many(tables())  # type: ignore[arg-type]
    assert asked == []
    assert next(several).floor_s[0] == found.bounds(decode(1, 100)).floor_s[0]
    assert asked == [1]
    assert len(list(several)) == 2


def test_a_source_without_lengths_gets_a_lower_floor_and_is_told_so() -> None:
    told = decode(8, 3000)
    bare = StepTable({name: column for name, column in told.columns.items() if "@" not in name})
    arch = replace(WINDOWED, max_context_tokens=6000)
    full, least = roofline(arch).analyse(told), roofline(arch).analyse(bare)
    # Of 24,000 tokens at least 128 / 6000 are within a window of 128, which is half of what is.
    assert least.kv_read_bytes[0] == pytest.approx(1024 * (2 * 24_000 + 10 * 512))
    assert full.kv_read_bytes[0] == pytest.approx(1024 * (2 * 24_000 + 10 * 1024))
    assert least.floor_s[0] < full.floor_s[0]
    assert [note for note in least.notes if note not in full.notes] == [
        "how far windows and chunks reach in each step is not told: the least that the sums of the contexts allow is "
        "counted"
    ]


def test_ranks_that_share_experts_are_one_domain_and_others_are_not() -> None:
    # 4 tensor-parallel devices in each of 4 ranks: with experts in all 16 a layer's tokens cross between the ranks.
    table, spread = decode(8, 100), Deployment(tensor=4, data=4, expert=True)
    notes = Roofline(MOE, find_hardware("h100-sxm5-80"), choose_precision(MOE), spread).analyse(table).notes
    assert "one NVLink domain of 16 devices is assumed" in notes
    dense = Roofline(LLAMA, find_hardware("h100-sxm5-80"), choose_precision(LLAMA), spread).analyse(table).notes
    assert not any("domain" in note for note in dense)
