"""The rings of tests/data/traces, unpacked for a test."""

from __future__ import annotations

import gzip
from pathlib import Path

TRACES = Path(__file__).parent / "data" / "traces"
HARDWARE = TRACES / "two-core-cpu.toml"
NAMES = ("vllm-a", "vllm-b", "embedded", "embedded-slow")


def unpacked(name: str, folder: Path) -> Path:
    """The recorded ring ``name`` as a file in ``folder``, which a reader of rings takes."""
    path = folder / f"{name}.ring"
    path.write_bytes(gzip.decompress((TRACES / f"{name}.ring.gz").read_bytes()))
    path.chmod(0o600)
    return path
