"""One operating point as numbers, from a benchmark or by hand: frozen, SI units, None for not known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Observation:
    """What somebody measured of an engine at one operating point.

    ``origin`` is the tool that wrote it. ``client_side`` is whether it was measured by a client: its rates hold the
    network, the queue and the load's own gaps, and are never those of the server's steps. ``ttft_s``, ``tpot_s``,
    ``itl_s`` and ``e2e_s`` are by statistic ("mean", "p50", "p90", "p99", ...). ``generated_tokens_per_s`` is over
    the whole ``duration_s``. ``concurrency`` is the most requests at a time, ``batch`` sequences in a step where the
    origin knows that; ``concurrency_mean`` is the mean of requests in flight. ``label`` is what the origin calls this
    point among several ("tg128 @ d4096"), ``phase`` "prefill" or "decode" where it measured one of them alone.
    ``rate_std_per_s`` is the standard deviation of its rate between repetitions. ``quantization`` and ``kv_dtype`` are
    formats as the origin spells them, ``weight_bytes`` what it says the weights take. ``withheld`` are figures that
    are there and not used, each with the reason; ``complaints`` what cannot be and was left out, or does not agree.
    """

    origin: str
    client_side: bool
    engine: str | None = None
    engine_version: str | None = None
    model_name: str | None = None
    hardware: str | None = None
    devices: int | None = None
    unix_s: float | None = None
    duration_s: float | None = None
    requests: int | None = None
    failed_requests: int | None = None
    concurrency: float | None = None
    batch: float | None = None
    request_rate_per_s: float | None = None
    prompt_tokens: int | None = None
    generated_tokens: int | None = None
    prompt_tokens_mean: float | None = None
    generated_tokens_mean: float | None = None
    context_tokens: float | None = None
    requests_per_s: float | None = None
    generated_tokens_per_s: float | None = None
    prompt_tokens_per_s: float | None = None
    acceptance_length: float | None = None
    ttft_s: Mapping[str, float] = field(default_factory=dict)
    tpot_s: Mapping[str, float] = field(default_factory=dict)
    itl_s: Mapping[str, float] = field(default_factory=dict)
    e2e_s: Mapping[str, float] = field(default_factory=dict)
    withheld: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    label: str | None = None
    phase: str | None = None
    concurrency_mean: float | None = None
    rate_std_per_s: float | None = None
    quantization: str | None = None
    kv_dtype: str | None = None
    weight_bytes: float | None = None
    tensor_parallel: int | None = None
    complaints: tuple[str, ...] = ()
