"""What the benchmark found, for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

DASH = "-"
COLUMNS = ("loop", "steps", "step", "device", "floor", "reach publ.", "reach calib.", "recorder")


def text(result: Mapping[str, Any]) -> str:
    """Every part, one after the other."""
    return "\n".join(
        (*_head(result), "", *_times(result), "", *_bytes(result), "", *_graphs(result), "", *_rules(result),
         "", *_expected(result), "", *_not_done(result))
    )  # fmt: skip


def _head(result: Mapping[str, Any]) -> Iterator[str]:
    machine, hardware = result["machine"], result["hardware"]
    device = machine.get("device_name") or machine["cpu"] or "a CPU of unknown name"
    driver = machine.get("driver") or DASH
    yield f"device       {device} ({machine['device']}); {machine['cores']} cores; driver {driver}"
    versions = ", ".join(f"{name} {version or 'not installed'}" for name, version in machine["versions"].items())
    yield f"versions     {versions}; CUDA {machine['cuda'] or DASH}; commit {machine['commit'] or 'not known'}"
    if hardware is None:
        yield f"hardware     not known: {result['problem']}"
    else:
        yield f"hardware     {hardware['id']} ({hardware['origin']}), {_rate(hardware['memory_bandwidth_bytes_per_s'])}"
    calibration = result["calibration"]
    if calibration is None:
        yield "calibration  none"
        return
    yield f"calibration  took {calibration['took_s']:.1f} s"
    for name in ("reads", "copies", "attention"):
        for size, rate in calibration[name][-1:]:
            told = f"{_rate(rate['median'])}, spread {rate['spread_ratio']:.1%}"
            yield f"             {name} of {size / 1e6:,.0f} MB: {told}"
    for number_format, rate in calibration["products"].items():
        yield f"             products in {number_format}: {_flops(rate['median'])}"
    for name in ("launch_s", "graph_launch_s"):
        if calibration[name] is not None:
            yield f"             {name.removesuffix('_s').replace('_', ' ')}: {_time(calibration[name]['median'])}"
    for flag in calibration["flags"]:
        yield f"             {flag}"


def _times(result: Mapping[str, Any]) -> Iterator[str]:
    """Medians; the device's time lies between the events at both ends of a step, gaps of the host included."""
    rows = [COLUMNS]
    for loop in result["loops"]:
        names = ("step_p50_s", "device_p50_s", "floor_s", "reachable_published_s", "reachable_calibrated_s")
        rows.append((loop["name"], f"{loop['steps']:,}", *(_time(loop[name]) for name in names),
                     _time(loop["recorder_p50_s"])))  # fmt: skip
    yield "a step, medians"
    yield from _table(rows)


def _bytes(result: Mapping[str, Any]) -> Iterator[str]:
    """Bytes a step: by hand, by the roofline, and by the device's own counters over the loop."""
    rows = [("loop", "by hand", "model", "counter / model", "low", "high", "moved / model by hand", "covered")]
    for loop in result["loops"]:
        joined = loop["counters"] or {}
        expected = loop["bytes_moved_by_hand"] / loop["model_bytes"] if loop["model_bytes"] else None
        rows.append((
            loop["name"], _megabytes(loop["bytes_by_hand"]), _megabytes(loop["model_bytes"]),
            *(_ratio(joined.get(name)) for name in ("ratio", "ratio_low", "ratio_high")),
            _ratio(expected), _ratio(joined.get("covered_ratio")),
        ))  # fmt: skip
    yield "bytes of a step, MB"
    yield from _table(rows)


def _graphs(result: Mapping[str, Any]) -> Iterator[str]:
    yield "graphs off and on"
    loops = {loop["name"]: loop for loop in result["loops"]}
    pairs = [
        (loop, loops.get(name.replace("eager", "graph"))) for name, loop in loops.items() if name.startswith("eager")
    ]
    for eager, graph in pairs:
        if graph is None:
            yield f"  batch {eager['batch']}: not known, this device has no CUDA graphs, or they could not be captured"
        else:
            times = eager["step_p50_s"] / graph["step_p50_s"]
            yield (f"  batch {eager['batch']}: {_time(eager['step_p50_s'])} eager, {_time(graph['step_p50_s'])} as a "
                   f"graph, {times:.2f} times")  # fmt: skip


def _rules(result: Mapping[str, Any]) -> Iterator[str]:
    yield "what the rules say"
    for loop in result["loops"]:
        yield f"  {loop['name']}"
        for code, said in loop["verdicts"].items():
            yield f"    {code:20} {said['status']:12} {said['summary']}"
            if said["judged_by"]:
                yield f"    {'':20} {'':12} {said['judged_by']}"


def _expected(result: Mapping[str, Any]) -> Iterator[str]:
    """The loops that are made for a finding; of the others nothing is expected, an eager one may well be slow."""
    yield "expected against got"
    for loop in result["loops"]:
        if (found := loop["outcome"]) is not None:
            why = f": {found['why']}" if found["why"] else ""
            asked = f"{found['code']} expected {found['expected']}, got {found['got']}"
            yield f"  {loop['name']}: {asked}: {found['outcome']}{why}"


def _not_done(result: Mapping[str, Any]) -> Iterator[str]:
    yield "not done here"
    yield from (f"  {line}" for line in result["not_done"])
    if not result["not_done"]:
        yield "  nothing was left out"


def _table(rows: list[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        yield "  " + "  ".join(cells).rstrip()


def _time(seconds: float | None) -> str:
    if seconds is None:
        return DASH
    return f"{seconds * 1e3:,.2f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:,.1f} us"


def _megabytes(count: float | None) -> str:
    return DASH if count is None else f"{count / 1e6:,.3f}"


def _ratio(ratio: float | None) -> str:
    return DASH if ratio is None else f"{ratio:.3f}"


def _flops(flop_per_s: float) -> str:
    """A CPU reaches so little of a TFLOP/s that nothing of it would be left."""
    return f"{flop_per_s / 1e12:,.2f} TFLOP/s" if flop_per_s >= 1e12 else f"{flop_per_s / 1e9:,.1f} GFLOP/s"


def _rate(bytes_per_s: float) -> str:
    return f"{bytes_per_s / 1e9:,.1f} GB/s"
