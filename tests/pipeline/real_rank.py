"""One rank of the embedded engine as a process, for tests: a JSON object as its only argument, until it is killed.

``least_s`` and ``token_s`` are what a step takes at the least, and more for each token of a prompt: the device is
slept for, so that other load on the machine changes little. With ``barrier`` (the numbers of a descriptor to read and
one to write) every step ends when the peer's ends, as an all-to-all in a mixture makes it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from rooflens.adapters.embedded.engine import Engine, Settings
from rooflens.adapters.embedded.load import Load, Phase
from rooflens.adapters.embedded.scheduler import Plan
from rooflens.adapters.embedded.shape import SMALL
from rooflens.adapters.recorder import Recorder


class Rank(Engine):
    """The engine with the device that ``asked`` describes."""

    asked: dict[str, Any]

    def _run(self, plan: Plan) -> list[int]:
        began_s = time.perf_counter()
        sampled = super()._run(plan)
        prompt_tokens = sum(plan.queries[row] for row in plan.prefill)
        due_s = began_s + self.asked["least_s"] + self.asked["token_s"] * prompt_tokens
        while (left_s := due_s - time.perf_counter()) > 0:
            time.sleep(left_s)
        if self.asked.get("barrier"):
            incoming, outgoing = self.asked["barrier"]
            os.write(outgoing, b".")
            if not os.read(incoming, 1):
                raise SystemExit
        return sampled


def main() -> None:
    """Serve until killed."""
    asked = json.loads(sys.argv[1])
    settings = Settings(max_batched_tokens=128)
    with Recorder(
        "rooflens-embedded",
        folder=Path(asked["folder"]),
        rank=asked["rank"],
        data_parallel=2,
        model_name="embedded-llama",
        model_config=SMALL.config(4096),
        weight_dtype="float32",
        kv_dtype="float32",
        kv_blocks=settings.kv_blocks,
        block_tokens=settings.block_tokens,
        device="cpu",
        host="this",
        start_unix_s=time.time(),
    ) as recorder:
        engine = Rank(SMALL, settings, recorder)
        engine.asked = asked
        print(recorder.path, flush=True)
        Load(engine, asked["rank"]).run(Phase.from_json(asked["phase"]), lambda _gone_s: None)


if __name__ == "__main__":
    main()
