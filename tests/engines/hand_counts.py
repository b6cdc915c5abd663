"""What the steps of both_estimators cost, worked out by hand from the published shapes: nothing of rooflens is used.

A multiply-add is 2 flops; bytes are those that no kernel can avoid. Of weights: each once a pass, of the routed experts
top-k (strict), and beyond them what uniform routing reaches. Of the cache: what lay in it before the step is read, what
is new is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Sums:
    """One step: ``tokens`` go through the layers, ``rows`` through the head; pairs are query and key, causal."""

    sequences: int
    tokens: int
    rows: int
    cached: int
    decode_pairs: int
    prefill_pairs: int

    @property
    def pairs(self) -> int:
        """All of them."""
        return self.decode_pairs + self.prefill_pairs


# 32 queries see 4096 cached tokens and themselves: 32 x 4097 pairs.
DECODE = Sums(32, 32, 32, 32 * 4096, 131_104, 0)
DECODE_16 = Sums(16, 16, 16, 16 * 4096, 65_552, 0)
# And a chunk: 512 x 1536 cached, 512 x 513 / 2 among itself, together 917,760. It ends its prompt, so it has a row too.
MIXED = Sums(33, 544, 33, 32 * 4096 + 1536, 131_104, 917_760)
# Four queries a sequence see 4097, 4098, 4099 and 4100 keys: 32 x 16,394. All four have logits.
VERIFY = Sums(32, 128, 128, 32 * 4096, 524_608, 0)
SUMS = {"decode": DECODE, "decode, batch 16": DECODE_16, "mixed": MIXED, "verify": VERIFY}


@dataclass(frozen=True)
class Count:
    """Flops and bytes of one GPU; ``weight_bytes`` are strict, ``spread_bytes`` what uniform routing reads beyond."""

    flops: float
    attention_flops: float
    head_flops: float
    weight_bytes: float
    spread_bytes: float
    kv_read_bytes: float
    kv_write_bytes: float
    state_bytes: float
    gather_bytes: float


def spread(experts: int, top_k: int, tokens: int) -> float:
    """Experts of one layer that uniform routing reaches beyond the top-k: each token passes one by with 1 - k / E."""
    return experts * (1 - (1 - top_k / experts) ** tokens) - top_k


def llama_8b(step: Sums, kv_bytes: int = 2, weight_bytes: int = 2, scales: int = 0) -> Count:
    """32 layers of hidden 4096: 32 query and 8 KV heads of 128, three matrices of 14336; vocabulary 128256; bf16."""
    layers = 32 * (4096 * (4096 + 2 * 1024) + 4096 * 4096 + 3 * 4096 * 14336)  # 6,979,321,856
    head, norms = 128_256 * 4096, (2 * 32 + 1) * 4096
    attention = 4 * 32 * 32 * 128 * step.pairs
    token = 32 * 2 * 8 * 128 * kv_bytes  # 131,072 at bf16
    return Count(
        flops=2 * layers * step.tokens + 2 * head * step.rows + attention,
        attention_flops=attention,
        head_flops=2 * head * step.rows,
        weight_bytes=weight_bytes * layers + scales + 2 * (head + norms),
        spread_bytes=0,
        kv_read_bytes=token * step.cached,
        kv_write_bytes=token * step.tokens,
        state_bytes=0,
        gather_bytes=2 * 4096 * step.tokens,
    )


def llama_8b_fp8_kv(step: Sums) -> Count:
    """The same with one byte an element of the cache: 65,536 a token. Nothing else changes."""
    return llama_8b(step, kv_bytes=1)


def llama_8b_fp8(step: Sums) -> Count:
    """Linear layers of one byte an element and a scale of two bytes for each row of a matrix; the head stays bf16."""
    return llama_8b(step, weight_bytes=1, scales=2 * 32 * (4096 + 2 * 1024 + 4096 + 2 * 14336 + 4096))


def qwen3_30b(step: Sums) -> Count:
    """48 layers of hidden 2048: 32 query and 4 KV heads of 128, 8 of 128 experts of 768; vocabulary 151936; bf16."""
    expert = 3 * 2048 * 768
    layer = 2048 * (4096 + 2 * 512) + 4096 * 2048 + 2048 * 128  # attention, and the router
    head, norms = 151_936 * 2048, 48 * (2 * 2048 + 2 * 128) + 2048  # with norms of queries and keys
    attention = 4 * 48 * 32 * 128 * step.pairs
    token = 48 * 2 * 4 * 128 * 2
    return Count(
        flops=2 * 48 * (layer + 8 * expert) * step.tokens + 2 * head * step.rows + attention,
        attention_flops=attention,
        head_flops=2 * head * step.rows,
        weight_bytes=2 * (48 * (layer + 8 * expert) + head + norms),
        spread_bytes=2 * 48 * expert * spread(128, 8, step.tokens),
        kv_read_bytes=token * step.cached,
        kv_write_bytes=token * step.tokens,
        state_bytes=0,
        gather_bytes=2 * 2048 * step.tokens,
    )


FP8_BLOCK = 1 + 4 / 128**2  # a scale of four bytes for each block of 128 x 128


def deepseek_v3(step: Sums, devices: int = 1) -> Count:
    """61 layers of hidden 7168: 128 heads on a latent of 512 + 64, 3 dense layers of 18432, 58 with 8 of 256 experts of
    2048 and a shared one; vocabulary 129280; fp8 in blocks, but norms, router, head and embedding, which are bf16.

    ``devices`` of tensor parallelism divide heads, experts, vocabulary and norms; the matrices that lead into the two
    narrow spaces, the router and the latent are on every one.
    """
    into, out_of = 7168 * (1536 + 576), 1536 * 128 * 192 + 512 * 128 * 256 + 128 * 128 * 7168
    dense, expert = 3 * 7168 * 18432, 3 * 7168 * 2048
    fp8_divided = 61 * out_of + 3 * dense + 58 * (8 + 1) * expert
    head, router = 129_280 * 7168, 58 * 7168 * 256
    norms = 61 * (2 * 7168 + 1536 + 512) + 7168 + 58 * 256  # and a bias for each expert's score
    # A cached pair on latents: a key of 576 and a value of 512. A pair of a prompt: 128 + 64 and 128 of the head's own.
    attention = 2 * 61 * 128 * (1088 * step.decode_pairs + 320 * step.prefill_pairs) / devices
    token = 61 * 576 * 2
    products = 61 * into + router + fp8_divided / devices
    return Count(
        flops=2 * products * step.tokens + 2 * head * step.rows / devices + attention,
        attention_flops=attention,
        head_flops=2 * head * step.rows / devices,
        weight_bytes=FP8_BLOCK * (61 * into + fp8_divided / devices) + 2 * router + 2 * (head + norms) / devices,
        spread_bytes=FP8_BLOCK * 58 * expert * spread(256, 8, step.tokens) / devices,
        kv_read_bytes=token * step.cached,
        kv_write_bytes=token * step.tokens,
        state_bytes=0,
        gather_bytes=2 * 7168 * step.tokens / devices,
    )


def deepseek_v3_tp8(step: Sums) -> Count:
    """One of eight devices."""
    return deepseek_v3(step, devices=8)


def qwen3_next(step: Sums) -> Count:
    """48 layers of hidden 2048, every fourth with attention (16 query heads of 256 with a gate each, 2 KV heads), the
    others with a gated delta net (16 key and 32 value heads of 128); 10 of 512 experts of 512 and a shared one with its
    gate; vocabulary 151936; bf16, and so is the state, as it is told."""
    expert, shared = 3 * 2048 * 512, 3 * 2048 * 512 + 2048
    full = 2048 * (2 * 4096 + 2 * 512) + 4096 * 2048
    # Queries, keys, values and the output's gate, two numbers a value head; then the way out.
    delta = 2048 * (2 * 2048 + 2 * 4096 + 2 * 32) + 4096 * 2048
    kernel = (2 * 2048 + 4096) * 4
    products = 12 * full + 36 * delta + 48 * (2048 * 512 + 10 * expert + shared)
    head = 151_936 * 2048
    # Norms of the layers, of queries and keys; of a delta net the kernel, decay, step's bias and the norm of a head.
    rest = 48 * 2 * 2048 + 2048 + 12 * 2 * 256 + 36 * (kernel + 2 * 32 + 128)
    state = 32 * 128 * 128
    attention = 4 * 12 * 16 * 256 * step.pairs
    token = 12 * 2 * 2 * 256 * 2
    return Count(
        # A token's three products with the state of a head: key, update, query.
        flops=(2 * products + 36 * (6 * state + 2 * kernel)) * step.tokens + 2 * head * step.rows + attention,
        attention_flops=attention,
        head_flops=2 * head * step.rows,
        weight_bytes=2 * (products + head + rest),
        spread_bytes=2 * 48 * expert * spread(512, 10, step.tokens),
        kv_read_bytes=token * step.cached,
        kv_write_bytes=token * step.tokens,
        state_bytes=2 * step.sequences * 36 * 2 * (state + 3 * 8192),
        gather_bytes=2 * 2048 * step.tokens,
    )


def nemotron_3_nano(step: Sums) -> Count:
    """52 layers of hidden 2688, each one thing: 23 Mamba-2 (64 heads of 64, 8 groups, state 128), 23 with 6 of 128
    experts of 1856 and a shared one of 3712 (two matrices, squared ReLU), 6 attention (32 query and 2 KV heads of 128);
    vocabulary 131072; bf16, the state fp32."""
    expert, shared = 2 * 2688 * 1856, 2 * 2688 * 3712
    full = 2688 * (4096 + 2 * 256) + 4096 * 2688
    mamba = 2688 * (2 * 4096 + 2 * 8 * 128 + 64) + 4096 * 2688
    channels = 4096 + 2 * 8 * 128
    products = 6 * full + 23 * mamba + 23 * (2688 * 128 + 6 * expert + shared)
    head = 131_072 * 2688
    # One norm a layer and the last; a bias for each expert's score; of Mamba the kernel with its bias, decay, skip and
    # step's bias, and the norm.
    rest = 52 * 2688 + 2688 + 23 * 128 + 23 * (channels * (4 + 1) + 3 * 64 + 4096)
    state = 64 * 64 * 128
    attention = 4 * 6 * 32 * 128 * step.pairs
    token = 6 * 2 * 2 * 128 * 2
    return Count(
        # A token's two products with the state: into it and out of it.
        flops=(2 * products + 23 * (4 * state + 2 * channels * 4)) * step.tokens + 2 * head * step.rows + attention,
        attention_flops=attention,
        head_flops=2 * head * step.rows,
        weight_bytes=2 * (products + head + rest),
        spread_bytes=2 * 23 * expert * spread(128, 6, step.tokens),
        kv_read_bytes=token * step.cached,
        kv_write_bytes=token * step.tokens,
        state_bytes=2 * step.sequences * 23 * (4 * state + 2 * 3 * channels),
        gather_bytes=2 * 2688 * step.tokens,
    )


BY_HAND: Mapping[str, Callable[[Sums], Count]] = {
    "Llama-3.1-8B": llama_8b,
    "Llama-3.1-8B, fp8 KV": llama_8b_fp8_kv,
    "Llama-3.1-8B, fp8 by compressed-tensors": llama_8b_fp8,
    "Qwen3-30B-A3B": qwen3_30b,
    "DeepSeek-V3": deepseek_v3,
    "DeepSeek-V3, tensor parallel 8": deepseek_v3_tp8,
    "Qwen3-Next-80B-A3B": qwen3_next,
    "Nemotron-3-Nano-30B-A3B": nemotron_3_nano,
}
