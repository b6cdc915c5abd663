"""Captured steps under a change: each is put through the changed roofline again, a piece of the recording at a time.

What a step took above what is reachable is the unknown: it may stay as it is (a host that needs its time) or scale
with the step (kernels that reach less than they could). Both are worked out, and the new time lies between them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from rooflens.analyzer.history.changed import Change, notes_of
from rooflens.analyzer.history.phases import kind_name
from rooflens.analyzer.history.pool_room import Room, Tightest
from rooflens.analyzer.history.records import WhatIfAnswer, WhatIfPart
from rooflens.analyzer.history.sums import ratio
from rooflens.analyzer.roofline import Roofline
from rooflens.analyzer.rules.pool import batch_of
from rooflens.analyzer.rules.reprice import KERNEL_ERROR, scaled
from rooflens.analyzer.sums import Column, filled, steps_of
from rooflens.model_records import StepAnalysis
from rooflens.records import EngineInfo, StepKind, StepTable

Keyframes = Mapping[int, tuple[Sequence[int], Sequence[int]]]
BATCHED = (StepKind.DECODE, StepKind.VERIFY)  # whose sequences a larger batch puts together
HOUR_S = 3600.0
NOT_LARGER = "nothing is changed: every decode step already has {} sequences or more, and a batch is never made smaller"
PARTLY_LARGER = "{:.0%} of the decode steps already have {} sequences or more and stay as they are"
RESTARTED = (
    "an engine was restarted with other devices: the most that it had are told, and each step is counted with its own"
)
QUICKER = (
    "the steps were {:.2f} times as fast as what counts as reachable: nothing lies above it, so the interval is too "
    "narrow, and the answer is as wrong as that"
)


@dataclass(slots=True)
class Part:
    """Sums over the steps of one kind; the fields are those of WhatIfPart."""

    steps: float = 0.0
    observed_s: float = 0.0
    now_s: float = 0.0
    then_s: float = 0.0
    low_s: float = 0.0
    high_s: float = 0.0
    tokens: float = 0.0
    untold: float = 0.0  # steps that do not tell their tokens

    def told(self, name: str) -> WhatIfPart:
        """The figures."""
        tokens = None if self.untold else self.tokens
        rates = [None if not tokens else ratio(tokens, each) for each in (self.observed_s, self.high_s, self.low_s)]
        return WhatIfPart(
            name, self.steps, self.observed_s, self.now_s, self.then_s, self.low_s, self.high_s, tokens, *rates
        )


@dataclass(slots=True)
class WhatIf:
    """One what-if while it is worked out: take() each part of the recording, then answer()."""

    change: Change
    parts: dict[int, Part] = field(default_factory=dict)
    skipped: float = 0.0
    saved_low: float = 0.0
    saved_high: float = 0.0
    devices: dict[str, dict[tuple[int, int], None]] = field(default_factory=dict)
    larger: list[float] = field(default_factory=lambda: [0.0, 0.0])  # steps of BATCHED that grow, and that do not
    problems: dict[str, None] = field(default_factory=dict)
    room: Tightest = field(default_factory=Tightest)
    then: Roofline | None = None
    batch: list[float] = field(default_factory=lambda: [0.0, 0.0])  # sequences, and steps, of BATCHED
    waiting: list[float] = field(default_factory=lambda: [0.0, 0.0])  # requests, and rows that tell them

    def take(
        self,
        now: Roofline,
        then: Roofline,
        info: EngineInfo | None,
        table: StepTable,
        keyframes: Keyframes,
        engine: str = "",
    ) -> None:
        """Some steps of one engine; raises what Roofline's analyse_all raises."""
        self.then = then
        self.devices.setdefault(engine, {})[now.deployment.devices, then.deployment.devices] = None
        factor = self._factor(table)
        before = now.analyse_all(table)
        after = then.analyse_all(table if factor is None else _larger(table, factor))
        grown = np.ones(len(table)) if factor is None else factor
        steps = steps_of(table)
        both = before.reachable_s is not None and after.reachable_s is not None
        was, will = _curve(before, both), _curve(after, both)
        ok = before.compared & after.modelled & (was > 0)
        self.skipped += float(steps[~ok].sum())
        low, high = _new_times(before, was, will, grown, batched=factor is not None)
        generated, told = filled(table, "generated_tokens"), table.where("generated_tokens")
        for kind in np.unique(table["kind"][ok]).tolist():
            rows = ok & (table["kind"] == kind)
            part = self.parts.setdefault(kind, Part())
            part.steps += float(steps[rows].sum())
            part.observed_s += float(before.observed_s[rows].sum())
            part.now_s += float(was[rows].sum())
            part.then_s += float((will / grown)[rows].sum())
            part.low_s += float(low[rows].sum())
            part.high_s += float(high[rows].sum())
            part.tokens += float(generated[rows & told].sum())
            part.untold += float(steps[rows & ~told].sum())
            held_s = float(before.observed_s[rows].sum()) * now.deployment.devices
            self.saved_low += held_s - float(high[rows].sum()) * then.deployment.devices
            self.saved_high += held_s - float(low[rows].sum()) * then.deployment.devices
        self._load(table)
        self.room.take(Room(now, then, info), table, keyframes, grown)

    def _factor(self, table: StepTable) -> Column | None:
        """How many times its sequences each row has under the change; None where the batch stays."""
        if self.change.batch is None:
            return None
        rows = np.isin(table["kind"], BATCHED) & (batch_of(table) > 0)
        grow = rows & (batch_of(table) < self.change.batch)
        self.larger[0] += float(steps_of(table)[grow].sum())
        self.larger[1] += float(steps_of(table)[rows & ~grow].sum())
        return np.where(rows, np.maximum(self.change.batch / np.maximum(batch_of(table), 1e-9), 1.0), 1.0)

    def _load(self, table: StepTable) -> None:
        rows = np.isin(table["kind"], BATCHED)
        self.batch[0] += float(filled(table, "requests")[rows].sum())
        self.batch[1] += float(steps_of(table)[rows].sum())
        self.waiting[0] += float(filled(table, "waiting").sum())
        self.waiting[1] += float(table.where("waiting").sum())

    def answer(self, price_per_device_hour: float | None = None) -> WhatIfAnswer:
        """What was found."""
        parts = sorted(self.parts.items(), key=lambda item: -item[1].observed_s)
        whole = Part()
        for _, part in parts:
            for name in Part.__dataclass_fields__:
                setattr(whole, name, getattr(whole, name) + getattr(part, name))
        saved = (self.saved_low, self.saved_high) if parts else None
        price = None if price_per_device_hour is None else price_per_device_hour / HOUR_S
        batch, waiting = (ratio(*pair) for pair in (self.batch, self.waiting))
        now, then = (sum(max(pair[at] for pair in pairs) for pairs in self.devices.values()) for at in (0, 1))
        return WhatIfAnswer(
            change=self.change.text,
            kinds=tuple(part.told(kind_name(kind)) for kind, part in parts),
            total=whole.told("total") if parts else None,
            fits=self.room.fits,
            pool_bytes=self.room.pool_bytes,
            needed_bytes=self.room.needed_bytes,
            devices_now=now,
            devices_then=then,
            saved_device_s=saved,
            saved_money=None if saved is None or price is None else (saved[0] * price, saved[1] * price),
            skipped_steps=self.skipped,
            problems=tuple(self.problems),
            notes=(*self._notes(whole), *notes_of(self.change, self.then, batch, waiting), *self.room.notes),
        )

    def _notes(self, whole: Part) -> Iterator[str]:
        """What the figures alone would not tell."""
        if self.change.batch is not None and not self.larger[0]:
            yield NOT_LARGER.format(self.change.batch)
        elif self.change.batch is not None and self.larger[1]:
            yield PARTLY_LARGER.format(self.larger[1] / sum(self.larger), self.change.batch)
        if any(len(pairs) > 1 for pairs in self.devices.values()):
            yield RESTARTED
        if 0 < whole.observed_s < whole.now_s:
            yield QUICKER.format(whole.now_s / whole.observed_s)


