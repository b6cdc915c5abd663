"""What one operator costs one device: flops and bytes as linear forms over the features of a step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

Coefficients = Mapping[str, float]  # feature name -> flops or bytes for each unit of it


@dataclass(frozen=True, slots=True)
class Work:
    """One operator on one device: flops (2 for a multiply-add), bytes moved, bytes that must be resident.

    ``compute`` are the number formats whose units may run the flops. ``weight_bytes``, ``kv_read_bytes``,
    ``kv_write_bytes``, ``state_bytes`` and ``gather_bytes`` are what no implementation can avoid; ``expert_bytes`` is
    what uniform routing reads of the experts beyond the fewest possible, and ``activation_bytes`` what kernels write
    and read between them: both belong to what is reachable, not to the floor. ``link_bytes`` is what the device sends
    in the collective named ``collective``, ``calls`` how often a pass launches the operator (its layers).

    ``stored_bytes`` is what the cache keeps, a linear form over the features of the sequences it holds.
    ``resident_bytes`` is what stays in memory for good, which for a table that is only gathered from is more than it
    reads; ``elements`` are the weights of the row in the whole model, however many devices hold them, counted once.
    """

    operator: str
    group: str
    compute: tuple[str, ...] = ()
    calls: float = 0.0
    flops: Coefficients = field(default_factory=dict)
    weight_bytes: Coefficients = field(default_factory=dict)
    kv_read_bytes: Coefficients = field(default_factory=dict)
    kv_write_bytes: Coefficients = field(default_factory=dict)
    state_bytes: Coefficients = field(default_factory=dict)
    gather_bytes: Coefficients = field(default_factory=dict)
    expert_bytes: Coefficients = field(default_factory=dict)
    activation_bytes: Coefficients = field(default_factory=dict)
    link_bytes: Coefficients = field(default_factory=dict)
    collective: str = ""
    stored_bytes: Coefficients = field(default_factory=dict)
    resident_bytes: float = 0.0
    elements: float = 0.0

    def memory_parts(self) -> tuple[Coefficients, ...]:
        """All coefficients that are bytes which the floor counts of this device's memory."""
        return (self.weight_bytes, self.kv_read_bytes, self.kv_write_bytes, self.state_bytes, self.gather_bytes)


def dot(coefficients: Coefficients, values: Mapping[str, float]) -> float:
    """The linear form at one point: the sum of coefficient x feature."""
    return sum(c * values[name] for name, c in coefficients.items())


def resident_bytes(rows: Iterable[Work]) -> float:
    """Bytes of weights that one device keeps in memory."""
    return sum(row.resident_bytes for row in rows)


def stored_bytes(rows: Iterable[Work], values: Mapping[str, float]) -> float:
    """Bytes that the caches of the sequences with these features take on one device."""
    return sum(dot(row.stored_bytes, values) for row in rows)
