"""Ranks that step together: a decode step that waits for the prompts of another rank."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rooflens.analyzer.peers import Prompts
from rooflens.analyzer.rules.case import Case
from rooflens.analyzer.sums import Column, filled, steps_of
from rooflens.live_records import Window
from rooflens.records import StepKind

Places = NDArray[np.intp]
ALONGSIDE = 0.5  # of a step, during which another rank computed prompts
APART = 0.2  # of a step: less is how far clocks of a lockstep lie apart
END_RATIO, END_S = 0.1, 2e-4  # of a step, in seconds: ends of one lockstep step lie as near
TOGETHER_SHARE = 0.8  # of the steps alongside that must end with the other rank's: else they do not step together
LEAST_STALLS, LEAST_PLAIN = 3, 10
STALL_RATIO = 1.5  # times a plain step: less is what sequences more or fewer make
CHANCE_RATIO = 3.0  # times as often alongside prompts as without


@dataclass(frozen=True, slots=True)
class Stalls:
    """Decode steps that waited: how many of how many, their median and a plain one's in seconds, what they cost.

    ``member`` counts the group's members: whose prompts most of them waited for, ``tokens`` their median.
    ``together`` is whether the ranks were seen to step together, None where no step tells.
    """

    count: int
    decode_steps: int
    stall_s: float
    plain_s: float
    extra_s: float
    member: int
    tokens: float
    together: bool | None
    fires: bool


def stalls_of(case: Case) -> Stalls | None:
    """Of the newest window; None where single steps, prompts of others, or enough plain steps are not known."""
    window, prompts = case.window, case.peers.prompts
    if window is None or prompts is None or not window.source.single_steps:
        return None
    table = window.steps
    if not {"kind", "observed_s", "output_monotonic_s", "requests"} <= table.columns.keys():
        return None
    output_s, observed_s = filled(table, "output_monotonic_s"), filled(table, "observed_s")
    rows = (filled(table, "kind", -1.0) == StepKind.DECODE) & table.where("observed_s") & (observed_s > 0)
    rows &= (output_s <= prompts.until_s) & (output_s - observed_s >= prompts.from_s) & (steps_of(table) == 1)
    if int(rows.sum()) < LEAST_PLAIN:
        return None
    base_s = _base_s(window)[rows]
    return _judge(output_s[rows], observed_s[rows], base_s, prompts)


def _base_s(window: Window) -> Column:
    """What each step's size is held against: its expected time, else all alike."""
    analysis = window.analysis
    if analysis is None or not analysis.compared.all():
        return np.ones(len(window.steps))
    expected: Column = np.maximum(analysis.expected_s, 1e-9)
    return expected


def _judge(output_s: Column, observed_s: Column, base_s: Column, prompts: Prompts) -> Stalls | None:
    begin_s = output_s - observed_s
    overlap = prompts.overlap_s(begin_s, output_s) / observed_s
    slack_s = np.maximum(END_RATIO * observed_s, END_S)
    first = np.searchsorted(prompts.end_s, output_s - slack_s)
    behind = np.searchsorted(prompts.end_s, output_s + slack_s, side="right")
    alongside, plain = overlap >= ALONGSIDE, overlap < APART
    ended = alongside & (behind > first)
    if int(plain.sum()) < LEAST_PLAIN:
        return None
    plain_ratio = float(np.median(observed_s[plain] / base_s[plain]))
    if not alongside.any():
        return Stalls(0, len(output_s), 0.0, float(np.median(observed_s[plain])), 0.0, -1, 0.0, None, fires=False)
    together = float(ended.sum()) >= TOGETHER_SHARE * float(alongside.sum())
    long = observed_s >= STALL_RATIO * plain_ratio * base_s
    stalled = ended & long
    often, by_chance = float(stalled.sum() / alongside.sum()), float(long[plain].mean())
    extra_s = float((observed_s - plain_ratio * base_s)[stalled].sum())
    member, tokens = _whose(first[stalled], behind[stalled], prompts)
    return Stalls(
        count=int(stalled.sum()),
        decode_steps=len(output_s),
        stall_s=float(np.median(observed_s[stalled])) if stalled.any() else 0.0,
        plain_s=float(np.median(observed_s[plain])),
        extra_s=extra_s,
        member=member,
        tokens=tokens,
        together=together,
        fires=together and int(stalled.sum()) >= LEAST_STALLS and often >= CHANCE_RATIO * by_chance,
    )


def _whose(first: Places, behind: Places, prompts: Prompts) -> tuple[int, float]:
    """The member with the most prompt tokens in these steps, and the median of all prompt tokens in one."""
    if not len(first):
        return -1, 0.0
    before = np.concatenate(([0.0], np.cumsum(prompts.tokens)))
    each = before[behind] - before[first]
    edges = np.zeros(len(prompts.end_s) + 1)
    np.add.at(edges, first, 1.0)
    np.add.at(edges, behind, -1.0)
    counted = np.cumsum(edges)[:-1] > 0
    sums = np.bincount(prompts.member[counted].astype(np.int64), prompts.tokens[counted])
    return int(np.argmax(sums)), float(np.median(each))
