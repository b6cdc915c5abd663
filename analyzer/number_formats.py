"""The tables of number formats: what a stored element costs in bytes and which units multiply it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rooflens.analyzer.ggml_types import MIXES, QUANTISED
from rooflens.analyzer.suggest import did_you_mean
from rooflens.records import RooflensError


@dataclass(frozen=True, slots=True)
class NumberFormat:
    """``bytes_per_element`` with scales included; ``compute`` are the formats its products may run in.

    A lower bound takes the fastest of ``compute`` that the device has: a format without units of its own is
    widened to 16 bit on the way in, so its bytes shrink and its arithmetic does not (weight-only int4 computes
    at the bf16 rate everywhere). ``head_bytes`` is what each KV head adds to a token's key and to its value.
    """

    bytes_per_element: float
    compute: tuple[str, ...]
    head_bytes: float = 0.0


WIDENED = ("bf16", "fp16")  # weights alone are narrow: their products are 16-bit ones
GGUF_PRODUCTS = ("int8", "fp16", "bf16")  # llama.cpp multiplies blocks with activations rounded to 8-bit integers

WEIGHT_FORMATS: Mapping[str, NumberFormat] = {
    "fp32": NumberFormat(4.0, ("fp32", "tf32")),
    "bf16": NumberFormat(2.0, ("bf16",)),
    "fp16": NumberFormat(2.0, ("fp16",)),
    "fp8": NumberFormat(1.0, ("fp8", "bf16")),  # scale per tensor, channel or 128 x 128 block: below 0.03 %
    "int8": NumberFormat(1.0, ("int8", "bf16")),
    "nvfp4": NumberFormat(0.5625, ("nvfp4", "fp8", "bf16")),  # an fp8 scale for 16 elements
    "mxfp4": NumberFormat(0.53125, ("mxfp4", "fp8", "bf16")),  # an e8m0 scale for 32 elements
    "mxfp6": NumberFormat(0.78125, ("fp6", "fp8", "bf16")),
    "mxfp8": NumberFormat(1.03125, ("mxfp8", "fp8", "bf16")),
    "int4": NumberFormat(0.515625, WIDENED),  # weight-only, a 16-bit scale for 128 elements
    "int4-g64": NumberFormat(0.53125, WIDENED),
    "int4-g32": NumberFormat(0.5625, WIDENED),
    "fp8-weights": NumberFormat(1.0, WIDENED),  # "-weights": the activations stay at 16 bit
    "int8-weights": NumberFormat(1.0, WIDENED),
    "nvfp4-weights": NumberFormat(0.5625, WIDENED),
    "mxfp4-weights": NumberFormat(0.53125, WIDENED),
    "int4-fp8": NumberFormat(0.515625, ("fp8", "bf16")),  # int4 weights, fp8 activations (W4A8)
    "int4-int8": NumberFormat(0.515625, ("int8", "bf16")),
    "nvfp4-fp8": NumberFormat(0.5625, ("fp8", "bf16")),
    "mxfp4-fp8": NumberFormat(0.53125, ("fp8", "bf16")),
    "int2": NumberFormat(0.265625, WIDENED),
    "int3": NumberFormat(0.390625, WIDENED),
    "int6": NumberFormat(0.765625, WIDENED),
    "nf4": NumberFormat(0.5625, WIDENED),  # bitsandbytes: an fp32 scale for 64 elements, 0.516 where that is nested
    **{name: NumberFormat(size, GGUF_PRODUCTS) for name, size in QUANTISED.items()},
    **{name: NumberFormat(size, GGUF_PRODUCTS) for name, size in MIXES.items()},
}
GGUF_FORMATS = frozenset((*QUANTISED, *MIXES))
# Attention may multiply in the KV cache's own format (FlashAttention 3 does so with fp8) or widen it. What a latent
# (MLA) takes in these formats is latent_bytes.
KV_FORMATS: Mapping[str, NumberFormat] = {
    "fp32": NumberFormat(4.0, ("fp32", "tf32")),
    "bf16": NumberFormat(2.0, ("bf16",)),
    "fp16": NumberFormat(2.0, ("fp16",)),
    "fp8": NumberFormat(1.0, ("fp8", "bf16")),  # a scale for a tensor: no bytes a token
    "int8": NumberFormat(1.0, ("int8", "bf16")),
    "fp8-head": NumberFormat(1.0, ("fp8", "bf16"), head_bytes=4.0),  # an fp32 scale for each token and head
    "int8-head": NumberFormat(1.0, ("int8", "bf16"), head_bytes=4.0),
    "nvfp4": NumberFormat(0.5625, ("nvfp4", "fp8", "bf16")),
    "q8_0": NumberFormat(QUANTISED["q8_0"], GGUF_PRODUCTS),
    "q4_0": NumberFormat(QUANTISED["q4_0"], GGUF_PRODUCTS),
    "fp8_ds_mla": NumberFormat(1.0, ("fp8", "bf16")),  # vLLM's record for sparse latents: latent_bytes
}
# The formats that a message lists; the rest are types of GGUF files and variants of these.
COMMON = ("fp32", "bf16", "fp16", "fp8", "fp8-weights", "int8", "int8-weights", "nvfp4", "mxfp4", "mxfp8", "int4",
          "int4-g64", "int4-g32", "int4-fp8", "nf4", "q8_0", "q4_k_m", "q4_0", "fp8-head", "int8-head",
          "fp8_ds_mla")  # fmt: skip
PLAIN = ("fp32", "bf16", "fp16")  # formats that tensors left unquantised can have

# How engines and config files spell the formats.
SPELLINGS: Mapping[str, str] = {
    "bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32", "float": "fp32", "f16": "fp16",
    "f32": "fp32",
    "fp8_e4m3": "fp8", "fp8_e5m2": "fp8", "fp8_inc": "fp8", "float8_e4m3fn": "fp8", "float8_e5m2": "fp8",
    "fp8_per_tensor": "fp8", "fp8_per_block": "fp8", "deepseek_v4_fp8": "fp8", "w8a8_fp8": "fp8", "fbgemm_fp8": "fp8",
    "ptpc_fp8": "fp8", "modelopt_fp4": "nvfp4", "petit_nvfp4": "nvfp4-weights", "w8a8_int8": "int8",
    "fp4_e2m1": "nvfp4", "modelopt_mxfp8": "mxfp8", "gpt_oss_mxfp4": "mxfp4", "w4afp8": "int4-fp8", "qqq": "int4-int8",
    "int8_per_channel_weight_only": "int8-weights", "tpu_int8": "int8-weights", "eetq": "int8-weights",
    "fp8_per_token_head": "fp8-head", "int8_per_token_head": "int8-head",
}  # fmt: skip


def normalise(name: str) -> str:
    """The table's spelling of a format that an engine or a file names."""
    plain = name.strip().lower().removeprefix("torch.")
    return SPELLINGS.get(plain, plain)


