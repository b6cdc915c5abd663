"""The operating points that an observation stands for: which step, how many sequences, how long, how measured."""

from __future__ import annotations

from dataclasses import dataclass

from rooflens.live_records import Derived
from rooflens.observation_records import Observation

LITTLE = (
    "Little's law: tokens after the first of each request, a second, times TPOT; a mean over the whole run, its "
    "beginning and end included"
)
GIVEN = "told by the benchmark"
AT_MOST = "the most requests at a time that the benchmark allowed: fewer may have decoded together"
CLIENT_STEP = (
    "a client's TPOT holds what passes between steps, prefill of other requests in mixed steps and the network: it is "
    "an upper bound of the step"
)
CLIENT_PREFILL = "a client's TTFT holds the queue, other requests' steps and the network: an upper bound of prefill"
ENGINE_STEP = "measured in the engine's process: whole requests, what passes between their steps included"
SERVER_TEST = "measured in the engine, one sequence, no queue"
ONE_BATCH = "measured in the engine, step by step, synchronised with the device"
SPECULATION = "; a step yields {:.3g} tokens, so it takes so many times TPOT, and its floor is that of a plain step"


@dataclass(frozen=True, slots=True)
class OperatingPoint:
    """One kind of step of an observation. ``batch`` are sequences in the step, ``batch_of`` how that is known.

    Each sequence has ``context_tokens``, of which ``cached_tokens`` are there before the step (in prefill the rest is
    computed, in decode all are there). ``measured_s`` is what was measured for one such step, ``statistic`` of what
    ("mean" or "p50"), ``words`` what else that time holds; ``bound`` is whether it is an upper bound of the step.
    """

    phase: str
    batch: float
    batch_of: Derived
    context_tokens: int
    cached_tokens: int
    measured_s: float
    statistic: str
    words: str
    bound: bool


def operating_points(seen: Observation) -> tuple[tuple[OperatingPoint, ...], str | None]:
    """The points of ``seen``, decode first, and why there is none; a figure that was withheld makes none."""
    found = [point for point in (_decode(seen), _prefill(seen)) if point is not None]
    return tuple(found), None if found else _missing(seen)


def _decode(seen: Observation) -> OperatingPoint | None:
    picked = _middle(seen, "tpot_s")
    if picked is None or seen.phase == "prefill" or not seen.context_tokens:
        return None
    statistic, tpot_s = picked
    batch = decode_batch(seen, tpot_s)
    if batch is None:
        return None
    length = max(1.0, seen.acceptance_length or 1.0)
    words = _words(seen) + (SPECULATION.format(length) if length > 1 else "")
    context = max(1, round(seen.context_tokens))
    return OperatingPoint(
        "decode", batch.value, batch, context, context, tpot_s * length, statistic, words, seen.client_side
    )


def decode_batch(seen: Observation, tpot_s: float) -> Derived | None:
    """Sequences that decoded together on average, with the bounds that hold; None where nothing tells it."""
    most = seen.concurrency
    if seen.batch:
        return Derived("decode_batch", seen.batch, "", GIVEN, seen.batch, seen.batch)
    rate = seen.generated_tokens_per_s
    if rate:
        firsts = seen.requests_per_s or 0.0
        if seen.requests and seen.duration_s:  # a rate is printed with two digits behind the point
            firsts = seen.requests / seen.duration_s
        value = max(1.0, max(rate - firsts, 0.0) * tpot_s)
        return Derived("decode_batch", min(value, most) if most else value, "", LITTLE, 1.0, most)
    if most or seen.concurrency_mean:
        value = seen.concurrency_mean or most or 1.0
        return Derived("decode_batch", max(1.0, value), "", AT_MOST, 1.0, most)
    return None


def _prefill(seen: Observation) -> OperatingPoint | None:
    """A prompt alone where the benchmark measured it, else the time to the first token of one that did not wait."""
    prompt = round(seen.prompt_tokens_mean or 0)
    if prompt < 1 or seen.phase == "decode":
        return None
    batch, words, picked = seen.batch or 1.0, _words(seen), _middle(seen, "ttft_s")
    if seen.phase == "prefill" and seen.prompt_tokens_per_s:
        picked = ("mean", prompt * batch / seen.prompt_tokens_per_s)
    if picked is None:
        return None
    if seen.client_side:
        words = CLIENT_PREFILL
    told = Derived("prefill_batch", batch, "", GIVEN if seen.batch else "one prompt alone", batch, batch)
    context = max(prompt, round(seen.context_tokens or 0)) if seen.phase == "prefill" else prompt
    bound = seen.client_side or seen.batch is None
    return OperatingPoint("prefill", batch, told, context, context - prompt, picked[1], picked[0], words, bound)


def _middle(seen: Observation, field: str) -> tuple[str, float] | None:
    """The mean of a latency, which sums and Little's law are about, else its median."""
    times = getattr(seen, field)
    return next(((name, times[name]) for name in ("mean", "p50") if name in times), None)


def _words(seen: Observation) -> str:
    if seen.client_side:
        return CLIENT_STEP
    if seen.origin == "llama-bench":
        return SERVER_TEST
    return ONE_BATCH if seen.batch else ENGINE_STEP


def _missing(seen: Observation) -> str:
    """What would have to be known to lay it beside the roofline."""
    lacks = []
    if not seen.tpot_s:
        lacks.append("a time per output token")
    elif not seen.context_tokens:
        lacks.append("the lengths of prompts and outputs")
    elif not (seen.batch or seen.generated_tokens_per_s or seen.concurrency):
        lacks.append("how many sequences decoded together")
    return f"it does not tell {' or '.join(lacks) or 'a step of one kind'}"
