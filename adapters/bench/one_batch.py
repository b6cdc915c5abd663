"""SGLang's bench_one_batch (in the engine's process, step by step) and bench_one_batch_server, text and JSONL."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from rooflens.adapters.bench.amounts import finite_amount, number_of
from rooflens.adapters.bench.draft import Draft
from rooflens.adapters.bench.names import LAST, TOTAL_TOKENS

ONE_BATCH, SERVER = "sglang bench_one_batch", "sglang bench_one_batch_server"
# The first release wrote seconds and called them ms.
PREFILL = re.compile(r"^\s*Prefill\. latency:\s*(\S{1,20}) (?:ms|s), throughput:\s*(\S{1,20}) token/s")
DECODE = re.compile(
    r"^\s*Decode\.\s+(?:median )?latency:\s*(\S{1,20}) (?:ms|s), (?:median )?throughput:\s*(\S{1,20}) token/s"
)
STEP = re.compile(r"^\s*Decode (\d{1,7})\. (?:Batch size: (\d{1,7}), )?latency:")
TOTAL = re.compile(r"^\s*Total\. latency:\s*(\S{1,20}) (?:ms|s)")
SERVED = re.compile(
    r"^\s*(batch size|input_len|output_len|latency|ttft|last generation throughput|input throughput|"
    r"output throughput|\(input \+ output\) throughput|acc_length|last_ttft):\s*(\S{1,30})"
)
WARMED = re.compile(r"^\s*(?:=+ )?(Benchmark \.\.\.|Warmup End)")
KEYS = frozenset(
    ("run_name", "batch_size", "input_len", "output_len", "prefill_latency", "prefill_throughput",
     "median_decode_latency", "median_decode_throughput", "total_latency", "overall_throughput", "latency", "ttft",
     "input_throughput", "output_throughput", "last_gen_throughput", "acc_length", "model_path", "profile_links",
     "profile_link", "device", "dtype", "cuda_graph", "last_ttft")
)  # fmt: skip


def is_one_batch(data: Mapping[str, Any]) -> bool:
    """Whether ``data`` is a line of either program."""
    return "batch_size" in data and any(k in data for k in ("prefill_latency", "output_throughput", "latency"))


def one_batch(data: Mapping[str, Any]) -> Draft:
    """A line of JSON of either program."""
    inside = "prefill_latency" in data or "median_decode_latency" in data
    draft = Draft(ONE_BATCH if inside else SERVER, client_side=not inside, engine="sglang")
    draft.model(data.get("model_path"))
    draft.number("batch", data.get("batch_size"), "batch_size")
    draft.number("prompt_tokens_mean", data.get("input_len"), "input_len")
    draft.number("generated_tokens_mean", data.get("output_len"), "output_len")
    if inside:
        draft.time("ttft_s", "mean", data.get("prefill_latency"), "prefill_latency")
        draft.number("prompt_tokens_per_s", data.get("prefill_throughput"), "prefill_throughput")
        draft.time("tpot_s", "p50", data.get("median_decode_latency"), "median_decode_latency")
        draft.time("e2e_s", "mean", data.get("total_latency"), "total_latency")
        draft.number("generated_tokens_per_s", data.get("median_decode_throughput"), "median_decode_throughput")
    else:
        _served(draft, data)
    if number_of(data.get("overall_throughput")):
        draft.withhold(TOTAL_TOKENS)
    for key in data:
        if key not in KEYS:
            draft.not_known(str(key))
    return draft


def _served(draft: Draft, data: Mapping[str, Any]) -> None:
    """One batch sent to a server: since 0.4.7 the rate is of the time after the first token, before of all."""
    draft.time("e2e_s", "mean", data.get("latency"), "latency")
    draft.time("ttft_s", "mean", data.get("ttft"), "ttft")
    draft.number("prompt_tokens_per_s", data.get("input_throughput"), "input_throughput")
    draft.number("generated_tokens_per_s", data.get("output_throughput"), "output_throughput")
    draft.number("acceptance_length", data.get("acc_length"), "acc_length")
    draft.number("concurrency", data.get("batch_size"), "batch_size")
    if number_of(data.get("last_gen_throughput")):
        draft.withhold(LAST)
    batch, rate = draft.values.get("batch"), draft.values.get("generated_tokens_per_s")
    if batch and rate and (draft.times["ttft_s"] or "last_gen_throughput" in data):
        draft.time("tpot_s", "mean", batch / rate, "time a token")


def printed(lines: Iterable[str]) -> list[Draft]:
    """The results in a text of either program; what was measured to warm up is left out."""
    reader = _Printed()
    for line in lines:
        reader.take(line)
    reader.close()
    return reader.drafts


class _Printed:
    def __init__(self) -> None:
        self.drafts: list[Draft] = []
        self._open: dict[str, Any] = {}

    def take(self, line: str) -> None:
        if WARMED.match(line) is not None:
            self._open = {}
            self.drafts.clear()
        elif (found := PREFILL.match(line)) is not None:
            self.close()
            latency, tokens = _seconds(found[1], found[2])
            self._open = {"prefill_latency": latency, "prefill_throughput": finite_amount(found[2]), "tokens": tokens}
        elif (found := STEP.match(line)) is not None and found[2]:
            self._open["batch_size"] = int(found[2])
        elif (found := DECODE.match(line)) is not None:
            self._open["median_decode_latency"], batch = _seconds(found[1], found[2])
            self._open["median_decode_throughput"] = finite_amount(found[2])
            if "median" not in line:  # one step of many, as until 0.3: the last is kept
                self._open.setdefault("batch_size", round(batch) if batch and batch < 1e9 else None)
        elif (found := TOTAL.match(line)) is not None:
            self._open["total_latency"] = finite_amount(found[1])
        elif (found := SERVED.match(line)) is not None:
            self._served(found[1], found[2])

    def _served(self, name: str, value: str) -> None:
        if name == "batch size":
            self.close()
        key = {"last generation throughput": "last_gen_throughput", "batch size": "batch_size",
               "(input + output) throughput": "overall_throughput"}.get(name, name.replace(" ", "_"))  # fmt: skip
        if self._open or key == "batch_size":
            self._open[key] = finite_amount(value)

    def close(self) -> None:
        """End the result that is open."""
        told, self._open = {k: v for k, v in self._open.items() if v is not None}, {}
        tokens, batch = told.pop("tokens", None), told.get("batch_size")
        if not any(key in told for key in ("prefill_latency", "median_decode_latency", "latency")):
            return
        if tokens and batch and tokens / batch < 1e9 and "input_len" not in told:
            told["input_len"] = round(tokens / batch)
        self.drafts.append(one_batch({"batch_size": None, **told}))


def _seconds(value: str, rate: str) -> tuple[float | None, float | None]:
    """(seconds, tokens that the rate is of)."""
    seconds, each = finite_amount(value), finite_amount(rate)
    return seconds, None if seconds is None or each is None else seconds * each
