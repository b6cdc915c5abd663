"""What a machine was measured to reach, and its ceilings; frozen, SI units, None for not known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Measured:
    """One quantity measured ``count`` times: the median, the best, and how far runs lie apart.

    ``spread_ratio`` is the 90th percentile less the 10th, and on top what the median moved by from the first half of
    the runs to the second, over the median; at least 0.1 beside others. The unit is that of the field that holds it.
    """

    median: float
    best: float
    spread_ratio: float
    count: int


@dataclass(frozen=True, slots=True)
class MachineIdentity:
    """Which machine and device a calibration is of; two calibrations are of one only if all of this is equal.

    ``kind`` is cpu, cuda or rocm; ``machine`` a digest of the host's machine id, None where it has none;
    ``device_uuid`` is the device's own, None of a CPU; ``units`` are usable cores, or SMs.
    """

    kind: str
    name: str
    machine: str | None = None
    device_uuid: str | None = None
    memory_bytes: int | None = None
    units: int | None = None
    cache_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Calibration:
    """What one device of this machine reached, as `rooflens calibrate` measured it.

    ``reads`` hold (bytes, bytes/s) of weights read by a matrix times a vector, ``copies`` of plain reads, in ascending
    order of bytes; ``attention`` (bytes of keys and values, bytes/s) of decode attention. ``products`` is the rate of
    the best square matrix product by number format, in flop/s. ``launch_s`` is what one small kernel costs on top of
    its work, ``graph_launch_s`` inside a captured graph. ``all_reduce_s``: devices -> (message bytes, seconds).
    ``clocks_hz`` are the device's clocks while it was measured, by name; ``versions`` of what measured. ``flags`` are
    in words what was odd; one that begins with model_records.DISTURBED says that others used the machine.
    """

    identity: MachineIdentity
    measured_unix_s: float
    took_s: float
    versions: Mapping[str, str] = field(default_factory=dict)
    clocks_hz: Mapping[str, float] = field(default_factory=dict)
    reads: tuple[tuple[int, Measured], ...] = ()
    copies: tuple[tuple[int, Measured], ...] = ()
    attention: tuple[tuple[int, Measured], ...] = ()
    products: Mapping[str, Measured] = field(default_factory=dict)
    launch_s: Measured | None = None
    graph_launch_s: Measured | None = None
    all_reduce_s: Mapping[int, tuple[tuple[int, Measured], ...]] = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    schema: int = 1


class CeilingOrigin(StrEnum):
    """What a ceiling rests on."""

    DATASHEET = "datasheet"
    CALIBRATED = "calibrated"
    CLOCK_ADJUSTED = "clock_adjusted"
    MEASURED = "measured"


@dataclass(frozen=True, slots=True)
class Ceiling:
    """One roof of one device: ``number_format`` is None for the memory bandwidth (bytes/s), else of flop/s.

    ``used_for`` names what is computed with it (floor, reachable, mbu, mfu), empty for one that is only shown.
    """

    origin: CeilingOrigin
    per_s: float
    number_format: str | None = None
    used_for: tuple[str, ...] = ()
    note: str = ""
