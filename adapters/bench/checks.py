"""What follows from a result's own figures, and where they do not agree by more than they were rounded."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

AGREED_RATIO = 0.02  # rates are of the whole duration, which is printed in hundredths of a second
ROUNDED = 0.006  # figures are printed with two digits behind the point
RATES = (
    ("requests", "requests_per_s", "requests"),
    ("generated_tokens", "generated_tokens_per_s", "generated tokens"),
    ("prompt_tokens", "prompt_tokens_per_s", "prompt tokens"),
)
MEANS = (
    ("prompt_tokens_mean", "prompt_tokens", "prompt_tokens_per_s"),
    ("generated_tokens_mean", "generated_tokens", "generated_tokens_per_s"),
)
NAMES = {"ttft_s": "TTFT", "tpot_s": "TPOT", "itl_s": "ITL", "e2e_s": "request latency"}


def completed(values: Mapping[str, Any], total_tokens_per_s: float | None = None) -> dict[str, Any]:
    """The values with the mean lengths and the context that follow from sums, or from rates of the same duration.

    ``total_tokens_per_s`` is of prompts and output together: what the output leaves of it is the prompts'.
    """
    found = dict(values)
    output = found.get("generated_tokens_per_s")
    if total_tokens_per_s and output and total_tokens_per_s > output and "prompt_tokens_per_s" not in found:
        found["prompt_tokens_per_s"] = total_tokens_per_s - output
    for mean, tokens, rate in MEANS:
        for over, under in ((tokens, "requests"), (rate, "requests_per_s")):
            if mean not in found and found.get(under) and over in found:
                found[mean] = found[over] / found[under]
    prompt, generated = found.get("prompt_tokens_mean"), found.get("generated_tokens_mean")
    if "context_tokens" not in found and prompt is not None and generated is not None:
        found["context_tokens"] = prompt + generated / 2
    return found


def contradictions(
    values: Mapping[str, Any], times: Mapping[str, Mapping[str, float]], total_tokens_per_s: float | None = None
) -> Iterator[str]:
    """One line for each pair of figures that cannot both be right."""
    duration_s = values.get("duration_s")
    for count, rate, what in RATES:
        if duration_s and values.get(count) is not None and values.get(rate) is not None:
            follows = values[count] / duration_s
            if not _agree(follows, values[rate]):
                yield f"{values[count]:,} {what} in {duration_s:,.6g} s are {follows:,.4g}/s, not {values[rate]:,.4g}/s"
    parts = [values.get(name) for name in ("prompt_tokens_per_s", "generated_tokens_per_s")]
    if total_tokens_per_s and all(parts) and not _agree(sum(map(float, filter(None, parts))), total_tokens_per_s):
        yield f"{parts[0]:,.6g} and {parts[1]:,.6g} tokens/s are not {total_tokens_per_s:,.6g} tokens/s together"
    for name, found in times.items():
        yield from _order(NAMES[name], found)
    concurrency, mean = values.get("concurrency"), values.get("concurrency_mean")
    if concurrency and mean and mean > concurrency * (1 + AGREED_RATIO) + ROUNDED:
        yield f"{mean:,.4g} requests in flight on average are more than the {concurrency:,.4g} that were allowed"


def _agree(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=AGREED_RATIO, abs_tol=ROUNDED)


def _order(name: str, found: Mapping[str, float]) -> Iterator[str]:
    """Percentiles that fall, and a mean outside the extremes."""
    ranks = sorted((float(key[1:]), key) for key in found if key[:1] == "p" and key[1:].replace(".", "", 1).isdigit())
    for (_, low), (_, high) in pairwise(ranks):
        if found[low] > found[high] * (1 + 1e-6) + 1e-5:
            yield f"{name}: {low} is above {high}"
    for lower, upper in (("min", "mean"), ("mean", "max")):
        if lower in found and upper in found and found[lower] > found[upper] * (1 + 1e-6) + 1e-5:
            yield f"{name}: {lower} is above {upper}"
