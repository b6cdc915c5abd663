"""Fits analyzer/data/efficiency anew from the kernel tables of aiconfigurator-core and prints both side by side.

    pip download --no-deps aiconfigurator-core==0.12.0 && unzip -d tables aiconfigurator_core-0.12.0-*.whl
    python benchmarks/fit_efficiency.py tables/aiconfigurator_core/systems/data

Needs pandas and pyarrow beside the base install. A read is latency + bytes / (ratio x bandwidth), fitted as a
calibration is (analyzer/read_fit.py); of kernels for the same shape the fastest counts.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from rooflens.analyzer.efficiency import published
from rooflens.analyzer.hardware import find_hardware
from rooflens.analyzer.read_fit import ReadFit, read_fit
from rooflens.model_records import HardwareSpec

FOLDERS = {
    "h100-sxm5-80": "h100_sxm", "h200-sxm-141": "h200_sxm", "b200-sxm": "b200_sxm", "gb200": "gb200",
    "b300-sxm": "b300_sxm", "gb300": "gb300", "a100-sxm4-80": "a100_sxm", "l40s": "l40s",
    "rtx-pro-6000": "rtx_pro_6000_server", "intel-arc-pro-b60": "b60",
}  # fmt: skip
VLLM = {"a100-sxm4-80": "0.14.0", "intel-arc-pro-b60": "0.26.0"}  # the others: 0.24.0
READ_FROM_CACHE = ("l40s", "rtx-pro-6000")  # whose L2 holds what a benchmark reads again: only twice its size counts
WEIGHTS = {"bf16": ("bfloat16", 2.0), "fp8": ("fp8", 1.0), "nvfp4": ("nvfp4", 0.5625)}


def weights_and_products(table: pd.DataFrame, spec: HardwareSpec) -> Iterator[tuple[str, str]]:
    """(what, refitted) of each format of weights, and the median of large products."""
    least = 2 * (spec.cache_bytes or 0) if spec.id in READ_FROM_CACHE else 2e6
    for name, (dtype, width) in WEIGHTS.items():
        rows = table[table.gemm_dtype == dtype].groupby(["m", "n", "k"]).latency.min().reset_index()
        size, seconds = rows.n * rows.k * width, rows.latency * 1e-3
        some = (rows.m <= 16) & (size >= least) & (rows.n >= 512) & (rows.k >= 512)
        if some.sum() >= 50:
            yield f"weights {name}", _said(read_fit(size[some], seconds[some], spec.memory_bandwidth_bytes_per_s))
        large = (rows.m >= 4096) & (rows.n >= 4096) & (rows.k >= 4096)
        if large.any() and name in spec.peak_flops_per_s:
            ratio = (2.0 * rows.m * rows.n * rows.k / seconds / spec.peak_flops_per_s[name])[large]
            yield f"gemm {name}", f"{ratio.median():.3f} (best {ratio.max():.3f})"


def cache_reads(table: pd.DataFrame, spec: HardwareSpec) -> Iterator[tuple[str, str]]:
    """(what, refitted) of decode attention for each format of the cache, full and in a window."""
    if "window_size" not in table:
        table = table.assign(window_size=0)
    alike = table[(table.head_dim == 128) & (table.num_heads <= 8 * table.num_key_value_heads)]
    for name, dtypes, width in (("bf16", ("bfloat16", "float16"), 2), ("fp8", ("fp8",), 1)):
        for windowed in (False, True):
            rows = alike[alike.kv_cache_dtype.isin(dtypes) & ((alike.window_size > 0) == windowed)]
            keys = ["batch_size", "num_heads", "num_key_value_heads", "step", "window_size"]
            rows = rows.groupby(keys).latency.min().reset_index()
            context = np.minimum(rows.step + 1, rows.window_size) if windowed else rows.step + 1
            size = rows.batch_size * context * rows.num_key_value_heads * 2 * 128 * width
            some = size >= 2.5e5
            if spec.id in READ_FROM_CACHE:
                some &= (size >= 2 * (spec.cache_bytes or 0)) | (size < 2e6)
            if windowed:
                some &= rows.step + 1 >= rows.window_size
            if some.sum() >= 30:
                found = read_fit(size[some], rows.latency[some] * 1e-3, spec.memory_bandwidth_bytes_per_s)
                yield f"kv {name}{'_window' * windowed}", _said(found)


def prefill_attention(table: pd.DataFrame, spec: HardwareSpec) -> str:
    """The median fraction of the bf16 peak with causal-half flops, and the best."""
    rows = table[(table.head_dim == 128) & (table.isl >= 2048)]
    for column, value in (("window_size", 0), ("kv_cache_dtype", "bfloat16")):
        rows = rows[rows[column] == value] if column in rows else rows
    rows = rows.groupby(["batch_size", "isl", "num_heads", "num_key_value_heads"]).latency.min().reset_index()
    flops = 4.0 * rows.batch_size * rows.num_heads * 128 * rows.isl * (rows.isl + 1) / 2
    ratio = flops / (rows.latency * 1e-3) / spec.peak_flops_per_s["bf16"]
    return f"{ratio.median():.3f} (best {ratio.max():.3f})"


def _said(found: ReadFit) -> str:
    return f"{found.latency_s * 1e6:.2f} us, {found.ratio:.3f}, median residual {found.miss_ratio:.0%}"


def shipped(name: str, what: str) -> str:
    """What the data file says of ``what``."""
    reached, (kind, _, fmt) = published()[name][0], what.partition(" ")
    if kind == "gemm":
        return f"{reached.gemm_ratio[fmt]:.3f}"
    if kind == "attention":
        return f"{reached.attention_ratio:.3f}"
    pair = (reached.weight_reads if kind == "weights" else reached.kv_reads).get(fmt)
    return f"{pair[0] * 1e6:.2f} us, {pair[1]:.3f}" if pair else "nothing"


def main() -> None:
    """Print every figure of every device twice."""
    parser = argparse.ArgumentParser(description="Fit the efficiency tables anew.")
    parser.add_argument("tables", type=Path, help="the folder systems/data of the unpacked wheel")
    tables = parser.parse_args().tables
    for name, folder in FOLDERS.items():
        spec, version = find_hardware(name), VLLM.get(name, "0.24.0")
        read = {
            kind: pd.read_parquet(tables / folder / place / "vllm" / version / f"{kind}_perf.parquet")
            for kind, place in (
                ("gemm", "gemm"),
                ("generation_attention", "attention"),
                ("context_attention", "attention"),
            )
        }
        found = [*weights_and_products(read["gemm"], spec), *cache_reads(read["generation_attention"], spec)]
        for what, refitted in [*found, ("attention", prefill_attention(read["context_attention"], spec))]:
            print(f"{name:18} {what:16} shipped {shipped(name, what):20} fitted {refitted}")


if __name__ == "__main__":
    main()
