"""The floor, what is reachable, the counters and the rules on a real device, in one command.

    python benchmarks/gpu/run.py                              # the first CUDA device; under six minutes
    python benchmarks/gpu/run.py --device cuda:1 --json FILE
    python benchmarks/gpu/run.py --device cpu                 # runs to the end without a GPU; under two minutes

It needs torch 2.5 or newer, numpy and, for counters, nvidia-ml-py; rooflens is taken from this checkout. A decode loop
over a synthetic Llama, whose bytes a step are known on paper, runs through the recorder with CUDA events around every
step, at several batch sizes, eager and as CUDA graphs. NVML's counters are sampled beside it. Printed are:

- what this device was measured to reach (calibration);
- the bytes of the model against the bytes that the device counted, with an interval;
- the floor and what is reachable, published and calibrated, against what was observed; graphs off and on;
- whether the rules tell host_overhead (a pause before every step) from memory_bound_waste (all weights read twice);
- what recording a step costs.

The last two loops are each made for a finding, and "expected against got" says whether it came. Exit code 0: none was
refuted; 1: a finding did not come though it could be told; 2: it could not run. A finding that cannot be told (a CPU
has no device time, or the calibration spreads too far) refutes nothing and proves nothing, and says so.

What this device cannot do is said under "not done here". vLLM's own device time is checked by check_device_time.py
in this folder, which needs vLLM.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(REPOSITORY / "src"), str(Path(__file__).resolve().parent)]

LOOP_S = {"cuda": 10.0, "cpu": 5.0}
# A calibration takes as long as so many loops, but so much at least and at most.
CALIBRATION_LOOPS, LEAST_CALIBRATION_S, LONGEST_CALIBRATION_S = 5.0, 10.0, 60.0
MEMORY_SHARE = 0.5  # of what the device has free may be used


def main(arguments: list[str] | None = None) -> int:
    options = parsed(arguments)
    try:
        import torch
    except ImportError:
        print("benchmarks/gpu/run.py needs torch: run it with a Python that has it", file=sys.stderr)
        return 2
    from expected import missed
    from report import text

    from rooflens.collector.calibrate import place
    from rooflens.records import RooflensError

    device = torch.device("cuda:0" if options.device in (None, "cuda") else options.device)
    if device.type == "cuda" and device.index >= torch.cuda.device_count():
        print(f"no {device} here: give --device cpu for a run without a GPU", file=sys.stderr)
        return 2
    try:
        result = measured(torch, device, options.seconds, say)
    except RooflensError as error:
        print(error, file=sys.stderr)
        return 2

    print(text(result))
    if options.json is not None:
        try:
            place.put(options.json, json.dumps(result, indent=1) + "\n")
        except OSError as error:
            print(f"--json {options.json}: {error.strerror or error}", file=sys.stderr)
            return 2
    return 1 if missed(result["loops"]) else 0


def parsed(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--device", metavar="cuda:N|cpu", help="what to run on (default: the first CUDA device)")
    parser.add_argument("--seconds", type=float, metavar="S", 
                        help="of each loop, of which a CPU has 4 and a GPU up to 8 (default: 10 on a GPU, 5 on a CPU); "
                        "the calibration before takes up to five times as long, 10 to 60 s")  # fmt: skip
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything down, in SI units")
    options = parser.parse_args(arguments)
    if options.device is not None and not re.fullmatch(r"cpu|cuda(:\d{1,3})?", options.device):
        parser.error(f"--device {options.device} is neither cpu nor cuda:N")
    if options.seconds is not None and not 0 < options.seconds <= 600:
        parser.error("--seconds is not between 0 and 600")
    if options.json is not None:
        check_writable(parser, options.json)  # before minutes of measuring
    return options


def check_writable(parser: argparse.ArgumentParser, path: Path) -> None:
    """Make the folder of ``path``; ends the program in one line where nothing can be written there."""
    from rooflens.collector.calibrate import place

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        place.check(path)
    except OSError as error:
        parser.error(f"--json {path}: {error.strerror or error}")


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def measured(torch: Any, device: Any, seconds: float | None, tell: Any) -> dict[str, Any]:
    """Everything, as what the JSON holds."""
    from counted import Sampling, probe_for
    from decode_loop import Weights
    from driver import cases, run_case
    from judge import expected_roofs, judged
    from machine import clocks, identity, uuid_of
    from synthetic import ON_CPU, ON_GPU

    cuda = device.type == "cuda"
    if cuda:
        torch.cuda.set_device(device)  # events, streams and graphs belong to the current one
    seconds = seconds or LOOP_S[device.type]
    shape, uuid = (ON_GPU if cuda else ON_CPU), uuid_of(device)
    machine = identity(torch, device)
    not_done = [] if cuda else NOT_ON_CPU.copy()
    calibration, problem = calibrated(str(device), seconds, tell)
    not_done += [problem] if problem else []
    roofs = expected_roofs(calibration, machine.get("device_name"), shape.weight_bytes)
    not_done += [f"bounds: {roofs.problem}"] if roofs.problem else []
    probe, problem = probe_for(uuid)
    not_done += [problem] if problem else []
    batches = fitting(torch, device, shape)
    not_done += [f"batch {batch}: no memory for its cache" for batch in shape.batches if batch not in batches]
    weights = Weights(torch, shape, device)
    loops, clocks_before = [], clocks(uuid)
    for case in cases(batches, cuda):
        tell(f"{case.name}: {seconds:g} s")
        try:
            run = run_case(torch, weights, case, seconds, uuid, lambda: Sampling(probe))
        except RuntimeError as error:  # what torch says of a kernel or a graph that this device does not have
            not_done.append(f"{case.name}: {' '.join(str(error).split())[:200]}")
            continue
        not_done += [line for line in run.problems if line not in not_done]
        loops.append(judged(run, shape, roofs))
    return {
        "machine": machine,
        "clocks_before": clocks_before,
        "clocks_after": clocks(uuid),
        "seconds": seconds,
        "shape": asdict(shape) | {"weight_bytes": shape.weight_bytes, "token_bytes": shape.token_bytes},
        "hardware": _hardware(roofs.hardware),
        "problem": roofs.problem,
        "calibration": asdict(calibration) if calibration else None,
        "loops": loops,
        "not_done": not_done,
    }


NOT_ON_CPU = [
    "device time: a CPU has no CUDA events",
    "CUDA graphs: a CPU has none, every step is eager",
]


def calibrated(device: str, seconds: float, tell: Any) -> tuple[Any, str | None]:
    """What the device reaches, else None and in one line why not; it is not kept for other programs."""
    from rooflens.collector.calibrate import calibrate
    from rooflens.records import RooflensError

    wanted_s = min(LONGEST_CALIBRATION_S, max(LEAST_CALIBRATION_S, CALIBRATION_LOOPS * seconds))
    tell(f"calibrating {device}: at most {wanted_s:g} s")
    try:
        return calibrate(device, wanted_s, force=True), None
    except RooflensError as error:
        return None, f"calibration: {error}"


def fitting(torch: Any, device: Any, shape: Any) -> tuple[int, ...]:
    """The batches whose cache fits beside the weights."""
    if device.type != "cuda":
        return tuple(shape.batches)
    torch.cuda.empty_cache()  # what the calibration left
    free_bytes, _ = torch.cuda.mem_get_info(device)
    room = MEMORY_SHARE * free_bytes - shape.weight_bytes
    return tuple(b for b in shape.batches if b * (shape.context_tokens + 1) * shape.token_bytes < room)


def _hardware(hardware: Any) -> dict[str, Any] | None:
    names = ("id", "name", "origin", "source", "memory_bandwidth_bytes_per_s")
    return {name: getattr(hardware, name) for name in names} if hardware else None


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
