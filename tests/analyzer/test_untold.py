"""What is said where an engine does not tell its contexts or its model."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rooflens.analyzer.arch import find_model, known_models
from rooflens.analyzer.nearest_model import model_unknown, nearest_model
from rooflens.analyzer.untold import untold
from rooflens.live_records import SourceKind


@pytest.mark.parametrize(
    ("engine", "source", "line"),
    [
        ("llama.cpp", SourceKind.METRICS, "llama.cpp's page tells no contexts, so there is no floor: its log tells"),
        ("tgi", SourceKind.METRICS, "tgi's page tells no contexts, so there is no floor: the recorder"),
        ("tensorrt-llm", SourceKind.METRICS, "tensorrt-llm's page tells no contexts, so there is no floor: its JSON"),
        ("tensorrt-llm", SourceKind.LOG, "tensorrt-llm's log tells no contexts, so there is no floor: its JSON stat"),
    ],
)
def test_contexts_that_are_not_told(engine: str, source: SourceKind, line: str) -> None:
    for column in ("causal_pairs", "context_tokens", "context_tokens@w512", "context_blocks"):
        assert untold(column, engine, source).startswith(line)


@pytest.mark.parametrize("source", SourceKind)
def test_every_source_has_a_word(source: SourceKind) -> None:
    assert " tells no tokens, so there is no floor: " in untold("query_tokens", "mine", source)
    assert " tells no sequences, so there is no floor: " in untold("sampled_rows", "mine", source)


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("Qwen/Qwen2.5-7B-Instruct", "qwen2.5-7b"),
        ("Meta-Llama-3-8B-Instruct-AWQ", "meta-llama-3-8b"),
        ("/models/Meta-Llama-3-8B-Instruct-Q4_K_M.gguf", "meta-llama-3-8b"),
        ("facebook/opt-125m", None),
        ("Qwen2.5-3B-Instruct", None),
        ("my-model", None),
        ("", None),
    ],
)
def test_the_nearest_model_is_of_the_same_size(name: str, near: str | None) -> None:
    assert nearest_model(name) == near


@pytest.mark.parametrize("row", known_models(), ids=lambda row: row["id"])
def test_a_known_model_is_nearest_to_itself(row: dict[str, str]) -> None:
    near = nearest_model(row["hf_id"])
    assert near is not None
    assert find_model(near)


@given(st.text(max_size=300))
def test_any_name_is_one_line(name: str) -> None:
    assert (line := model_unknown([None, name])) is None or ("is not known by exactly" in line and "\n" not in line)


def test_no_name_is_no_line() -> None:
    assert model_unknown([None, " ", "/"]) is None
