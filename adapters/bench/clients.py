"""Results of load generators that know no engine: aiperf and genai-perf (JSON, CSV, tables), guidellm, inference-perf.

aiperf and genai-perf call "inter token latency" what vLLM calls TPOT: of each request the time after its first token
over the tokens after it. Here it stands under both names. guidellm's is the same, and its "time per output token"
holds the first one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from rooflens.adapters.bench.amounts import SECONDS, amount, is_empty, named, number_of
from rooflens.adapters.bench.draft import Draft
from rooflens.adapters.bench.names import ASIDE, NUMBERS, WITH_FIRST, WITHHELD, statistic
from rooflens.adapters.bench.objects import key_anywhere, table_at

AIPERF, GENAI, GUIDELLM, INFERENCE_PERF = "aiperf", "genai-perf", "guidellm", "inference-perf"
LATENCIES: Mapping[str, tuple[str, ...]] = {
    "time to first token": ("ttft_s",),
    "inter token latency": ("tpot_s", "itl_s"),
    "request latency": ("e2e_s",),
}
# Columns of a table whose heading was not copied, by how many they are.
HEADLESS: Mapping[int, tuple[str, ...]] = {
    6: ("avg", "min", "max", "p99", "p90", "p75"),
    7: ("avg", "min", "max", "p99", "p90", "p50", "std"),
    9: ("avg", "min", "max", "p99", "p95", "p90", "p75", "p50", "p25"),
}
SIGNS = ("time_to_first_token", "request_latency", "request_throughput", "output_token_throughput",
         "inter_token_latency")  # fmt: skip
CUT = "…"


def is_profile(data: Mapping[str, Any]) -> bool:
    """Whether ``data`` is a summary of aiperf or genai-perf."""
    return sum(isinstance(data.get(tag), dict) and "avg" in data[tag] for tag in SIGNS) >= 1


def profile(data: Mapping[str, Any]) -> Draft:
    """A summary that aiperf (profile_export_aiperf.json) or genai-perf (profile_export_genai_perf.json) wrote."""
    aiperf = any(name in data for name in ("aiperf_version", "schema_version", "benchmark_id", "start_time", "records"))
    draft = Draft(AIPERF if aiperf else GENAI, client_side=True)
    for tag, values in data.items():
        if isinstance(values, dict) and "avg" in values:
            unit = str(values.get("unit") or "").strip().lower()
            told = {name: value for name, value in values.items() if name != "unit" and number_of(value) is not None}
            metric(draft, tag, unit, told)
    config = data.get("input_config")
    model = key_anywhere(config, "model_names", "model")
    draft.model(model[0] if isinstance(model, list) and model else model)
    draft.number("concurrency", key_anywhere(config, "concurrency"), "concurrency")
    draft.number("request_rate_per_s", key_anywhere(config, "request_rate"), "request_rate")
    begin, end = (_unix_s(data.get(name)) for name in ("start_time", "end_time"))
    if end is not None:
        draft.values["unix_s"] = end
    if begin is not None and end is not None and "duration_s" not in draft.values:
        draft.number("duration_s", end - begin, "end_time - start_time")
    return draft


def metric(draft: Draft, label: str, unit: str, values: Mapping[str, Any]) -> None:
    """One metric with its statistics, as a row of a table or an object of JSON tells it."""
    name, in_label = named(label)
    unit = unit or in_label
    if name in LATENCIES:
        if unit not in SECONDS:
            draft.complain(f"{label} has no unit of time: left out")
            return
        for column, value in values.items():
            which = statistic(column)
            for field in LATENCIES[name] if which else ():
                draft.time(field, str(which), value, f"{label} {column}", SECONDS[unit])
    elif name in WITHHELD:
        draft.withheld_figure(name, next((values[c] for c in ("avg", "value") if c in values), None))
    elif name in NUMBERS:
        field = NUMBERS[name]
        value = next((values[c] for c in ("avg", "value") if c in values), None)
        draft.number(field, value, label, SECONDS.get(unit, 1.0) if field == "duration_s" else 1.0)
    elif name not in ASIDE and not _is_beside(name):
        draft.not_known(label)


def _is_beside(name: str) -> bool:
    """Metrics about the tool, the transport or what was thought: no figure of the engine's speed."""
    words = ("credit", "http", "reasoning", "usage", "timestamp", "thinking", "gpu", "energy", "image", "prefill",
             "effective", "discrepancy", "diff", "mismatch", "error", "sequence length", "token count")  # fmt: skip
    return any(word in name for word in words)


def _unix_s(stamp: object) -> float | None:
    try:
        return datetime.fromisoformat(stamp).timestamp() if isinstance(stamp, str) else None
    except (ValueError, OverflowError, OSError):
        return None


def rows(cells: Iterable[Sequence[str]], told_by: str | None) -> list[Draft]:
    """Results in rows of a label and its statistics, with a heading or without; ``told_by`` is the tool if it is said.

    A label over two lines has its values in the first.
    """
    drafts: list[Draft] = []
    columns: tuple[str, ...] | None = None
    seen: set[str] = set()
    for row in cells:
        label, values = row[0].strip(), [value.strip() for value in row[1:]]
        if label.lower() in ("metric", "statistic"):
            if not drafts or (seen and values[:1] != ["Value"]):
                drafts.append(Draft(told_by or (AIPERF if label == "Metric" else GENAI), client_side=True))
                seen = set()
            columns = tuple(value.lower() for value in values)
            continue
        if not label or all(value == "" for value in values):  # the second line of a label
            continue
        name = named(label)[0]
        if not drafts or name in seen:
            drafts.append(Draft(told_by or GENAI, client_side=True))
            seen = set()
        seen.add(name)
        _row(drafts[-1], label, columns, values)
    return drafts


