"""The forward pass: a Llama-shaped decoder over a paged KV cache, in NumPy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from rooflens.adapters.embedded.shape import Shape

Array = NDArray[Any]

ROPE_BASE = 10_000.0
EPSILON = 1e-5


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer's weights, (inputs, outputs) each; q, k and v in one matrix, gate and up in one."""

    qkv: Array
    output: Array
    gate_up: Array
    down: Array


@dataclass(frozen=True, slots=True)
class Sequence:
    """One sequence of a step: its new tokens, how many are cached already, and the blocks that hold them all."""

    tokens: list[int]
    cached_tokens: int
    table: list[int]


def _random(random: np.random.Generator, rows: int, columns: int, dtype: DTypeLike) -> Array:
    """Values of a variance that keeps activations of order one; uniform, since that is quick to draw."""
    values = random.random((rows, columns), dtype=np.float32)
    values -= np.float32(0.5)
    values *= np.float32((12 / rows) ** 0.5)
    return values.astype(dtype, copy=False)


class Model:
    """Weights, KV cache and forward pass; the norms' weights are ones and left out."""

    def __init__(
        self, shape: Shape, kv_blocks: int, block_tokens: int, seed: int = 0, dtype: DTypeLike = np.float32
    ) -> None:
        random = np.random.default_rng(seed)
        self.shape = shape
        self.block_tokens = block_tokens
        hidden, inner, width = shape.hidden_size, shape.intermediate_size, shape.heads * shape.head_dim
        qkv = width + 2 * shape.kv_heads * shape.head_dim
        self.layers = [
            Layer(
                _random(random, hidden, qkv, dtype),
                _random(random, width, hidden, dtype),
                _random(random, hidden, 2 * inner, dtype),
                _random(random, inner, hidden, dtype),
            )
            for _ in range(shape.layers)
        ]
        self.embedding = _random(random, shape.vocab_size, hidden, dtype) * np.asarray(
            shape.vocab_size**0.5, dtype
        )  # rows of order one
        self.head = _random(random, hidden, shape.vocab_size, dtype)
        # (layer, key or value, block, token in block, head, element)
        self.cache = np.zeros((shape.layers, 2, kv_blocks, block_tokens, shape.kv_heads, shape.head_dim), dtype=dtype)

    def forward(self, sequences: list[Sequence]) -> Array:
        """Logits (sequences, vocabulary) of the last new token of each sequence; K and V go into its blocks."""
        counts = [len(sequence.tokens) for sequence in sequences]
        ends = np.cumsum(counts)
        positions = np.concatenate([np.arange(s.cached_tokens, s.cached_tokens + len(s.tokens)) for s in sequences])
        blocks, slots = self._places(sequences)
        rotation = _rotation(positions, self.shape.head_dim, self.embedding.dtype)
        x = self.embedding[[token for sequence in sequences for token in sequence.tokens]]
        for number, layer in enumerate(self.layers):
            q, k, v = self._split(_norm(x) @ layer.qkv)
            cache = self.cache[number]
            cache[0, blocks, slots] = _rotate(k, rotation)
            cache[1, blocks, slots] = v
            x = x + self._attend(_rotate(q, rotation), cache, sequences, ends) @ layer.output
            x = x + _gated(_norm(x) @ layer.gate_up) @ layer.down
        logits: Array = _norm(x[ends - 1]) @ self.head
        return logits

    def _places(self, sequences: list[Sequence]) -> tuple[Array, Array]:
        """Block and slot in it of every new token."""
        blocks, slots = [], []
        for sequence in sequences:
            position = np.arange(sequence.cached_tokens, sequence.cached_tokens + len(sequence.tokens))
            blocks.append(np.asarray(sequence.table)[position // self.block_tokens])
            slots.append(position % self.block_tokens)
        return np.concatenate(blocks), np.concatenate(slots)

    def _split(self, qkv: Array) -> tuple[Array, Array, Array]:
        """q (tokens, heads, element), k and v (tokens, KV heads, element)."""
        shape = self.shape
        width, narrow = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        q, k, v = np.split(qkv, [width, width + narrow], axis=1)
        return (
            q.reshape(-1, shape.heads, shape.head_dim),
            k.reshape(-1, shape.kv_heads, shape.head_dim),
            v.reshape(-1, shape.kv_heads, shape.head_dim),
        )

    def _attend(self, q: Array, cache: Array, sequences: list[Sequence], ends: Array) -> Array:
        """Causal attention of each sequence's new tokens over all its tokens, read through its block table."""
        shape = self.shape
        mixed = np.empty((len(q), shape.heads * shape.head_dim), dtype=q.dtype)
        start = 0
        for sequence, end in zip(sequences, ends.tolist(), strict=True):
            total = sequence.cached_tokens + end - start
            table = sequence.table[: -(-total // self.block_tokens)]
            k, v = (cache[part, table].reshape(-1, shape.kv_heads, shape.head_dim)[:total] for part in (0, 1))
            mixed[start:end] = attention(q[start:end], k, v, sequence.cached_tokens)
            start = end
        return mixed


def attention(q: Array, k: Array, v: Array, cached_tokens: int) -> Array:
    """(new tokens, heads x element): q (new, heads, element) over k, v (total, KV heads, element), causal."""
    new, heads, size = q.shape
    kv_heads = k.shape[1]
    grouped = q.reshape(new, kv_heads, heads // kv_heads, size).transpose(1, 2, 0, 3)
    scores = grouped @ k.transpose(1, 2, 0)[:, None] / np.asarray(size**0.5, q.dtype)
    if new > 1:
        allowed = np.arange(len(k)) <= cached_tokens + np.arange(new)[:, None]
        scores = np.where(allowed, scores, np.asarray(-np.inf, q.dtype))
    scores -= scores.max(axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=-1, keepdims=True)
    mixed: Array = (scores @ v.transpose(1, 0, 2)[:, None]).transpose(2, 0, 1, 3).reshape(new, heads * size)
    return mixed


def _norm(x: Array) -> Array:
    """RMSNorm without its weights."""
    scaled: Array = x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + np.asarray(EPSILON, x.dtype))
    return scaled


def _gated(gate_up: Array) -> Array:
    """SiLU of the first half times the second."""
    gate, up = np.split(gate_up, 2, axis=1)
    product: Array = gate / (1 + np.exp(-gate)) * up
    return product


def _rotation(positions: Array, size: int, dtype: DTypeLike) -> tuple[Array, Array]:
    """Cosine and sine (tokens, 1, size / 2) of the rotary position embedding."""
    frequency = ROPE_BASE ** (-np.arange(0, size, 2) / size)
    angle = positions[:, None] * frequency
    return np.cos(angle)[:, None].astype(dtype), np.sin(angle)[:, None].astype(dtype)


def _rotate(x: Array, rotation: tuple[Array, Array]) -> Array:
    cosine, sine = rotation
    first, second = np.split(x, 2, axis=-1)
    return np.concatenate((first * cosine - second * sine, second * cosine + first * sine), axis=-1)
