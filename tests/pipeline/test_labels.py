"""Labels: the rank, unique among the living, given on to the next run."""

from __future__ import annotations

import pytest

from rooflens.pipeline.labels import Labels, model_name
from rooflens.records import EngineInfo


def info(name: str | None) -> EngineInfo:
    return EngineInfo(instance="x", engine="vllm", model_name=name)


@pytest.mark.parametrize(
    ("served", "name"),
    [
        ("llama", "llama"),
        ("meta-llama/Llama-3", "Llama-3"),
        ("/models/mine/", "mine"),
        (None, "unknown"),
        ("", "unknown"),
        ("/", "unknown"),
        ("a\x1b[31mb", "a?[31mb"),
        ("x" * 500, "x" * 128),
    ],
)
def test_the_name_of_a_model(served: str | None, name: str) -> None:
    assert model_name(info(served)) == name
    assert model_name(None) == "unknown"


def test_a_label_is_the_rank_and_a_free_one_is_taken_again() -> None:
    labels = Labels()
    assert labels.take("a", info("m"), 0) == ("m", "0")
    assert labels.take("b", info("m"), 1) == ("m", "1")
    assert labels.take("c", info("m"), 0) == ("m", "0.1")
    assert labels.take("d", info("m"), 0) == ("m", "0.2")
    assert labels.take("e", info("other"), 0) == ("other", "0")
    labels.give_back("c")
    assert labels.take("f", info("m"), 0) == ("m", "0.1")
    assert labels.take("d", info("m"), 0) == ("m", "0.2"), "a run keeps its own"
