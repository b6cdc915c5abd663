"""What the formats of viewers have in common: steps, events and findings on the tracks of their engines."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

from rooflens.exporters.trace_files.engines import Process, Processes, engine_title
from rooflens.exporters.trace_files.parts import CounterRows, Happened, Output, Part, StepRows
from rooflens.exporters.trace_files.slices import Slice, Value
from rooflens.exporters.trace_files.stood import Standing, Stood
from rooflens.findings import Finding
from rooflens.records import RingEvent
from rooflens.trace_records import TraceFacts


class Drawing(ABC):
    """See parts.Writer. Times are ticks since ``begin_unix_s``, a whole second."""

    def __init__(self, output: Output, begin_unix_s: int, ticks_per_s: int) -> None:
        """What a format writes ahead of the first part is its own."""
        self._output, self._begin, self._per_s = output, begin_unix_s, ticks_per_s
        self._processes, self._standing = Processes(self._ticks), Standing()
        self._last = 0

    def take(self, part: Part) -> None:
        """Write one part; TooLarge where the file is full."""
        if isinstance(part, StepRows):
            self._steps(part)
        elif isinstance(part, Happened):
            self._happened(part)
            self._output.events += 1
        else:
            self._counters(part)
            self._output.samples += len(part)
            self._output.check()

    def end(self) -> None:
        """Nothing follows: what still stands is drawn until the last step."""
        for facts, line in self._processes.lines.values():
            self._write_all(facts, line.end())
        for stood in self._standing.end():
            self._stood(stood)
        self._output.left_out = self._processes.left_out

    def _ticks(self, unix_s: float) -> int:
        return round((unix_s - self._begin) * self._per_s)

    def _steps(self, rows: StepRows) -> None:
        line = self._processes.line(rows.facts)
        for unix_s, made in line.take(rows):
            self._output.check(unix_s)
            self._write_all(rows.facts, made)
            self._output.steps += 1

    def _happened(self, happened: Happened) -> None:
        if not isinstance(happened.what, Finding):
            self._event(self._engine(happened.facts), max(0, self._ticks(happened.unix_s)), happened.what)
        elif (stood := self._standing.take(happened)) is not None:
            self._stood(stood)

    def _ends(self, stood: Stood) -> tuple[int, int]:
        """(begin, end) of a finding, until the last step where it still stands."""
        begin = max(0, self._ticks(stood.begin_unix_s))
        return begin, max(begin, self._last if stood.end_unix_s is None else self._ticks(stood.end_unix_s))

    def _engine(self, facts: TraceFacts) -> Process:
        known = self._processes.known.get(facts.label)
        return known if known is not None else self._named(facts.label, engine_title(facts))

    @abstractmethod
    def _write_all(self, facts: TraceFacts, made: Iterable[Slice | Value]) -> None:
        """Write these; ``_last`` is the end of the last slice."""

    @abstractmethod
    def _event(self, process: Process, at: int, event: RingEvent) -> None: ...

    @abstractmethod
    def _stood(self, stood: Stood) -> None: ...

    @abstractmethod
    def _counters(self, rows: CounterRows) -> None: ...

    @abstractmethod
    def _named(self, name: str, title: str) -> Process:
        """The process of this name, which is described where it is new."""
