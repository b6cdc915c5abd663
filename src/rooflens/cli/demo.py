"""All of it in under a minute, without a GPU: a small engine under load, recorded, beside this machine's roofline.

A continuous-batching decoder in NumPy, large enough that its weights come from memory in every step, serves first
one sequence at a time, then a steady batch, then long prompts that arrive during decode. It is recorded like any
engine; then the machine's memory bandwidth and multiply rate are measured, and each step is laid beside the floor.

examples:
  rooflens demo
  rooflens demo --seconds 60 --kv-blocks 60        (preemption)
  rooflens demo --batch 2                          (a batch cap with a queue)
  rooflens demo --host-delay 0.02 --json
"""

from __future__ import annotations

import argparse
import sys
from importlib.util import find_spec
from typing import Any

from rooflens.cli.embedded import Order, available_memory_bytes, best_threads, carry_out, use_threads
from rooflens.cli.output import json_text, printable
from rooflens.records import RooflensError
from rooflens.ring_folder import demo_folder

LEAST_SECONDS, MOST_SECONDS = 3.0, 3600.0
BLOCK_TOKENS = 16
SHORT_PROMPTS, OUTPUTS = (16, 64), (32, 96)  # tokens, shortest and longest
# What each option may be; of a model that has to fit, the machine decides.
LIMITS: dict[str, tuple[float, float]] = {
    "seconds": (LEAST_SECONDS, MOST_SECONDS),
    "threads": (1, 4096),
    "batch": (1, 4096),
    "kv_blocks": (1, 1 << 20),
    "prompt": (1, 1 << 16),
    "host_delay": (0, MOST_SECONDS),
    "stall_at": (1, 1 << 40),
    "stall": (0, MOST_SECONDS),
    "neighbours": (0, 1024),
}
ROOF_S = 4.0  # before the run and again after it: on a busy machine the better of two is nearer to the truth


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `rooflens demo`."""
    add = parser.add_argument
    add("--seconds", type=float, default=24.0, metavar="S", help="how long the engine is under load (default: 24)")
    add("--threads", type=int, metavar="N", help="threads of the matrix products (default: what is faster here)")
    add("--batch", type=int, default=8, metavar="N", help="most sequences at once (default: 8)")
    add("--kv-blocks", type=int, metavar="N", help="KV blocks of 16 tokens (default: enough for the load)")
    add("--prompt", type=int, default=512, metavar="TOKENS", help="length of the long prompts (default: 512)")
    add("--host-delay", type=float, default=0.0, metavar="S", help="host time wasted before every step (default: 0)")
    add("--stall-at", type=int, metavar="STEP", help="the step that hangs")
    add("--stall", type=float, default=5.0, metavar="S", help="for how long it hangs (default: 5)")
    add("--neighbours", type=int, default=0, metavar="N", help="threads that take memory bandwidth (default: 0)")
    add("--small", action="store_true", help="a tiny model whose weights stay in the cache: quick, proves nothing")
    add("--json", action="store_true", help="one JSON object in SI units, null for what is not known")


def run(args: argparse.Namespace) -> int:
    """Run the engine, read its ring, print the table."""
    _check(args)
    if find_spec("numpy") is None:
        raise RooflensError("'demo' needs numpy: pip install 'rooflens[demo]'")
    say = _silent if args.json else _say
    tick = _tick if sys.stderr.isatty() and not args.json else _silent
    threads = args.threads or best_threads(say)
    use_threads(threads)  # before NumPy is loaded here: the roof is measured with the engine's threads
    from rooflens.cli.report import as_json, text
    from rooflens.collector.cpu_roof import last_level_cache_bytes, measure_cpu, usable_cores
    from rooflens.pipeline import lay_beside, read_ring

    cache_bytes, memory_bytes = last_level_cache_bytes(usable_cores()), available_memory_bytes()
    order = _order(args, cache_bytes, memory_bytes)
    say(f"measuring this machine for {ROOF_S:.0f} s")
    before = measure_cpu(ROOF_S)
    outcome = carry_out(order, threads, say, tick)
    say(f"measuring this machine again for {ROOF_S:.0f} s")
    after = measure_cpu(ROOF_S)
    recording = read_ring(outcome.ring)
    hardware = _better(before, after)
    summary, _, problem = lay_beside(recording, hardware)
    if args.json:
        extra = {"threads": threads, "weight_bytes": outcome.weight_bytes, "why_smaller": outcome.why_smaller}
        print(json_text(as_json(recording, summary, hardware, problem) | extra))
        return 0
    print(printable(text(recording, summary, hardware, problem)))
    print(
        f"model     {outcome.weight_bytes / 1e6:,.0f} MB of weights read in every step, last-level cache "
        f"{cache_bytes / 1e6:,.0f} MB, {threads} of {len(usable_cores())} cores"
    )
    if outcome.why_smaller:
        print(f"          {outcome.why_smaller}")
    print(
        f"\nThe ring stays; look again with: rooflens analyze {recording.path}\n"
        "(analyze measures this machine anew, so its floor may differ from the one above)"
    )
    return 0


def _check(args: argparse.Namespace) -> None:
    """RooflensError for an option that cannot be, before anything is measured."""
    for name, (least, most) in LIMITS.items():
        value = getattr(args, name)
        if value is not None and not least <= value <= most:
            option = f"--{name.replace('_', '-')} {value:g}"
            raise RooflensError(f"{option} is not from {least:g} to {most:,g}")
    needed = longest_request_blocks(args.prompt)
    if args.kv_blocks is not None and args.kv_blocks < needed:
        raise RooflensError(
            f"--kv-blocks {args.kv_blocks} is too few: the longest request never fits, {needed} blocks are needed"
        )


def longest_request_blocks(prompt_tokens: int) -> int:
    """KV blocks that the longest request of the load can come to fill."""
    return -(-(max(prompt_tokens, SHORT_PROMPTS[1]) + OUTPUTS[1] - 1) // BLOCK_TOKENS)


def _order(args: argparse.Namespace, cache_bytes: int, memory_bytes: int) -> Order:
    """A third of the time each: one sequence, a steady batch, long prompts during decode."""
    share_s = args.seconds / 3
    short: dict[str, Any] = {"seconds": share_s, "prompt_tokens": list(SHORT_PROMPTS), "output_tokens": list(OUTPUTS)}
    phases = [
        {**short, "name": "single", "concurrency": 1},
        {**short, "name": "batch", "concurrency": 8},
        {**short, "name": "long_prompts", "concurrency": 6, "long_prompt_tokens": args.prompt, "long_every_s": 2.0},
    ]
    blocks = args.kv_blocks or (args.batch + 2) * longest_request_blocks(args.prompt)
    return {
        "folder": str(demo_folder()),
        "cache_bytes": cache_bytes,
        "memory_bytes": memory_bytes,
        "small": args.small,
        "settings": {"kv_blocks": blocks, "block_tokens": BLOCK_TOKENS, "max_sequences": args.batch},
        "faults": {
            "host_delay_s": args.host_delay,
            "stall_at_step": args.stall_at,
            "stall_s": args.stall,
            "neighbours": args.neighbours,
        },
        "phases": phases,
    }


def _better(one: Any, other: Any) -> Any:
    """The roof with the higher rates of two measurements: what was reached once can be reached."""
    best = max(one, other, key=lambda spec: float(spec.memory_bandwidth_bytes_per_s))
    rates = {name: max(one.peak_flops_per_s[name], other.peak_flops_per_s[name]) for name in one.peak_flops_per_s}
    from dataclasses import replace

    return replace(best, peak_flops_per_s=rates, ceiling_flops_per_s=rates)


def _say(line: str) -> None:
    print(f"\r\033[K{line}" if sys.stderr.isatty() else line, file=sys.stderr, flush=True)


def _tick(line: str) -> None:
    print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)


def _silent(line: str) -> None:
    del line
