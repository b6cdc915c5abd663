"""The linear layers that a model is made of, by the names that checkpoints give them: what a format rule can name.

A module's ``levels`` are the dotted parts of its name below the layer, each with the spellings that families use.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from rooflens.arch_records import (
    Attention,
    CompressedAttention,
    CrossAttention,
    DenseMLP,
    Indexer,
    LatentAttention,
    Layer,
    MixtureOfExperts,
    ModelArch,
    StateMixer,
)

ATTENTION = ("self_attn", "attn", "mixer", "attention", "self_attention", "SelfAttention")
STATE = {"gated": ("linear_attn",), "Kimi": ("self_attn", "linear_attn"), "lightning": ("self_attn", "attention"),
         "Mamba": ("mixer", "mamba"), "short": ("conv", "mixer")}  # fmt: skip
MLP = ("mlp", "ffn", "mixer", "feed_forward", "block_sparse_moe", "moe", "DenseReluDense")
SHARED = ("shared_experts", "shared_expert", "shared_mlp", "share_expert")
GATE = ("gate_proj", "w1", "gate_up_proj", "wi_0", "linear_1")
UP = ("up_proj", "w3", "gate_up_proj", "wi_1", "linear_v")
ONLY = ("up_proj", "fc1", "c_fc", "dense_h_to_4h", "wi", "w1")
DOWN = ("down_proj", "w2", "fc2", "c_proj", "dense_4h_to_h", "wo")
ANY_EXPERT = "0"  # stands for an expert's number, whichever a pattern names


@dataclass(frozen=True, slots=True)
class Module:
    """``count`` matrices of ``rows`` outputs x ``columns`` inputs; ``plain``: no method quantises them unasked."""

    group: str
    levels: tuple[tuple[str, ...], ...]
    rows: int
    columns: int
    count: int = 1
    plain: bool = False

    @property
    def elements(self) -> int:
        """Weights of all the matrices."""
        return self.rows * self.columns * self.count


def layer_modules(layer: Layer, hidden: int) -> tuple[Module, ...]:
    """The linear layers of one decoder layer."""
    found = [*_mixer(layer, hidden), *_cross(layer.cross, hidden), *_mlp(layer, hidden)]
    return tuple(m for m in found if m.elements)


def whole_modules(arch: ModelArch) -> tuple[Module, ...]:
    """The matrices that stand outside of the layers; a tied head reads the embedding's."""
    embedding = (("embed_tokens", "wte", "word_embeddings", "embed", "embeddings", "embedding", "shared"),)
    head = (("lm_head", "head", "output_layer", "embed_out", "output"),)
    return (
        Module("embedding", embedding, arch.vocab_size, arch.hidden_size, plain=True),
        Module("head", embedding if arch.tied_head else head, arch.vocab_size, arch.hidden_size, plain=True),
    )


def joining_modules(arch: ModelArch) -> tuple[Module, ...]:
    """What multi-token prediction holds beside its layers: the projection of hidden state and embedding."""
    names = (("eh_proj", "fc", "e_proj", "h_proj", "input_proj"),)
    rows = arch.mtp_elements // arch.hidden_size if arch.hidden_size else 0
    return (Module("mtp", names, arch.hidden_size, rows, plain=True),) if rows else ()


def _mixer(layer: Layer, hidden: int) -> Iterator[Module]:
    mixer = layer.mixer
    if isinstance(mixer, Attention):
        yield from _softmax(mixer, hidden)
    elif isinstance(mixer, LatentAttention):
        yield from _latent(mixer, hidden)
    elif isinstance(mixer, CompressedAttention):
        yield from _compressed(mixer, hidden)
    elif isinstance(mixer, StateMixer):
        inward = ("in_proj", "in_proj_qkvz", "in_proj_qkv", "in_proj_z", "qkv_proj", "q_proj", "query_key_value")
        outward = ("out_proj", "o_proj", "dense")
        where = STATE.get(mixer.kind.split()[0], ("mixer", "linear_attn"))
        yield Module("state", (where, inward), mixer.in_columns, hidden)
        yield Module("state", (where, outward), hidden, mixer.out_rows)


