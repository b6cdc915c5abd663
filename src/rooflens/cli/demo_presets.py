"""What the demo runs: a healthy engine and load, and five faults of settings or load over the same model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from rooflens.cli.embedded import Order
from rooflens.findings import Code

BLOCK_TOKENS = 16
SHORT_PROMPTS, OUTPUTS = (16, 24), (32, 96)  # tokens, shortest and longest
LONG_OUTPUT_TOKENS = 8  # few, so that long prompts never fill the batch
LONG_EVERY_STEPS = 8
LONGEST_PHASE_S = 3600.0  # that the engine takes
CONCURRENCY, CONCURRENCY_BESIDE_LONG = 8, 6
# Prompt tokens cost what a few decodes do on a CPU, so a mixed step stays below twice a decode step.
CHUNK_TOKENS = 32
# Shorter than a window: whatever is odd at the start is in one window, and a finding takes two.
SINGLE_S = 3.0
WINDOW_S, WINDOW_STEPS = 4.0, 24
LEAST_STEPS = 4 * WINDOW_STEPS  # of the phase with the fault, however slow a busy machine makes them


@dataclass(frozen=True, slots=True)
class Preset:
    """One run of the demo; lengths in tokens, times in seconds, None where a value follows from the others.

    ``code`` is what it raises, None for the healthy one. ``chunk`` is the most tokens of a step (None: what the long
    prompt needs in one piece). ``host_delay_steps`` is host time before every step, in durations of the step before.
    ``single`` is whether one sequence runs alone at first, for the sake of the table.
    """

    code: Code | None
    what: str
    batch: int = 8
    kv_blocks: int | None = None
    prompt: int | None = None
    chunk: int | None = CHUNK_TOKENS
    host_delay: float = 0.0
    host_delay_steps: float = 0.0
    stall_at: int | None = None
    stall: float = 8.0
    single: bool = False

    def given(self, options: Mapping[str, Any]) -> Preset:
        """With the options that were given (not None) in place of its own."""
        changed = {name: value for name, value in options.items() if value is not None}
        if "host_delay" in changed:
            changed["host_delay_steps"] = 0.0
        return replace(self, **changed)

    @property
    def longest_request_blocks(self) -> int:
        """KV blocks that the longest request of the load can come to fill."""
        long = self.prompt + LONG_OUTPUT_TOKENS if self.prompt else 0
        return -(-(max(long, SHORT_PROMPTS[1] + OUTPUTS[1]) - 1) // BLOCK_TOKENS)

    @property
    def settings(self) -> dict[str, int]:
        """Of the engine."""
        return {
            "kv_blocks": self.kv_blocks or (self.batch + 2) * self.longest_request_blocks,
            "block_tokens": BLOCK_TOKENS,
            "max_sequences": self.batch,
            "max_batched_tokens": self.chunk or (self.prompt or CHUNK_TOKENS) + self.batch,
        }

    @property
    def faults(self) -> dict[str, Any]:
        """Of the engine."""
        return {
            "host_delay_s": self.host_delay,
            "host_delay_steps": self.host_delay_steps,
            "stall_at_step": self.stall_at,
            "stall_s": self.stall,
        }

    def phases(self, seconds: float) -> list[dict[str, Any]]:
        """The load, ``seconds`` in all or longer where steps are slow."""
        single_s = min(SINGLE_S, seconds / 4) if self.single else 0.0
        short: dict[str, Any] = {"prompt_tokens": list(SHORT_PROMPTS), "output_tokens": list(OUTPUTS)}
        load = {**short, "name": "batch", "concurrency": CONCURRENCY, "least_steps": LEAST_STEPS}
        if self.prompt:
            load |= {
                "name": "long_prompts",
                "concurrency": CONCURRENCY_BESIDE_LONG,
                "long_prompt_tokens": self.prompt,
                "long_every_steps": LONG_EVERY_STEPS,
                "long_output_tokens": LONG_OUTPUT_TOKENS,
            }
        single = {**short, "name": "single", "concurrency": 1, "seconds": single_s}
        return [*([single] if self.single else ()), {**load, "seconds": seconds - single_s}]

    def order(self, seconds: float, neighbours: int, machine: Mapping[str, Any], keep: bool = False) -> Order:
        """What the engine's process is told; ``machine`` says where it runs and how large its model may be.

        With ``keep`` the last phase goes on for as long as a phase can.
        """
        phases = self.phases(seconds)
        if keep:
            phases[-1] |= {"seconds": LONGEST_PHASE_S}
        return {
            **machine,
            "settings": self.settings,
            "faults": {**self.faults, "neighbours": neighbours},
            "phases": phases,
        }


HEALTHY = Preset(None, "a steady batch, short prompts, room in the KV cache", single=True)
FAULTS: Mapping[str, Preset] = {
    # About five of the eight sequences fit: the others wait, and those that grow push each other out.
    "kv": Preset(Code.KV_PRESSURE, "a KV cache that holds half of the batch", kv_blocks=20),
    "batch": Preset(Code.MISSED_BATCHING, "a cap of two sequences, and eight that want to run", batch=2),
    # Relative to the step, so that a machine that others slow down shows the same fault.
    "host": Preset(Code.HOST_OVERHEAD, "host work before every step, longer than the step", host_delay_steps=1.5),
    "prefill": Preset(
        Code.PREFILL_INTERFERENCE, "long prompts in one piece while others decode", prompt=384, chunk=None
    ),
    # Late enough that the rule knows how long a step takes, early enough on a slow machine.
    "stall": Preset(Code.ENGINE_STALLED, "one step that hangs", stall_at=80),
}
