"""Configs whose fields contradict one another, deployments that do not fit, and what is said of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rooflens.analyzer.arch import arch_from_config, arch_from_file, find_model
from rooflens.analyzer.operators.checks import check_deployment
from rooflens.arch_records import Attention, Deployment, Layer
from rooflens.records import RooflensError

LLAMA: dict[str, Any] = {
    "hidden_size": 4096, "num_hidden_layers": 8, "num_attention_heads": 24, "num_key_value_heads": 8,
    "intermediate_size": 14336, "vocab_size": 128256, "hidden_act": "silu", "head_dim": 128,
    "tie_word_embeddings": False, "model_type": "mistral",
}  # fmt: skip
SLIDING = ["sliding_attention"] * 8


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_local_experts": 0, "num_experts_per_tok": 2}, "config has 0 experts, of which a token cannot use 2"),
        ({"sliding_window": 0, "use_sliding_window": True}, "sliding_window is 0, and use_sliding_window says"),
        ({"sliding_window": -1, "use_sliding_window": True}, "sliding_window is -1, and use_sliding_window says"),
        ({"sliding_window": 0, "layer_types": SLIDING}, "sliding_window is 0, and layer_types says"),
        ({"sliding_window": -2}, "sliding_window is -2: not a whole number"),
        ({"dtype": "int7", "torch_dtype": "bfloat16"}, "config field dtype is 'int7'"),
        ({"torch_dtype": "int7"}, "config field torch_dtype is 'int7'"),
    ],
)
def test_fields_that_contradict_one_another_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(RooflensError, match=message):
        arch_from_config({**LLAMA, **change})


@pytest.mark.parametrize(
    "change",
    [
        {"num_local_experts": 0, "num_experts_per_tok": 0}, {"num_local_experts": 0}, {"sliding_window": 0},
        {"sliding_window": -1}, {"sliding_window": None}, {"sliding_window": 0, "use_sliding_window": False},
        {"sliding_window": -1, "use_sliding_window": False, "layer_types": SLIDING},
        {"is_moe": False, "num_experts": 0},
    ],
)  # fmt: skip
def test_what_is_switched_off_is_a_plain_model(change: dict[str, Any]) -> None:
    assert replace(arch_from_config({**LLAMA, **change}), unknown=()) == arch_from_config(LLAMA)


def test_the_newer_name_of_the_dtype_wins_and_it_is_said() -> None:
    both = arch_from_config({**LLAMA, "torch_dtype": "float32", "dtype": "bfloat16"})
    assert both.activation_format == "bf16"
    assert both.assumptions == ("config fields say dtype 'bfloat16' and torch_dtype 'float32': the first is taken",)
    same = arch_from_config({**LLAMA, "torch_dtype": "float16", "dtype": "float16"})
    assert (same.activation_format, same.assumptions) == ("fp16", ())
    assert arch_from_config({**LLAMA, "torch_dtype": "float16", "dtype": None}).activation_format == "fp16"


def test_a_field_that_is_stated_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    for text in ('{"hidden_size": 1, "hidden_size": 2}', '{"text_config": {"hidden_size": 1, "hidden_size": 1}}'):
        path.write_text(text)
        with pytest.raises(RooflensError, match="'hidden_size' is stated twice"):
            arch_from_file(path)


def test_rules_that_are_not_understood_name_the_file(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    stated = {"quant_method": "fp8", "ignored_layers": ["re:(?=a)"]}
    path.write_text(json.dumps({**LLAMA, "quantization_config": stated}))
    with pytest.raises(RooflensError, match="names modules by the expression") as caught:
        arch_from_file(path)
    assert str(caught.value).startswith(f"{path}: ")
    arch_from_file(path, read_quantization=False)  # --weights


@pytest.mark.parametrize("name", ["", "  "])
def test_an_empty_name_is_no_folder(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    monkeypatch.chdir(tmp_path)
    assert find_model(".").hidden_size == 4096
    with pytest.raises(RooflensError, match="name is empty"):
        find_model(name)


def test_a_folder_called_config_json_is_said_in_words(tmp_path: Path) -> None:
    (tmp_path / "config.json").mkdir()
    with pytest.raises(RooflensError, match="is a directory") as caught:
        find_model(str(tmp_path))
    assert "Errno" not in str(caught.value)


def test_what_does_not_divide_says_what_would() -> None:
    # 24 heads over 8 KV heads: 1, 2, 4 and 8 divide both, 24 is three devices for each KV head; 3, 6 and 12 are none.
    arch = arch_from_config(LLAMA)
    mixed = replace(arch, encoder=(Layer(2, Attention(12, 4, 128, 128), None),))  # and 12 heads over 4: up to 4 and 12
    moe = arch_from_config({**LLAMA, "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 64})
    said = [
        (arch, Deployment(3), "divides nor is a multiple of 8 KV heads; 1, 2, 4, 8, 24 would (--tp of predict)"),
        (arch, Deployment(5), "5 does not divide 24 attention heads; 1, 2, 4, 8, 24 would (--tp of predict)"),
        (mixed, Deployment(8), "8 does not divide 12 attention heads; 1, 2, 4 would (--tp of predict)"),
        (arch, Deployment(8, context=3), "whose devices share the cache; 1, 2, 4, 8 would (--cp of predict)"),
        (arch, Deployment(pipeline=9), "the model's 8 layers; any up to 8 is possible (--pp of predict)"),
        (moe, Deployment(8, expert=True), "not divide 6 experts; 1, 2, 3, 6 would (--tp x --dp of predict)"),
    ]  # fmt: skip
    for model, deployment, message in said:
        with pytest.raises(RooflensError) as caught:
            check_deployment(model, deployment)
        assert str(caught.value).endswith(message)
