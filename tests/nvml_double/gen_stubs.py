"""Writes stubs.c: a real library exports all of nvml.h, so what the double does not play answers NotSupported.

Run as ``gen_stubs.py nvml.h OUT SOURCE...``.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

NOT_SUPPORTED = 3
header, out, *sources = (Path(name) for name in sys.argv[1:])
declared = set(re.findall(r"nvmlReturn_t\s+DECLDIR\s+(nvml\w+)\s*\(", header.read_text("utf-8")))
played = {name for source in sources for name in re.findall(r"EXPORT [\w ]+?\*?(nvml\w+)\(", source.read_text("utf-8"))}
visible = '__attribute__((visibility("default")))'
stubs = [f"{visible} int {name}(void) {{ return {NOT_SUPPORTED}; }}\n" for name in sorted(declared - played)]
out.write_text("".join(stubs), "utf-8")
