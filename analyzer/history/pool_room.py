"""Whether the caches of captured steps, at their fullest, still fit beside the weights under a change."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rooflens.analyzer.capacity import kept_bytes, kept_form
from rooflens.analyzer.plan import Plan
from rooflens.analyzer.roofline import Roofline
from rooflens.analyzer.sums import Column, filled
from rooflens.analyzer.work import Coefficients, Work, resident_bytes
from rooflens.records import EngineInfo, StepTable

USED_RATIO = 0.9  # of a device's memory that an engine takes where its pool is not told: the engines' own default
ASSUMED = f"the size of the KV pool is not told: {USED_RATIO:.0%} of the memory less the weights stands in for it"
MIXED = "lengths of single sequences are not told of the fullest step: its mean stands in for all of them"


@dataclass(frozen=True, slots=True)
class Room:
    """One engine's roof before and after the change."""

    now: Roofline
    then: Roofline
    info: EngineInfo | None


class Tightest:
    """Of all engines and steps the case that fills the pool most; None while nothing is known of it."""

    def __init__(self) -> None:
        self.pool_bytes: float | None = None
        self.needed_bytes: float | None = None
        self._tight = -1.0
        self._notes: dict[str, None] = {}

    @property
    def fits(self) -> bool | None:
        """Whether the fullest step fits."""
        if self.pool_bytes is None or self.needed_bytes is None:
            return None
        return self.needed_bytes <= self.pool_bytes

    @property
    def notes(self) -> tuple[str, ...]:
        """What stands in for what is not told."""
        return tuple(self._notes)

    def take(
        self,
        room: Room,
        table: StepTable,
        keyframes: Mapping[int, tuple[Sequence[int], Sequence[int]]],
        factor: Column,
    ) -> None:
        """Some steps of one engine, each with ``factor`` times its sequences."""
        full = _fullest(room, table, keyframes, factor)
        if full is None:
            return
        tokens, lengths, single = full
        blocks = room.info.kv_blocks if room.info else None
        for now, then in zip(room.now.stages, _stages(room), strict=True):
            each_now, each_then = (_token_bytes(kept_form(rows), room, lengths) for rows in (now, then))
            if not each_then:
                continue
            memory = room.then.hardware.memory_bytes
            if blocks and room.now.block_tokens:
                pool = blocks * room.now.block_tokens * each_now + resident_bytes(now)
                pool += USED_RATIO * (memory - room.now.hardware.memory_bytes)
            else:
                pool = USED_RATIO * memory
                self._notes[ASSUMED] = None
            pool -= resident_bytes(then)
            self._note(pool, tokens * each_then)
        if not single:
            self._notes[MIXED] = None

    def _note(self, pool_bytes: float, needed_bytes: float) -> None:
        tight = needed_bytes / pool_bytes if pool_bytes > 0 else math.inf
        if tight > self._tight:
            self._tight, self.pool_bytes, self.needed_bytes = tight, pool_bytes, needed_bytes


def _stages(room: Room) -> Sequence[Sequence[Work]]:
    """The stages under the change, beside those before it: the pipeline stays, equal stages are told once."""
    then = room.then.stages
    return then if len(then) == len(room.now.stages) else [then[-1]] * len(room.now.stages)


def _fullest(
    room: Room, table: StepTable, keyframes: Mapping[int, tuple[Sequence[int], Sequence[int]]], factor: Column
) -> tuple[float, list[int], bool] | None:
    """(tokens in whole blocks, lengths, whether these are of single sequences) of the fullest step; None of no step."""
    held = (filled(table, "context_tokens") + filled(table, "query_tokens")) * factor
    told = table.where("context_tokens") & table.where("requests") & (filled(table, "requests") > 0)
    if not told.any():
        return None
    at = int(np.argmax(np.where(told, held, -1.0)))
    tokens, whole = float(held[at]), False
    blocks = room.now.block_tokens
    if blocks and table.where("kv_blocks_used").any():  # with prefixes that are shared, once
        used = filled(table, "kv_blocks_used") * factor
        at = int(np.argmax(np.where(told & table.where("kv_blocks_used"), used, -1.0)))
        tokens, whole = float(used[at]) * blocks, True
    lengths, single = _lengths(table, at, keyframes)
    return tokens if whole else tokens * _whole(lengths, blocks) / sum(lengths), lengths, single


def _lengths(
    table: StepTable, at: int, keyframes: Mapping[int, tuple[Sequence[int], Sequence[int]]]
) -> tuple[list[int], bool]:
    """Lengths of the sequences of the fullest keyframe, else the mean of row ``at``; whether they are single ones."""
    if keyframes:
        fullest = max(keyframes.values(), key=lambda lengths: sum(lengths[0]) + sum(lengths[1]))
        lengths = [context + query for context, query in zip(*fullest, strict=True)]
        if sum(lengths) > 0:
            return lengths, True
    return [max(1, round(float(filled(table, "context_tokens")[at] / filled(table, "requests")[at])))], False


def _whole(lengths: Sequence[int], block_tokens: int | None) -> int:
    """Tokens of whole blocks that sequences of these lengths take."""
    block = block_tokens or 1
    return sum(math.ceil(max(1, length) / block) * block for length in lengths)


def _token_bytes(form: Coefficients, room: Room, lengths: Sequence[int]) -> float:
    """Bytes that one device keeps for a token of the whole blocks of sequences with these lengths."""
    plan = Plan(block_tokens=room.now.block_tokens)
    kept = sum(kept_bytes(form, plan, 1, max(1, length)) for length in lengths)
    return kept / _whole(lengths, room.now.block_tokens)