def _softmax(mixer: Attention, hidden: int) -> Iterator[Module]:
    def projection(rows: int, *names: str) -> Module:
        fused = ("qkv_proj", "query_key_value", "c_attn", "Wqkv", "W_pack")
        return Module("attention", (ATTENTION, (*names, *fused)), rows, hidden)

    width = mixer.heads * mixer.head_dim
    yield projection(width * (2 if mixer.output_gate else 1), "q_proj", "wq", "q")
    if not mixer.kv_shared:
        yield projection(mixer.kv_heads * mixer.head_dim, "k_proj", "wk", "k")
        if not mixer.keys_are_values:
            yield projection(mixer.kv_heads * mixer.value_head_dim, "v_proj", "wv", "v")
    if mixer.indexer and not mixer.indexer.shared:
        where = (ATTENTION, ("index_q_proj", "indexer.index_qk_proj"))
        yield Module("indexer", where, mixer.indexer.heads * mixer.indexer.head_dim, hidden)
        yield Module("indexer", (ATTENTION, ("index_k_proj", "indexer.index_qk_proj")), mixer.indexer.head_dim, hidden)
    out = ("o_proj", "wo", "out_proj", "dense", "c_proj", "o")
    yield Module("attention", (ATTENTION, out), hidden, mixer.heads * mixer.value_head_dim)


def _latent(mixer: LatentAttention, hidden: int) -> Iterator[Module]:
    def matrix(rows: int, columns: int, *names: str) -> Module:
        return Module("attention", (ATTENTION, names), rows, columns)

    query = mixer.heads * (mixer.nope_dim + mixer.rope_dim)
    if mixer.q_rank is None:
        yield matrix(query, hidden, "q_proj", "wq")
    else:
        yield matrix(mixer.q_rank, hidden, "q_a_proj", "wq_a", "fused_qkv_a_proj", "fused_qkv_a_proj_with_mqa")
        yield matrix(query, mixer.q_rank, "q_b_proj", "wq_b")
    latent = mixer.kv_rank + mixer.rope_dim
    yield matrix(latent, hidden, "kv_a_proj_with_mqa", "wkv_a", "fused_qkv_a_proj", "fused_qkv_a_proj_with_mqa")
    yield matrix(mixer.heads * (mixer.nope_dim + mixer.value_dim), mixer.kv_rank, "kv_b_proj", "wkv_b")
    if mixer.output_gate:
        yield matrix(mixer.heads * mixer.value_dim, hidden, "g_proj")
    yield matrix(hidden, mixer.heads * mixer.value_dim, "o_proj", "wo")
    yield from _indexer(mixer.indexer, hidden, mixer.q_rank or hidden)


