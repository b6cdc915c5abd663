"""The types of GGUF files as llama.cpp writes them in words, by the names of the tables of formats."""

from __future__ import annotations

import re

from rooflens.analyzer.ggml_types import MIXES, QUANTISED

MOST_CHARS = 64
PLAIN = {"f32": "fp32", "f16": "fp16", "bf16": "bf16", "mxfp4": "mxfp4", "nvfp4": "nvfp4"}
SHORT = {"small": "s", "medium": "m", "large": "l"}
TYPE = re.compile(
    r"(?:(?:mostly|all) )?((?:iq|tq|q)\d_\w{1,6}|bf16|f16|f32|mxfp4|nvfp4)(?: (moe|mix))?"
    r"(?: - (small|medium|large|[\d.]{1,8} bpw(?: ternary)?))?(?: \(guessed\))?"
)


def file_type(text: str) -> str | None:
    """The format of the weights of a GGUF file of this type ("Q4_K - Medium", "Q8_0", "all F32"); None for another.

    A mix whose size is not known here (Q2_K - Medium) is taken at the type that it is named after, which most of its
    weights have and none has less. Source of the words: llama_model_ftype_name of llama.cpp's llama-model-loader.cpp.
    """
    found = TYPE.fullmatch(text[: MOST_CHARS + 1].strip().lower())
    if found is None:
        return None
    kind, of, size = found[1], found[2], found[3] or ""
    if kind == "iq3_s" and of == "mix":  # what llama.cpp calls IQ3_M
        return "iq3_m"
    names = (f"{kind}_{SHORT[size]}" if size in SHORT else kind, PLAIN.get(kind, kind))
    return next((name for name in names if name in MIXES or name in QUANTISED or name in PLAIN.values()), None)
