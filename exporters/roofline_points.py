"""The roofline as a picture: roofs of an engine's devices, and points of its steps and windows below them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rooflens.exporters.plain_json import plain, word
from rooflens.live_records import EngineView, WindowFigures
from rooflens.model_records import Bound
from rooflens.records import StepKind

if TYPE_CHECKING:
    from numpy.typing import NDArray


def roofs(engine: EngineView) -> dict[str, Any] | None:
    """Bandwidth and rates of the engine's devices together; None where the hardware is not known.

    ``ridge_flop_per_byte`` is, by number format, the intensity at which the two roofs meet.
    """
    hardware = engine.hardware
    if hardware is None:
        return None
    devices = _devices(engine)
    bandwidth = hardware.memory_bandwidth_bytes_per_s
    return {
        "hardware": plain(hardware.id),
        "name": plain(hardware.name),
        "origin": plain(hardware.origin),
        "devices": devices,
        "bandwidth_bytes_per_s": plain(devices * bandwidth),
        "peak_flops_per_s": {name: plain(devices * rate) for name, rate in hardware.peak_flops_per_s.items()},
        "ridge_flop_per_byte": {name: plain(rate / bandwidth) for name, rate in hardware.peak_flops_per_s.items()},
    }


def points(engine: EngineView) -> list[dict[str, Any]]:
    """A point for each window, oldest first, then one for each kind and size of batch among the recent steps.

    ``of`` is window or steps; ``batch_from`` and ``batch_to`` are sequences, in powers of two. Work and
    time of a point are those of the steps that could be compared with their floor, and so are its ``floor_s``,
    ``expected_s`` and ``reachable_s``; ``steps`` of a window counts all.
    """
    return [*filter(None, map(_of_window, engine.windows)), *_of_steps(engine)]


def _devices(engine: EngineView) -> int:
    if engine.recent_analysis is not None:
        return engine.recent_analysis.devices
    return engine.info.tensor_parallel * engine.info.pipeline_parallel if engine.info else 1


def _point(
    moved_bytes: float, flops: float, seconds: float, floor_s: float | None, expected_s: float | None,
    reachable_s: float | None,
) -> dict[str, Any]:  # fmt: skip
    return {
        "floor_s": plain(floor_s),
        "expected_s": plain(expected_s),
        "reachable_s": plain(reachable_s),
        "intensity_flop_per_byte": plain(flops / moved_bytes) if moved_bytes > 0 else None,
        "achieved_flops_per_s": plain(flops / seconds),
        "achieved_bytes_per_s": plain(moved_bytes / seconds),
        "compared_s": plain(seconds),
    }


def _of_window(window: WindowFigures) -> dict[str, Any] | None:
    """None for a window without bounds."""
    if window.weight_bytes is None or window.kv_bytes is None or window.flops is None or not window.compared_s:
        return None
    bound = max(window.bound_s, key=window.bound_s.__getitem__, default=None)
    return {
        "of": "window",
        "end_unix_s": plain(window.end_unix_s),
        "kind": None,
        "batch_from": None,
        "batch_to": None,
        "steps": window.steps,
        "bound": bound,
        **_point(
            window.weight_bytes + window.kv_bytes,
            window.flops,
            window.compared_s,
            window.floor_s,
            window.expected_s,
            window.reachable_s,
        ),
    }


def _of_steps(engine: EngineView) -> list[dict[str, Any]]:
    import numpy as np

    analysis, steps = engine.recent_analysis, engine.recent
    if analysis is None or not {"kind", "requests"} <= set(steps.columns):
        return []
    counts = steps["resolution_steps"] if steps.has("resolution_steps") else np.ones(len(steps), np.int64)
    usable = analysis.compared & steps.where("kind") & steps.where("requests") & (steps["requests"] > 0) & (counts > 0)
    rows = np.flatnonzero(usable)
    batch = np.maximum(1.0, steps["requests"][rows] / counts[rows])
    octave = np.floor(np.log2(batch)).astype(np.int64)
    found = []
    for kind, power in sorted(set(zip(steps["kind"][rows].tolist(), octave.tolist(), strict=True))):
        chosen = rows[(steps["kind"][rows] == kind) & (octave == power)]
        found.append(
            {
                "of": "steps",
                "end_unix_s": None,
                "kind": word(StepKind(kind)),
                "batch_from": 1 << power,
                "batch_to": (2 << power) - 1,
                "steps": int(counts[chosen].sum()),
                "bound": _setter(analysis.bound[chosen], analysis.floor_s[chosen]),
                **_point(
                    _moved(engine, chosen),
                    _sum(analysis.flops, chosen),
                    _sum(analysis.observed_s, chosen),
                    _sum(analysis.floor_s, chosen),
                    _sum(analysis.expected_s, chosen),
                    None if analysis.reachable_s is None else _sum(analysis.reachable_s, chosen),
                ),
            }
        )
    return found


def _moved(engine: EngineView, rows: NDArray[Any]) -> float:
    analysis = engine.recent_analysis
    assert analysis is not None
    return sum(_sum(part, rows) for part in (analysis.weight_bytes, analysis.kv_read_bytes, analysis.kv_write_bytes))


def _sum(column: NDArray[Any], rows: NDArray[Any]) -> float:
    return float(column[rows].sum())


def _setter(bounds: NDArray[Any], floor_s: NDArray[Any]) -> str:
    """The Bound that sets most of the floor's time."""
    shares = {bound: float(floor_s[bounds == bound].sum()) for bound in Bound}
    return word(max(shares, key=shares.__getitem__))
