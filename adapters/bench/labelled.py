"""Results in lines of "label: value": vLLM and SGLang of every era, trtllm-bench, vllm bench latency and throughput."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from rooflens.adapters.bench.amounts import SECONDS, amount, finite_amount, is_empty, named, unit_behind
from rooflens.adapters.bench.draft import Draft
from rooflens.adapters.bench.names import ASIDE, NUMBERS, WITHHELD, latency, statistic

VLLM, VLLM_OLD = "vllm bench serve", "benchmark_serving.py"
SGLANG, OFFLINE, TRTLLM = "sglang bench_serving", "sglang bench_offline_throughput", "trtllm-bench"
LATENCY, THROUGHPUT = "vllm bench latency", "vllm bench throughput"
HEADING = re.compile(r"^\s*=+ (Serving|Offline Throughput) Benchmark Result =+\s*$")
TRT_HEADING = re.compile(r"^\s*=? ?(PERFORMANCE OVERVIEW|REQUEST DETAILS|PYTORCH BACKEND|ENGINE DETAILS)\s*$")
TRT_DATASET = re.compile(r"^\s*=? ?(?:DATASET DETAILS|DECODING STATISTICS\b.{0,60})\s*$")
RULE = re.compile(r"^\s*={20,}\s*$")
LABEL = re.compile(r"^\s*([A-Za-z][A-Za-z0-9 ,._/%\[\]()+-]{1,79}?)[ \t]{0,4}:(?:\s+|$)(.{0,200})")
BREAKDOWN = re.compile(r"^\s*\[(TPOT|TTFT|Latency|AL|GTPS|DT|ADT|DAR)\] (\w{3,7})\s*:\s*(\S{1,40})")
THROUGHPUT_LINE = re.compile(r"^\s*Throughput: (\S{1,30}) requests/s(?:, (\S{1,30}) (?:total )?tokens/s)?"
                             r"(?:, (\S{1,30}) output tokens/s)?")  # fmt: skip
LATENCY_LINE = re.compile(r"^\s*(?:(Avg|Std) latency|(\d{1,2})% percentile latency): (\S{1,40}) seconds")
ARGUMENTS = re.compile(r"\b(model|model_path|max_concurrency)=(?:'([^'\n]{1,200})'|(\d{1,9}))")
# What vLLM's programs print before they begin: it belongs to the block that follows.
ANNOUNCED = ("traffic request rate", "maximum request concurrency", "request rate configured")
# What says that it is the newer of vLLM's two programs, which else print the same.
NEWER = frozenset(("failed requests", "peak output token throughput", "peak concurrent requests"))
NO_RATE = "request rate: none was set: all requests were sent at once, or when a trace or the concurrency let them"
LOG_WORDS = ("info", "warning", "error", "debug", "critical", "http", "note", "tip", "traceback")


class Labelled:
    """Reads lines one by one; a heading, or a first label that comes again, begins another result."""

    def __init__(self) -> None:
        self.drafts: list[Draft] = []
        self._seen: set[str] = set()
        self._inside = False  # between the rules of a block: what is not understood there is named
        self._closed = False
        self._arguments: dict[str, str] = {}

    def take(self, line: str) -> None:
        """One line of the text."""
        if "Namespace(" in line or "server_args=" in line:
            self._arguments |= {found[1]: found[2] or found[3] for found in ARGUMENTS.finditer(line[:20000])}
        elif (heading := HEADING.match(line)) is not None:
            self._begin(OFFLINE if heading[1] != "Serving" else VLLM_OLD, client=heading[1] == "Serving")
            self._inside = True
        elif (heading := TRT_HEADING.match(line)) is not None:
            self._trtllm(heading[1])
        elif TRT_DATASET.match(line) is not None:
            self._closed = True  # lengths of the data set in columns, which the report told as means already
        elif RULE.match(line) is not None:
            self._inside = False
        elif self._offline(line) or self._breakdown(line):
            pass
        elif not self._closed and (found := LABEL.match(line)) is not None:
            self._labelled(found[1], found[2])

    def _begin(self, origin: str, client: bool, engine: str | None = None) -> Draft:
        self.drafts.append(Draft(origin, client, engine))
        self._seen, self._closed = set(), False
        draft = self.drafts[-1]
        draft.model(self._arguments.get("model") or self._arguments.get("model_path"))
        if client:
            draft.number("concurrency", self._arguments.get("max_concurrency"), "max_concurrency")
            for name in ANNOUNCED:
                if name in self._arguments:
                    take_number(draft, name, self._arguments.pop(name), name, "")
        return draft

    def _trtllm(self, heading: str) -> None:
        """Four headings of one report, of which a copied text may hold the last alone."""
        if not self.drafts or self.drafts[-1].origin != TRTLLM or heading in self._seen:
            self._begin(TRTLLM, client=False, engine="tensorrt-llm")
        self._seen.add(heading)
        if heading == "PERFORMANCE OVERVIEW":
            self._seen |= {"REQUEST DETAILS", "PYTORCH BACKEND", "ENGINE DETAILS"}

    def _offline(self, line: str) -> bool:
        """The two offline benchmarks of vLLM, which print sentences."""
        if (found := THROUGHPUT_LINE.match(line)) is not None:
            if not (self.drafts and self.drafts[-1].origin == VLLM_OLD and not self._inside and self._seen):
                draft = self._begin(THROUGHPUT, client=False, engine="vllm")
                draft.number("requests_per_s", found[1], "Throughput")
                draft.number("generated_tokens_per_s", found[3], "output tokens/s")
                draft.withheld_figure("total token throughput", found[2])
                return True
            return False
        if (told := LATENCY_LINE.match(line)) is None:
            return False
        if told[1] == "Avg" or not self.drafts or self.drafts[-1].origin != LATENCY:
            self._begin(LATENCY, client=False, engine="vllm")
        which = {"Avg": "mean", "Std": "std"}.get(told[1] or "", f"p{told[2]}")
        self.drafts[-1].time("e2e_s", which, told[3], f"{which} latency")
        return True

    def _breakdown(self, line: str) -> bool:
        """Rows such as "[TPOT] P90    : 12.3401" of trtllm-bench, in milliseconds."""
        found = BREAKDOWN.match(line)
        if found is None:
            return False
        draft = self.drafts[-1] if self.drafts and self.drafts[-1].origin == TRTLLM else None
        draft = draft or self._begin(TRTLLM, client=False, engine="tensorrt-llm")
        which = statistic(found[2])
        field = {"TPOT": "tpot_s", "TTFT": "ttft_s", "Latency": "e2e_s"}.get(found[1])
        if field and which:
            draft.time(field, which, found[3], f"[{found[1]}] {found[2]}", 1e-3)
        elif found[1] == "AL" and which == "mean":
            draft.number("acceptance_length", found[3], "acceptance length")
        return True

    def _labelled(self, label: str, value: str) -> None:
        name, unit = named(label)
        timed = latency(name) or _spelled_out(label)
        known = name in NUMBERS or name in WITHHELD or name in ASIDE or timed is not None
        if not known:
            if self.drafts and _is_figure(name, value) and (self._inside or self.drafts[-1].origin == TRTLLM):
                self.drafts[-1].not_known(label)
            return
        if name in ANNOUNCED and not self._inside and (not self.drafts or self.drafts[-1].origin in (VLLM, VLLM_OLD)):
            self._arguments[name] = value
            return
        draft = self._current(name, label)
        if draft is None:
            return
        self._seen.add(name)
        if timed is not None:
            self._time(draft, timed, label, value, unit or unit_behind(value))
        elif name in WITHHELD:
            draft.withheld_figure(name, value)
            keep_beside(draft, name, value)
        elif name in NUMBERS:
            take_number(draft, name, value, label, unit or unit_behind(value))
        else:
            keep_aside(draft, name, value)

    def _current(self, name: str, label: str) -> Draft | None:
        """The result that a known label belongs to; None for a label that alone begins none."""
        begins = name in ("successful requests", "backend", "total time", "request throughput")
        if self.drafts and (self._inside or self.drafts[-1].origin == TRTLLM):
            again = name in self._seen and begins and self.drafts[-1].origin != TRTLLM
        else:
            again = begins and (name in self._seen or not self.drafts or self.drafts[-1].origin in (LATENCY,))
        if again:
            if name == "request throughput" and "(req/sec)" in label:
                return self._begin(TRTLLM, client=False, engine="tensorrt-llm")
            self._begin(VLLM_OLD, client=True)
        elif not self.drafts and name not in ASIDE:
            self._begin(VLLM_OLD, client=True)
        if not self.drafts:
            return None
        draft = self.drafts[-1]
        if name in NEWER and draft.origin == VLLM_OLD:
            draft.origin = VLLM
        return draft

    def _time(self, draft: Draft, timed: tuple[str, str], label: str, value: str, unit: str) -> None:
        if unit in SECONDS:
            draft.time(*timed, value, label, SECONDS[unit])
        elif not is_empty(value):
            draft.complain(f"{label.strip()} has no unit: left out")


def _spelled_out(label: str) -> tuple[str, str] | None:
    """Latencies that the label spells out: "Average time-per-output-token [TPOT] (ms)", "Average latency"."""
    name, _ = named(label)
    return {
        "average request latency": ("e2e_s", "mean"),
        "average latency": ("e2e_s", "mean"),
        "average time-to-first-token [ttft]": ("ttft_s", "mean"),
        "average time-per-output-token [tpot]": ("tpot_s", "mean"),
    }.get(name)


def _is_figure(name: str, value: str) -> bool:
    """Whether a line that is not understood tells a figure, and is no line of a log."""
    return amount(value) is not None and not name.startswith(LOG_WORDS) and not any(c.isdigit() for c in name[-2:])


def take_number(draft: Draft, name: str, value: object, label: str, unit: str) -> None:
    """A count, rate or duration; a rate of requests without end is one that nothing limits."""
    field = NUMBERS[name]
    if field == "request_rate_per_s" and str(value).strip().lower().startswith(("inf", "trace")):
        draft.withhold(NO_RATE)
        return
    draft.number(field, value, label, SECONDS.get(unit, 1.0) if field == "duration_s" else 1.0)


def keep_beside(draft: Draft, name: str, value: str) -> None:
    """What a withheld figure still tells: whether the count of tokens can be right."""
    if name == "total generated tokens (retokenized)":
        check_retokenized(draft, finite_amount(value))


def check_retokenized(draft: Draft, again: float | None) -> None:
    """Complain where the text that came back holds far fewer or more tokens than were counted."""
    counted = draft.values.get("generated_tokens")
    if again and math.isfinite(again) and counted and not 0.8 <= again / counted <= 1.25:
        draft.complain(
            f"the text that came back has {again:,.0f} tokens where {counted:,} were counted: what was streamed "
            "cannot be read, or ended early"
        )


ENGINES = {"sglang": "sglang", "vllm": "vllm", "tgi": "tgi", "lmdeploy": "lmdeploy", "tensorrt-llm": "tensorrt-llm",
           "trt": "tensorrt-llm", "deepspeed": "deepspeed-mii", "llama.cpp": "llama.cpp"}  # fmt: skip


def engine_of(backend: str) -> str | None:
    """The engine that a benchmark's back end is the client of; None for the protocols that all of them speak."""
    wanted = backend.strip().lower()
    return next((engine for start, engine in ENGINES.items() if wanted.startswith(start)), None)


