"""The vocabulary of the roofline: a device, the bounds of steps; frozen, SI units, None for not known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Bound(IntEnum):
    """Which resource sets the floor of a step; a tie goes to the earlier one."""

    MEMORY = 0
    COMPUTE = 1
    LINK = 2


@dataclass(frozen=True, slots=True)
class HardwareSlice:
    """A part of a device that its driver hands out as a device of its own (NVIDIA MIG), such as 1g.10gb.

    ``memory_share`` is its part of memory, bandwidth and cache, ``compute_share`` of the arithmetic, both ratios;
    ``compute_known`` is False where the latter is an upper bound and not counted units.
    """

    profile: str
    memory_share: float
    compute_share: float
    compute_known: bool


DISTURBED = "others used the machine"  # how the flag of a measurement begins that others disturbed


@dataclass(frozen=True, slots=True)
class HardwareSpec:
    """One device, as its documents (``origin`` 'datasheet') or a measurement (``origin`` 'measured') give it.

    Rates are dense and keyed by number format (bf16, fp8, nvfp4, fp32, ...). ``peak_flops_per_s`` is what the
    datasheet prints and what MFU is said of; ``ceiling_flops_per_s`` is what no step can exceed: the peak at the
    highest clock, or an announced rate where that is higher; ``announced_flops_per_s`` holds such announced,
    not dense, rates. ``link_bandwidth_bytes_per_s`` is one device's, one direction, None without a link;
    ``link_reduces`` says that the switch can add (an all-reduce then moves each byte once).
    ``cache_bytes`` is the last cache before memory. ``read_curve`` holds measured (bytes, bytes/s) pairs.
    ``datasheet_clock_hz`` is the clock at which the printed peak is reached (peak over units x flop for each clock).
    ``nvml_names`` are the product's names as NVML gives them, ``other_names`` as other drivers and clouds do;
    ``slices`` are the parts it can be divided into.
    """

    id: str
    name: str
    vendor: str
    memory_bytes: int
    memory_bandwidth_bytes_per_s: float
    peak_flops_per_s: Mapping[str, float]
    ceiling_flops_per_s: Mapping[str, float]
    announced_flops_per_s: Mapping[str, float] = field(default_factory=dict)
    cache_bytes: int | None = None
    link_bandwidth_bytes_per_s: float | None = None
    link_kind: str | None = None
    link_reduces: bool = False
    nvml_names: tuple[str, ...] = ()
    read_curve: tuple[tuple[int, float], ...] = ()
    origin: str = "datasheet"
    source: str = ""
    flags: tuple[str, ...] = ()
    other_names: tuple[str, ...] = ()
    slices: tuple[HardwareSlice, ...] = ()
    datasheet_clock_hz: float | None = None

    @property
    def disturbed(self) -> bool:
        """Whether others used the machine while its roof was measured, which may then be too low."""
        return any(flag.startswith(DISTURBED) for flag in self.flags)


@dataclass(frozen=True, slots=True)
class Efficiency:
    """What kernels reach on one device, as latency plus a fraction of the datasheet: a table or a calibration says so.

    A read of n bytes takes ``latency_s`` + n / (``ratio`` x bandwidth), for weights and for the KV cache each with
    its own pair; a product takes its flops / (``gemm_ratio`` x peak), keyed by number format with ``other`` for the
    rest, causal prefill attention ``attention_ratio`` of the 16-bit peak. ``launch_s`` is what a kernel costs inside a
    graph, ``eager_launch_s`` outside. ``all_reduce_s``: devices -> (message bytes, seconds) in ascending order, and
    ``eager_all_reduce_s`` outside of a graph. ``weight_reads`` and ``kv_reads`` hold the pair (latency_s, ratio) of
    formats that differ: by number format, for the KV cache with "_window" where a window is read. ``best`` are the
    highest ratios of the same source for "weight", "kv", "gemm" and "attention".
    ``origin`` is 'published', 'assumed' (another device's figures stand in) or 'calibrated'.
    """

    hardware: str
    weight_latency_s: float
    weight_ratio: float
    kv_latency_s: float
    kv_ratio: float
    gemm_ratio: Mapping[str, float]
    attention_ratio: float
    launch_s: float
    eager_launch_s: float
    all_reduce_s: Mapping[int, tuple[tuple[float, float], ...]] = field(default_factory=dict)
    origin: str = "published"
    source: str = ""
    eager_all_reduce_s: Mapping[int, tuple[tuple[float, float], ...]] = field(default_factory=dict)
    weight_reads: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    kv_reads: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    best: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of many steps and no more; every column has the shape (steps,), times are seconds.

    NaN where ``modelled`` is False; the names mean what they mean in StepAnalysis.
    """

    modelled: NDArray[np.bool_]
    bound: NDArray[Any]
    floor_s: NDArray[Any]
    expected_s: NDArray[Any]
    memory_s: NDArray[Any]
    compute_s: NDArray[Any]
    link_floor_s: NDArray[Any]


@dataclass(frozen=True, slots=True)
class StepAnalysis:
    """The bounds of each step beside what was observed; every column has the shape (steps,).

    Read a row of a bound only where ``modelled`` is True, of ``mbu`` and ``mfu`` only where ``compared`` is
    True as well; elsewhere a float is NaN and means nothing. Times are seconds. Bytes and flops are summed over
    the ``devices`` of the engine, which share its layers (tensor parallel) and its depth (pipeline parallel).

    ``floor_s`` is the strict lower bound, and ``bound`` the Bound that sets it; ``memory_s``, ``compute_s`` and
    ``link_floor_s`` are its three sides, with a pipeline each that of the stage where it is largest. ``expected_s`` is
    the same with the experts that uniform routing reads and equal load on every data-parallel rank, so no bound; it is
    the floor of a model without experts. ``serial_floor_s`` is the sum over dependent operators of the larger of their
    memory and compute time, for attribution, with a pipeline that of the stage where it is largest; ``link_s`` stands
    beside it. ``group_s`` splits serial_floor_s + link_s by operator group, ``group_bytes`` and ``group_flops`` the
    work. ``mbu`` is memory_s / observed_s, ``mfu`` the time the flops take at the datasheet's peak / observed_s, both
    as ratios.
    ``below_floor`` marks a step that was observed faster than possible: the measurement or the model is wrong,
    never a good step. ``reachable_s`` is what a well-tuned engine takes by ``efficiency``, never below ``expected_s``
    and no bound; both are None where that is not known or was not asked for. Without a rate for the arithmetic
    (``compute_known`` False) ``compute_s`` and ``mfu`` are 0 and mean nothing; the floor is then that of memory and
    link, and ``notes`` say so.
    """

    hardware: str
    model: str
    devices: int
    modelled: NDArray[np.bool_]
    compared: NDArray[np.bool_]
    below_floor: NDArray[np.bool_]
    bound: NDArray[Any]
    floor_s: NDArray[Any]
    memory_s: NDArray[Any]
    compute_s: NDArray[Any]
    link_floor_s: NDArray[Any]
    serial_floor_s: NDArray[Any]
    link_s: NDArray[Any]
    observed_s: NDArray[Any]
    weight_bytes: NDArray[Any]
    kv_read_bytes: NDArray[Any]
    kv_write_bytes: NDArray[Any]
    flops: NDArray[Any]
    mbu: NDArray[Any]
    mfu: NDArray[Any]
    expected_s: NDArray[Any]
    group_s: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    group_bytes: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    group_flops: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    compute_known: bool = True
    reachable_s: NDArray[Any] | None = None
    efficiency: Efficiency | None = None


@dataclass(frozen=True, slots=True)
class RegimeFigures:
    """What the windows of one engine taught about steps that are alike, beside what is reachable for them.

    ``phase`` is a StepKind in lower case; a batch has ``batch_from`` to ``batch_to`` sequences, whose mean context is
    ``context_from`` to ``context_to`` tokens. ``windows`` is how many the engine was seen in it, at most the last 64;
    ``ready`` once that is enough. Then ``ratio`` is the median of observed over reachable time, each clipped to 0.5 to
    2, and ``error_ratio`` how far a window usually lies from it, as a part of it; None before.
    """

    phase: str
    batch_from: int
    batch_to: int
    context_from: int
    context_to: int
    windows: int
    ready: bool
    ratio: float | None
    error_ratio: float | None
