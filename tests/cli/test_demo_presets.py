"""The presets of the demo are what they say: the engine's own scheduler under each load, the passes made up."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from rooflens.adapters.embedded.blocks import BlockPool
from rooflens.adapters.embedded.engine import Engine
from rooflens.adapters.embedded.faults import Faults
from rooflens.adapters.embedded.load import Load, Phase
from rooflens.adapters.embedded.scheduler import Plan, Scheduler
from rooflens.cli.demo_presets import FAULTS, HEALTHY, LEAST_STEPS, SINGLE_S, WINDOW_S, WINDOW_STEPS, Preset
from rooflens.findings import FINDINGS, Code, Severity

DECODE_S, TOKEN_S = 0.06, 0.0014  # of a pass and of each token beyond the batch, as measured on one core


class Played:
    """An engine whose passes take their time on a clock of its own and compute nothing."""

    def __init__(self, preset: Preset, slow: float) -> None:
        settings = preset.settings
        self.now_s, self.steps, self._slow = 0.0, 0, slow
        self.pool = BlockPool(settings["kv_blocks"], settings["block_tokens"])
        self.scheduler = Scheduler(
            self.pool, settings["max_sequences"], settings["max_batched_tokens"], lambda: self.now_s
        )
        self.model = SimpleNamespace(shape=SimpleNamespace(vocab_size=100))
        self.add = self.scheduler.add
        self.plans: list[Plan] = []
        self.waiting: list[int] = []

    def step(self) -> Plan:
        plan = self.scheduler.plan()
        tokens = sum(plan.queries)
        self.steps += bool(tokens)
        self.now_s += self._slow * (DECODE_S + TOKEN_S * max(0, tokens - 8))
        self.scheduler.advance(plan, [0] * len(plan.requests))
        self.plans.append(plan)
        self.waiting.append(len(self.scheduler.waiting))
        return plan


def windows(preset: Preset, slow: float = 1.0) -> list[list[tuple[Plan, int]]]:
    """The steps of the last phase in windows of their least number, the first one left out, with their queues."""
    engine = Played(preset, slow)
    load = Load(cast(Engine, engine), clock=lambda: engine.now_s)
    phases = [Phase.from_json(phase) for phase in preset.phases(24.0)]
    first = 0
    for phase in phases:
        first = engine.steps
        load.run(phase, lambda _gone_s: None)
    steps = list(zip(engine.plans, engine.waiting, strict=True))[first:]
    assert len(steps) >= LEAST_STEPS
    return [steps[at : at + WINDOW_STEPS] for at in range(WINDOW_STEPS, len(steps) - WINDOW_STEPS + 1, WINDOW_STEPS)]


def figures(window: list[tuple[Plan, int]]) -> dict[str, float]:
    tokens = [sum(plan.queries) for plan, _ in window]
    return {
        "preempted": sum(plan.preempted for plan, _ in window),
        "recomputed": sum(plan.recomputed_tokens for plan, _ in window) / sum(tokens),
        "queued": float(np.mean([waiting > 0 for _, waiting in window])),
        "batch": float(np.mean([len(plan.requests) for plan, _ in window])),
        "largest": max(tokens),
        "long": sum(size > 100 for size in tokens),
        "plain": sum(not plan.prefill for plan, _ in window),
    }


@pytest.mark.parametrize("slow", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("name", ["healthy", "host", "stall"])
def test_nothing_is_wrong_with_the_load_of_a_healthy_engine(name: str, slow: float) -> None:
    for seen in map(figures, windows(FAULTS.get(name, HEALTHY), slow)):
        assert (seen["preempted"], seen["recomputed"], seen["long"]) == (0, 0, 0)
        assert seen["queued"] < 0.25
        assert seen["batch"] > 7
        assert seen["largest"] <= 32


@pytest.mark.parametrize("slow", [0.3, 1.0, 3.0])
def test_the_small_pool_preempts_in_every_window(slow: float) -> None:
    seen = [figures(window) for window in windows(FAULTS["kv"], slow)]
    assert all(each["preempted"] >= 3 or each["recomputed"] > 0.01 for each in seen)
    assert all(each["largest"] <= 32 for each in seen)  # no prompt stalls anything


@pytest.mark.parametrize("slow", [0.3, 1.0, 3.0])
def test_the_cap_makes_a_queue_with_room_in_the_pool(slow: float) -> None:
    for seen in map(figures, windows(FAULTS["batch"], slow)):
        assert (seen["batch"], seen["queued"], seen["preempted"]) == (pytest.approx(2, abs=0.1), 1.0, 0)


@pytest.mark.parametrize("slow", [0.3, 1.0, 3.0])
def test_long_prompts_stall_decodes_in_every_window_and_make_no_queue(slow: float) -> None:
    for seen in map(figures, windows(FAULTS["prefill"], slow)):
        assert seen["long"] >= 2
        assert seen["plain"] >= WINDOW_STEPS / 2
        assert (seen["preempted"], seen["queued"]) == (0, 0)
    chunked = [figures(window) for window in windows(FAULTS["prefill"].given({"chunk": 32}), slow)]
    assert all(each["largest"] <= 32 for each in chunked)


def test_every_fault_raises_another_code_above_info() -> None:
    codes = [preset.code for preset in FAULTS.values()]
    assert set(codes) == {
        Code.KV_PRESSURE, Code.MISSED_BATCHING, Code.HOST_OVERHEAD, Code.PREFILL_INTERFERENCE, Code.ENGINE_STALLED,
    }  # fmt: skip
    assert all(FINDINGS[code].severity is not Severity.INFO for code in codes if code)


def test_the_first_phase_fits_into_one_window() -> None:
    assert SINGLE_S < WINDOW_S  # a finding takes two


def test_options_take_the_place_of_the_preset() -> None:
    preset = FAULTS["host"].given({"host_delay": 0.02, "batch": 4, "prompt": None})
    assert preset.faults["host_delay_s"] == 0.02
    assert preset.faults["host_delay_steps"] == 0.0
    assert preset.settings["max_sequences"] == 4
    assert preset.prompt is None
    given: dict[str, Any] = dict.fromkeys(("batch", "kv_blocks", "prompt", "chunk"))
    assert FAULTS["prefill"].given(given) == FAULTS["prefill"]


@pytest.mark.parametrize("preset", [HEALTHY, *FAULTS.values()])
def test_the_engine_takes_what_a_preset_orders(preset: Preset) -> None:
    order = preset.order(24.0, 1, {"small": True})
    kept = preset.order(24.0, 1, {"small": True}, keep=True)["phases"]
    assert [phase["seconds"] for phase in kept[:-1]] == [phase["seconds"] for phase in order["phases"][:-1]]
    assert Phase.from_json(kept[-1]).seconds == 3600
    assert Faults(**order["faults"]).neighbours == 1
    assert math.isclose(sum(phase["seconds"] for phase in order["phases"]), 24.0)
    assert order["small"] is True
