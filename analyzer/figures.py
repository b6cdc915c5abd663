"""The figures of a recording, as the summary gives them; SI units, None for not known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rooflens.model_records import RegimeFigures

MOST_BELOW_RATIO = 0.02  # a synchronous engine's steps do not shorten one another: below the floor is below it


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, 90th percentile and maximum of one column over the steps for which it is known."""

    p50: float
    p90: float
    max: float


@dataclass(frozen=True, slots=True)
class Floor:
    """Bounds beside the observed time over the ``steps`` that could be compared; sums in seconds, ratios.

    ``bound_steps`` counts the steps that memory, compute or the link bound; ``mfu`` is None where the hardware states
    no rate for the format. ``expected_s`` is the floor with the experts that uniform routing reads, ``reachable_s``
    what a well-tuned engine takes, None where that is not known.
    """

    steps: int
    observed_s: float
    floor_s: float
    serial_floor_s: float
    link_s: float
    mbu: float
    mfu: float | None
    bound_steps: Mapping[str, int]
    expected_s: float
    reachable_s: float | None


@dataclass(frozen=True, slots=True)
class Reached:
    """Where the figures of what is reachable are from: ``origin`` is published, assumed (of a kin) or calibrated."""

    origin: str
    source: str


@dataclass(frozen=True, slots=True)
class Phase:
    """The steps of one kind, or a stretch between steps (``steps`` is 0 there).

    ``share_ratio`` is of the time that is not idle; None of idle time itself.
    """

    name: str
    steps: int
    seconds: float
    share_ratio: float | None
    query_tokens: int = 0
    generated_tokens: int | None = 0
    step_s: Spread | None = None
    floor: Floor | None = None


@dataclass(frozen=True, slots=True)
class SlowStep:
    """The longest step: ``number`` counts the engine's steps from 1, None where the first were overwritten.

    ``start_unix_s`` is the wall time at which its own time began, None where the wall clock is not known.
    """

    sequence: int | None
    number: int | None
    kind: str
    seconds: float
    start_unix_s: float | None


@dataclass(frozen=True, slots=True)
class Summary:
    """One recording. ``span_s`` is from the first submit to the last output; None stands for not known.

    ``idle_s`` is the part of it without any request, None where the engine does not tell its queue;
    ``active_s`` is the rest, over which shares and rates are.
    ``decode_by_batch`` splits the decode steps by batch: 1, 2 to 3, 4 to 7, and so on in powers of two.
    ``host_s`` is the time of schedule, update and the hook, which may lie between steps or inside them.
    ``windows`` of WINDOW_STEPS steps were judged against the floor, ``invalid_windows`` of them were faster than
    possible: then the measurement or the model is wrong. Of a ``synchronous`` engine, whose next step begins after
    the last output, MOST_BELOW_RATIO of single steps suffices.
    ``efficiency`` says whose kernels what is reachable is of, None where it is not known; ``regimes`` are what the
    recording's own windows teach about each regime of its steps.
    """

    steps: int
    span_s: float
    idle_s: float | None
    active_s: float
    slowest_step: SlowStep | None
    phases: tuple[Phase, ...]
    decode_by_batch: tuple[Phase, ...]
    host_s: Mapping[str, float | None]
    spreads: Mapping[str, Spread | None]
    totals: Mapping[str, int | None]
    ratios: Mapping[str, float | None]
    events: Mapping[str, int]
    clock_jumps_s: tuple[float, ...]
    windows: int = 0
    invalid_windows: int = 0
    below_floor_steps: int = 0
    compared_steps: int = 0
    synchronous: bool = False
    notes: tuple[str, ...] = field(default=())
    efficiency: Reached | None = None
    regimes: tuple[RegimeFigures, ...] = ()

    @property
    def measurement_invalid(self) -> bool:
        """Whether the recording was, somewhere, faster than possible."""
        often = self.below_floor_steps > MOST_BELOW_RATIO * self.compared_steps
        return self.invalid_windows > 0 or (self.synchronous and often)