def _compressed(mixer: CompressedAttention, hidden: int) -> Iterator[Module]:
    def matrix(rows: int, columns: int, *names: str) -> Module:
        return Module("attention", (ATTENTION, names), rows, columns)

    width = mixer.heads * mixer.head_dim
    yield matrix(mixer.q_rank, hidden, "wq_a", "q_a_proj", "fused_wqa_wkv")
    yield matrix(width, mixer.q_rank, "wq_b", "q_b_proj")
    yield matrix(mixer.head_dim, hidden, "wkv", "kv_proj", "fused_wqa_wkv")
    yield matrix(mixer.output_rank * mixer.output_groups, width // mixer.output_groups, "wo_a", "o_a_proj")
    yield matrix(hidden, mixer.output_groups * mixer.output_rank, "wo_b", "o_b_proj")
    overlap = 2 if mixer.indexer else 1  # entries that an indexer chooses among overlap by half
    if mixer.ratio:
        yield _compressor("attention", (ATTENTION, ("compressor",)), 2 * overlap * mixer.head_dim, hidden)
    if mixer.indexer and not mixer.indexer.shared:
        where = (ATTENTION, ("indexer",), ("compressor",))
        yield _compressor("indexer", where, 2 * overlap * mixer.indexer.head_dim, hidden)
    for module in _indexer(mixer.indexer, hidden, mixer.q_rank):
        if "wk" not in module.levels[-1]:  # its keys come from the compressed entries
            yield module


def _compressor(group: str, levels: tuple[tuple[str, ...], ...], rows: int, hidden: int) -> Module:
    """What joins tokens to an entry: keys and gates, which DeepSeek V4's own code keeps above 8 bit."""
    return Module(group, (*levels, ("wkv", "wgate")), rows, hidden, plain=True)


def _indexer(indexer: Indexer | None, hidden: int, query_width: int) -> Iterator[Module]:
    if indexer is None or indexer.shared:
        return
    queries = (ATTENTION, ("indexer",), ("wq_b", "q_b_proj"))
    yield Module("indexer", queries, indexer.heads * indexer.head_dim, query_width)
    yield Module("indexer", (ATTENTION, ("indexer",), ("wk", "k_proj")), indexer.head_dim, hidden)
    yield Module("indexer", (ATTENTION, ("indexer",), ("weights_proj",)), indexer.heads, hidden, plain=True)


def _cross(cross: CrossAttention | None, hidden: int) -> Iterator[Module]:
    if cross is None:
        return
    where = ("encoder_attn", "cross_attn", "EncDecAttention")
    for heads, letter in ((cross.heads, "q"), (cross.kv_heads, "k"), (cross.kv_heads, "v")):
        yield Module("attention", (where, (f"{letter}_proj", letter)), heads * cross.head_dim, hidden)
    yield Module("attention", (where, ("o_proj", "out_proj", "o")), hidden, cross.heads * cross.head_dim)


def _mlp(layer: Layer, hidden: int) -> Iterator[Module]:
    mlp = layer.mlp
    if isinstance(mlp, DenseMLP):
        yield from _dense("mlp", (MLP,), mlp.intermediate_size, hidden, mlp.gated)
    elif isinstance(mlp, MixtureOfExperts):
        if mlp.dense is not None:
            yield from _dense("mlp", (("mlp",),), mlp.dense.intermediate_size, hidden, mlp.dense.gated)
        width = mlp.latent_size or hidden
        levels = _expert_levels(mlp)
        for module in _dense("experts", levels, mlp.intermediate_size, width, mlp.gated):
            yield replace(module, count=mlp.experts)
        if mlp.latent_size:
            yield Module("experts", (MLP, ("fc1_latent_proj", "routed_expert_down_proj")), mlp.latent_size, hidden)
            yield Module("experts", (MLP, ("fc2_latent_proj", "routed_expert_up_proj")), hidden, mlp.latent_size)
        yield from _dense("shared_experts", (MLP, SHARED), mlp.shared_intermediate_size, hidden, mlp.gated)
        yield Module("router", (MLP, ("gate", "router")), mlp.experts + mlp.zero_experts, hidden, plain=True)


def _expert_levels(moe: MixtureOfExperts) -> tuple[tuple[str, ...], ...]:
    """Below the layer's MLP, but for Gemma 4, whose ``mlp`` is the dense one beside the experts (Arctic's is not)."""
    if moe.dense is not None and not moe.zero_experts:
        return (("experts", "moe.experts", "block_sparse_moe.experts"), (ANY_EXPERT,))
    return (MLP, ("experts",), (ANY_EXPERT,))


def _dense(group: str, levels: tuple[tuple[str, ...], ...], width: int, hidden: int, gated: bool) -> Iterator[Module]:
    yield Module(group, (*levels, GATE if gated else ONLY), width, hidden)
    if gated:
        yield Module(group, (*levels, UP), width, hidden)
    yield Module(group, (*levels, DOWN), hidden, width)
