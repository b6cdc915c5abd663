"""Types of GGUF files in llama.cpp's words, and the weights of an engine that tells one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rooflens.analyzer.arch import find_model
from rooflens.analyzer.file_types import file_type
from rooflens.analyzer.number_formats import WEIGHT_FORMATS
from rooflens.analyzer.precision import precision_of
from rooflens.records import EngineInfo, RooflensError


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Q4_K - Medium", "q4_k_m"), ("Q4_K_M", "q4_k_m"), ("Q5_K - Small", "q5_k_s"), ("Q8_0", "q8_0"),
        ("mostly Q4_0", "q4_0"), ("Q2_K - Medium", "q2_k"), ("Q6_K", "q6_k"), ("IQ4_XS - 4.25 bpw", "iq4_xs"),
        ("IQ3_S mix - 3.66 bpw", "iq3_m"), ("Q4_K - Medium (guessed)", "q4_k_m"), ("F16", "fp16"), ("BF16", "bf16"),
        ("all F32", "fp32"), ("MXFP4 MoE", "mxfp4"), ("TQ1_0 - 1.69 bpw ternary", "tq1_0"), ("Q9_K", None),
        ("awq", None), ("", None), ("unknown, may not work", None),
    ],
)  # fmt: skip
def test_words_of_a_file_type(text: str, name: str | None) -> None:
    assert file_type(text) == name


@given(st.text(max_size=200))
def test_any_text_is_a_known_format_or_none(text: str) -> None:
    assert (found := file_type(text)) is None or found in WEIGHT_FORMATS


@pytest.mark.parametrize(("stated", "weights"), [("Q4_K - Medium", "q4_k_m"), ("Q8_0", "q8_0"), ("F16", "fp16")])
def test_the_weights_of_an_engine_that_tells_the_type_of_its_file(stated: str, weights: str) -> None:
    found = precision_of(EngineInfo("i", "llama.cpp", quantization=stated), find_model("meta-llama-3-8b"))
    assert found.weights == weights


def test_the_remedy_is_one_that_every_command_has() -> None:
    with pytest.raises(RooflensError, match=r"give --model the path of a config\.json that has it") as told:
        precision_of(EngineInfo("i", "vllm", quantization="awq"), find_model("meta-llama-3-8b"))
    assert "--weights" not in str(told.value)
