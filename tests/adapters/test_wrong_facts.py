"""What an engine says of itself and of a step, wrong in every way that an engine may be."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rooflens.adapters.facts import plain
from rooflens.adapters.recorder import Recorder
from rooflens.cli import main
from rooflens.collector.ring_source import RingSource
from rooflens.records import EngineInfo, KVGroup, RooflensError

CONFIG = {
    "hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 16, "num_attention_heads": 16,
    "num_key_value_heads": 4, "vocab_size": 32000, "hidden_act": "silu", "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}  # fmt: skip
HUGE = 10**400
WRONG = [
    {"kv_blocks": "4096"}, {"kv_blocks": -1}, {"kv_blocks": HUGE}, {"block_tokens": "4096"}, {"block_tokens": 0},
    {"tensor_parallel": "4096"}, {"tensor_parallel": 0}, {"tensor_parallel": 10**25}, {"weight_dtype": 5},
    {"expert_parallel": 1}, {"model_config": 3}, {"kv_dtype": object()}, {"start_unix_s": math.inf},
    {"start_unix_s": math.nan}, {"start_unix_s": HUGE}, {"start_unix_s": 1e13}, {"graph_sizes": 5},
    {"graph_sizes": ["a"]}, {"device_uuids": "GPU-1"}, {"kv_groups": [{"kind": 5}]}, {"rank": "4096"}, {"rank": -1},
    {"rank": HUGE}, {"pod": "/srv/place/secret"}, {"quantization": "C:\\secret"}, {"device": "\x1b[31msecret"},
    {"engine_version": "secret\n"}, {"model_name": "secret\ud800"}, {"device_uuids": ["/secret"]},
    {"kv_groups": [{"kind": "/secret", "layers": 1, "block_tokens": 16}]},
]  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    return tmp_path


@pytest.mark.parametrize("facts", WRONG, ids=lambda facts: next(iter(facts)))
def test_a_wrong_fact_is_left_out_with_one_warning(
    folder: Path, facts: dict[str, Any], caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    recorder = Recorder("test", folder=folder, **{"model_config": CONFIG, **facts})
    for number in range(3):
        with recorder.step(contexts=[number]):
            pass
    recorder.close()
    (warning,) = caplog.messages
    assert next(iter(facts)) in warning
    assert "secret" not in warning
    assert recorder.path is not None
    assert b"secret" not in recorder.path.read_bytes()
    for more in ([], ["--json"], ["--hardware", "h100-sxm5-80"]):
        assert main(["analyze", str(recorder.path), *more]) == 0
    capsys.readouterr()
    with pytest.raises(RooflensError, match=next(iter(facts))):
        Recorder("test", folder=folder, strict=True, **facts)
    assert len(list(folder.iterdir())) == 1


@pytest.mark.parametrize("engine", [5, "/srv/place/engine", "a\nb"])
def test_an_engine_without_a_fit_name_is_recorded(folder: Path, engine: Any) -> None:
    recorder = Recorder(engine, folder=folder)
    assert recorder.path is not None
    info = RingSource(recorder.path).info
    assert info is not None
    assert info.engine == "unknown"
    recorder.close()


def test_facts_of_numpy_and_groups_are_recorded(folder: Path) -> None:
    groups = (KVGroup("full_attention", 4, 16), KVGroup("sliding_window", 4, 16, 128))
    given = {"kv_blocks": np.int64(7), "kv_groups": groups, "graph_sizes": (1, np.int32(2)), "tensor_parallel": None}
    recorder = Recorder("test", folder=folder, rank=np.int64(3), strict=True, **given)  # type: ignore[arg-type]
    assert recorder.path is not None
    info = RingSource(recorder.path).info
    assert info is not None
    assert (info.kv_blocks, info.rank, info.kv_groups, info.graph_sizes) == (7, 3, groups, (1, 2))
    assert info.tensor_parallel == 1
    recorder.close()


def test_facts_of_a_ring_that_others_wrote_are_checked() -> None:
    info = EngineInfo.from_json({
        "instance": "i", "engine": "e", "kv_blocks": "4096", "tensor_parallel": None, "newer": 1,
        "kv_groups": [{"kind": "mamba", "layers": 1, "block_tokens": 16, "newer": 2}], "graph_sizes": None,
    })  # fmt: skip
    assert info == EngineInfo("i", "e", kv_groups=(KVGroup("mamba", 1, 16),), unread=("kv_blocks",))


def test_a_config_keeps_finite_numbers_and_short_words_only() -> None:
    config = {"limit": [0.0, math.inf], "nan": math.nan, "huge": HUGE, "act": "silu\x1b", "a/b": 1, "kept": -1.5}
    assert plain(config) == {"limit": [0.0, None], "kept": -1.5}


def test_a_config_keeps_the_whole_scheme_of_its_weights() -> None:
    """A scheme lies six objects deep where a model is multimodal; without it the weights would be taken for bf16."""
    weights = {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [128, 128]}
    kept = [f"model.layers.{n}.mlp.gate" for n in range(712)]  # as many as GLM-5-FP8 leaves unquantised
    scheme = {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": weights}}, "ignore": kept}
    config = {"text_config": {"hidden_size": 4096, "quantization_config": scheme}}
    assert plain(config) == config


NAMES = [
    "re:.*mlp\\.(gate|up|gate_up|down)_proj.*", r"re:model\.layers\.(?:0|1|2)\b.*", r"-:.*\.attn\.\d+",
    r"+:.*\w+_proj$",
    "language_model.model.layers.59.block_sparse_moe.shared_experts.gate_proj", "*.layers.1*.mlp", "re:.*lm_head",
]  # fmt: skip
PLACES = [
    "re:/srv/models/secret", r"C:\secret", r"re:C:\secret", r"re:\\host\secret", "re:https://secret.example", r"a\.b",
    "-:/home/secret", "x." * 200 + "x", "re:" + "x" * 300, "re:a\n", "https://secret.example.com",
]  # fmt: skip


def test_a_config_keeps_what_names_modules_and_no_place() -> None:
    """MiniMax-M3 leaves modules of 72 letters alone, Kimi K2.5 names them by expressions: lost, they count narrow."""
    assert plain({"ignore": NAMES, "dynamic": dict.fromkeys(NAMES, 1)}) == {
        "ignore": NAMES,
        "dynamic": dict.fromkeys(NAMES, 1),
    }
    assert plain({"ignore": PLACES, **dict.fromkeys(PLACES, 1)}) == {"ignore": [None] * len(PLACES)}


def test_an_infinite_config_still_gives_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorder = Recorder("test", folder=folder, model_config={**CONFIG, "time_step_limit": [0.0, math.inf]})
    with recorder.step(contexts=[5]):
        pass
    recorder.close()
    assert main(["analyze", str(recorder.path), "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["engine"]["model_config"]["time_step_limit"] == [0.0, None]


@pytest.mark.parametrize("value", [math.inf, math.nan, HUGE])
def test_an_event_holds_finite_numbers_only(folder: Path, value: float) -> None:
    recorder = Recorder("test", folder=folder)
    recorder.event("clock_jump", jump_s=value)
    assert recorder.failures == 1
    assert recorder.path is not None
    assert RingSource(recorder.path).read().events == ()
    recorder.close()


@pytest.mark.parametrize("text", [b"hello", bytearray(b"hello"), memoryview(b"hello"), "hello", ""])
@pytest.mark.parametrize("where", ["contexts", "queries", "prefill", "drafts", "rejected"])
def test_text_is_never_taken_for_lengths(folder: Path, text: Any, where: str) -> None:
    recorder = Recorder("test", folder=folder)
    given: dict[str, Any] = {"contexts": [300] * 5, "drafts": [200] * 5}
    if where != "rejected":
        given[where] = text
    with recorder.step(**given) as step:
        if where == "rejected":
            step.rejected = text
    assert recorder.failures == 1
    assert recorder.path is not None
    assert len(RingSource(recorder.path).read().steps) == 0
    assert b"hello" not in recorder.path.read_bytes()
    recorder.close()


@pytest.mark.parametrize("tokens", [-1, 1 << 31, 1 << 40, 1.5, math.nan, "3", [1, 2]])
def test_tokens_that_cannot_be_generated_are_a_failure(folder: Path, tokens: Any) -> None:
    recorder = Recorder("test", folder=folder)
    with recorder.step(contexts=[5]) as step:
        step.generated_tokens = tokens
    with recorder.step(contexts=[6]) as step:
        step.generated_tokens = np.int64(1)  # type: ignore[assignment]
    assert recorder.failures == 1
    assert recorder.path is not None
    table = RingSource(recorder.path).read().steps
    assert table["context_tokens"].tolist() == [6]
    assert table["generated_tokens"].tolist() == [1]
    assert table.has("causal_pairs")
    recorder.close()


def test_arrays_of_numpy_are_lengths_like_any_other(folder: Path) -> None:
    recorder = Recorder("test", folder=folder)
    with recorder.step(np.array([5, 6]), drafts=np.array([2, 3])) as step:  # type: ignore[arg-type]
        step.rejected = np.array([1, 1])  # type: ignore[assignment]
    with recorder.step(np.array([8, 9, 10]), np.array([4, 1, 1]), prefill=np.array([0])):  # type: ignore[arg-type]
        pass
    with recorder.step([1, 2], drafts=np.array([])) as step:  # type: ignore[arg-type]
        step.rejected = np.array([])  # type: ignore[assignment]
    assert recorder.failures == 0
    assert recorder.path is not None
    table = RingSource(recorder.path).read().steps
    assert table["drafted_tokens"].tolist() == [5, 0, 0]
    assert table["accepted_tokens"].tolist() == [3, 0, 0]
    assert table["prefill_tokens"].tolist() == [0, 4, 0]
    recorder.close()


@pytest.mark.parametrize("mask", [[True, False], np.array([True, False])])
def test_a_mask_names_no_positions(folder: Path, mask: Any) -> None:
    recorder = Recorder("test", folder=folder)
    with recorder.step([5, 6], [3, 1], prefill=mask):
        pass
    assert recorder.failures == 1
    recorder.close()
