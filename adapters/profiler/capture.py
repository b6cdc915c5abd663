"""What a profile says, before it is cut into steps: ranges of steps, intervals of work, and when work was launched."""

from __future__ import annotations

from array import array
from collections.abc import Hashable
from dataclasses import dataclass, field

from rooflens.adapters.profiler.boundaries import Boundary
from rooflens.records import RooflensError

# Of one kind in a file: some 200 bytes each while it is cut into steps, so 1.5 GB at most; 4 GB of JSON hold as many.
MOST_INTERVALS = 8_000_000
MOST_RANGES = 1_000_000
HOST = -1  # the device of what ran on the CPU
FEWER = "profile fewer steps"


@dataclass(slots=True)
class Work:
    """Intervals as columns of equal length, times in seconds after Capture.origin; ``process`` is Capture.process().

    ``correlation`` is the launch's, 0 where it is not known.
    """

    process: array[int] = field(default_factory=lambda: array("i"))
    device: array[int] = field(default_factory=lambda: array("i"))
    start_s: array[float] = field(default_factory=lambda: array("d"))
    end_s: array[float] = field(default_factory=lambda: array("d"))
    correlation: array[int] = field(default_factory=lambda: array("q"))
    kernel_class: array[int] = field(default_factory=lambda: array("b"))

    def __len__(self) -> int:
        return len(self.start_s)

    def add(self, process: int, device: int, start_s: float, end_s: float, correlation: int, kind: int) -> None:
        """One more; RooflensError where there are too many."""
        if len(self.start_s) >= MOST_INTERVALS:
            raise RooflensError(f"more than {MOST_INTERVALS:,} kernels or operators: {FEWER}")
        self.process.append(process)
        self.device.append(device)
        self.start_s.append(start_s)
        self.end_s.append(end_s)
        self.correlation.append(correlation)
        self.kernel_class.append(kind)


@dataclass(slots=True)
class Range:
    """The range of a step on the host."""

    process: int
    start_s: float
    end_s: float
    boundary: Boundary


@dataclass(slots=True)
class Capture:
    """A file, read. ``unix_s`` is the wall time of second 0, None where the file does not tell it.

    ``kernels`` ran on devices, called as ``device_names`` says, ``operators`` on the host. A launch is when the work of
    a process and correlation was handed over. ``odd`` counts events whose times cannot be, ``cut_off`` says that the
    file ends early or is damaged, ``operators_dropped`` that there were too many of them.
    """

    format: str
    unix_s: float | None = None
    processes: list[str] = field(default_factory=list)
    device_names: dict[int, str] = field(default_factory=dict)
    ranges: list[Range] = field(default_factory=list)
    kernels: Work = field(default_factory=Work)
    operators: Work = field(default_factory=Work)
    launch_process: array[int] = field(default_factory=lambda: array("i"))
    launch_correlation: array[int] = field(default_factory=lambda: array("q"))
    launch_s: array[float] = field(default_factory=lambda: array("d"))
    events: int = 0
    odd: int = 0
    cut_off: bool = False
    operators_dropped: bool = False
    _numbers: dict[Hashable, int] = field(default_factory=dict)

    def process(self, key: Hashable, name: str) -> int:
        """The number of a process here; ``name`` is what it is called when it is seen first."""
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.processes)
            self.processes.append(name)
        return number

    def add_range(self, process: int, start_s: float, end_s: float, found: Boundary) -> None:
        """The range of one more step; RooflensError where there are too many."""
        if len(self.ranges) >= MOST_RANGES:
            raise RooflensError(f"more than {MOST_RANGES:,} ranges of steps: {FEWER}")
        self.ranges.append(Range(process, start_s, end_s, found))

    def add_launch(self, process: int, correlation: int, at_s: float) -> None:
        """When the work of this correlation was launched."""
        if len(self.launch_s) >= MOST_INTERVALS:
            raise RooflensError(f"more than {MOST_INTERVALS:,} launches: {FEWER}")
        self.launch_process.append(process)
        self.launch_correlation.append(correlation)
        self.launch_s.append(at_s)
