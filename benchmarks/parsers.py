"""Every parser of what others send or write, with real samples of it: what prove_parsers feeds wrong input to."""

from __future__ import annotations

import json
import tempfile
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rooflens.records import RooflensError

DATA = Path(__file__).resolve().parents[1] / "tests" / "data"
LONGEST_PAGE = 60_000  # bytes of a sample: a page of real size is parsed too slowly to try many of


@dataclass(frozen=True)
class Parser:
    """``parse`` takes bytes and raises nothing but ``allowed``; ``samples`` are what it reads well."""

    name: str
    parse: Callable[[bytes], object]
    samples: Callable[[], Sequence[bytes]]
    allowed: tuple[type[Exception], ...] = ()


def text(data: bytes) -> str:
    """As whoever calls the parser decodes it."""
    return data.decode("utf-8", "replace")


def files(folder: str, *endings: str) -> Callable[[], Sequence[bytes]]:
    """The files of a folder of tests/data, their beginnings."""

    def read() -> Sequence[bytes]:
        found = sorted(path for path in (DATA / folder).iterdir() if path.name.endswith(endings))
        return [path.read_bytes()[:LONGEST_PAGE] for path in found]

    return read


def texts(file: str) -> Callable[[], Sequence[bytes]]:
    """The samples of a table in tests/data."""

    def read() -> Sequence[bytes]:
        return [each["text"].encode() for each in tomllib.loads((DATA / file).read_text("utf-8"))["sample"]]

    return read


def engine_page(data: bytes) -> object:
    """A metrics page, as the scraper takes it in: twice, so that there is something between the readings."""
    from rooflens.adapters.scrape.fetch import Page
    from rooflens.adapters.scrape.page_source import MetricsPage

    page = MetricsPage("http://127.0.0.1:1/metrics")
    half = len(data) // 2
    for at, part in enumerate((data, data[:half] + data[half:].replace(b"1", b"2"), data)):
        page.take(Page(text(part)), 1e9 + 5 * at, 100.0 + 5 * at)
        page.read()
    return page


def dcgm_page(data: bytes) -> object:
    """A page of dcgm-exporter."""
    from rooflens.collector.dcgm_text import read_page

    return read_page(data)


def server_facts(data: bytes) -> object:
    """What servers say of themselves."""
    from rooflens.adapters.scrape.server_facts import ASKED, facts_from

    return [facts_from(dict.fromkeys(paths, text(data)), engine) for engine, paths in ASKED.items()]


def benchmark(data: bytes) -> object:
    """Results of benchmarks, in any of their formats."""
    from rooflens.adapters.bench.reading import looks_like, parse

    looks_like(text(data))
    return parse(text(data))


def forward_pass(data: bytes) -> object:
    """A ForwardPassMetrics message."""
    from rooflens.adapters.forward_pass.message import take, unpacker

    return take((b"", (7).to_bytes(8, "big"), data), unpacker())


def forward_pass_trace(data: bytes) -> object:
    """A file of dynamo.fpm.trace.v1."""
    from rooflens.adapters.forward_pass.trace import Told, read_trace

    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        return list(read_trace(Path(file.name), Told()))


def log(data: bytes) -> object:
    """Lines of a log, recognised and as each engine's own."""
    from rooflens.adapters.logs.lines import LineReader

    found = []
    for engine in (None, "vllm", "sglang", "tensorrt-llm", "llama.cpp"):
        reader = LineReader(engine, now_unix_s=1.8e9)
        for line in text(data).split("\n"):
            found += reader.take(line)
        found += reader.close()
    return found


FPM: dict[str, Any] = {
    "version": 1, "worker_id": "w", "dp_rank": 0, "counter_id": 42, "wall_time": 0.025,
    "scheduled_requests": {
        "num_prefill_requests": 2, "sum_prefill_tokens": 256, "var_prefill_length": 100.0, "sum_prefill_kv_tokens": 64,
        "num_decode_requests": 3, "sum_decode_kv_tokens": 1024, "var_decode_kv_tokens": 50.0,
    },
    "queued_requests": {
        "num_prefill_requests": 1, "sum_prefill_tokens": 128, "var_prefill_length": 0.0, "num_decode_requests": 0,
        "sum_decode_kv_tokens": 0, "var_decode_kv_tokens": 0.0,
    },
}  # fmt: skip


def push(data: bytes) -> object:
    """The body of a push, as JSON and as msgpack, and what a feed makes of it."""
    from rooflens.adapters.push.receiver import Receiver
    from rooflens.pipeline.pushed import PushFeed

    receiver = Receiver()
    for kind in ("application/json", "application/msgpack"):
        answer = receiver.take(data, kind, 100.0, False)
        if "please report" in (receiver.problem or ""):  # it never raises: this is how it says that something did
            raise AssertionError(answer.content)
    return PushFeed(receiver).read()


