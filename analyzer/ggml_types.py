"""The tensor types of GGUF files: how many elements a block has and how many bytes, scales included.

Source: the block structures of ggml (ggml-common.h), as the PyPI package gguf 0.19 lists them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GgmlType:
    """``block_bytes`` hold ``block_elements``; ``name`` is a key of precision.WEIGHT_FORMATS where it can be one."""

    name: str
    block_elements: int
    block_bytes: int


GGML_TYPES: Mapping[int, GgmlType] = {
    0: GgmlType("fp32", 1, 4),
    1: GgmlType("fp16", 1, 2),
    2: GgmlType("q4_0", 32, 18),
    3: GgmlType("q4_1", 32, 20),
    6: GgmlType("q5_0", 32, 22),
    7: GgmlType("q5_1", 32, 24),
    8: GgmlType("q8_0", 32, 34),
    9: GgmlType("q8_1", 32, 40),
    10: GgmlType("q2_k", 256, 84),
    11: GgmlType("q3_k", 256, 110),
    12: GgmlType("q4_k", 256, 144),
    13: GgmlType("q5_k", 256, 176),
    14: GgmlType("q6_k", 256, 210),
    15: GgmlType("q8_k", 256, 292),
    16: GgmlType("iq2_xxs", 256, 66),
    17: GgmlType("iq2_xs", 256, 74),
    18: GgmlType("iq3_xxs", 256, 98),
    19: GgmlType("iq1_s", 256, 50),
    20: GgmlType("iq4_nl", 32, 18),
    21: GgmlType("iq3_s", 256, 110),
    22: GgmlType("iq2_s", 256, 82),
    23: GgmlType("iq4_xs", 256, 136),
    24: GgmlType("i8", 1, 1),
    25: GgmlType("i16", 1, 2),
    26: GgmlType("i32", 1, 4),
    27: GgmlType("i64", 1, 8),
    28: GgmlType("f64", 1, 8),
    29: GgmlType("iq1_m", 256, 56),
    30: GgmlType("bf16", 1, 2),
    34: GgmlType("tq1_0", 256, 54),
    35: GgmlType("tq2_0", 256, 66),
    39: GgmlType("mxfp4", 32, 17),
    40: GgmlType("nvfp4", 64, 36),
    41: GgmlType("q1_0", 128, 18),
}
# Types that were removed from ggml or never written to files; a file that has one is named, not guessed.
REMOVED = {4: "q4_2", 5: "q4_3", 31: "q4_0_4_4", 32: "q4_0_4_8", 33: "q4_0_8_8", 36: "iq4_nl_4_4", 37: "iq4_nl_4_8",
           38: "iq4_nl_8_8"}  # fmt: skip
PLAIN_TYPES = ("fp32", "fp16", "bf16", "i8", "i16", "i32", "i64", "f64", "mxfp4", "nvfp4")
QUANTISED = {t.name: t.block_bytes / t.block_elements for t in GGML_TYPES.values() if t.name not in PLAIN_TYPES}

# Mean bytes per weight of the usual mixes of types in one file; what a file really has stands in its header.
# Source: bits per weight of Llama 3.1 8B in llama.cpp's tools/quantize/README.md, over 8. q4_k_m: 4.83 bits, between
# the 4.89 of 8B and the 4.82 of 70B (42.5 GB for 70.6e9 weights); q3_k_m: 3.91 bits (Llama 2 7B).
MIXES: Mapping[str, float] = {
    "q2_k_s": 2.9697 / 8,
    "q3_k_s": 3.6429 / 8,
    "q3_k_m": 3.91 / 8,
    "q3_k_l": 4.2979 / 8,
    "q4_k_s": 4.6672 / 8,
    "q4_k_m": 4.83 / 8,
    "q5_k_s": 5.5704 / 8,
    "q5_k_m": 5.7036 / 8,
    "iq2_m": 2.9294 / 8,
    "iq3_xs": 3.4977 / 8,
    "iq3_m": 3.7628 / 8,
}
