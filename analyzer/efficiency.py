"""What kernels reach on a device, from published kernel tables; for a device without one the nearest kin's figures."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import Any

from rooflens.analyzer.hardware import known_hardware
from rooflens.model_records import Efficiency, HardwareSpec

Points = tuple[tuple[float, float], ...]
KIN_FILE = "kin.toml"
ANY_KIN = "h100-sxm5-80"  # stands in for a device that nothing is known of
OF_MIG = "-mig-"  # what parts the id of a slice from that of its device
# Formats that no table holds reach what a kin of theirs reaches: the same units, or the next wider ones.
KIN_FORMATS = {"fp16": ("bf16",), "int8": ("fp8", "bf16"), "mxfp4": ("nvfp4", "fp8", "bf16"), "fp6": ("fp8", "bf16")}


@cache
def published() -> Mapping[str, tuple[Efficiency, float | None]]:
    """By hardware id: what the shipped tables say, and the link bandwidth (bytes/s) that their all-reduces used."""
    folder = files("rooflens.analyzer") / "data" / "efficiency"
    rows = sorted((f for f in folder.iterdir() if f.name.endswith(".toml")), key=lambda f: f.name)
    read = [_efficiency(tomllib.loads(f.read_text(encoding="utf-8"))) for f in rows if f.name != KIN_FILE]
    return {each.hardware: (each, known_hardware()[each.hardware].link_bandwidth_bytes_per_s) for each in read}


@cache
def kin() -> Mapping[str, str]:
    """By hardware id: the device whose published figures stand in for it."""
    text = (files("rooflens.analyzer") / "data" / "efficiency" / KIN_FILE).read_text(encoding="utf-8")
    return dict(tomllib.loads(text)["kin"])


def efficiency_of(hardware: HardwareSpec) -> Efficiency | None:
    """What kernels reach on ``hardware``; None where its roof was measured, which says nothing of kernels.

    ``origin`` is 'published' for a device with a kernel table of its own, else 'assumed', and ``source`` names whose
    figures stand in.
    """
    if hardware.origin != "datasheet":
        return None
    whole = hardware.id.partition(OF_MIG)[0]
    if whole in published() and whole == hardware.id:
        return published()[whole][0]
    chosen = whole if whole in published() else kin().get(whole, ANY_KIN)
    found, bandwidth = published()[chosen]
    return _borrowed(found, hardware, bandwidth)


def _borrowed(found: Efficiency, hardware: HardwareSpec, bandwidth: float | None) -> Efficiency:
    """``found`` for another device: the same fractions, and all-reduces that its own link makes slower or faster."""
    own = hardware.link_bandwidth_bytes_per_s
    scale = bandwidth / own if bandwidth and own else None
    known = hardware.id in kin() or OF_MIG in hardware.id
    why = "" if known else " (its kin is not known)"
    return replace(
        found,
        hardware=hardware.id,
        all_reduce_s=_scaled(found.all_reduce_s, scale),
        eager_all_reduce_s=_scaled(found.eager_all_reduce_s, scale),
        origin="assumed",
        source=f"assumed: the fractions of {found.hardware} stand in for {hardware.id}{why}; {found.source}",
    )


def _scaled(table: Mapping[int, Points], scale: float | None) -> dict[int, Points]:
    """The part of each time beyond that of the smallest message, ``scale`` times; nothing without a link."""
    if scale is None:
        return {}
    return {n: tuple((size, row[0][1] + (t - row[0][1]) * scale) for size, t in row) for n, row in table.items()}


def _efficiency(data: Mapping[str, Any]) -> Efficiency:
    """The record of one shipped file."""
    weights, kv, gemm = data["weights"], data["kv"], data["gemm"]
    products = {name: float(ratio) for name, ratio in gemm.items() if name != "best_ratio"}
    for name, kins in KIN_FORMATS.items():
        products.setdefault(name, next(products[k] for k in kins if k in products))
    return Efficiency(
        hardware=data["hardware"],
        weight_latency_s=weights["bf16"]["latency_s"],
        weight_ratio=weights["bf16"]["ratio"],
        kv_latency_s=kv["bf16"]["latency_s"],
        kv_ratio=kv["bf16"]["ratio"],
        gemm_ratio=products | {"other": products["bf16"]},
        attention_ratio=data["attention"]["ratio"],
        launch_s=data["launch"]["graph_s"],
        eager_launch_s=data["launch"]["eager_s"],
        all_reduce_s=_table(data["all_reduce"]),
        origin=data.get("origin", "published"),
        source=data["source"]["title"],
        eager_all_reduce_s=_table(data.get("eager_all_reduce", {})),
        weight_reads=_reads(weights),
        kv_reads=_reads(kv),
        best={
            "weight": weights["best_ratio"],
            "kv": kv["best_ratio"],
            "gemm": gemm["best_ratio"],
            "attention": data["attention"]["best_ratio"],
        },
    )


def _reads(table: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    return {name: (row["latency_s"], row["ratio"]) for name, row in table.items() if name != "best_ratio"}


def _table(table: Mapping[str, Any]) -> dict[int, Points]:
    return {int(n): tuple((float(size), float(seconds)) for size, seconds in row) for n, row in table.items()}