def bodies() -> Sequence[bytes]:
    """A body of some steps, in both forms."""
    import msgspec

    step = {"contexts": [100, 7], "queries": [1, 30], "generated_tokens": 1, "running": 2, "kv_blocks_used": 9}
    verify = {"contexts": [101, 37], "drafts": [3, 0], "rejected": [1, 0], "waiting": 1, "oldest_wait_s": 0.5}
    steps = [{"submit_s": 90 + n, "output_s": 90.5 + n, **each} for n, each in enumerate((step, verify, {**verify}))]
    body = {
        "version": 1, "instance": "a1", "engine": "e", "sent_s": 99.5, "first_sequence": 1, "steps": steps,
        "facts": {"block_tokens": 16, "model_config": {"hidden_size": 64, "num_hidden_layers": 2}},
        "events": [{"name": "sleep", "at_s": 98.0, "counts": {"level": 1}}], "lost_steps": 1, "ended": False,
        "in_flight": {"submit_s": 99.0, "tokens": 2, "requests": 2},
    }  # fmt: skip
    return [json.dumps(body).encode(), msgspec.msgpack.encode(body)]


def messages() -> Sequence[bytes]:
    """One forward pass by name and by place."""
    import msgspec

    placed = [list(value.values()) if isinstance(value, dict) else value for value in FPM.values()]
    return [msgspec.msgpack.encode(FPM), msgspec.msgpack.encode(placed)]


def traces() -> Sequence[bytes]:
    """A trace of some passes, one a line."""
    event = {"schema": "dynamo.fpm.trace.v1", "capture_mode": "all", "observed_at_unix_ms": 1782777601250}
    source = {"namespace": "default", "component": "backend", "producer_id": "4192"}
    rows = [
        {"timestamp": 1250 + n, "event": {**event, "source": source, "fpm": FPM | {"counter_id": n}}} for n in range(9)
    ]
    return ["\n".join(json.dumps(row) for row in rows).encode()]


def answers() -> Sequence[bytes]:
    """What servers answered."""
    sglang = {
        "model_path": "/data/models/Qwen3-8B", "dtype": "auto", "kv_cache_dtype": "fp8_e4m3", "tp_size": 2,
        "page_size": 16, "internal_states": [{"max_total_num_tokens": 2_980_160}], "version": "0.5.9",
    }  # fmt: skip
    return [json.dumps(sglang).encode(), *files("llamacpp", ".json")()]


def not_read() -> tuple[type[Exception], ...]:
    """What a message that is none raises."""
    from rooflens.adapters.forward_pass.layout import NotReadError

    return (NotReadError, RooflensError)


def lines() -> Sequence[bytes]:
    """What servers of four engines logged, the samples of each kind of line."""
    told = [tomllib.loads(path.read_text("utf-8")) for path in sorted((DATA / "logs").glob("*.toml"))]
    return ["\n".join(each["lines"]).encode() for one in told for each in one["sample"]]


def sensors(data: bytes) -> object:
    """What nvidia-smi printed."""
    from rooflens.collector.nvidia_smi import is_mine, read_text

    return is_mine(text(data)), read_text(text(data))


def printed() -> Sequence[bytes]:
    """The three forms of nvidia-smi."""
    table = "memory.total [MiB], utilization.gpu [%], power.draw [W], temperature.gpu\n[N/A], 0 %, 11.17 W, 35\n"
    head = "# gpu    pwr  gtemp     sm   mclk     fb\n# Idx      W      C      %    MHz     MB\n"
    dmon = head + "    0    218     43     95  12481    725\n"
    query = "GPU 00000000:01:00.0\n    Clocks Event Reasons\n        SW Power Cap                  : Active\n"
    return [table.encode(), dmon.encode(), query.encode()]


PARSERS: tuple[Parser, ...] = (
    Parser("engine_page", engine_page, files("metrics_pages", ".txt")),
    Parser("other_pages", engine_page, texts("metrics_pages/samples.toml")),
    Parser("llama_cpp_page", engine_page, files("llamacpp", ".txt")),
    Parser("dcgm_page", dcgm_page, files("dcgm_pages", ".txt")),
    Parser("server_facts", server_facts, answers),
    Parser("benchmark", benchmark, texts("benchmarks/samples.toml")),
    Parser("forward_pass", forward_pass, messages, not_read()),
    Parser("forward_pass_trace", forward_pass_trace, traces),
    Parser("log", log, files("llamacpp", ".log")),
    Parser("lines", log, lines),
    Parser("sensors", sensors, printed),
    Parser("push", push, bodies),
)
