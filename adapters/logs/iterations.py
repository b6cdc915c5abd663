"""Lines of one iteration each as rows of one step; what an engine times differs, and is said beside the time."""

from __future__ import annotations

from collections.abc import Mapping

from rooflens.adapters.logs.clock import Moment
from rooflens.adapters.scrape.rows import Row
from rooflens.live_records import Derived
from rooflens.records import StepKind

CAVEATS: Mapping[str, str] = {
    "vllm": "the iteration's elapsed time as the engine tells it: scheduling is not in it",
    "tensorrt-llm": "the iteration's time on the host as the engine tells it; iterations may overlap on the device",
}
# Engines whose used blocks, as a number and as a part of the pool, hold those that are kept for reuse too: no measure
# of contexts, nor of what requests hold.
KEEP_FOR_REUSE = ("tensorrt-llm",)
LONGEST_S = 600.0  # of one iteration
MOST_TOKENS = 1e9
STAMP_S = 1.0


class Iterations:
    """The iteration lines of one engine: each row waits for the next one, which tells its device time."""

    def __init__(self, engine: str) -> None:
        self._reuses = engine in KEEP_FOR_REUSE
        self._words = CAVEATS.get(engine, "the iteration's time as the engine tells it")
        self._open: dict[str, float] | None = None
        self._number: float | None = None
        self._last_s: float | None = None

    def take(
        self, values: Mapping[str, float], words: Mapping[str, str], moment: Moment | None, pool: tuple[int, int] | None
    ) -> Row | None:
        """Take an iteration in; the row of the one before. ``pool`` is (blocks, tokens a block) where known."""
        number = values.get("iteration")
        follows = number is not None and self._number is not None and number == self._number + 1
        row = self.close(values.get("previous_device_s") if follows else None)
        self._number = number
        columns = _columns(values, words, pool, None if self._reuses else values.get("kv_used_ratio"))
        observed_s = columns.get("observed_s") or 0.0
        self._place(columns, moment, observed_s)
        self._open = columns
        return row

    def close(self, device_s: float | None = None) -> Row | None:
        """The row of the last line; ``device_s`` is what the next one told of it."""
        columns, self._open = self._open, None
        if columns is None:
            return None
        if device_s is not None and 0 < device_s < LONGEST_S:
            columns["device_s"] = device_s
        observed_s = columns.get("observed_s")
        derived = () if observed_s is None else (Derived("observed_s", observed_s, "s", self._words),)
        return Row(columns, derived)

    @property
    def open_since_s(self) -> float | None:
        """When the iteration ended whose row has not been told."""
        return None if self._open is None else self._open["output_monotonic_s"]

    def _place(self, columns: dict[str, float], moment: Moment | None, observed_s: float) -> None:
        """Iterations follow each other; stamps of whole seconds say where only to a second."""
        last_s = self._last_s
        output_s = (last_s or 0.0) + observed_s
        if moment is not None:
            late_s = moment.sure_s
            early, late = moment.monotonic_s, moment.monotonic_s + late_s
            output_s = early if last_s is None or moment.set else min(max(output_s, early), late)
            output_s = output_s if last_s is None else max(output_s, last_s + 1e-9)
            if moment.unix_s is not None:
                columns["unix_s"] = moment.unix_s + (output_s - moment.monotonic_s)
        columns["output_monotonic_s"] = self._last_s = output_s
        columns["submit_monotonic_s"] = output_s - observed_s


