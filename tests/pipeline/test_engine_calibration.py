"""A calibration is of the very devices of an engine, not of others of the same kind, and of none elsewhere."""

from __future__ import annotations

from dataclasses import replace

import pytest
from made_calibrations import H100_IDENTITY, MIB, cpu_calibration, h100_calibration, measured
from made_windows import H100, INFO, steps

from rooflens.calibration_records import Calibration, CeilingOrigin
from rooflens.collector.tables import empty_table
from rooflens.collector.windows import WindowSettings
from rooflens.live_records import EngineView, Progress, SourceKind, State
from rooflens.pipeline.engine import WatchedEngine
from rooflens.pipeline.engine_calibration import calibration_of_engine
from rooflens.pipeline.totals import EngineTotals
from rooflens.protocols import Batch
from rooflens.records import EngineInfo

FAST = h100_calibration(identity=replace(H100_IDENTITY, device_uuid="GPU-fast"))
SLOW = h100_calibration(
    identity=replace(H100_IDENTITY, device_uuid="GPU-slow"), reads=((64 * MIB, measured(1e12)),)
)  # fmt: skip
CPU = cpu_calibration()


@pytest.mark.parametrize(
    ("uuids", "here", "expected"),
    [
        ((), True, SLOW),  # nobody knows which: they may be all
        (("gpu-FAST",), True, FAST),
        (("GPU-fast", "GPU-slow"), True, SLOW),
        (("GPU-fast", "GPU-third"), True, FAST),
        (("GPU-third",), True, None),
        ((), False, None),
        (("GPU-fast",), False, None),
    ],
)
def test_it_is_of_the_devices_of_the_engine(uuids: tuple[str, ...], here: bool, expected: Calibration | None) -> None:
    assert calibration_of_engine((FAST, SLOW), uuids, here) is expected


def test_a_cpu_s_is_of_every_engine_here() -> None:
    assert calibration_of_engine((CPU,), (), True) is CPU
    assert calibration_of_engine((CPU,), ("GPU-fast",), True) is CPU
    assert calibration_of_engine((CPU,), (), False) is None
    assert calibration_of_engine((replace(CPU, reads=()),), (), True) is None
    assert calibration_of_engine((), (), True) is None


def taken(engine: WatchedEngine, info: EngineInfo = INFO) -> EngineView:
    table = steps(20)
    end_s = float(table["output_monotonic_s"][-1])
    engine.take(Batch(info=info, steps=table, progress=Progress(State.LIVE)), info, end_s)
    return engine.view()


def read_rates(view: EngineView) -> list[float]:
    return [
        one.per_s for one in view.ceilings if one.origin is CeilingOrigin.CALIBRATED and one.number_format is None
    ]  # fmt: skip


def test_an_engine_takes_the_one_of_its_devices_and_changes_with_them() -> None:
    totals = EngineTotals(("llama", "0"), 0.0)
    totals.begin_run(SourceKind.RING, 0.0, empty_table(), 0.0)
    windows = WindowSettings(window_s=0.1, least_steps=100, most_window_s=1000.0)
    engine = WatchedEngine(("llama", "0"), SourceKind.RING, totals, H100, windows, empty_table(), (FAST, SLOW))
    reached = []
    for uuids in ((), ("GPU-fast",), ("GPU-third",)):
        engine.device_uuids = uuids
        view = taken(engine)
        assert view.recent_analysis is not None
        assert view.recent_analysis.reachable_s is not None
        reached.append((read_rates(view), float(view.recent_analysis.reachable_s[-1])))
    (slow, slow_s), (fast, fast_s), (published, published_s) = reached
    assert slow == [1e12]
    assert fast[0] > 1e12
    assert published == []  # no calibration of these devices
    assert slow_s > fast_s
    assert published_s != fast_s
    engine.device_uuids = ()
    assert read_rates(taken(engine, replace(INFO, device_uuids=("GPU-fast",)))) == fast  # as the engine says
    engine.here = False
    assert read_rates(taken(engine)) == []
