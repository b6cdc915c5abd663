"""The vocabulary of a model's architecture: what a token costs, as far as it is decided before any engine runs.

Frozen records; widths are numbers of elements, heads and experts are counts. A model is runs of layers, a layer is
a mixer (attention or a state) and an MLP, either of which may be missing (Nemotron-H has one of the two in a layer).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Attention:
    """Softmax attention with keys and values cached for each KV head.

    ``window_tokens``: a query sees itself and the window - 1 tokens before it. ``chunk_tokens``: a query sees its own
    chunk up to itself (Llama 4). At most one of the two is set. ``output_gate`` doubles the query projection.
    ``keys_are_values``: values are projected by the key's matrix (Gemma 4); both are cached. ``kv_shared``: keys and
    values are another layer's: no projection and no cache of its own, and yet they are read (Gemma 3n). With an
    ``indexer`` a query reads top_k of the tokens, whole blocks of them chosen for each KV head (MiniMax M3).
    """

    heads: int
    kv_heads: int
    head_dim: int
    value_head_dim: int
    window_tokens: int | None = None
    chunk_tokens: int | None = None
    output_gate: bool = False
    keys_are_values: bool = False
    kv_shared: bool = False
    indexer: Indexer | None = None


@dataclass(frozen=True, slots=True)
class Indexer:
    """What chooses the cached entries that a sparse attention reads: ``top_k`` of them for each query.

    It keeps one key of ``head_dim`` for each ``pool`` entries (GLM-5 Next, Qwen4: more than one) and multiplies it with
    ``heads`` query heads. ``shared``: the layer uses the choice of another one (GLM-5.2): no weights, keys or products
    of its own.
    """

    heads: int
    head_dim: int
    top_k: int
    shared: bool = False
    pool: int = 1

    def idle_tokens(self, ratio: int = 1) -> int:
        """Up to how many tokens all entries are chosen, so that it has nothing to do; an entry is ``ratio`` tokens."""
        return ratio * self.top_k + max(ratio, self.pool) - 1


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """Multi-head latent attention (DeepSeek V2): one latent of ``kv_rank`` + ``rope_dim`` elements cached a token.

    ``q_rank`` is None where the queries are projected at once. With an ``indexer`` a query reads top_k latents.
    ``window_tokens`` is Attention's (dots3), and so is ``output_gate``, as wide as the output of the heads (Kimi K3).
    """

    heads: int
    q_rank: int | None
    kv_rank: int
    nope_dim: int
    rope_dim: int
    value_dim: int
    indexer: Indexer | None = None
    output_gate: bool = False
    window_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class CompressedAttention:
    """DeepSeek V4: the last ``window_tokens`` entries whole, and older ones compressed ``ratio`` to one.

    One shared entry of ``head_dim`` elements is key and value at once. ``ratio`` 0 is the window alone. With an
    ``indexer`` a query reads top_k of the compressed entries, without one all of them. The output goes through
    ``output_groups`` groups of rank ``output_rank``.
    """

    heads: int
    head_dim: int
    rope_dim: int
    q_rank: int
    output_groups: int
    output_rank: int
    window_tokens: int
    ratio: int
    indexer: Indexer | None = None


@dataclass(frozen=True, slots=True)
class StateMixer:
    """A mixer whose memory does not grow: linear attention, gated delta net, Mamba; ``kind`` names it for people.

    The input projections are hidden x ``in_columns``, the output projection is ``out_rows`` x hidden, and
    ``other_elements`` are what is left of its weights (convolution, decays, norms). Each sequence keeps
    ``state_elements`` and ``conv_state_elements``, read and written once a pass; a token costs ``token_flops`` in the
    state. ``state_format`` is the format of the state, a key of precision.KV_FORMATS; ``heads`` is what tensor
    parallelism divides.
    """

    kind: str
    heads: int
    in_columns: int
    out_rows: int
    other_elements: int
    state_elements: int
    conv_state_elements: int
    token_flops: float
    state_format: str = "fp32"


@dataclass(frozen=True, slots=True)
class CrossAttention:
    """A decoder layer's attention to the encoder's output, whose keys and values are computed once and kept."""

    heads: int
    kv_heads: int
    head_dim: int


@dataclass(frozen=True, slots=True)
class DenseMLP:
    """``gated``: two input projections are multiplied (three matrices), else there is one (two matrices)."""

    intermediate_size: int
    gated: bool


@dataclass(frozen=True, slots=True)
class MixtureOfExperts:
    """``experts`` MLPs of which each token uses ``top_k``, beside a shared one (``shared_intermediate_size``, 0: none).

    ``shared_gate``: one more column decides how much of the shared expert counts (Qwen). ``latent_size``: the routed
    experts work in a narrower space, with a projection into and out of it (Nemotron 3). ``groups`` / ``top_groups``:
    a token's experts come from that many of the groups (DeepSeek). ``dense``: a dense MLP runs beside it (Gemma 4).
    ``expert_bias_elements``: biases of one routed expert, read with it (gpt-oss). ``zero_experts`` more may be chosen
    that do nothing, so that a token may use none of the ``experts`` (LongCat).
    """

    experts: int
    top_k: int
    intermediate_size: int
    gated: bool
    shared_intermediate_size: int = 0
    shared_gate: bool = False
    latent_size: int | None = None
    groups: int | None = None
    top_groups: int | None = None
    dense: DenseMLP | None = None
    expert_bias_elements: int = 0
    zero_experts: int = 0


Mixer = Attention | LatentAttention | CompressedAttention | StateMixer
MLP = DenseMLP | MixtureOfExperts


@dataclass(frozen=True, slots=True)
class Layer:
    """``count`` equal layers; ``other_elements`` are one's weights that belong to no operator (norms, biases)."""

    count: int
    mixer: Mixer | None
    mlp: MLP | None
    cross: CrossAttention | None = None
    other_elements: int = 0


