"""From a rule's answers, window after window, to what is published: hysteresis, since and until."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from rooflens.analyzer.rules import EVERY_TURN
from rooflens.findings import Code, Finding, Status

RECENT_VERDICTS = 3  # firing and clean ones are remembered as far back as this
FIRING_OF_RECENT = 2  # one window may be a burst; two of three are a state
AT_ONCE = frozenset({Code.ENGINE_STALLED})  # a frozen engine makes no second window to wait for
CLEAN_TO_CLEAR = 3  # a cause that comes and goes with the load must not flap
BLIND_TO_END = 6  # a minute without an answer: an old verdict says nothing of now any more
WINDOWS_SHOWN = 6  # a cleared finding stays in sight for as long as its windows do


@dataclass(frozen=True, slots=True)
class _Course:
    """One code so far: ``recent`` holds True for a firing and False for a clean verdict, newest last.

    ``latest`` is the newest verdict, ``shown`` what fires or has cleared, ``shown_windows`` since when it has.
    """

    recent: tuple[bool, ...] = ()
    blind: int = 0
    latest: Finding | None = None
    shown: Finding | None = None
    cleared_windows: int = 0

    @property
    def fires(self) -> bool:
        """Whether the code is firing now."""
        return self.shown is not None and self.shown.status is Status.FIRING

    def after(self, finding: Finding, now_unix_s: float) -> _Course:
        """With one more verdict of this code."""
        if finding.status is Status.CANNOT_TELL:
            return self._blinded(finding)
        fired = finding.status is Status.FIRING
        recent = (*self.recent, fired)[-RECENT_VERDICTS:]
        course = _Course(recent, 0, finding, self.shown, self.cleared_windows)
        if fired and (self.fires or finding.code in AT_ONCE or sum(recent) >= FIRING_OF_RECENT):
            since_s = self.shown.since_unix_s if self.shown is not None and self.fires else now_unix_s
            return replace(course, shown=replace(finding, since_unix_s=since_s))
        if self.shown is not None and self.fires and recent == (False,) * CLEAN_TO_CLEAR:
            ended = replace(self.shown, status=Status.CLEARED, until_unix_s=now_unix_s)
            return replace(course, shown=ended, cleared_windows=0)
        return course

    def _blinded(self, finding: Finding) -> _Course:
        blind = self.blind + 1
        course = _Course(self.recent, blind, finding, self.shown, self.cleared_windows)
        if blind < BLIND_TO_END:
            return course
        return replace(course, recent=(), shown=None if self.fires else self.shown)

    def aged(self) -> _Course:
        """One window later: a finding that cleared goes out of sight in time."""
        if self.shown is None or self.fires:
            return self
        windows = self.cleared_windows + 1
        return replace(self, cleared_windows=windows, shown=None if windows > WINDOWS_SHOWN else self.shown)

    def published(self) -> Finding | None:
        """What to show of this code: that it fires, else that it cannot be told, else that it has cleared."""
        if self.fires:
            return self.shown
        if self.latest is not None and self.latest.status is Status.CANNOT_TELL:
            return self.latest
        return self.shown


ORDER = (Status.FIRING, Status.CLEARED, Status.CANNOT_TELL)
PLACES = {code: place for place, code in enumerate(Code)}


@dataclass(frozen=True, slots=True)
class Verdicts:
    """The courses of all codes of one engine; a value: ``judged`` gives the next one.

    A code fires when two of its last three verdicts fire (a stalled engine at once) and clears after three clean
    verdicts in a row. A cannot_tell decides nothing, but six in a row end a firing, and what was seen before counts
    no more.
    """

    courses: Mapping[Code, _Course] = field(default_factory=dict)

    def judged(
        self, case_findings: Sequence[Finding], now_unix_s: float
    ) -> tuple[Verdicts, tuple[Finding, ...], tuple[Code, ...]]:
        """With one more verdict for each of ``case_findings``: (the next value, what to publish, newly raised codes).

        Codes without a verdict this time stay as they are: engine_stalled is judged in every turn, the others when a
        window closes. Published are the firing findings, then those cleared within the last six windows, then the
        rules' cannot_tell; one finding a code. ``since_unix_s`` and ``until_unix_s`` are times of judgement.
        """
        closed = any(finding.code not in EVERY_TURN for finding in case_findings)
        courses = {code: course.aged() for code, course in self.courses.items()} if closed else dict(self.courses)
        raised = []
        for finding in case_findings:
            before = courses.get(finding.code, _Course())
            courses[finding.code] = after = before.after(finding, now_unix_s)
            if after.fires and not before.fires:
                raised.append(finding.code)
        found = [shown for course in courses.values() if (shown := course.published()) is not None]
        published = sorted(found, key=lambda finding: (ORDER.index(finding.status), PLACES[finding.code]))
        return Verdicts(MappingProxyType(courses)), tuple(published), tuple(raised)
