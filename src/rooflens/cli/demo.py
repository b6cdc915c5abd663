"""All of it in a minute, without a GPU: a small engine under load, watched live, beside this machine's roofline.

A continuous-batching decoder in NumPy, large enough that a step is bound by reading its weights, serves a steady
batch. It is recorded like any engine and watched by a sidecar, whose findings, metrics and API are live meanwhile;
at the end each step is laid beside the floor that was measured before. With --fault something really is wrong.

examples:
  rooflens demo
  rooflens demo --fault kv                  (also: batch, host, prefill, stall)
  rooflens demo --fault prefill --chunk 32  (the remedy at work)
  rooflens demo --fault batch --keep        (then look at it from another terminal: rooflens top)
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from rooflens.cli.calibrations import Calibrations, add_calibration_option
from rooflens.cli.demo_presets import FAULTS, HEALTHY, WINDOW_S, WINDOW_STEPS, Preset
from rooflens.cli.embedded import Outcome, best_threads, carry_out, use_threads
from rooflens.cli.find_servers import SIDECAR_URL
from rooflens.cli.output import json_text, printable
from rooflens.records import RooflensError
from rooflens.ring_folder import demo_folder

if TYPE_CHECKING:
    from rooflens.calibration_records import Calibration
    from rooflens.cli.demo_live import Raised
    from rooflens.model_records import HardwareSpec

LEAST_SECONDS, MOST_SECONDS = 3.0, 3600.0
# What each option may be; of a model that has to fit, the machine decides.
LIMITS: dict[str, tuple[float, float]] = {
    "seconds": (LEAST_SECONDS, MOST_SECONDS),
    "threads": (1, 4096),
    "batch": (1, 4096),
    "kv_blocks": (1, 1 << 20),
    "prompt": (1, 1 << 16),
    "chunk": (1, 1 << 20),
    "host_delay": (0, MOST_SECONDS),
    "stall_at": (1, 1 << 40),
    "stall": (0, MOST_SECONDS),
    "neighbours": (0, 1024),
}
KNOBS = ("batch", "kv_blocks", "prompt", "chunk", "host_delay", "stall_at", "stall")
ROOF_S, CALIBRATION_S = 6.0, 8.0
NEEDED = ("numpy", "fastapi", "uvicorn")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `rooflens demo`."""
    add = parser.add_argument
    add(
        "--fault",
        choices=sorted(FAULTS),
        help="what is wrong: " + "; ".join(f"{n}: {p.what}" for n, p in FAULTS.items()),
    )
    add("--seconds", type=float, default=24.0, metavar="S",
        help="how long the engine is under load, longer where its steps are slow (default: 24)")  # fmt: skip
    add("--threads", type=int, metavar="N", help="threads of the matrix products (default: what is faster here)")
    add("--batch", type=int, metavar="N", help="most sequences at once (default: 8)")
    add("--kv-blocks", type=int, metavar="N", help="KV blocks of 16 tokens (default: enough for the load)")
    add("--prompt", type=int, metavar="TOKENS", help="also send long prompts, of this length (default: none)")
    add("--chunk", type=int, metavar="TOKENS", help="most tokens of a step, longer prompts are cut (default: 32)")
    add("--host-delay", type=float, metavar="S", help="host time wasted before every step (default: 0)")
    add("--stall-at", type=int, metavar="STEP", help="the step that hangs")
    add("--stall", type=float, metavar="S", help="for how long it hangs (default: 8)")
    add("--neighbours", type=int, default=0, metavar="N", help="threads that take memory bandwidth (default: 0)")
    add("--small", action="store_true", help="a tiny model whose weights stay in the cache: quick, proves nothing")
    add("--keep", action="store_true", help="let the load go on, and the live API with it, until Ctrl-C or for an hour")
    add_calibration_option(parser, "what is kept, if the engine gets as many threads; else it measures for seconds")
    add("--json", action="store_true", help="one JSON object in SI units, null for what is not known")


def run(args: argparse.Namespace) -> int:
    """Measure the roof, run the engine and watch it, print the table and the findings."""
    preset = chosen(args)
    _check(args, preset)
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise RooflensError(f"'demo' needs {missing[0]}: pip install 'rooflens[demo]'")
    say = _silent if args.json else _say
    threads = args.threads or best_threads(say)
    use_threads(threads)  # before NumPy is loaded here: the roof is measured with the engine's threads
    from rooflens.cli.demo_live import LAST_TURNS_S, Raised, Watching, served
    from rooflens.collector.windows import WindowSettings

    machine = _machine(args)
    hardware, calibration = _roof(args, machine, threads, say)
    raised = Raised(say)

    def began(outcome: Outcome) -> None:
        raised.ring = outcome.ring

    with served() as server:
        windows = WindowSettings(WINDOW_S, WINDOW_STEPS)
        with Watching(demo_folder(), hardware, windows, raised, (server,), calibration):
            say(f"live API at {server.url}/api/v1/engines while the engine runs")
            if args.keep:
                say(f"until Ctrl-C, at most an hour; look at it with: {_look_with(server.url)}")
            tick = _tick if sys.stderr.isatty() and not args.json else _silent
            order = preset.order(args.seconds, args.neighbours, machine, args.keep)
            outcome = carry_out(order, threads, say, tick, began, args.keep)
            raised.over.wait(LAST_TURNS_S)
            _show(args, threads, outcome, (hardware, calibration), raised, server.url)
    return 0


