"""What it costs to hand a prompt's cache from the engine that computed it to the one that goes on from there."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from rooflens.analyzer.counting import kv_bytes
from rooflens.analyzer.plan import Plan
from rooflens.analyzer.precision import Precision
from rooflens.analyzer.step_time import Compiled
from rooflens.arch_records import ModelArch
from rooflens.model_records import Efficiency, HardwareSpec
from rooflens.records import RooflensError


@dataclass(frozen=True, slots=True)
class Link:
    """What joins the two engines: bytes/s of all its network cards together, and seconds until the first byte."""

    bandwidth_bytes_per_s: float
    latency_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Handover:
    """The transfer of one prompt's cache beside the prefill that makes it.

    ``cache_bytes`` are those of one prompt, each entry once however many devices keep it; ``transfer_s`` is how long
    the link takes for it, latency included. ``prefill_s`` is one step of prefill (``basis`` says what it stands for)
    and ``prompts`` how many it computes. ``exposed_s`` is how long after it the last of their caches has arrived: all
    of their transfers, or with ``by_layer`` what is left when each layer's cache goes as soon as it is computed.
    ``link_prompts_per_s`` is what the link carries at most, ``prefill_prompts_per_s`` what the prefill side makes, and
    ``needed_bytes_per_s`` the link that would carry those.
    """

    cache_bytes: float
    transfer_s: float
    exposed_s: float
    by_layer: bool
    prefill_s: float
    prompts: int
    link_prompts_per_s: float
    prefill_prompts_per_s: float
    needed_bytes_per_s: float
    basis: str

    @property
    def link_keeps_up(self) -> bool:
        """Whether the link carries what the prefill side makes."""
        return self.link_prompts_per_s >= self.prefill_prompts_per_s


def handover(
    arch: ModelArch,
    hardware: HardwareSpec,
    precision: Precision,
    plan: Plan,
    link: Link,
    by_layer: bool = False,
    efficiency: Efficiency | None = None,
) -> Handover:
    """The handover of prompts of ``plan``, which is a prefill; hits are there already but are sent all the same.

    ``efficiency`` is what kernels reach where that is not as published.

    Raises RooflensError for a plan or a link that makes no sense.
    """
    if not plan.prefill:
        raise RooflensError("what is handed over is a prompt's cache: say --phase prefill")
    if not 0 < link.bandwidth_bytes_per_s < math.inf or not 0 <= link.latency_s < math.inf:
        raise RooflensError("a link needs a bandwidth above 0 bytes/s and a latency of 0 s or more")
    compiled = Compiled.of(arch, hardware, precision, plan, efficiency)
    time = compiled.time(replace(plan, query_tokens=None))
    size_bytes = kv_bytes(arch, precision, plan.context_tokens, plan.encoder_tokens)
    sending_s = size_bytes / link.bandwidth_bytes_per_s
    all_s = plan.batch * sending_s
    layers = sum(layer.count for layer in arch.layers)
    made_per_s = plan.batch / time.seconds
    return Handover(
        cache_bytes=size_bytes,
        transfer_s=link.latency_s + sending_s,
        exposed_s=link.latency_s + (_left_over(time.seconds, all_s, layers) if by_layer else all_s),
        by_layer=by_layer,
        prefill_s=time.seconds,
        prompts=plan.batch,
        link_prompts_per_s=link.bandwidth_bytes_per_s / size_bytes,
        prefill_prompts_per_s=made_per_s,
        needed_bytes_per_s=made_per_s * size_bytes,
        basis=time.basis,
    )


def _left_over(computing_s: float, sending_s: float, layers: int) -> float:
    """Sending that is not hidden where equal layers are computed one after another and sent one after another.

    The last of n layers is sent after the computing, and the link is behind by what each layer takes longer to send.
    """
    return sending_s / layers + max(0.0, sending_s - computing_s) * (layers - 1) / layers