@dataclass(frozen=True, slots=True)
class StoredFormat:
    """How the weights of some modules are stored: ``name`` is a key of precision.WEIGHT_FORMATS.

    An element takes ``bytes_per_element`` with the scales of its group or block in it, a matrix ``row_bytes`` more for
    each output row (a scale for each channel) and ``column_bytes`` for each input column (the order of GPTQ).
    """

    name: str
    bytes_per_element: float
    row_bytes: float = 0.0
    column_bytes: float = 0.0


@dataclass(frozen=True, slots=True)
class FormatRule:
    """Modules that ``pattern`` names (a dotted name or a part of one, a glob, or ``re:`` and a regular expression).

    ``stored`` is None where they are left at the activations' format.
    """

    pattern: str
    stored: StoredFormat | None


@dataclass(frozen=True, slots=True)
class Quantization:
    """What a model's files say of its formats: ``default`` for linear layers that no rule names, the first rule wins.

    ``kv`` is a key of precision.KV_FORMATS, None where the files state none.
    """

    method: str
    default: StoredFormat | None
    rules: tuple[FormatRule, ...] = ()
    kv: str | None = None


@dataclass(frozen=True, slots=True)
class ModelArch:
    """What a token costs, as far as the architecture decides it.

    ``layers`` are the distinct kinds of decoder layers, each with its count; ``order`` is which of them stands at each
    depth, as indices, () where not known. ``encoder`` are the layers of an encoder-decoder's encoder. ``mtp`` are the
    layers of multi-token prediction, not run in a plain decode step, and ``mtp_elements`` what else they hold (the
    projection that joins hidden state and embedding). ``vision_elements`` are weights of towers that are not the
    language model, None where there is one whose size is not known. ``gathered_elements`` are tables beside the
    embedding of which a token reads ``gathered_row_elements`` (per-layer embeddings), ``residual_elements`` any other
    weights of the language model that are read in each pass.

    ``tied_head`` is whether the language-model head reads the embedding's matrix. ``weight_format`` and ``kv_format``
    are the formats that the model's own files state, None where they state none; ``quantization`` is all that they say
    of it, module by module; ``activation_format`` is what activations and unquantised tensors use.
    ``activation_assumed`` says that no file states it; ``assumptions`` are what else was taken for granted, in words.
    ``unknown`` are the parts of the model that the counts leave out, one sentence each: () where all is counted.
    """

    name: str
    hidden_size: int
    vocab_size: int
    tied_head: bool
    layers: tuple[Layer, ...]
    activation_format: str = "bf16"
    weight_format: str | None = None
    kv_format: str | None = None
    max_context_tokens: int | None = None
    source: str = ""
    activation_assumed: bool = False
    assumptions: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    order: tuple[int, ...] = ()
    encoder: tuple[Layer, ...] = ()
    mtp: tuple[Layer, ...] = ()
    mtp_elements: int = 0
    vision_elements: int | None = 0
    gathered_elements: int = 0
    gathered_row_elements: int = 0
    residual_elements: int = 0
    quantization: Quantization | None = None


@dataclass(frozen=True, slots=True)
class Deployment:
    """How one copy of a model is spread over devices; every field counts devices and is 1 where nothing is divided.

    ``tensor`` devices share each layer, ``pipeline`` stages share the depth. ``data`` ranks hold attention each for
    itself and share the experts; ``expert`` says that whole experts lie on the ``tensor`` x ``data`` devices, else each
    expert is cut over all of them. ``context`` (a divisor of ``tensor``) devices share the KV cache of a sequence.
    """

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    context: int = 1
    expert: bool = False

    @property
    def devices(self) -> int:
        """Devices of one engine: of one data-parallel rank."""
        return self.tensor * self.pipeline

    @property
    def expert_devices(self) -> int:
        """Devices over which the experts of one layer are spread."""
        return self.tensor * self.data