def chosen(args: argparse.Namespace) -> Preset:
    """The preset of --fault, or the healthy one, with the options that were given in place of its own."""
    preset = FAULTS[args.fault] if args.fault else HEALTHY
    return preset.given({name: getattr(args, name) for name in KNOBS})


def _check(args: argparse.Namespace, preset: Preset) -> None:
    """RooflensError for an option that cannot be, before anything is measured."""
    for name, (least, most) in LIMITS.items():
        value = getattr(args, name)
        if value is not None and not least <= value <= most:
            option = f"--{name.replace('_', '-')} {value:g}"
            raise RooflensError(f"{option} is not from {least:g} to {most:,g}")
    needed = preset.longest_request_blocks
    if preset.kv_blocks is not None and preset.kv_blocks < needed:
        raise RooflensError(
            f"--kv-blocks {preset.kv_blocks} is too few: the longest request never fits, {needed} blocks are needed"
        )


def _machine(args: argparse.Namespace) -> dict[str, Any]:
    """What the engine's process is told of where it runs."""
    from rooflens.collector.cpu_roof import last_level_cache_bytes, memory_available_bytes, usable_cores

    return {
        "folder": str(demo_folder()),
        "cache_bytes": last_level_cache_bytes(usable_cores()),
        "memory_bytes": memory_available_bytes(),
        "small": args.small,
    }


def _roof(
    args: argparse.Namespace, machine: dict[str, Any], threads: int, say: Any
) -> tuple[HardwareSpec, Calibration | None]:
    """This machine's roof for as many bytes as a step of the engine reads, and what is reachable below it.

    Both from the calibration that was named, or is kept and was measured with as many threads as the engine has; else
    measured now, with those.
    """
    from rooflens.adapters.embedded.shape import SMALL, shape_for
    from rooflens.analyzer.calibrated import hardware_of, why_unsteady
    from rooflens.collector.calibrate import calibrate
    from rooflens.collector.cpu_roof import usable_cores
    from rooflens.collector.step_roof import measure_step_roof

    shape = SMALL if machine["small"] else shape_for(machine["cache_bytes"], machine["memory_bytes"])[0]
    read_bytes = 4 * shape.read_elements
    if args.calibration or threads == len(usable_cores()):
        calibration = Calibrations(args.calibration).of_cpu()
        if calibration is not None:
            return hardware_of(calibration, read_bytes), calibration
    share = 1 / 3 if machine["small"] else 1.0
    say(f"measuring this machine for {share * (ROOF_S + CALIBRATION_S):.0f} s ('rooflens calibrate' keeps more)")
    hardware = measure_step_roof(read_bytes, share * ROOF_S)
    try:
        calibration = calibrate("cpu", share * CALIBRATION_S, force=True)
    except RooflensError as error:
        say(f"what is reachable is not known: {error}")
        return hardware, None
    why = why_unsteady(calibration, hardware)
    return (hardware if why is None else replace(hardware, flags=(*hardware.flags, why))), calibration


def _show(
    args: argparse.Namespace,
    threads: int,
    outcome: Outcome,
    roof: tuple[HardwareSpec, Calibration | None],
    raised: Raised,
    url: str,
) -> None:
    """The table and the findings, or all of it as JSON."""
    from rooflens.cli.demo_text import apart_text, findings_text
    from rooflens.cli.report import as_json, text
    from rooflens.collector.cpu_roof import usable_cores
    from rooflens.pipeline import lay_beside, read_ring

    recording, hardware = read_ring(outcome.ring), roof[0]
    summary, _, problem = lay_beside(recording, *roof)
    expected = FAULTS[args.fault].code if args.fault else None
    if args.json:
        extra = {
            "threads": threads,
            "weight_bytes": outcome.weight_bytes,
            "why_smaller": outcome.why_smaller,
            "fault": args.fault,
            "expected": expected,
            "findings": {str(code): finding.to_json() for code, finding in raised.findings.items()},
            "cannot_tell": {str(code): list(finding.missing) for code, finding in raised.cannot_tell.items()},
            "api": url,
        }
        print(json_text(as_json(recording, summary, hardware, problem) | extra), flush=True)
        return
    print(printable(text(recording, summary, hardware, problem)))
    print(f"model     {outcome.weight_bytes / 1e6:,.0f} MB of weights read in every step")
    if outcome.why_smaller:
        print(f"          {outcome.why_smaller}")
    print(f"\n{printable(findings_text(raised, expected))}")
    if not raised.serious and (apart := apart_text(summary, threads, os.getloadavg()[0], len(usable_cores()))):
        print(apart)
    print(
        f"\nThe live API ended with the engine; with --keep the load goes on until Ctrl-C, for {_look_with(url)}\n"
        f"Findings were judged over windows of {WINDOW_S:.0f} s, those of a sidecar take ten.\n"
        f"The ring stays until two later demos have ended; look again with:\nrooflens analyze {recording.path}\n"
        "(analyze takes the kept calibration, else measures anew: its floor differs by what others leave)",
        flush=True,
    )


def _look_with(url: str) -> str:
    """How another terminal sees the API."""
    return "rooflens top" if url == SIDECAR_URL else f"rooflens top --url {url}"


def _say(line: str) -> None:
    print(f"\r\033[K{line}" if sys.stderr.isatty() else line, file=sys.stderr, flush=True)


def _tick(line: str) -> None:
    print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)


def _silent(line: str) -> None:
    del line
