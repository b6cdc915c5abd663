"""The rate of square matrix products through torch, by number format; a format that fails is not known."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from rooflens.collector.calibrate.rounds import Lazy, Quantity, Race, Timed
from rooflens.collector.calibrate.torch_kernels import Bench

SIZES = (512, 1024, 2048, 4096, 8192)
LONGEST_S = 0.05
BYTES_AN_ELEMENT = 64  # all formats of all sizes up to this one are kept: two factors and a product each
FORMATS = ("bf16", "fp16", "fp32", "tf32", "fp8", "int8")
TF32_CAPABILITY, FP8_CAPABILITY = (8, 0), (8, 9)
Product = Callable[[], object]


def product_quantities(bench: Bench, room_bytes: int) -> list[Quantity]:
    """``products`` of each format that this device may have, within so much memory."""
    sizes = [size for size in SIZES if BYTES_AN_ELEMENT * size * size <= room_bytes] or [SIZES[0]]
    return [Quantity("products", name, Lazy(partial(_race, bench, name, sizes))) for name in _formats(bench)]


def _formats(bench: Bench) -> list[str]:
    """Those that are worth a try: what a device does not multiply itself fails, or is emulated, which says nothing."""
    torch = bench.torch
    if bench.device.type == "cpu":
        return ["bf16", "fp16", "fp32"]
    if torch.version.hip:
        return [name for name in FORMATS if name != "tf32"]
    capability = torch.cuda.get_device_capability(bench.device)
    return [
        name
        for name in FORMATS
        if capability >= {"tf32": TF32_CAPABILITY, "bf16": TF32_CAPABILITY, "fp8": FP8_CAPABILITY}.get(name, (0, 0))
    ]


def _race(bench: Bench, name: str, sizes: list[int]) -> Race:
    """Products of growing size, as long as one is short enough."""
    ways: list[Timed] = []
    longest_s = 0.0
    for size in sizes:
        if ways and longest_s * 8 > LONGEST_S:
            break
        product = _product(bench, name, size)
        product()
        longest_s = bench.timer(product, 1)
        ways.append(Timed(product, 2.0 * size**3, bench.timer))
    return Race(ways)


def _product(bench: Bench, name: str, size: int) -> Product:
    """One product of two random matrices; random, since a device multiplies zeros with less power, and so faster."""
    torch = bench.torch
    left, right = (torch.randn((size, size), device=bench.device) for _ in range(2))
    if name in ("fp32", "tf32"):
        return _single(torch, left, right, "high" if name == "tf32" else "highest")
    if name == "fp8":
        return _eight_bits(torch, left, right)
    if name == "int8":
        whole = [(one * 32).clamp(-127, 127).to(torch.int8) for one in (left, right)]
        return lambda: torch._int_mm(whole[0], whole[1].t())
    kind = torch.bfloat16 if name == "bf16" else torch.float16
    first, second = left.to(kind), right.to(kind)
    out = torch.empty_like(first)
    return lambda: torch.mm(first, second, out=out)


def _single(torch: Any, left: Any, right: Any, precision: str) -> Product:
    out = torch.empty_like(left)

    def product() -> None:
        torch.set_float32_matmul_precision(precision)
        torch.mm(left, right, out=out)

    return product


def _eight_bits(torch: Any, left: Any, right: Any) -> Product:
    """One scale a tensor, and the faster accumulation that engines use."""
    kind = torch.float8_e4m3fn
    if torch.version.hip and "gfx94" in torch.cuda.get_device_properties(left.device).gcnArchName:
        kind = torch.float8_e4m3fnuz  # MI300: another bias
    first, second = left.to(kind), right.to(kind).t()
    scale = torch.ones((), device=left.device)
    return lambda: torch._scaled_mm(
        first, second, scale_a=scale, scale_b=scale, out_dtype=torch.bfloat16, use_fast_accum=True
    )