def _columns(
    values: Mapping[str, float], words: Mapping[str, str], pool: tuple[int, int] | None, used: float | None
) -> dict[str, float]:
    """The columns of an iteration; ``used`` is the part of the pool that requests hold, None where it is not known."""
    prompts, prompt_tokens = values.get("context_requests"), values.get("context_tokens")
    decodes, decode_tokens = values.get("generation_requests"), values.get("generation_tokens")
    if decodes is None:
        decodes = decode_tokens  # one token each, as no draft is told
    if prompts is None and prompt_tokens == 0:
        prompts = 0.0
    if decode_tokens is None:
        decode_tokens = decodes
    found: dict[str, float | None] = {"kind": _kind(values, words, prompts, prompt_tokens, decodes, decode_tokens)}
    requests = None if prompts is None or decodes is None else prompts + decodes
    query = None if prompt_tokens is None or decode_tokens is None else prompt_tokens + decode_tokens
    seconds = values.get("iteration_s")
    found |= {
        "sequence": values.get("iteration"),
        "observed_s": seconds if seconds is not None and 0 < seconds < LONGEST_S else None,
        "resolution_steps": 1,
        "requests": requests,
        "prefill_requests": prompts,
        "query_tokens": query,
        "prefill_tokens": prompt_tokens,
        "sampled_rows": None if query is None or prompts is None or decode_tokens is None else prompts + decode_tokens,
        "generated_tokens": None if decode_tokens != decodes else decodes if prompts == 0 else None,
        "running": values.get("running"),
        "waiting": values.get("waiting"),
        **_held(values, pool, used, requests, prompt_tokens, decode_tokens),
    }
    if found["kind"] == StepKind.DUMMY:
        found = {name: found[name] for name in ("kind", "sequence", "observed_s", "resolution_steps")}
        found |= {"requests": 0, "query_tokens": 0, "generated_tokens": 0, "prefill_tokens": 0}
    return {name: value for name, value in found.items() if value is not None and 0 <= value <= MOST_TOKENS}


def _kind(
    values: Mapping[str, float],
    words: Mapping[str, str],
    prompts: float | None,
    prompt_tokens: float | None,
    decodes: float | None,
    decode_tokens: float | None,
) -> StepKind | None:
    if words.get("dummy") or values.get("dummy"):
        return StepKind.DUMMY
    if decodes is None and prompts == 0 and values.get("padded_generation_tokens"):
        return StepKind.DECODE  # of how many sequences is not told: some of them pad a captured graph
    if decodes is None or (prompts is None and prompt_tokens is None):
        return None
    if prompts or prompt_tokens:
        return StepKind.MIXED if decodes else StepKind.PREFILL
    if not decodes:
        return StepKind.DUMMY
    return StepKind.VERIFY if decode_tokens is not None and decode_tokens > decodes else StepKind.DECODE


def _held(
    values: Mapping[str, float],
    pool: tuple[int, int] | None,
    used: float | None,
    requests: float | None,
    prompt_tokens: float | None,
    decode_tokens: float | None,
) -> dict[str, float | None]:
    """Contexts: as told, else from the pool, of which each sequence fills its last block by half on average."""
    context = values.get("kv_tokens")
    if context is None and not prompt_tokens:
        context = values.get("generation_kv_tokens")
    blocks = None if used is None or pool is None else used * pool[0]
    if context is None and blocks is not None and pool is not None and requests is not None:
        before = requests * (pool[1] - 1) / 2 + (prompt_tokens or 0) + (decode_tokens or 0)
        context = max(blocks * pool[1] - before, 0.0)
    found: dict[str, float | None] = {"kv_blocks_used": blocks, "context_tokens": context}
    if context is None:
        return found
    if pool is not None:
        found["context_blocks"] = min(blocks, context / pool[1] + (requests or 0)) if blocks is not None else None
    if not prompt_tokens and decode_tokens is not None:
        found |= {"prefill_pairs": 0.0, "causal_pairs": context + decode_tokens}
    elif prompt_tokens and requests and decode_tokens is not None and values.get("context_requests"):
        each = prompt_tokens / values["context_requests"]
        pairs = prompt_tokens * (each + 1) / 2  # the fewest: prompts of equal length with nothing before them
        decoding = 0.0 if not decode_tokens else context * decode_tokens / (decode_tokens + values["context_requests"])
        found |= {"prefill_pairs": pairs, "causal_pairs": pairs + decoding + decode_tokens}
    return found
