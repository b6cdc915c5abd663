"""Lines as engines wrote them, with where they were read and what each says (tests/data/logs)."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rooflens.adapters.logs.lines import LineReader
from rooflens.log_records import LogRecord

FOLDER = Path(__file__).resolve().parents[1] / "data" / "logs"
ENGINES = {"vllm": "vllm", "sglang": "sglang", "tensorrt_llm": "tensorrt-llm", "llama_cpp": "llama.cpp"}
NOW = datetime(2026, 9, 30, 12).timestamp()  # of this host's zone: the samples without a year are before it


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample; ``records`` as they stand in the file."""

    engine: str
    name: str
    source: str
    lines: tuple[str, ...]
    records: tuple[Mapping[str, Any], ...]


def samples() -> list[Sample]:
    """Every sample of every engine."""
    found = []
    for file, engine in ENGINES.items():
        data = tomllib.loads((FOLDER / f"{file}.toml").read_text("utf-8"))
        found += [
            Sample(engine, each["id"], each["source"], tuple(each["lines"]), tuple(each["record"]))
            for each in data["sample"]
        ]
    return found


def read(lines: tuple[str, ...], engine: str | None = None) -> list[LogRecord]:
    """All records of these lines, the end of the log included."""
    reader = LineReader(engine, now_unix_s=NOW)
    return [record for line in lines for record in reader.take(line)] + list(reader.close())


def moment(record: Mapping[str, Any]) -> float | None:
    """When a sample's record was written, in seconds since 1970."""
    if "utc" in record:
        return datetime.fromisoformat(record["utc"]).replace(tzinfo=UTC).timestamp()
    return datetime.fromisoformat(record["local"]).timestamp() if "local" in record else None
