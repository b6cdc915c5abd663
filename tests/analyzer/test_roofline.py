"""The roofline of a table: the same as one step at a time, honest about what it does not know, and fast."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from counted_calls import calls_of
from hypothesis import given, settings
from hypothesis import strategies as st

from rooflens.analyzer.arch import find_model
from rooflens.analyzer.hardware import find_hardware
from rooflens.analyzer.precision import Precision, choose_precision
from rooflens.analyzer.predict import Plan, predict
from rooflens.analyzer.roofline import analyse, analyse_engine
from rooflens.arch_records import Deployment
from rooflens.model_records import Bound
from rooflens.records import EngineInfo, RooflensError, StepKind, StepTable

LLAMA = find_model("meta-llama-3.1-8b")
BF16 = choose_precision(LLAMA)
H100 = find_hardware("h100-sxm5-80")
EIGHT = Deployment(tensor=8)
CONFIG = {
    "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    "intermediate_size": 14336, "vocab_size": 128256, "hidden_act": "silu", "tie_word_embeddings": False,
}  # fmt: skip


def table(known: dict[str, Any] | None = None, **columns: Any) -> StepTable:
    kinds = {name: np.asarray(column) for name, column in columns.items()}
    return StepTable(kinds, known or {})


def decode_table(batch: Any, context: Any, **columns: Any) -> StepTable:
    sequences, cached = np.asarray(batch), np.asarray(context)
    return table(
        kind=np.full(len(sequences), StepKind.DECODE),
        query_tokens=sequences,
        sampled_rows=sequences,
        requests=sequences,
        context_tokens=sequences * cached,
        causal_pairs=sequences * (cached + 1),
        **columns,
    )


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 512),
    st.integers(0, 100_000),
    st.sampled_from(["decode", "prefill"]),
    st.sampled_from([1, 2, 8]),
    st.sampled_from(["bf16", "fp8", "int4"]),
    st.sampled_from(["bf16", "fp8"]),
)
def test_vectorised_is_scalar(batch: int, context: int, phase: str, devices: int, weights: str, kv: str) -> None:
    context = max(context, 1)
    precision = choose_precision(LLAMA, weights, kv)
    plan = Plan(devices, Deployment(tensor=devices), batch, context, phase)
    scalar = predict(LLAMA, H100, precision, plan)
    query = context if phase == "prefill" else 1
    cached = 0 if phase == "prefill" else context
    steps = table(
        query_tokens=[batch * query],
        sampled_rows=[batch],
        context_tokens=[batch * cached],
        causal_pairs=[batch * (query * cached + query * (query + 1) // 2)],
        observed_s=[scalar.floor_s],
    )
    result = analyse(steps, LLAMA, H100, precision, Deployment(tensor=devices))
    for name in (
        "floor_s",
        "memory_s",
        "compute_s",
        "serial_floor_s",
        "link_s",
        "flops",
        "kv_read_bytes",
        "mfu",
        "mbu",
    ):
        assert getattr(result, name)[0] == pytest.approx(getattr(scalar, name), rel=1e-9), name
    assert result.weight_bytes[0] == pytest.approx(scalar.weight_read_bytes)
    assert Bound(result.bound[0]).name.lower() == scalar.bound


def test_the_parts_sum_to_the_whole() -> None:
    steps = decode_table([1, 64, 512], [100, 8192, 200], observed_s=[0.01, 0.02, 0.03])
    result = analyse(steps, LLAMA, H100, BF16, EIGHT)
    assert set(result.group_s) == {"linear", "attention", "link", "embedding", "head"}
    np.testing.assert_allclose(sum(result.group_s.values()), result.serial_floor_s + result.link_s)
    np.testing.assert_allclose(sum(result.group_flops.values()), result.flops)
    kv = result.kv_read_bytes + result.kv_write_bytes
    np.testing.assert_allclose(result.group_bytes["attention"], kv)
    np.testing.assert_allclose(result.group_bytes["linear"] + result.group_bytes["head"], result.weight_bytes)
    np.testing.assert_allclose(result.mbu, result.memory_s / [0.01, 0.02, 0.03])
    assert (result.serial_floor_s >= np.maximum(result.memory_s, result.compute_s)).all()
    assert result.compared.all()


def test_faster_than_the_floor_is_marked_and_never_clipped() -> None:
    # Llama 3.1 8B in bf16 streams 15.0 GB at 3.35 TB/s: 4.5 ms. A step of 4 ms on one H100 cannot be.
    result = analyse(decode_table([1, 1], [10, 10], observed_s=[0.004, 0.006]), LLAMA, H100, BF16)
    assert result.below_floor.tolist() == [True, False]
    assert result.mbu[0] > 1.1
    assert result.observed_s[0] == 0.004


def test_ridge_separates_the_bounds() -> None:
    # Weights once for B tokens: 2 flops x B over 2 bytes each. The knee is near the ridge at the highest clock,
    # 1070.5e12 / 3.35e12 = 320 sequences of short context.
    result = analyse(decode_table([1, 250, 400], [1, 1, 1]), LLAMA, H100, BF16)
    assert result.bound.tolist() == [Bound.MEMORY, Bound.MEMORY, Bound.COMPUTE]


def test_kinds_that_are_not_modelled_and_unknown_values_say_so() -> None:
    steps = decode_table([4, 4, 4, 4], [10, 10, 10, 10], observed_s=[0.01, 0.01, 0.0, 0.01])
    steps.columns["kind"][:2] = [StepKind.ENCODE, StepKind.VERIFY]  # type: ignore[index]
    steps = StepTable(steps.columns, {"context_tokens": np.array([True, True, True, False])})
    result = analyse(steps, LLAMA, H100, BF16)
    assert result.modelled.tolist() == [False, True, True, False]
    assert result.compared.tolist() == [False, True, False, False]  # an observed zero is no observation
    assert np.isnan(result.floor_s).tolist() == [True, False, False, True]
    assert not result.below_floor.any()


def test_without_observed_times_there_are_bounds_only() -> None:
    result = analyse(decode_table([4], [10]), LLAMA, H100, BF16)
    assert result.modelled.all()
    assert not result.compared.any()


def test_a_missing_column_is_named() -> None:
    with pytest.raises(RooflensError, match=r"no contexts are told \(causal_pairs\)"):
        analyse(table(query_tokens=[1], sampled_rows=[1], context_tokens=[1]), LLAMA, H100, BF16)


def test_an_empty_table_has_an_empty_analysis() -> None:
    empty = np.zeros(0, dtype=np.int64)
    result = analyse(decode_table(empty, empty, observed_s=empty.astype(float)), LLAMA, H100, BF16)
    assert len(result.floor_s) == 0


def test_a_step_without_tokens_moves_nothing() -> None:
    result = analyse(decode_table([0], [0], observed_s=[0.001]), LLAMA, H100, BF16)
    assert (result.floor_s[0], result.weight_bytes[0]) == (0.0, 0.0)


def test_a_window_row_reads_the_weights_once_for_each_of_its_steps() -> None:
    one = analyse(decode_table([4], [100]), LLAMA, H100, BF16)
    ten = table(query_tokens=[40], sampled_rows=[40], context_tokens=[4000], causal_pairs=[4040], resolution_steps=[10])
    assert analyse(ten, LLAMA, H100, BF16).floor_s[0] == pytest.approx(10 * one.floor_s[0])


def test_shared_prefixes_are_read_once() -> None:
    # 8 sequences of 1000 tokens share 992 of them: 62 shared blocks of 16 and 8 of their own are held.
    steps = decode_table([8], [1000], kv_blocks_used=[70])
    apart, shared = (analyse(steps, LLAMA, H100, BF16, block_tokens=size) for size in (None, 16))
    assert apart.kv_read_bytes[0] == 8 * 1000 * 131072
    assert shared.kv_read_bytes[0] == 70 * 16 * 131072
    assert shared.flops[0] == apart.flops[0]


def test_blocks_that_were_free_again_when_they_were_counted_do_not_shrink_the_reads() -> None:
    # All 8 sequences end in the last step, so nothing is held after it; the step itself read all of its contexts.
    steps = decode_table([8, 8, 8], [1000, 1001, 1002], kv_blocks_used=[70, 70, 0], finished_requests=[0, 0, 8])
    reads = analyse(steps, LLAMA, H100, BF16, block_tokens=16).kv_read_bytes
    assert reads[2] == pytest.approx(reads[1] * 1002 / 1001)
    # Preempted for the step after: freed before the count as well.
    steps = decode_table([8, 8, 4], [1000, 1001, 1002], kv_blocks_used=[504, 250, 260], preempted=[0, 0, 4])
    apart = analyse(steps, LLAMA, H100, BF16).kv_read_bytes
    assert analyse(steps, LLAMA, H100, BF16, block_tokens=16).kv_read_bytes.tolist() == apart.tolist()


def test_what_the_cache_can_keep_need_not_come_from_memory() -> None:
    roomy = replace(H100, cache_bytes=20 * 10**9)
    result = analyse(decode_table([1], [10]), LLAMA, roomy, BF16)
    assert result.memory_s[0] == 0.0
    assert result.bound[0] == Bound.COMPUTE


def test_a_switch_that_adds_lowers_the_link_side_of_the_floor() -> None:
    steps = decode_table([64], [10])
    adding = analyse(steps, LLAMA, H100, BF16, EIGHT)
    plain = analyse(steps, LLAMA, replace(H100, link_reduces=False), BF16, EIGHT)
    assert plain.link_floor_s[0] == plain.link_s[0] == adding.link_s[0]
    assert plain.link_floor_s[0] == pytest.approx(1.75 * adding.link_floor_s[0])


def test_several_devices_need_a_link() -> None:
    with pytest.raises(RooflensError, match="states no link"):
        analyse(decode_table([1], [1]), LLAMA, replace(H100, link_bandwidth_bytes_per_s=None), BF16, EIGHT)


def test_a_rate_that_is_not_stated_leaves_the_floor_of_memory_and_link() -> None:
    bare = replace(H100, ceiling_flops_per_s={"fp8": 1e15}, peak_flops_per_s={"fp8": 1e15})
    steps = decode_table([1, 4000], [1, 1], observed_s=[0.01, 0.1])  # the second is bound by compute on an H100
    known, found = analyse(steps, LLAMA, H100, BF16), analyse(steps, LLAMA, bare, BF16)
    assert (known.compute_known, found.compute_known) == (True, False)
    assert found.floor_s.tolist() == known.memory_s.tolist()
    assert (found.compute_s == 0).all()
    assert (found.serial_floor_s <= known.serial_floor_s).all()
    assert not [note for note in known.notes if "no rate" in note]
    assert "h100-sxm5-80 states no rate for bf16 (it knows fp8): compute time and MFU are not known" in found.notes[0]
    scalar = predict(LLAMA, bare, BF16, Plan(batch=4000, context_tokens=1))
    assert scalar.floor_s == pytest.approx(found.floor_s[1])
    assert scalar.serial_floor_s == pytest.approx(found.serial_floor_s[1])
    assert (scalar.compute_s, scalar.mfu, scalar.bound, scalar.bound_known) == (None, None, "memory", False)


def test_notes_of_an_analysis_name_what_was_assumed() -> None:
    roomy = replace(H100, cache_bytes=20 * 10**8)
    steps = decode_table([1], [10])
    notes = " ".join(analyse(steps, replace(LLAMA, assumptions=("a guess",)), roomy, BF16, Deployment(tensor=2)).notes)
    for text in ("a guess", "4 GB may stay in the last-level cache", "no latency"):
        assert text in notes
    info = EngineInfo("i", "vllm", model_config=CONFIG)
    assert "no dtype is stated: bf16 is assumed" in analyse_engine(steps, info, H100).notes
    stated = analyse_engine(steps, replace(info, weight_dtype="bfloat16"), H100).notes
    assert not [note for note in stated if "dtype" in note]


def test_an_engine_is_analysed_as_it_states_itself() -> None:
    info = EngineInfo("i", "vllm", model_config=CONFIG, weight_dtype="bfloat16", kv_dtype="fp8", tensor_parallel=2)
    steps = decode_table([8], [1000], observed_s=[0.01])
    expected = analyse(steps, LLAMA, H100, Precision("bf16", "fp8", "bf16", "bf16"), Deployment(tensor=2))
    assert analyse_engine(steps, info, H100).floor_s[0] == expected.floor_s[0]
    plain = expected.floor_s[0]
    spread: dict[str, tuple[Any, Deployment]] = {
        "pipeline_parallel": (2, Deployment(tensor=2, pipeline=2)),
        "context_parallel": (2, Deployment(tensor=2, context=2)),
        "data_parallel": (4, Deployment(tensor=2, data=4)),
        "expert_parallel": (True, Deployment(tensor=2, expert=True)),
    }
    for name, (value, deployment) in spread.items():
        found = analyse_engine(steps, replace(info, **{name: value}), H100)
        assert (
            found.floor_s[0]
            == analyse(steps, LLAMA, H100, Precision("bf16", "fp8", "bf16", "bf16"), deployment).floor_s[0]
        )
        # A dense model is the same on every rank, and its KV heads are enough for two; half of its depth is not.
        assert (found.floor_s[0] < 0.6 * plain) == (name == "pipeline_parallel")
        assert found.devices == (4 if name == "pipeline_parallel" else 2)
    with pytest.raises(RooflensError, match="more stages than"):
        analyse_engine(steps, replace(info, pipeline_parallel=33), H100)
    with pytest.raises(RooflensError, match="did not state"):
        analyse_engine(steps, replace(info, model_config=None), H100)


def test_a_million_steps_are_a_matrix_product() -> None:
    rng = np.random.default_rng(0)
    steps = decode_table(
        rng.integers(1, 256, 1_000_000), rng.integers(1, 8192, 1_000_000), observed_s=rng.random(1_000_000)
    )
    assert calls_of(lambda: analyse(steps, LLAMA, H100, BF16, EIGHT)) < 100_000  # a Python loop makes a million
    assert analyse(steps, LLAMA, H100, BF16, EIGHT).modelled.all()
