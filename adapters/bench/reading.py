"""A file of benchmark results to observations: what wrote it is told by its content, never by its name."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from rooflens.adapters.bench import clients, llama_bench, one_batch, served, trtllm
from rooflens.adapters.bench.draft import Draft, observations
from rooflens.adapters.bench.labelled import labelled
from rooflens.adapters.bench.objects import objects_of
from rooflens.observation_records import Observation
from rooflens.records import RooflensError

MOST_BYTES = 128 << 20  # with every gap between tokens a result of 3,000 requests has some 60 MB
MOST_RESULTS = 5000
LONGEST_LINE = 20_000  # characters: a row of llama-bench in SQL has some 1,500
GZIP = b"\x1f\x8b"
BOXES = str.maketrans({"│": "|", "┃": "|", "║": "|", "￨": "|"})
DRAWN = frozenset("┏━┳┓┡╇┩├┼┤└┴┘─╞═╪╡╭╮╰╯┌┬┐")
TABLE = re.compile(r"^[ \t]{0,80}\|(.*)\|[ \t\r]{0,80}$")
RULE = re.compile(r"^[\s|:=+-]*$")
OPENING = re.compile(r"^[ \t]{0,80}[{\[]", re.MULTILINE)
CSV_HEAD = re.compile(r"^Metric,(?:avg|min|Value)\b", re.MULTILINE)
METRIC_ROW = re.compile(
    r"^[ \t]{0,80}[|│┃].{0,40}(?:time to first token|inter token latency|request latency|output token throughput)"
    r".{0,40}[|│┃]",
    re.IGNORECASE | re.MULTILINE,
)
TEXTS = (
    re.compile(r"={3,30} (?:Serving|Offline Throughput) Benchmark Result ={3,30}"),
    re.compile(r"^[ \t]{0,80}Successful requests:[ \t]+\d", re.MULTILINE),
    re.compile(r"^[ \t]{0,80}Throughput: [\d.]{1,20} requests/s", re.MULTILINE),
    re.compile(r"^[ \t]{0,80}Avg latency: [\d.]{1,25} seconds", re.MULTILINE),
    re.compile(r"^[ \t]{0,80}(?:Prefill|Decode)\.[ \t]{1,3}(?:median )?latency:", re.MULTILINE),
    re.compile(r"^[ \t]{0,80}batch size: \d{1,9}[ \t]{0,20}\r?\n[ \t]{0,20}(?:input_len|latency):", re.MULTILINE),
    re.compile(r"^[ \t]{0,80}=? ?PERFORMANCE OVERVIEW\b", re.MULTILINE),
    re.compile(r"^[ \t]{0,80}Total Output Throughput \(tokens/sec\):", re.MULTILINE),
    re.compile(r"^[ \t]{0,80}\|[^\n]{0,400}\|[ \t]{0,40}test[ \t]{0,40}\|[ \t]{0,40}t/s[ \t]{0,40}\|", re.MULTILINE),
    re.compile(r"^build_commit,build_number,", re.MULTILINE),
    re.compile(r"^[ \t]{0,80}(?:CREATE TABLE IF NOT EXISTS|INSERT INTO) llama_bench\b", re.MULTILINE),
    CSV_HEAD,
    METRIC_ROW,
)
# Pairs of keys that only these results have, in the first part of a file.
KEYS = (
    ("request_throughput", "completed"), ("successful_requests", "total_latency"), ("avg_ts", "n_gen"),
    ("elapsed_time", "requests_per_second"),
    ("avg_latency", "latencies"), ("avg_latency", "percentiles"), ("batch_size", "overall_throughput"),
    ("batch_size", "median_decode_latency"), ("performance", "total_latency_ms"),
    ("request_throughput", "avg"), ("time_to_first_token", "avg"), ("request_latency", "avg"),
    ("benchmarks", "metrics"), ("load_summary", "successes"),
)  # fmt: skip
SERVED = (("output_throughput", "mean_ttft_ms"), ("mean_ttft_ms", "mean_tpot_ms"), ("completed", "request_throughput"))
READERS: Sequence[tuple[Callable[[Mapping[str, Any]], bool], Callable[[Any], Draft]]] = (
    (llama_bench.is_row, llama_bench.row),
    (trtllm.is_report, trtllm.report),
    (clients.is_inference_perf, clients.inference_perf),
    (clients.is_profile, clients.profile),
    (one_batch.is_one_batch, one_batch.one_batch),
    (served.is_serving, served.serving),
    (served.is_offline, served.offline),
    (served.is_throughput, served.throughput),
    (served.is_latency, served.of_latency),
)


# Results that are one flat object.
FLAT = tuple(pair for pair in READERS if pair[0].__module__.endswith((".served", ".one_batch")))
PAIR = re.compile(r"""["']([\w.]{1,60})["']\s{0,4}:\s{0,4}("[^"\n]{0,200}"|'[^'\n]{0,200}'|[-+\w.]{1,40})""")
MOST_PAIRED = 8 << 20


@dataclass(frozen=True, slots=True)
class Results:
    """What a file says: its results in order, and one line for each thing in it that is none."""

    observations: tuple[Observation, ...]
    complaints: tuple[str, ...] = ()


def looks_like(head: str) -> bool:
    """Whether a text that begins so is of benchmark results, by signs that nothing else has."""
    quoted = head.replace("'", '"')  # as Python prints it
    if any(f'"{one}"' in quoted and f'"{other}"' in quoted for one, other in SERVED):
        return True
    if OPENING.search(head) is not None and any(f'"{one}"' in head and f'"{other}"' in head for one, other in KEYS):
        return True
    return any(sign.search(head) is not None for sign in TEXTS)


def read_results(path: Path) -> Results:
    """The results in the file at ``path``, packed or not; RooflensError in one line where it holds none."""
    text = _text(path)
    found = parse(text)
    if not found.observations:
        why = found.complaints[0] if found.complaints else "no figure of a benchmark is in it"
        raise RooflensError(f"{path}: {why}")
    return found


def parse(text: str) -> Results:
    """The results in a text; none where it holds none. Raises nothing, whatever the text is."""
    drafts: list[Draft] = []
    complaints: list[str] = []
    if ("{" in text or "[" in text or ":" in text) and ('"' in text or "'" in text):
        drafts, complaints = _objects(text)
    if not drafts:
        drafts = _printed(text)
    return Results(observations(drafts[:MOST_RESULTS]), tuple(complaints))


def _text(path: Path) -> str:
    """The content of the file, unpacked where it is packed, at most MOST_BYTES of it."""
    try:
        with path.open("rb") as opened:
            packed = opened.read(len(GZIP)) == GZIP
        with gzip.open(path, "rb") if packed else path.open("rb") as opened:
            content = opened.read(MOST_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        why = getattr(error, "strerror", None) or "cannot be unpacked: it is damaged or cut off"
        raise RooflensError(f"{path}: {why[:1].lower()}{why[1:]}") from None
    if len(content) > MOST_BYTES:
        raise RooflensError(
            f"{path}: larger than {MOST_BYTES >> 20} MiB: save the result without its requests one by one"
        )
    encoding = "utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"  # a shell of Windows
    return content.decode(encoding, "replace")


def _objects(text: str) -> tuple[list[Draft], list[str]]:
    objects, complaints = objects_of(text)
    drafts: list[Draft] = []
    strange = 0
    for one in objects:
        if clients.is_guidellm(one):
            drafts.extend(clients.guidellm(one))
            continue
        reader = next((read for is_mine, read in READERS if is_mine(one)), None)
        if reader is None:
            strange += 1
        else:
            drafts.append(reader(one))
    if not drafts:
        return _pairs(text)
    if strange:
        complaints.append(f"{strange:,} objects in it are no result of a known benchmark: left out")
    return drafts, complaints


def _pairs(text: str) -> tuple[list[Draft], list[str]]:
    """A result of which only a part is there, or as Python prints it: its figures one by one."""
    found: dict[str, Any] = {}
    for pair in islice(PAIR.finditer(text[:MOST_PAIRED]), MOST_RESULTS):
        value = pair[2].strip("'\"")
        found.setdefault(pair[1], None if value in ("null", "None") else value)
    reader = next((read for is_mine, read in FLAT if is_mine(found)), None)
    return ([], []) if reader is None else ([reader(found)], ["no whole JSON: its figures are read one by one"])


def _printed(text: str) -> list[Draft]:
    """Tables, CSV and SQL where there are any, else lines of labels."""
    lines = [line[:LONGEST_LINE] for line in text.splitlines()]
    drafts = [llama_bench.row(one) for one in llama_bench.csv_rows(lines) if llama_bench.is_row(one)]
    inserted = (llama_bench.inserted(line) for line in lines if "INSERT" in line)
    drafts += [llama_bench.row(one) for one in inserted if one is not None and llama_bench.is_row(one)]
    drafts += _tables(lines)
    if CSV_HEAD.search(text) is not None:
        drafts += clients.rows(_csv_cells(lines), _tool(text))
    drafts += one_batch.printed(lines)
    return drafts + labelled(lines)


def _csv_cells(lines: Sequence[str]) -> list[list[str]]:
    """The cells of the sections of a CSV that have metrics; what follows of devices is left out."""
    import csv

    found: list[list[str]] = []
    inside = False
    for line in lines:
        if line.startswith("Metric,"):
            inside = True
        elif not line.strip() or line.startswith("Endpoint,"):
            inside = inside and not line.startswith("Endpoint,")
            continue
        if inside:
            try:
                cells = next(csv.reader([line[:20000]]), [])
            except csv.Error:
                continue
            if len(cells) > 1:
                found.append(cells)
    return found


def _tool(text: str) -> str | None:
    head = text[: 1 << 20].lower()
    return clients.GENAI if "genai-perf" in head else clients.AIPERF if "aiperf" in head else None


def _tables(lines: Sequence[str]) -> list[Draft]:
    """Every table in the text, of lines that begin and end with a bar."""
    drafts: list[Draft] = []
    group: list[list[str]] = []
    tool = _tool("\n".join(lines[:2000]))
    for line in [*lines, ""]:
        found = TABLE.match(line[:5000].translate(BOXES))
        if found is not None:
            if RULE.match(found[1]) is None:
                group.append([cell.strip() for cell in found[1].split("|")])
        elif group and not (line.strip() and set(line.strip()) <= DRAWN):
            drafts += _table(group, tool)
            group = []
        llama_bench.note_build(line, drafts)
    return drafts


def _table(group: list[list[str]], tool: str | None) -> list[Draft]:
    heads = [head.strip(" *`").lower() for head in group[0]]
    if "test" in heads and "t/s" in heads:
        return llama_bench.table(group[0], group[1:])
    if heads[0] in ("metric", "statistic") or any(
        METRIC_ROW.match(f"| {row[0]} |") is not None and len(row) > 2 for row in group
    ):
        return clients.rows(group, tool)
    return []
