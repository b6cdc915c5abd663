"""A planned deployment and its operating point, and which plans make no sense."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rooflens.arch_records import Deployment
from rooflens.records import RooflensError

PHASES = ("decode", "prefill")
LARGEST = 10**9  # of a batch or a context: beyond it a number is a typing error
LARGEST_DEPLOYMENT_DEVICES = 10**6
ONE_DEVICE = Deployment()
LARGEST_RANK = 65_536  # of a LoRA adapter


@dataclass(frozen=True, slots=True)
class Plan:
    """A deployment and its operating point.

    ``devices`` / (tensor x pipeline x data) replicas share ``batch`` sequences. In decode each sequence has
    ``context_tokens`` in the KV cache and computes ``query_tokens`` of them (default 1; more are the rows of a verify
    step, all of which the head sees). In prefill its prompt has ``context_tokens``, of which ``cached_tokens`` are in
    the cache already and not charged; ``query_tokens`` (default: the rest) are computed, and only the end of the
    prompt samples.

    ``shared_prefix_tokens`` of the cached tokens are the same for all sequences and lie in memory once in each
    data-parallel rank. ``block_tokens`` is the size of a KV block, None where the cache counts by the token.
    ``graph_sizes`` are the batch sizes (tokens) that were captured; a step is padded up to the next one.
    ``encoder_tokens`` is the length of each sequence's encoder input. ``lora_rank`` is that of the adapters which all
    sequences use, ``lora_adapters`` how many distinct ones. ``expert_sharing_ratio`` is the part of its experts that a
    token shares with the one before it in its sequence, None for independent routing; it matters to verify steps and
    not to a bound. ``distinct_experts`` were measured to be touched by one layer in one pass of such a step, by the
    tokens of all ranks, mean of the layers; None for those of uniform routing. ``eager`` is an engine without captured
    graphs, which matters to what is reachable.
    ``memory_bytes`` is of all devices together, None for what the hardware has; ``utilization_ratio`` is the part of it
    the engine may use.
    """

    devices: int = 1
    deployment: Deployment = ONE_DEVICE
    batch: int = 1
    context_tokens: int = 1024
    phase: str = "decode"
    memory_bytes: float | None = None
    utilization_ratio: float = 0.9
    query_tokens: int | None = None
    cached_tokens: int = 0
    shared_prefix_tokens: int = 0
    block_tokens: int | None = None
    graph_sizes: tuple[int, ...] = ()
    encoder_tokens: int = 0
    lora_rank: int | None = None
    lora_adapters: int = 1
    expert_sharing_ratio: float | None = None
    distinct_experts: float | None = None
    eager: bool = False

    @property
    def prefill(self) -> bool:
        """Whether prompts are computed."""
        return self.phase == "prefill"

    @property
    def replica_devices(self) -> int:
        """Devices of one copy of the model, over all its data-parallel ranks."""
        return self.deployment.devices * self.deployment.data

    @property
    def replicas(self) -> int:
        """Copies of the model, each with its own batch; its data-parallel ranks count as one."""
        return self.devices // self.replica_devices

    @property
    def ranks(self) -> int:
        """Engines in all: the data-parallel ranks of all replicas."""
        return self.replicas * self.deployment.data

    @property
    def computed_tokens(self) -> int:
        """Tokens that one sequence computes in a step."""
        if self.query_tokens is not None:
            return self.query_tokens
        return self.context_tokens - self.cached_tokens if self.prefill else 1

    @property
    def read_tokens(self) -> int:
        """Tokens of one sequence that the KV cache holds before the step."""
        return self.cached_tokens if self.prefill else self.context_tokens

    @property
    def kept_tokens(self) -> int:
        """Tokens of one sequence for which the cache must have room."""
        return self.context_tokens

    @property
    def sampled_rows(self) -> int:
        """Rows of one sequence that the head multiplies: of a prompt the last, of a verify step all."""
        if not self.prefill:
            return self.computed_tokens
        return int(self.cached_tokens + self.computed_tokens == self.context_tokens)


def check_plan(plan: Plan) -> None:
    """RooflensError in one line, named after the option that sets it, for a plan that makes no sense."""
    _check_deployment(plan)
    _check_sizes(plan)
    if plan.phase not in PHASES:
        raise RooflensError(f"--phase must be one of {', '.join(PHASES)}")
    if not 0 < plan.utilization_ratio <= 1:
        raise RooflensError("--utilization must be above 0 and at most 1")
    if plan.memory_bytes is not None and not 0 < plan.memory_bytes < math.inf:
        raise RooflensError("--memory must be a positive number of bytes")
    if plan.lora_rank is not None and not 1 <= plan.lora_rank <= LARGEST_RANK:
        raise RooflensError(f"--lora must be a rank from 1 to {LARGEST_RANK}")
    if not 1 <= plan.lora_adapters <= LARGEST:
        raise RooflensError(f"the number of LoRA adapters must be from 1 to {LARGEST}")
    if plan.expert_sharing_ratio is not None and not 0 <= plan.expert_sharing_ratio <= 1:
        raise RooflensError("the part of its experts that a token shares with the one before must be from 0 to 1")
    if plan.distinct_experts is not None and not 0 <= plan.distinct_experts <= LARGEST:
        raise RooflensError(f"--distinct-experts must be from 0 to {LARGEST}")


def _check_deployment(plan: Plan) -> None:
    spread = plan.deployment
    for name, value in (
        ("devices", plan.devices),
        ("tp", spread.tensor),
        ("pp", spread.pipeline),
        ("dp", spread.data),
        ("cp", spread.context),
    ):
        if not 1 <= value <= LARGEST_DEPLOYMENT_DEVICES:
            raise RooflensError(f"--{name} must be from 1 to {LARGEST_DEPLOYMENT_DEVICES}")
    if spread.tensor % spread.context:
        raise RooflensError(f"--cp {spread.context} does not divide --tp {spread.tensor}: its devices are among them")
    if plan.devices % plan.replica_devices:
        factors = (("tp", spread.tensor), ("pp", spread.pipeline), ("dp", spread.data))
        words = " x ".join(f"--{name} {value}" for name, value in factors if value > 1 or name == "tp")
        raise RooflensError(f"--devices {plan.devices} is not a multiple of {words}")


def _check_sizes(plan: Plan) -> None:
    if not 1 <= plan.batch <= LARGEST:
        raise RooflensError(f"--batch must be from 1 to {LARGEST}")
    smallest = 1 if plan.prefill else 0
    if not smallest <= plan.context_tokens <= LARGEST:
        raise RooflensError(f"--context must be from {smallest} to {LARGEST} tokens")
    for name, value in (
        ("cached tokens", plan.cached_tokens),
        ("shared prefix", plan.shared_prefix_tokens),
    ):
        if not 0 <= value <= plan.context_tokens:
            raise RooflensError(f"the {name} must be from 0 to the {plan.context_tokens} tokens of --context")
    if not 0 <= plan.encoder_tokens <= LARGEST:
        raise RooflensError(f"the encoder's tokens must be from 0 to {LARGEST}")
    if not 1 <= plan.computed_tokens <= LARGEST:
        raise RooflensError(
            f"each sequence must compute from 1 to {LARGEST} tokens in a step, not {plan.computed_tokens}"
        )
    if plan.prefill and plan.cached_tokens + plan.computed_tokens > plan.context_tokens:
        raise RooflensError(
            f"{plan.cached_tokens} cached and {plan.computed_tokens} computed tokens are more than the prompt's "
            f"{plan.context_tokens}"
        )
    if plan.block_tokens is not None and not 1 <= plan.block_tokens <= LARGEST:
        raise RooflensError(f"the tokens of a KV block must be from 1 to {LARGEST}")
    if any(size < 1 for size in plan.graph_sizes):
        raise RooflensError("the sizes of captured graphs must be at least 1")
