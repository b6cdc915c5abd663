"""The doors: one method each, so that a plug needs no base class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from rooflens.device_records import DeviceFacts, DeviceSample, ProcessSample
from rooflens.findings import Finding
from rooflens.live_records import Derived, Progress, Snapshot, SourceHealth, SourceKind
from rooflens.records import EngineInfo, RingEvent, StepTable

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Keyframe:
    """The lengths of one step, ``row`` of its table: of each sequence the tokens in its KV cache and those computed.

    ``contexts`` and ``queries`` are of shape (sequences,).
    """

    row: int
    contexts: NDArray[Any]
    queries: NDArray[Any]

    def moved(self, rows: int) -> Keyframe | None:
        """The same in a table with so many rows more before it, or less where that is negative; None if it is gone."""
        row = self.row + rows
        return Keyframe(row, self.contexts, self.queries) if row >= 0 else None


@dataclass(frozen=True, slots=True)
class Batch:
    """What one read of a source brought: new steps, events, and what was lost on the way.

    ``lost_steps`` were overwritten before they could be read, ``torn_steps`` failed their check sum.
    ``derived`` are values of these steps that were computed and not read; ``complaints`` are what was wrong with
    what was read, in words; ``progress`` is whether the engine moves, None where the source cannot tell.
    ``here`` is whether the engine is known to run on this machine, None for what its feed says of all of them;
    ``known_until_monotonic_s`` is the moment up to which the source has told all of it, None for about now.
    ``keyframe`` is one of the last steps, where the source tells the lengths of single sequences.
    """

    info: EngineInfo | None
    steps: StepTable
    events: tuple[RingEvent, ...] = ()
    lost_steps: int = 0
    torn_steps: int = 0
    derived: tuple[Derived, ...] = ()
    complaints: tuple[str, ...] = ()
    progress: Progress | None = None
    here: bool | None = None
    known_until_monotonic_s: float | None = None
    keyframe: Keyframe | None = None


class Source(Protocol):
    """Anything that yields steps: a ring, a scraper, a log, a feed."""

    def read(self) -> Batch:
        """All that is new since the last call; never blocks."""
        ...


class Feed(Protocol):
    """A source that tells of several engines and comes by itself: a page, a log, a socket, what is pushed.

    ``here`` is whether its engines are known to run on this machine; ``failures`` counts what could not be read.
    """

    kind: SourceKind
    here: bool
    failures: int

    def start(self) -> None:
        """Begin to take in, in a thread of its own where that may block."""
        ...

    def read(self) -> list[Batch]:
        """What came since the last call, a batch for each engine, one that is over a last time; never blocks.

        An engine is told by ``Batch.info.instance``; one whose facts are not known yet is not told of.
        """
        ...

    def health(self) -> SourceHealth:
        """How the source is doing; ``engines`` is filled in by whoever watches them."""
        ...

    def close(self) -> None:
        """Stop; waits for no peer."""
        ...


@dataclass(frozen=True, slots=True)
class Probed:
    """What one call of a probe brought; ``problems`` are one line each, about what is not known and the next step.

    ``lacks`` are those among them that are no failure, each after the uuid of its device: what that does not have.
    """

    devices: tuple[DeviceFacts, ...] = ()
    samples: tuple[DeviceSample, ...] = ()
    processes: tuple[ProcessSample, ...] = ()
    problems: tuple[str, ...] = ()
    lacks: tuple[tuple[str, str], ...] = ()


class Probe(Protocol):
    """Anything that samples counters of devices or the host."""

    def sample(self) -> Probed:
        """The counters since the last call; never raises, may block for as long as a driver or a page does."""
        ...


class Rule(Protocol):
    """One finding's judgement over what is known of an engine; the case is analyzer.rules.case.Case."""

    def __call__(self, case: Any) -> Finding:
        """The finding: firing, cleared (nothing is wrong) or cannot_tell."""
        ...


class Exporter(Protocol):
    """Anything that publishes a snapshot."""

    def export(self, snapshot: Snapshot) -> None:
        """Publish; raises only for a fault of its own configuration."""
        ...
