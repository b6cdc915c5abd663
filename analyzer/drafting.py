"""What proposing tokens costs: the models that draft, made from the one they draft for."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from rooflens.analyzer.operators import mtp_works
from rooflens.analyzer.plan import Plan
from rooflens.analyzer.precision import Precision
from rooflens.analyzer.step_time import Compiled
from rooflens.analyzer.work import Work
from rooflens.arch_records import (
    Attention,
    DenseMLP,
    Deployment,
    LatentAttention,
    Layer,
    Mixer,
    MixtureOfExperts,
    ModelArch,
)
from rooflens.records import RooflensError

EAGLE_STATES = 3  # hidden states of three layers are joined into one (EAGLE-3, 2025)
USUAL_WIDENING = 4  # of an MLP, in hidden sizes, where the model has no dense one to go by


@dataclass(frozen=True, slots=True)
class Draft:
    """How tokens are proposed; ``method`` is one of METHODS.

    ``model`` is the smaller model of method 'model', ``precision`` its formats (default: those of the activations).
    ``vocabulary`` are the rows of a draft head that knows only frequent tokens (EAGLE-3), None for all. ``tensor`` is
    over how many devices it is spread (default: as the model, or one device where it cannot be divided so).
    """

    method: str
    model: ModelArch | None = None
    precision: Precision | None = None
    vocabulary: int | None = None
    tensor: int | None = None


@dataclass(frozen=True, slots=True)
class Drafter:
    """A compiled draft: ``passes(depth)`` forward passes propose ``depth`` tokens; ``compiled`` None costs nothing."""

    method: str
    compiled: Mapping[int, Compiled] | Compiled | None

    def seconds(self, plan: Plan, depth: int, micro_batches: int) -> float:
        """Seconds in which every sequence of ``plan`` gets ``depth`` proposed tokens."""
        if self.compiled is None or depth == 0:
            return 0.0
        compiled = self.compiled if isinstance(self.compiled, Compiled) else self.compiled[depth]
        passes = 1 if self.method == "parallel" else depth
        return micro_batches * passes * compiled.time(self._plan(plan, compiled, micro_batches)).seconds

    @staticmethod
    def _plan(plan: Plan, compiled: Compiled, micro_batches: int) -> Plan:
        """The same sequences, a token each, on the devices that draft."""
        spread = compiled.deployment
        return replace(
            plan,
            devices=plan.ranks * spread.tensor,
            deployment=spread,
            batch=math.ceil(plan.batch / micro_batches),
            query_tokens=1,
            lora_rank=None,
            memory_bytes=None,
        )


def eagle_arch(arch: ModelArch, vocabulary: int | None = None) -> ModelArch:
    """EAGLE-3's draft: one decoder layer over twice the width, a projection of three hidden states, a head.

    Where the model has no plain attention the layer takes its mixer; without a dense MLP it takes one as wide as what
    a token uses of the experts. Both are assumed.
    """
    hidden = arch.hidden_size
    mixer = _drafting_mixer(arch)
    joined = EAGLE_STATES * hidden * hidden
    if isinstance(mixer, Attention):  # it sees the embedding beside the state: a second hidden size into Q, K and V
        joined += (
            hidden * (mixer.heads + mixer.kv_heads) * mixer.head_dim + hidden * mixer.kv_heads * mixer.value_head_dim
        )
    return ModelArch(
        name=f"EAGLE-3 of {arch.name}",
        hidden_size=hidden,
        vocab_size=vocabulary or arch.vocab_size,
        tied_head=False,
        layers=(Layer(1, mixer, DenseMLP(_drafting_width(arch), gated=True)),),
        activation_format=arch.activation_format,
        residual_elements=joined,
    )


def parallel_arch(arch: ModelArch, depth: int) -> ModelArch:
    """Medusa's heads: for each drafted token a hidden x hidden block and a head of its own, all in one pass."""
    return ModelArch(
        name=f"{depth} heads of {arch.name}",
        hidden_size=arch.hidden_size,
        vocab_size=depth * arch.vocab_size,
        tied_head=False,
        layers=(Layer(1, None, None),),
        activation_format=arch.activation_format,
        residual_elements=depth * arch.hidden_size**2,
    )


