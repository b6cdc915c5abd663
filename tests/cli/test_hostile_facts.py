"""Rings whose facts lie: configs that would hang or overflow a reader, and sizes that no engine has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rooflens.cli import main
from rooflens.records import EngineInfo
from rooflens.ring_folder import create_ring
from rooflens.ring_writer import pack_cold

LLAMA = {
    "hidden_size": 4096, "num_hidden_layers": 8, "num_attention_heads": 32, "num_key_value_heads": 8,
    "intermediate_size": 14336, "vocab_size": 128256, "torch_dtype": "bfloat16", "hidden_act": "silu",
}  # fmt: skip
FP8 = {"quant_method": "fp8"}


def ring(folder: Path, **facts: Any) -> Path:
    """A ring of three steps whose facts no adapter cleaned."""
    folder.chmod(0o700)
    writer, path = create_ring(folder, 0, ((8, 4096),))
    writer.set_info({"instance": "i", "engine": "vllm", "model_name": "m", "kv_blocks": 4096, **facts})
    for number in range(1, 4):
        writer.commit(number * 10**9, number * 10**9 + 10**7, 0, 0, 0, 0, 0, 0, 0, pack_cold(1, 1, *[0] * 17))
    writer.close()
    return path


def analyzed(path: Path, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["analyze", str(path), "--hardware", "h100-sxm5-80", *words]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("expression", [".?" * 100 + "Z", r"\w*.*\w*.*\w*.*\w*.*Z", r"(?:.|\w)" * 45 + "Z"])
def test_no_recorded_expression_hangs(tmp_path: Path, capsys: pytest.CaptureFixture[str], expression: str) -> None:
    stated = {**LLAMA, "quantization_config": {**FP8, "ignored_layers": ["re:" + expression]}}
    assert "floor" in analyzed(ring(tmp_path, model_config=stated), capsys)


def test_a_recorded_expression_that_is_not_understood_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stated = {**LLAMA, "quantization_config": {**FP8, "ignored_layers": [r"re:(?=(.*)\1)"]}}
    assert "it looks ahead or back" in analyzed(ring(tmp_path, model_config=stated), capsys)


@pytest.mark.parametrize("depth", [33, 500])
@pytest.mark.parametrize("words", [(), ("--json",)])
def test_a_config_nested_too_deep_is_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], depth: int, words: tuple[str, ...]
) -> None:
    deep: Any = {}
    for level in range(depth):
        deep = {"a": deep} if level % 2 else [deep]
    told = analyzed(ring(tmp_path, model_config={**LLAMA, "odd": deep}), capsys, *words)
    if words:
        (found,) = json.loads(told)
        assert found["engine"]["unread"] == ["model_config"]
    else:
        assert "taken as not stated: model_config" in told


def test_a_config_of_a_sane_depth_is_kept() -> None:
    deep: Any = {}
    for _ in range(30):
        deep = {"a": deep}
    told = EngineInfo.from_json({"instance": "i", "engine": "e", "model_config": deep})
    assert told.model_config == deep
    assert "unread" not in told.to_json()


@pytest.mark.parametrize("value", [0, -1, 10**30, "8", float("nan"), True, [8]])
def test_sizes_that_cannot_be_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str], value: object) -> None:
    told = analyzed(ring(tmp_path, model_config=LLAMA, tensor_parallel=value), capsys)
    assert "taken as not stated: tensor_parallel" in told
    assert "floor" in told


def test_sizes_that_are_stated_or_null_are_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = analyzed(ring(tmp_path, model_config=LLAMA, tensor_parallel=8, block_tokens=None, newer=-1), capsys)
    assert "not stated" not in told


def test_facts_cannot_say_themselves_what_is_unread() -> None:
    told = EngineInfo.from_json({"instance": "i", "engine": "e", "unread": ["x"], "rank": "0", "block_tokens": 0})
    assert told.unread == ("rank", "block_tokens")
    assert EngineInfo.from_json(told.to_json()).unread == ()