def _larger(table: StepTable, factor: Column) -> StepTable:
    """The steps with ``factor`` times their sequences; where it is 1 the step stays as it was, its pool's use too."""
    found = scaled(table, factor)
    if "kv_blocks_used" not in table.columns:
        return found
    known = table.where("kv_blocks_used") & (factor == 1.0)
    return StepTable(
        {**found.columns, "kv_blocks_used": table["kv_blocks_used"]}, {**found.known, "kv_blocks_used": known}
    )


def _curve(analysis: StepAnalysis, reachable: bool) -> Column:
    """What steps take by their work: what is reachable where that is known on both sides, else the expected floor."""
    found: Column = analysis.reachable_s if reachable and analysis.reachable_s is not None else analysis.expected_s
    return found


def _new_times(before: StepAnalysis, was: Column, will: Column, factor: Column, batched: bool) -> tuple[Column, Column]:
    """(low, high) seconds of the same tokens under the change, row by row."""
    observed = before.observed_s
    with np.errstate(divide="ignore", invalid="ignore"):
        growth = will / was
    usual = np.minimum(was, observed)
    constant = usual * growth + observed - usual
    if batched:  # what lies above may grow with the batch, and as much of the curve as kernels miss it by
        sure = np.minimum(np.maximum((1 - KERNEL_ERROR) * was, before.expected_s), observed)
        grows = np.where(factor > 1, sure * growth + (observed - sure) * factor, observed * growth)
    else:
        grows = observed * growth
    low, high = np.minimum(constant, grows) / factor, np.maximum(constant, grows) / factor
    return low, high
