"""vLLM's real EngineCore loop around a real scheduler, with an executor that makes its results up."""

from __future__ import annotations

import queue
import random
import time
from collections import deque
from concurrent.futures import Future
from typing import Any

from scheduler_harness import Model
from vllm.v1.engine.core import EngineCore
from vllm.v1.outputs import EMPTY_MODEL_RUNNER_OUTPUT, DraftTokenIds, KVConnectorOutput


class LateFuture(Future):  # type: ignore[type-arg]
    """A result that takes a while once it is asked for, like a device that is still computing."""

    def __init__(self, make: Any, delay_s: float) -> None:
        super().__init__()
        self._make, self._delay_s = make, delay_s

    def result(self, timeout: float | None = None) -> Any:
        """Wait, then make the result up."""
        if not self.done():
            time.sleep(self._delay_s)
            self.set_result(self._make())
        return super().result(timeout)


class MadeUpGrammar:
    """Takes every token, and some of the drafts; older releases ask it themselves, later ones its manager."""

    def __init__(self, rng: random.Random) -> None:
        self._random = rng

    def accept_tokens(self, request: Any, tokens: list[int]) -> bool:
        """Whether sampled tokens fit."""
        return True

    def validate_tokens(self, tokens: list[int]) -> list[int]:
        """Those drafts that fit."""
        return tokens[: self._random.randrange(len(tokens) + 1)]


class MadeUpExecutor:
    """execute_model and sample_tokens as vLLM's executors have them."""

    def __init__(self, scheduler: Any, model: Model, delay_s: float, drafts: int) -> None:
        self.scheduler, self.model, self.delay_s, self.drafts = scheduler, model, delay_s, drafts
        self.last: Any = None
        self.arrived: set[str] = set()
        self.breaks: list[str] = []
        self.dummies = 0

    def _more(self) -> dict[str, Any]:
        arrived, self.arrived = self.arrived, set()
        names, self.breaks = self.breaks, []
        invalid = {self.scheduler.kv_cache_manager.get_block_ids(name)[0][1] for name in names}
        if not arrived and not invalid:
            return {}
        return {"kv_connector_output": KVConnectorOutput(finished_recving=arrived, invalid_block_ids=invalid)}

    def execute_model(self, output: Any, non_block: bool = False) -> Any:
        """Only notes what is to be sampled; an empty step reports what a connector has brought."""
        self.model.scheduled(output)
        future: Any = Future()
        if not output.total_num_scheduled_tokens:
            more = self._more()
            result = self.model.run(output, **more) if more else EMPTY_MODEL_RUNNER_OUTPUT
            future.set_result(result)
            return future
        self.last = output
        future.set_result(None)
        return future

    def sample_tokens(self, grammar_output: Any, non_block: bool = False) -> Any:
        """The sampled tokens of the last executed step."""
        output = self.last
        late = LateFuture(lambda: self.model.run(output, **self._more()), self.delay_s)
        return late if non_block else late.result()

    def take_draft_token_ids(self) -> Any:
        """Drafts for every request of the last step."""
        names = list(self.last.num_scheduled_tokens)
        return DraftTokenIds(names, [[7] * self.drafts for _ in names]) if self.drafts else None

    def execute_dummy_batch(self) -> None:
        """A forward pass for the sake of the other ranks."""
        self.dummies += 1


def make_core(scheduler: Any, depth: int, seed: int = 1, delay_s: float = 0.0, stop: int | None = None) -> Any:
    """An EngineCore that was never initialised: only what its step functions read."""
    core = EngineCore.__new__(EngineCore)
    config = scheduler.vllm_config
    core.vllm_config, core.scheduler, core.log_stats = config, scheduler, True
    core._weight_version = "default"
    core.batch_queue_size = depth
    core.batch_queue = deque(maxlen=depth) if depth > 1 else None
    core.is_mm_encoder_only = core.is_pooling_model = False
    core.is_ec_consumer = True  # asked by older releases: whether this core computes tokens
    core.use_spec_decode = core.check_for_draft_tokens = config.speculative_config is not None
    core.async_scheduling = config.scheduler_config.async_scheduling
    core.aborts_queue = queue.Queue()
    drafts = config.speculative_config.num_speculative_tokens if core.use_spec_decode else 0
    core.model_executor = MadeUpExecutor(scheduler, Model(scheduler, seed, stop), delay_s, drafts)
    return core


def run_core(core: Any, arrivals: dict[int, list[Any]], most_steps: int = 3000, on_step: Any = None) -> None:
    """Call the real step function until nothing is left; ``arrivals`` are requests by step."""
    step = core.step if core.batch_queue is None else core.step_with_batch_queue
    last_arrival = max(arrivals, default=0)
    for number in range(most_steps):
        for request in arrivals.get(number, ()):
            core.scheduler.add_request(request)
        if on_step is not None:
            on_step(number)
        if core.scheduler.has_requests() or core.batch_queue:
            _, executed = step()
            core.post_step(executed)
        elif number > last_arrival:
            return
    raise AssertionError("the core did not come to an end")
