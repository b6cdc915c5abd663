"""Architectures by their published sizes, for tests that need more than one kind."""

from __future__ import annotations

from rooflens.arch_records import (
    Attention,
    DenseMLP,
    Indexer,
    LatentAttention,
    Layer,
    MixtureOfExperts,
    ModelArch,
    StateMixer,
)


def palm(name: str) -> ModelArch:
    """PaLM (arXiv:2204.02311, table 1): multi-query attention, SwiGLU, one matrix for embedding and head."""
    layers, hidden, heads = {"palm-540b": (118, 18432, 48), "palm-62b": (64, 8192, 32)}[name]
    layer = Layer(layers, Attention(heads, 1, 256, 256), DenseMLP(4 * hidden, gated=True))
    return ModelArch(name, hidden, 256_000, tied_head=True, layers=(layer,))


def sparse() -> ModelArch:
    """Qwen3-30B-A3B: 48 layers of 128 experts of 768, 8 for each token."""
    layer = Layer(48, Attention(32, 4, 128, 128), MixtureOfExperts(128, 8, 768, gated=True))
    return ModelArch("qwen3-30b-a3b", 2048, 151_936, tied_head=False, layers=(layer,))


def deepseek(indexer: bool = True) -> ModelArch:
    """DeepSeek V3.2: 61 layers of latent attention with an indexer, the first 3 dense, and one layer that predicts."""
    chooser = Indexer(64, 128, 2048) if indexer else None
    mixer = LatentAttention(128, 1536, 512, 128, 64, 128, chooser)
    experts = MixtureOfExperts(256, 8, 2048, gated=True, shared_intermediate_size=2048, groups=8, top_groups=4)
    routed = Layer(58, mixer, experts)
    return ModelArch(
        "deepseek-v3.2",
        7168,
        129_280,
        tied_head=False,
        layers=(Layer(3, mixer, DenseMLP(18_432, gated=True)), routed),
        mtp=(Layer(1, mixer, experts),),
        mtp_elements=2 * 7168 * 7168,
    )


def windowed() -> ModelArch:
    """Five layers in six look back over 1,024 tokens, as in Gemma 3."""
    full, local = Attention(32, 16, 128, 128), Attention(32, 16, 128, 128, window_tokens=1024)
    mlp = DenseMLP(21_504, gated=True)
    return ModelArch("windowed", 5376, 262_144, tied_head=True, layers=(Layer(52, local, mlp), Layer(10, full, mlp)))


def stateful() -> ModelArch:
    """Three layers in four keep a state that does not grow, as in Qwen3-Next."""
    state = StateMixer("gated_delta", 32, 12_352, 4096, 40_000, 32 * 128 * 128, 3 * 8192, 6.0 * 32 * 128 * 128)
    mlp = DenseMLP(8192, gated=True)
    return ModelArch(
        "stateful",
        2048,
        151_936,
        tied_head=False,
        layers=(Layer(36, state, mlp), Layer(12, Attention(16, 2, 256, 256, output_gate=True), mlp)),
    )
