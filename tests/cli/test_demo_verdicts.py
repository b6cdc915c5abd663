"""Each preset of the demo raises its finding and no other, in the same way on a fast, a slow and a noisy machine.

Load, scheduler, recorder, ring, windows and rules are the real ones; only the forward pass is made up: it takes, on a
clock of its own, the time that was measured on one core, times what the machine and its neighbours make of it.
benchmarks/prove_demo_faults.py shows the same with the real pass, by hand.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rooflens.adapters.embedded.engine import Engine, Settings, recorder_for
from rooflens.adapters.embedded.faults import Faults
from rooflens.adapters.embedded.load import Load, Phase
from rooflens.adapters.embedded.shape import shape_for
from rooflens.cli.demo_presets import FAULTS, HEALTHY, WINDOW_S, WINDOW_STEPS, Preset
from rooflens.collector.ring_source import RingSource
from rooflens.collector.windows import WindowSettings
from rooflens.findings import Code, Finding, Severity, Status
from rooflens.live_records import Progress, SourceKind, State
from rooflens.model_records import HardwareSpec
from rooflens.pipeline.engine import WatchedEngine
from rooflens.pipeline.totals import Totals
from rooflens.protocols import Batch

SECONDS = 24.0
READ_STEPS = 16  # of the ring at a time
ONE_S, BATCH_S, TOKEN_S = 0.018, 0.060, 0.0014  # of a step with one row, with a few, and of each row beyond eight


@dataclass
class Clock:
    """Time that passes only in a step, in a wait and, a little, whenever one looks."""

    now_s: float = 1000.0
    slow: float = 1.0
    noise: random.Random | None = None

    def look(self) -> float:
        self.now_s += 2e-5
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def ns(self) -> int:
        return int(self.look() * 1e9)

    def compute(self, rows: int) -> None:
        seconds = ONE_S if rows == 1 else BATCH_S + TOKEN_S * max(0, rows - 8)
        self.now_s += seconds * self.slow * self._disturbed()

    def _disturbed(self) -> float:
        """A neighbour takes a fifth of the steps up to twice as long, and one in fifty up to five times."""
        if self.noise is None:
            return 1.0
        drawn = self.noise.random()
        return self.noise.uniform(2, 5) if drawn < 0.02 else self.noise.uniform(1, 2) if drawn < 0.2 else 1.0


@dataclass
class MadeUpModel:
    clock: Clock
    shape: Any
    rows: list[int] = field(default_factory=list)

    def forward(self, sequences: list[Any]) -> Any:
        self.clock.compute(sum(len(sequence.tokens) for sequence in sequences))
        return np.zeros((len(sequences), 2))


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.setenv("ROOFLENS_DIR", str(tmp_path / "rings"))
    return partial(play, monkeypatch)


def play(monkeypatch: pytest.MonkeyPatch, preset: Preset, slow: float, seed: int | None) -> RingSource:
    """The ring of a whole run of the demo."""
    clock = Clock(slow=slow, noise=None if seed is None else random.Random(seed))
    for module in ("engine", "faults"):
        made_up = SimpleNamespace(perf_counter=clock.look, sleep=clock.sleep)
        monkeypatch.setattr(f"rooflens.adapters.embedded.{module}.time", made_up)
    shape, _ = shape_for(32 << 20, 64 << 30)
    monkeypatch.setattr("rooflens.adapters.embedded.engine.Model", lambda *_: MadeUpModel(clock, shape))
    order = preset.order(SECONDS, 0, {})
    settings = Settings(**order["settings"])
    phases = [Phase.from_json(phase) for phase in order["phases"]]
    with recorder_for(shape, settings, 1024, strict=True) as recorder:
        monkeypatch.setattr(recorder, "clock_ns", clock.ns)
        load = Load(Engine(shape, settings, recorder, Faults(**order["faults"])), clock=clock.look)
        for phase in phases:
            load.run(phase, lambda _gone_s: None)
        assert recorder.path is not None
    return RingSource(recorder.path)


def roof(slow: float) -> HardwareSpec:
    """A core as measured, faster where the machine is; neighbours take nothing from the roof."""
    rates = {"fp32": 0.12e12 / min(slow, 1.0)}
    return HardwareSpec("this-cpu", "a core", "unknown", 24 << 30, 14e9 / min(slow, 1.0), rates, rates)


def fired(source: RingSource, hardware: HardwareSpec) -> dict[Code, Finding]:
    """What fired at any time above info, read in small pieces as a sidecar does."""
    whole = source.read()
    nothing = whole.steps.take(np.zeros(0, dtype=np.int64))
    totals = Totals().of(("m", "0"), 0.0)
    totals.begin_run(SourceKind.RING, 0.0, nothing, 0.0)
    windows = WindowSettings(WINDOW_S, WINDOW_STEPS)
    engine = WatchedEngine(("m", "0"), SourceKind.RING, totals, hardware, windows, nothing)
    found: dict[Code, Finding] = {}
    outputs = whole.steps["output_monotonic_s"]
    for at in range(0, len(whole.steps), READ_STEPS):
        steps = whole.steps.take(np.arange(at, min(at + READ_STEPS, len(outputs))))
        batch = Batch(whole.info, steps, progress=Progress(State.LIVE))
        engine.take(batch, whole.info, float(steps["output_monotonic_s"][-1]))
        found |= {f.code: f for f in engine.view().findings if f.status is Status.FIRING}
    assert engine.problems == ()
    assert len(engine.view().windows) >= 3
    return {code: finding for code, finding in found.items() if finding.severity is not Severity.INFO}


# (how slow, seed of the noise): a faster machine in quiet, this one beside neighbours, and one that they nearly fill.
MACHINES = [(0.5, None), (1.0, 1), (4.0, 2)]


@pytest.mark.parametrize(("slow", "seed"), MACHINES)
@pytest.mark.parametrize("name", ["kv", "batch", "host", "prefill"])
def test_a_fault_raises_its_finding_and_no_other(played: Any, name: str, slow: float, seed: int | None) -> None:
    found = fired(played(FAULTS[name], slow, seed), roof(slow))
    assert set(found) == {FAULTS[name].code}
    (finding,) = found.values()
    assert finding.price is not None
    assert 0.02 * finding.price.judged_s < finding.price.saved_s <= finding.price.judged_s
    assert finding.remedy


@pytest.mark.parametrize(("slow", "seed"), MACHINES)
@pytest.mark.parametrize("preset", [HEALTHY, FAULTS["stall"]], ids=["healthy", "stall"])
def test_a_healthy_run_and_what_surrounds_a_stall_raise_nothing(
    played: Any, preset: Preset, slow: float, seed: int | None
) -> None:
    assert fired(played(preset, slow, seed), roof(slow)) == {}


@pytest.mark.parametrize("remedy", [("kv", {"kv_blocks": 80}), ("batch", {"batch": 8}), ("prefill", {"chunk": 32})])
def test_the_remedy_silences_the_finding(played: Any, remedy: tuple[str, dict[str, int]]) -> None:
    name, change = remedy
    assert fired(played(FAULTS[name].given(change), 1.0, 1), roof(1.0)) == {}
