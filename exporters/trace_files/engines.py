"""Which process and which threads of a viewer an engine has: numbered as they are first seen."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from rooflens.exporters.trace_files.slices import HOST, STEPS, RunLine
from rooflens.trace_records import TraceFacts

EVENTS, FINDINGS = "events", "findings"
FIRST = (STEPS, HOST, EVENTS, FINDINGS)  # the order in which a viewer shows the tracks of an engine


@dataclass(slots=True)
class Process:
    """One engine, or the devices of one host: ``number`` counts from 1, ``name`` is what a person reads."""

    number: int
    name: str
    tracks: dict[Hashable, int] = field(default_factory=dict)
    runs: dict[str, int] = field(default_factory=dict)

    def track(self, key: Hashable) -> tuple[int, bool]:
        """The number of a track, counted from 1, and whether it is new."""
        number = self.tracks.get(key)
        if number is not None:
            return number, False
        number = self.tracks[key] = len(self.tracks) + 1
        return number, True

    def track_name(self, kind: str, run: str, lane: int) -> str:
        """What a track is called: ``steps``, those of a later run ``steps, run 2``, beside them ``steps (2)``."""
        number = self.runs.setdefault(run, len(self.runs) + 1)
        words = kind if number == 1 else f"{kind}, run {number}"
        return words if lane == 0 else f"{words} ({lane + 1})"


@dataclass(slots=True)
class Processes:
    """All engines and hosts, and the time line of each run; ``ticks`` as in RunLine."""

    ticks: Callable[[float], int]
    known: dict[str, Process] = field(default_factory=dict)
    lines: dict[tuple[str, str], tuple[TraceFacts, RunLine]] = field(default_factory=dict)

    def named(self, name: str) -> tuple[Process, bool]:
        """The process of this name, and whether it is new."""
        process = self.known.get(name)
        if process is not None:
            return process, False
        process = self.known[name] = Process(len(self.known) + 1, name)
        return process, True

    def line(self, facts: TraceFacts) -> RunLine:
        """The time line of the run that has these facts."""
        key = (facts.label, facts.run)
        if key not in self.lines:
            self.lines[key] = (facts, RunLine(self.ticks))
        return self.lines[key][1]

    @property
    def left_out(self) -> int:
        """Steps that are on no track."""
        return sum(line.left_out for _, line in self.lines.values())


def devices_of(host: str) -> str:
    """The name of the process that shows a host's devices."""
    return f"devices of {host}"


def engine_title(facts: TraceFacts) -> str:
    """The label, and what runs there as far as it is known."""
    info = facts.info
    words = [info.engine, info.engine_version] if info else []
    words.append(facts.hardware.id if facts.hardware else None)
    told = ", ".join(word for word in words if word)
    return f"{facts.label} ({told})" if told else facts.label
