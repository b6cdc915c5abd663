"""A forward pass as a row of a step table: sums, exact query-key pairs where they follow, bounds where they do not.

A message has no lengths, only sums and variances, so:

- Of decoding sequences with one token each the pairs are exact: context plus one, summed. Drafts are not told: with
  speculation a pass computes more tokens than this, so tokens, pairs and head rows are the fewest, and the floor stays
  a lower bound.
- One prompt alone is exact. Of several the fewest pairs stand in the row (equal parts, the cached ones with the
  shortest part); ``Derived`` tells the most, and what it is if every prompt was computed whole, which the variance of
  the prompts gives where nothing was cached.
- How many prompts ended, and so how many tokens came out, is not told.
- ``wall_time`` is not the same everywhere: device time from SGLang and from vLLM's own publisher, from Dynamo's vLLM
  the time from output to output, or from schedule to output after a rest. It stands as observed time, and as device
  time only where the message says that it spans head and sampler on the device. One that reaches back to before the
  engine said it was idle holds the rest, not the pass: it is not known then.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rooflens.adapters.forward_pass.layout import LARGEST, ForwardPass, Scheduled
from rooflens.live_records import Derived
from rooflens.records import StepKind

WHOLE_STEP_SCOPES = ("model_step_cuda",)  # from execute_model to the end of sampling and drafting


@dataclass(frozen=True, slots=True)
class Pairs:
    """Query-key pairs of the prompts of one pass: hard bounds, and the likely value between them."""

    low: float
    high: float
    likely: float

    @property
    def exact(self) -> bool:
        """Whether there is nothing between the bounds."""
        return self.low == self.high


def prefill_pairs(scheduled: Scheduled) -> Pairs:
    """The pairs under the causal mask: the sum of part * cached + part * (part + 1) / 2 over the prompts.

    Of n prompts with Q tokens to compute and C cached: Q * Q / n at least, (Q - n + 1)^2 + n - 1 at most is the sum of
    squares, since each computes a token or more; the cached ones stand with the shortest or the longest part.
    """
    n, q, c = float(scheduled.prefill_requests), float(scheduled.prefill_tokens), float(scheduled.prefill_kv_tokens)
    if not n or not q:
        return Pairs(0.0, 0.0, 0.0)
    if n == 1:
        exact = q * c + q * (q + 1) / 2
        return Pairs(exact, exact, exact)
    n = min(n, q)  # a request without a token in the pass has no pairs
    fewest, longest = q * q / n, q - n + 1
    low = (fewest + q) / 2 + (c if scheduled.prefill_requests <= q else 0.0)
    high = (longest * longest + n - 1 + q) / 2 + longest * c
    likely = q * c / n + (fewest + q) / 2
    if not c and scheduled.prefill_length_variance is not None:
        likely = (n * scheduled.prefill_length_variance + fewest + q) / 2
    return Pairs(low, high, min(max(likely, low), high))


def longest_context(scheduled: Scheduled) -> tuple[float, float]:
    """Bounds of the longest context of the decoding sequences: one can be sqrt(variance * (n - 1)) above the mean."""
    n, total = scheduled.decode_requests, float(scheduled.decode_kv_tokens)
    if not n:
        return 0.0, 0.0
    mean, variance = total / n, scheduled.decode_kv_variance
    if variance is None:
        return mean, total
    deviation = math.sqrt(variance)
    # The spread is smallest above the mean where all but one stand there together.
    low = mean + (deviation / math.sqrt(n - 1) if n > 1 else 0.0)
    return low, min(mean + deviation * math.sqrt(n - 1), total)


def kind_of(scheduled: Scheduled) -> StepKind:
    """What the pass did, as far as it tells: drafts that are verified look like decoding."""
    if scheduled.prefill_requests:
        return StepKind.MIXED if scheduled.decode_requests else StepKind.PREFILL
    return StepKind.DECODE if scheduled.decode_requests else StepKind.DUMMY


def columns_of(message: ForwardPass, observed: bool = True) -> Mapping[str, float]:
    """The row by the names of STEP_COLUMNS, without its times and number; what is not known is left out.

    ``observed`` is whether the wall time is that of the pass alone.
    """
    s = message.scheduled
    pairs = prefill_pairs(s)
    decode_pairs = float(s.decode_kv_tokens + s.decode_requests)
    columns: dict[str, float | None] = {
        "kind": kind_of(s),
        "observed_s": message.wall_time_s if observed and message.wall_time_s else None,
        "device_s": message.wall_time_s if message.timing_scope in WHOLE_STEP_SCOPES and message.wall_time_s else None,
        "requests": s.prefill_requests + s.decode_requests,
        "prefill_requests": s.prefill_requests,
        "query_tokens": s.prefill_tokens + s.decode_requests,
        "prefill_tokens": s.prefill_tokens,
        "sampled_rows": s.decode_requests,
        "context_tokens": s.prefill_kv_tokens + s.decode_kv_tokens,
        "causal_pairs": math.floor(pairs.low) + decode_pairs,
        "prefill_pairs": math.floor(pairs.low),
        "max_context_tokens": _longest_of_all(s),
        "waiting": None if message.queued is None else message.queued.prefill_requests + message.queued.decode_requests,
        "resolution_steps": 1,
    }
    return {name: value for name, value in columns.items() if value is not None and value < LARGEST}


def _longest_of_all(s: Scheduled) -> float | None:
    """The longest context where it is certain: of one sequence, or of decoding ones that are all alike."""
    if s.prefill_requests:
        return s.prefill_kv_tokens if s.prefill_requests == 1 and not s.decode_requests else None
    if s.decode_requests == 1:
        return s.decode_kv_tokens
    alike = s.decode_requests and s.decode_kv_variance == 0 and s.decode_kv_tokens % s.decode_requests == 0
    return s.decode_kv_tokens // s.decode_requests if alike else None


def derived_of(messages: Sequence[ForwardPass]) -> tuple[Derived, ...]:
    """What these passes did not say and what was computed of them: sums, with the bounds of each."""
    passes = [message.scheduled for message in messages]
    found = []
    tokens = float(sum(s.prefill_tokens + s.decode_requests for s in passes))
    if any(s.decode_requests for s in passes):
        words = "one token for each decoding sequence: drafts are not told, so there may be more"
        found.append(Derived("query_tokens", tokens, "", words, low=tokens))
        at_least = float(sum(s.decode_kv_tokens for s in passes))
        decodes = sum(s.decode_requests for s in passes)
        words = "as the engine counts contexts: vLLM without the token of this pass, SGLang and TensorRT-LLM with it"
        found.append(Derived("decode_context_tokens", at_least, "", words, max(0.0, at_least - decodes), at_least))
        lows, highs = zip(*(longest_context(s) for s in passes), strict=True)
        words = "from mean and variance of the decoding contexts: none of these passes had a longer one than the upper"
        found.append(Derived("max_context_tokens", max(lows), "", words, max(lows), max(highs)))
    prompts = [s for s in passes if s.prefill_requests]
    if prompts:
        pairs = [prefill_pairs(s) for s in prompts]
        low, high, likely = (sum(getattr(p, end) for p in pairs) for end in ("low", "high", "likely"))
        words = "exact for one prompt; of several between equal parts and one long part, the fewest in the rows"
        found.append(Derived("prefill_pairs", likely, "", words, low, high))
        rows = float(sum(s.decode_requests for s in passes))
        words = "decoding sequences; how many prompts ended in a pass is not told"
        most = rows + sum(s.prefill_requests for s in prompts)
        found.append(Derived("sampled_rows", rows, "", words, rows, most))
    return tuple(value for value in found if math.isfinite(value.value))
