"""Sizes that a nested language model leaves out of its file: those of its declared type's configuration class.

Multimodal files hold of their language model only what differs from the class (Gemma 3, Pixtral, LLaVA), so that
heads or vocabulary may be missing. A file that is not nested states its sizes, and a missing one is refused.
Source of the figures: the configuration classes of transformers 5.19.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NAMES = ("num_attention_heads", "num_key_value_heads", "head_dim", "intermediate_size", "vocab_size", "hidden_size",
         "num_hidden_layers")  # fmt: skip
DEFAULTS: Mapping[str, tuple[int | None, ...]] = {
    "gemma3_text": (8, 4, 256, 9216, 262208, 2304, 26),
    "gemma3n_text": (8, 2, 256, 16384, 262400, 2048, 35),
    "gemma4_text": (8, 4, 256, 9216, 262144, 2304, 30),
    "gemma2": (8, 4, 256, 9216, 256000, 2304, 26),
    "gemma": (16, 16, 256, 24576, 256000, 3072, 28),
    "llama": (32, None, None, 11008, 32000, 4096, 32),
    "mistral": (32, 8, None, 14336, 32000, 4096, 32),
    "qwen2": (32, 32, None, 22016, 151936, 4096, 32),
    "qwen3": (32, 32, 128, 22016, 151936, 4096, 32),
    "llama4_text": (40, 8, 128, 8192, 202048, 5120, 48),
    "mllama_text_model": (32, 8, None, 14336, 128256, 4096, 40),
    "phi3": (32, None, None, 8192, 32064, 3072, 32),
}


def with_defaults(fields: Mapping[str, Any]) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """The fields with missing sizes of their model_type filled in, and a sentence for each; a null stays null."""
    kind = fields.get("model_type")
    known = DEFAULTS.get(kind) if isinstance(kind, str) else None
    if known is None:
        return fields, ()
    filled = {n: v for n, v in zip(NAMES, known, strict=True) if v is not None and n not in fields}
    notes = tuple(f"the config states no {n}: {v} is the default of model_type {kind!r}" for n, v in filled.items())
    return {**fields, **filled}, notes