def mtp_rows(arch: ModelArch, precision: Precision, deployment: Deployment) -> tuple[Work, ...]:
    """One pass of the model's own layer for the token after next, of the first where it has several: one drafts one."""
    if not arch.mtp:
        raise RooflensError(f"{arch.name} has no layers of multi-token prediction: choose another --spec-method")
    layers = sum(layer.count for layer in arch.mtp)
    first = replace(arch, mtp=(replace(arch.mtp[0], count=1),), mtp_elements=arch.mtp_elements // layers)
    return mtp_works(first, precision, deployment)


def trained_depth(method: str, arch: ModelArch) -> int | None:
    """Tokens that ``method`` was trained to draft for ``arch``: one for each layer of multi-token prediction.

    None where no figure of the model says it: another draft runs as often as it is asked.
    """
    return sum(layer.count for layer in arch.mtp) if method == "mtp" else None


def drafter(draft: Draft, target: Compiled, precision: Precision, plan: Plan, deepest: int) -> Drafter:
    """``draft`` compiled for ``plan``, to propose up to ``deepest`` tokens to the model ``target``, whose formats are
    ``precision``; RooflensError for one that cannot be.
    """
    if draft.method not in METHODS:
        raise RooflensError(f"--spec-method must be one of {', '.join(METHODS)}")
    plan = replace(plan, deployment=replace(plan.deployment, pipeline=1), lora_rank=None)
    return Drafter(draft.method, METHODS[draft.method](_Maker(draft, target, precision, plan, deepest)))


@dataclass(frozen=True, slots=True)
class _Maker:
    """All that a method may need; ``plan`` is without a pipeline."""

    draft: Draft
    target: Compiled
    precision: Precision
    plan: Plan
    deepest: int

    @property
    def arch(self) -> ModelArch:
        """The model that is drafted for."""
        return self.target.arch

    @property
    def plain(self) -> Precision:
        """Formats of a draft: unquantised, with the KV format of the model."""
        name = self.precision.activations
        return self.draft.precision or Precision(weights=name, kv=self.precision.kv, head=name, activations=name)

    def compiled(self, arch: ModelArch, precision: Precision) -> Compiled:
        """``arch`` on as many devices of one engine as it can be divided over."""
        if self.draft.tensor is not None:
            return self._over(self.draft.tensor, arch, precision)
        try:
            return self._of(arch, precision, self.plan)
        except RooflensError:
            if self.plan.deployment.tensor == 1:
                raise
            return self._over(1, arch, precision)

    def _over(self, tensor: int, arch: ModelArch, precision: Precision) -> Compiled:
        spread = replace(self.plan.deployment, tensor=tensor, context=1)
        return self._of(arch, precision, replace(self.plan, deployment=spread))

    def _of(self, arch: ModelArch, precision: Precision, plan: Plan) -> Compiled:
        return Compiled.of(arch, self.target.hardware, precision, plan, self.target.efficiency)


def _model(maker: _Maker) -> Compiled:
    if maker.draft.model is None:
        raise RooflensError("--spec-method model needs the draft model: say --draft-model NAME or config.json")
    return maker.compiled(maker.draft.model, maker.plain)


def _eagle(maker: _Maker) -> Compiled:
    return maker.compiled(eagle_arch(maker.arch, maker.draft.vocabulary), maker.plain)


def _mtp(maker: _Maker) -> Compiled:
    rows = mtp_rows(maker.arch, maker.precision, maker.plan.deployment)
    return Compiled.staged(maker.arch, maker.target.hardware, (rows,), maker.plan, maker.target.efficiency)


def _parallel(maker: _Maker) -> Mapping[int, Compiled]:
    return {
        depth: maker.compiled(parallel_arch(maker.arch, depth), maker.plain) for depth in range(1, maker.deepest + 1)
    }


def _nothing(maker: _Maker) -> None:
    """Matching n-grams of the text so far costs the device nothing."""


METHODS: Mapping[str, Callable[[_Maker], Mapping[int, Compiled] | Compiled | None]] = {
    "ngram": _nothing,
    "model": _model,
    "eagle3": _eagle,
    "mtp": _mtp,
    "parallel": _parallel,
}


def _drafting_mixer(arch: ModelArch) -> Attention | LatentAttention:
    """The first attention of the model, without window, indexer or gate; RooflensError where it has none."""
    mixers: list[Mixer | None] = [layer.mixer for layer in arch.layers]
    for mixer in mixers:
        if isinstance(mixer, Attention):
            return Attention(mixer.heads, mixer.kv_heads, mixer.head_dim, mixer.value_head_dim)
    for mixer in mixers:
        if isinstance(mixer, LatentAttention):
            return replace(mixer, indexer=None)
    raise RooflensError(
        f"{arch.name} has no attention that an EAGLE-3 draft could be made of: choose another --spec-method"
    )


def _drafting_width(arch: ModelArch) -> int:
    """The widest dense MLP, else what a token uses of the experts, else a usual widening."""
    dense = [layer.mlp.intermediate_size for layer in arch.layers if isinstance(layer.mlp, DenseMLP)]
    used = [
        layer.mlp.top_k * layer.mlp.intermediate_size + layer.mlp.shared_intermediate_size
        for layer in arch.layers
        if isinstance(layer.mlp, MixtureOfExperts)
    ]
    return max(dense or used or [USUAL_WIDENING * arch.hidden_size])
