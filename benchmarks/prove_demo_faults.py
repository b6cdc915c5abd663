"""Every fault of the demo raises its own finding and no other above info, a healthy run none, several times each.

Runs `rooflens demo --fault F --json` for each fault and for none, and writes what fired, with its price, and how busy
the machine was. Exit code 1 if any run raised anything else. Half a minute a run; more where others use the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from rooflens.cli.demo_presets import FAULTS

HERE = Path(__file__).parent
RUNS = 5
HEALTHY = "healthy"


def one(name: str, more: list[str]) -> dict[str, Any]:
    """What one run raised above info, and in figures how it went."""
    command = [sys.executable, "-m", "rooflens", "demo", "--json", *more]
    command += [] if name == HEALTHY else ["--fault", name]
    started_s, load = time.monotonic(), os.getloadavg()[0]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{name}: the demo ended with {done.returncode}: {done.stderr.strip()}")
    told = json.loads(done.stdout)
    serious = {code: finding for code, finding in told["findings"].items() if finding["severity"] != "info"}
    expected = [] if name == HEALTHY else [told["expected"]]
    return {
        "ok": sorted(serious) == expected,
        "raised": {code: _figures(finding) for code, finding in serious.items()},
        "info": sorted(set(told["findings"]) - set(serious)),
        "cannot_tell": sorted(told["cannot_tell"]),
        "steps": told["steps"],
        "step_p50_s": {phase["name"]: phase["step_s"]["p50"] for phase in told["phases"] if phase.get("step_s")},
        "roof_bytes_per_s": told["hardware"]["memory_bandwidth_bytes_per_s"],
        "roof_flops_per_s": told["hardware"]["peak_flops_per_s"]["fp32"],
        "wall_s": round(time.monotonic() - started_s, 1),
        "load_before": round(load, 2),
    }


def _figures(finding: dict[str, Any]) -> dict[str, Any]:
    price = finding.get("price")
    return {
        "severity": finding["severity"],
        "summary": finding["summary"],
        "saved_s": price and price["saved_s"],
        "judged_s": price and price["judged_s"],
        "saved_low_s": price and price["saved_low_s"],
        "saved_high_s": price and price["saved_high_s"],
        "remedy": finding.get("remedy"),
    }


def _summary(found: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    return {
        "machine": platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "right": {name: f"{sum(run['ok'] for run in runs)} of {len(runs)}" for name, runs in found.items()},
        "runs": found,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="faults to run, or healthy (default: all)")
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--json", type=Path, default=HERE / "results" / "demo_faults.json")
    args, more = parser.parse_known_args()
    found: dict[str, list[dict[str, Any]]] = {}
    for number in range(args.runs):
        for name in args.names or (HEALTHY, *FAULTS):
            run = one(name, more)
            found.setdefault(name, []).append(run)
            raised = ", ".join(run["raised"]) or "nothing"
            verdict = "as it should" if run["ok"] else "WRONG"
            print(
                f"{number + 1} {name:8} {raised:24} {verdict}, {run['wall_s']} s, load {run['load_before']}", flush=True
            )
            args.json.write_text(json.dumps(_summary(found), indent=1) + "\n", encoding="utf-8")
    return 0 if all(run["ok"] for runs in found.values() for run in runs) else 1


if __name__ == "__main__":
    sys.exit(main())
