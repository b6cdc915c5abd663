"""What a config.json leaves open is assumed with a note, or refused where the fields do not tell."""

from __future__ import annotations

from typing import Any

import pytest

from rooflens.analyzer.arch import arch_from_config, find_model
from rooflens.analyzer.hardware import find_hardware
from rooflens.analyzer.precision import choose_precision
from rooflens.analyzer.predict import Plan, devices_needed, predict
from rooflens.arch_records import Deployment
from rooflens.records import RooflensError

CONFIG = {
    "model_type": "llama", "hidden_size": 288, "num_hidden_layers": 6, "num_attention_heads": 6,
    "intermediate_size": 768, "vocab_size": 32000, "hidden_act": "silu", "torch_dtype": "bfloat16",
}  # fmt: skip
LLAMA_70B = find_model("meta-llama-3-70b")
H100 = find_hardware("h100-sxm5-80")


def config(**changes: Any) -> dict[str, Any]:
    return {name: value for name, value in (CONFIG | changes).items() if value != "absent"}


def test_a_config_that_says_all_leaves_nothing_to_assume() -> None:
    arch = arch_from_config(config())
    assert (arch.activation_assumed, arch.assumptions) == (False, ())


@pytest.mark.parametrize(
    "change", [{"torch_dtype": None}, {"torch_dtype": "absent"}, {"dtype": None, "torch_dtype": None}]
)
def test_a_missing_dtype_is_an_assumption(change: dict[str, Any]) -> None:
    arch = arch_from_config(config(**change))
    assert (arch.activation_assumed, arch.activation_format) == (True, "bf16")


def test_dtype_counts_where_torch_dtype_is_null() -> None:
    arch = arch_from_config(config(torch_dtype=None, dtype="float16"))
    assert (arch.activation_assumed, arch.activation_format) == (False, "fp16")


def test_an_unknown_model_type_is_named() -> None:
    notes = arch_from_config(config(model_type="newthing")).assumptions
    assert notes == (
        "model_type 'newthing' is not known here: taken as its fields describe it",
        "the config does not say tie_word_embeddings: a head of its own is assumed",
    )


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3", "mistral"])
@pytest.mark.parametrize("activation", [None, "absent"])
def test_a_missing_activation_of_a_gated_family_is_assumed(kind: str, activation: str | None) -> None:
    arch = arch_from_config(config(model_type=kind, hidden_act=activation))
    assert arch.layers[0].mlp.gated
    assert arch.assumptions == (
        f"the config states no hidden_act: a gated MLP (silu) is assumed, as in model_type '{kind}'",
    )


def test_where_the_fields_leave_it_open_it_is_refused() -> None:
    for kind in ("absent", "newthing"):
        with pytest.raises(RooflensError, match="mlp_gated"):
            arch_from_config(config(model_type=kind, hidden_act="absent"))


def test_a_short_model_name_is_suggested() -> None:
    with pytest.raises(RooflensError, match=r"did you mean meta-llama-3-8b\?"):
        find_model("llama-3-8b")
    with pytest.raises(RooflensError, match=r"did you mean [^)]*qwen3-8b"):
        find_model("qwen3-8")


def test_devices_needed_is_the_smallest_that_fits() -> None:
    precision = choose_precision(LLAMA_70B)
    for plan in (
        Plan(),
        Plan(batch=64, context_tokens=8192),
        Plan(8, Deployment(tensor=8), batch=6000, context_tokens=8192),
    ):
        needed = devices_needed(LLAMA_70B, H100, precision, plan)
        assert needed is not None
        devices, spread = needed
        there = Plan(devices, spread, plan.batch, plan.context_tokens)
        assert predict(LLAMA_70B, H100, precision, there).fits
        fewer = Plan(devices - spread.devices, spread, plan.batch, plan.context_tokens)
        assert fewer.devices == 0 or not predict(LLAMA_70B, H100, precision, fewer).fits
    assert devices_needed(LLAMA_70B, H100, precision, Plan()) == (2, Deployment(tensor=2))
    assert devices_needed(LLAMA_70B, H100, precision, Plan(memory_bytes=1e6)) is None


def test_what_the_cache_may_keep_is_counted() -> None:
    tiny = arch_from_config(config())
    l40s = find_hardware("l40s")
    result = predict(tiny, l40s, choose_precision(tiny), Plan())
    assert (result.memory_s, result.bound, result.bound_known) == (0.0, "compute", False)
    moved = result.weight_read_bytes + result.kv_read_bytes + result.kv_write_bytes
    assert result.cached_bytes == moved + 288 * 2  # and the gathered row of the embedding
    large = predict(LLAMA_70B, H100, choose_precision(LLAMA_70B), Plan(8, Deployment(tensor=8)))
    assert (large.cached_bytes, large.bound_known) == (8 * 50 * 2**20, True)
