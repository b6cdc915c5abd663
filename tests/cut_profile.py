"""Makes a Kineto file small enough to be committed: its first steps, no name of the machine, no path, gzip.

python tests/cut_profile.py PROFILE.json.gz STEPS TARGET.json.gz
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

from rooflens.adapters.profiler.boundaries import boundary

KEPT = ("schemaVersion", "deviceProperties", "vllm_version", "displayTimeUnit", "baseTimeNanoseconds")
KEPT_EVENT = ("ph", "cat", "name", "pid", "tid", "ts", "dur")
KEPT_ARGUMENTS = ("correlation", "device", "stream", "External id")
PID = 4242


def cut(source: Path, steps: int, target: Path) -> None:
    """Write the events of ``source`` that begin before range ``steps`` + 1 does."""
    raw = source.read_bytes()
    data = json.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)
    events = [one for one in data["traceEvents"] if one.get("ph") == "X" and one.get("cat") != "Trace"]
    begins = sorted(one["ts"] for one in events if one["cat"] == "user_annotation" and boundary(one["name"]))
    end = begins[steps] if steps < len(begins) else float("inf")
    kept = {name: data[name] for name in KEPT if name in data}
    kept["traceEvents"] = [_stripped(one) for one in events if begins[0] <= one["ts"] < end]
    target.write_bytes(gzip.compress(json.dumps(kept, separators=(",", ":")).encode(), mtime=0))


def _stripped(event: dict[str, Any]) -> dict[str, Any]:
    kept = {name: event[name] for name in KEPT_EVENT if name in event}
    kept |= {name: PID for name in ("pid", "tid") if isinstance(kept.get(name), int) and kept[name] > 1000}
    args = {name: event["args"][name] for name in KEPT_ARGUMENTS if name in event.get("args", {})}
    return kept | ({"args": args} if args else {})


if __name__ == "__main__":
    cut(Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