def _row(draft: Draft, label: str, columns: tuple[str, ...] | None, values: list[str]) -> None:
    if columns is None or len(columns) != len(values):
        columns = HEADLESS.get(len(values), ("avg",))
        draft.complain(f"no heading tells the columns: taken for {', '.join(columns)}")
    told: dict[str, float] = {}
    for column, value in zip(columns, values, strict=False):
        if CUT in value:
            draft.complain(f"{label} {column} is cut off: {value}")
        elif not is_empty(value) and (number := amount(value)) is not None:
            told[column] = number
    metric(draft, label, "", told)


def is_guidellm(data: Mapping[str, Any]) -> bool:
    """Whether ``data`` is a report of guidellm: benchmarks, each with metrics."""
    found = data.get("benchmarks")
    return isinstance(found, list) and any(isinstance(one, dict) and "metrics" in one for one in found[:3])


GUIDE_RATES = {
    "requests_per_second": "requests_per_s",
    "output_tokens_per_second": "generated_tokens_per_s",
    "request_concurrency": "concurrency_mean",
    "prompt_token_count": "prompt_tokens_mean",
    "output_token_count": "generated_tokens_mean",
}
GUIDE_TIMES: Mapping[str, tuple[str, float]] = {
    "time_to_first_token_ms": ("ttft_s", 1e-3),
    "inter_token_latency_ms": ("tpot_s", 1e-3),
    "request_latency": ("e2e_s", 1.0),
}


def guidellm(data: Mapping[str, Any]) -> list[Draft]:
    """Every benchmark of a report of guidellm, of which only requests that succeeded count."""
    model = key_anywhere({k: v for k, v in data.items() if k != "benchmarks"}, "model", depth=4)
    found = []
    for one in data["benchmarks"][:1000]:
        if not isinstance(one, dict):
            continue
        draft = Draft(GUIDELLM, client_side=True)
        draft.model(key_anywhere(one, "backend_model", "model", depth=3) or model)
        draft.number("duration_s", one.get("duration"), "duration")
        strategy = key_anywhere(one, "strategy", depth=4)
        if isinstance(strategy, dict):
            draft.word("label", str(strategy.get("type_") or "")[:20] or None)
            draft.number("concurrency", strategy.get("streams") or strategy.get("max_concurrency"), "max_concurrency")
            draft.number("request_rate_per_s", strategy.get("rate"), "rate")
        _guide_metrics(draft, table_at(one, "metrics"))
        found.append(draft)
    return found


def _guide_metrics(draft: Draft, metrics: Mapping[str, Any]) -> None:
    totals = table_at(metrics, "request_totals")
    draft.number("requests", totals.get("successful"), "request_totals")
    draft.number("failed_requests", totals.get("errored"), "request_totals errored")
    for name, field in GUIDE_RATES.items():
        draft.number(field, table_at(metrics, name, "successful").get("mean"), name)
    for name, (field, scale) in GUIDE_TIMES.items():
        _distribution(draft, field, table_at(metrics, name, "successful"), name, scale)
    if table_at(metrics, "time_per_output_token_ms"):
        draft.withhold(WITH_FIRST)
    draft.withheld_figure("tokens per second", table_at(metrics, "tokens_per_second", "successful").get("mean"))


def _distribution(draft: Draft, field: str, told: Mapping[str, Any], name: str, scale: float) -> None:
    percentiles = told.get("percentiles")
    for key, value in {**told, **(percentiles if isinstance(percentiles, dict) else {})}.items():
        which = statistic("std" if key == "std_dev" else str(key))
        if which:
            draft.time(field, which, value, f"{name} {key}", scale)


def is_inference_perf(data: Mapping[str, Any]) -> bool:
    """Whether ``data`` is a summary of inference-perf."""
    return "load_summary" in data and isinstance(data.get("successes"), dict)


INFERENCE_TIMES = {
    "time_to_first_token": "ttft_s",
    "time_per_output_token": "tpot_s",
    "inter_token_latency": "itl_s",
    "request_latency": "e2e_s",
}
INFERENCE_RATES = {
    "requests_per_sec": "requests_per_s",
    "output_tokens_per_sec": "generated_tokens_per_s",
    "input_tokens_per_sec": "prompt_tokens_per_s",
}


def inference_perf(data: Mapping[str, Any]) -> Draft:
    """A summary of inference-perf: whole, or of one stage."""
    draft = Draft(INFERENCE_PERF, client_side=True)
    good, bad, load = (table_at(data, name) for name in ("successes", "failures", "load_summary"))
    draft.number("requests", good.get("count"), "successes")
    draft.number("failed_requests", bad.get("count"), "failures")
    draft.number("request_rate_per_s", load.get("requested_rate"), "requested_rate")
    draft.number("concurrency", load.get("concurrency"), "concurrency")
    for name, field in INFERENCE_TIMES.items():
        _distribution(draft, field, table_at(good, "latency", name), name, 1.0)
    for name, field in INFERENCE_RATES.items():
        draft.number(field, table_at(good, "throughput").get(name), name)
    for name, field in (("prompt_len", "prompt_tokens_mean"), ("output_len", "generated_tokens_mean")):
        draft.number(field, table_at(good, name).get("mean"), name)
    if table_at(good, "latency", "normalized_time_per_output_token"):
        draft.withhold(WITH_FIRST)
    draft.withheld_figure("total token throughput", table_at(good, "throughput").get("total_tokens_per_sec"))
    return draft