def known_format(name: str, table: Mapping[str, NumberFormat], what: str) -> str:
    """The name in ``table`` that ``name`` spells; RooflensError that lists them for an unknown one."""
    found = normalise(name)
    if found not in table:
        meant = did_you_mean(found[:40], {known: known for known in table})
        known = ", ".join(known for known in COMMON if known in table)
        raise RooflensError(
            f"unknown {what} format {name[:40]!r}{meant}; known: {known}; 'rooflens predict --list' names all"
        )
    return found


def latent_bytes(kv: str, rank: int, rope: int) -> float:
    """Bytes of one cached latent of ``rank`` + ``rope`` elements (MLA, or one entry of DeepSeek V4) in format ``kv``.

    ``fp8_ds_mla`` keeps the position part at 16 bit: beside a rank of 512 there is an fp32 scale for 128 elements
    (656 bytes with 64 position elements), beside any other an e8m0 one for 64, rounded up to 8 bytes (448 + 64: 584).
    Source: vLLM's FlashMLA sparse backends.
    """
    if kv != "fp8_ds_mla":
        return (rank + rope) * KV_FORMATS[kv].bytes_per_element + KV_FORMATS[kv].head_bytes
    scales = rank // 128 * 4 if rank % 128 == 0 else -(-rank // 64 // 8) * 8
    return rank + scales + 2 * rope


def indexer_key_bytes(kv: str, head_dim: int) -> float:
    """Bytes of one cached key of a sparse attention's indexer: an fp32 scale for 128 where the cache is fp8."""
    if KV_FORMATS[kv].bytes_per_element > 1.0:
        return head_dim * KV_FORMATS[kv].bytes_per_element
    return head_dim + 4 * -(-head_dim // 128)
