"""What a sidecar keeps of the engines it watches: an engine begins with what was learned, its windows are added to it.

Reading is done where the engine's facts become known; a file is replaced whole, so no lock is waited for. Writing is
done by a thread of its own, at most once a minute and at the end: a disk that hangs keeps no turn.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from pathlib import Path

from rooflens.analyzer.baseline import Baseline, step_seconds
from rooflens.analyzer.correction import Correction
from rooflens.analyzer.regimes import Times
from rooflens.calibration_records import Calibration
from rooflens.collector.state.file import Outcome
from rooflens.collector.state.key import StateKey, key_of, machine_key
from rooflens.collector.state.learned import LearnedFiles
from rooflens.collector.state.place import unfit_for_writing
from rooflens.model_records import HardwareSpec
from rooflens.pipeline.learned import Learned, Span, learned_data, learned_from_data
from rooflens.records import EngineInfo, RooflensError, StepTable

SAVE_EVERY_S = 60.0
END_WITHIN_S = 5.0  # a disk that hangs must not keep a sidecar from ending
MOST_KEYS = 64  # in memory; labels that change at every read would fill it
MOST_UNSAVED = 1024  # windows of a key that a disk may refuse; of more the oldest are kept in memory only
MOST_PROBLEMS = 4  # lines: what is wrong with one file is most often wrong with all
ELSEWHERE = "elsewhere"  # the machine of an engine that may run on another one, whose name is nobody's business


def learned_files(folder: Path) -> LearnedFiles[Learned]:
    """The files of what was learned below the state folder ``folder``."""
    return LearnedFiles(folder, learned_from_data, learned_data, Learned)


Windows = list[tuple[Learned, Span | None]]


class _Known:
    """One key in memory: all that is known of it, and which windows are not written or are being written."""

    def __init__(self, stored: Learned, kept: bool) -> None:
        self.all, self._kept = stored, kept
        self._handed: Windows = []
        self._new: Windows = []

    @property
    def unsaved(self) -> bool:
        return bool(self._handed or self._new)

    def add(self, window: Learned, span: Span | None) -> None:
        self.all = self.all.taught(window, span)
        if self._kept:
            self._new = [*self._new, (window, span)][-MOST_UNSAVED:]

    def hand_over(self) -> Windows:
        self._handed, self._new = [*self._handed, *self._new][-MOST_UNSAVED:], []
        return self._handed

    def taken(self, outcome: Outcome[Learned]) -> None:
        """What was handed over is written, and with it whatever others wrote; or it is to be tried again."""
        if outcome.saved and outcome.value is not None:
            self.all, self._handed = outcome.value.taught_all(self._new), []


class Memory:
    """All of it, of one sidecar; belongs to the thread of the loop. ``folder`` None keeps everything in memory only."""

    def __init__(self, folder: Path | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._files = None if folder is None else learned_files(folder)
        self._clock, self._saved_s = clock, clock()
        self._known: dict[StateKey, _Known] = {}  # those that were asked for last at the end
        self._writer: threading.Thread | None = None
        self._written: dict[StateKey, Outcome[Learned]] = {}
        self._problems: dict[str, str] = {}
        if self._files is not None and (unfit := unfit_for_writing(self._files.folder)) is not None:
            self._problems[""] = unfit

    @cached_property
    def machine(self) -> str:
        """The digest of this machine."""
        return machine_key()

    @property
    def problems(self) -> tuple[str, ...]:
        """What hinders keeping, one line each."""
        return tuple(dict.fromkeys(self._problems.values()))[:MOST_PROBLEMS]

    def of_engine(self) -> EngineMemory:
        """That of an engine whose facts are not known yet."""
        return EngineMemory(self)

    def learned(self, key: StateKey) -> Learned:
        """All that is known of this key: what its file held at the first question, and what this sidecar saw since."""
        known = self._known.pop(key, None)
        if known is None:
            known = _Known(self._stored(key), kept=self._files is not None)
        self._known[key] = known
        self._make_way()
        return known.all

    def other_versions(self, key: StateKey) -> dict[str, Learned]:
        """What is kept of the same configuration under other versions of the engine, read from disk now."""
        try:
            return {} if self._files is None else self._files.other_versions(key)
        except RooflensError:
            return {}

    def add(self, key: StateKey, window: Learned, span: Span | None = None) -> None:
        """What one window taught, of these steps; another sidecar may have taught of them."""
        self.learned(key)
        self._known[key].add(window, span)

    def look(self) -> None:
        """Begin to write what is new, where the last time is a minute ago; takes what was written."""
        if self._files is None or (self._writer is not None and self._writer.is_alive()):
            return
        self._take_written()
        if self._clock() - self._saved_s >= SAVE_EVERY_S:
            self._saved_s = self._clock()
            self._write()

    def close(self) -> None:
        """Write what is new, unless that takes longer than a few seconds."""
        until_s = time.monotonic() + END_WITHIN_S
        for _ in range(2):  # what is being written, and then the rest
            if self._writer is not None:
                self._writer.join(max(0.0, until_s - time.monotonic()))
                if self._writer.is_alive():
                    return
            self._take_written()
            self._write()
        if self._writer is not None:
            self._writer.join(max(0.0, until_s - time.monotonic()))
            self._take_written()

    def _make_way(self) -> None:
        """Let go of keys beyond MOST_KEYS: those that are written, and of twice as many any; the last stays."""
        others = list(self._known)[:-1]
        written = [key for key in others if self._files is None or not self._known[key].unsaved]
        for key in written[: max(0, len(self._known) - MOST_KEYS)]:
            del self._known[key]
        for key in others[: max(0, len(self._known) - 2 * MOST_KEYS)]:
            self._known.pop(key, None)

    def _stored(self, key: StateKey) -> Learned:
        if self._files is None:
            return Learned()
        outcome = self._files.file(key).read()
        self._say(key, outcome)
        return outcome.value or Learned()

    def _say(self, key: StateKey, outcome: Outcome[Learned]) -> None:
        """A fault stays said until the key is written or read without one."""
        if outcome.problem is not None:
            self._problems[key.file_name] = outcome.problem
        elif outcome.saved or outcome.value is not None:
            self._problems.pop(key.file_name, None)
        if outcome.saved:
            self._problems.pop("", None)

    def _write(self) -> None:
        unsaved = {key: known.hand_over() for key, known in self._known.items() if known.unsaved}
        self._writer = None
        if unsaved and self._files is not None:
            arguments = (self._files, unsaved, self._written)
            self._writer = threading.Thread(target=_written, args=arguments, name="rooflens-memory", daemon=True)
            self._writer.start()

    def _take_written(self) -> None:
        if self._writer is not None and self._writer.is_alive():
            return
        for key, outcome in self._written.items():
            self._say(key, outcome)
            if key in self._known:
                self._known[key].taken(outcome)
        self._written.clear()
        self._writer = None


def _written(
    files: LearnedFiles[Learned], unsaved: Mapping[StateKey, Windows], outcomes: dict[StateKey, Outcome[Learned]]
) -> None:
    """Write each behind what its file holds by now, and remove what is too old."""
    for key, windows in unsaved.items():
        outcomes[key] = files.file(key).change(partial(_behind, windows))
    try:
        files.make_way()
    except (OSError, RooflensError):
        return  # a folder that is unfit was said with each file


def _behind(windows: Windows, held: Learned) -> Learned:
    return held.taught_all(windows)


class EngineMemory:
    """What one engine knows of its own: ``correction`` and ``baseline`` grow with its windows.

    It begins with what was learned of its key, and anew with another key: nothing crosses a change of the facts.
    """

    def __init__(self, memory: Memory | None = None) -> None:
        self._memory = memory or Memory(None)
        self.key: StateKey | None = None
        self._learned = Learned()

    @property
    def correction(self) -> Correction:
        """What its windows taught of what is reachable."""
        return self._learned.correction

    @property
    def baseline(self) -> Baseline:
        """What its regimes usually take."""
        return self._learned.baseline

    def know(
        self, info: EngineInfo | None, hardware: HardwareSpec | None, calibration: Calibration | None, here: bool
    ) -> None:
        """The facts of the engine are known, or are others than before."""
        self.key, self._learned = None, Learned()
        if info is not None:
            machine = self._memory.machine if here else ELSEWHERE
            calibrated_unix_s = None if calibration is None else calibration.measured_unix_s
            self.key = key_of(info, machine, None if hardware is None else hardware.id, calibrated_unix_s)
            self._learned = self._memory.learned(self.key)

    def other_versions(self) -> dict[str, Baseline]:
        """What the same configuration usually took under other versions of the engine, by version."""
        if self.key is None:
            return {}
        return {version: each.baseline for version, each in self._memory.other_versions(self.key).items()}

    def learn(self, steps: StepTable, times: Times, end_unix_s: float, run: str | None = None) -> None:
        """One more whole window that ended then; ``times`` are those of regimes.times_of.

        ``run`` is what every sidecar calls the run whose ring numbers the steps, None where none does.
        """
        window = Learned(Correction().learned(times), Baseline().learned(end_unix_s, step_seconds(steps), times))
        span = None
        if run is not None and len(steps):
            span = Span(run, int(steps["sequence"][0]), int(steps["sequence"][-1]))
        self._learned = self._learned.taught(window, span)
        if self.key is not None and window.baseline.regimes:
            self._memory.add(self.key, window, span)