def keep_aside(draft: Draft, name: str, value: str) -> None:
    """Words and peaks that belong to a result: the back end, the model, formats, the most requests at a time."""
    if name == "backend":
        if draft.origin in (VLLM, VLLM_OLD):  # vLLM's programs do not print it
            draft.origin = SGLANG
        draft.word("engine", "sglang" if draft.origin == OFFLINE else engine_of(value))
    elif name in ("model", "revision") and draft.origin == TRTLLM:
        draft.model(value if name == "model" else None)
    elif name in ("tensorrt llm version", "tensorrt-llm version"):
        draft.word("engine_version", value)
    elif name in ("quantization", "kv cache dtype") and not is_empty(value):
        draft.word("quantization" if name == "quantization" else "kv_dtype", value)
    elif name in ("peak concurrent requests", "max concurrent requests") and "concurrency" not in draft.values:
        draft.number("concurrency", value, name)
    elif name == "per gpu output throughput":
        whole, each = draft.values.get("generated_tokens_per_s"), finite_amount(value)
        if whole and each and abs(whole / each - round(whole / each)) < 0.01:
            draft.number("devices", float(round(whole / each)), "devices")


def labelled(lines: Iterable[str]) -> list[Draft]:
    """The results in a text, in order."""
    reader = Labelled()
    for line in lines:
        reader.take(line)
    return reader.drafts
