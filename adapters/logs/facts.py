"""What start-up lines say of an engine, gathered: a name that is a field of EngineInfo is that field."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from rooflens.log_records import LogRecord
from rooflens.records import EngineInfo

MOST_COUNT = 1e12
USUAL_BLOCK, MOST_BLOCK = 16, 1 << 20  # tokens; vLLM's default on every GPU
TRUTHS = {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False}
KINDS: Mapping[str, str] = {f.name: str(f.type).removesuffix(" | None") for f in fields(EngineInfo)}
# What a log must not set, since it is not its to say, or stands for something else there.
OWN = ("instance", "engine", "rank", "host", "pod", "schema", "unread", "role", "model_config", "kv_groups",
       "device_uuids", "start_unix_s")  # fmt: skip
LEAST_ONE = ("tensor_parallel", "pipeline_parallel", "data_parallel", "context_parallel")
OF_THE_LINE = ("source", "complaint")  # words that are no facts of the engine
ONCE = ("engine_version",)
DTYPES = ("auto", "none")  # words for "as the model says"


class Facts:
    """The facts of one engine, or of all in a log; later ones of the same name win."""

    def __init__(self, before: Facts | None = None) -> None:
        self.values: dict[str, float] = dict(before.values) if before else {}
        self.words: dict[str, str] = dict(before.words) if before else {}

    def __bool__(self) -> bool:
        return bool(self.values or self.words)

    def take(self, record: LogRecord) -> None:
        """Take a start-up record in."""
        self.values |= record.values
        self.words |= {name: text for name, text in record.words.items() if name not in OF_THE_LINE}

    def anew(self, record: LogRecord) -> bool:
        """Whether a record is of another start: it tells a fact of these differently, or what is told once a start."""
        told = any(name in self.words for name in ONCE if name in record.words)
        other = any(self.values.get(name, value) != value for name, value in record.values.items())
        words = ((n, t) for n, t in record.words.items() if n not in OF_THE_LINE)
        return told or other or any(self.words.get(name, text) != text for name, text in words)

    def get(self, name: str) -> float | None:
        """A number by its name, None if it was not told."""
        return self.values.get(name)

    @property
    def pool(self) -> tuple[int, int] | None:
        """(blocks, tokens a block) of the KV pool.

        Where the size of a block is not told it follows from the tokens that the blocks hold, else it is the usual
        one; where only tokens are told, as by SGLang, each is a block.
        """
        blocks, size, tokens = (self.get(name) for name in ("kv_blocks", "block_tokens", "kv_capacity_tokens"))
        concurrency, longest = self.get("max_concurrency"), self.get("max_context_tokens")
        if tokens is None and concurrency and longest:
            tokens = concurrency * longest
        if blocks and not size:
            size = float(round(tokens / blocks)) if tokens else float(USUAL_BLOCK)
        elif not blocks and tokens:
            size = size or (USUAL_BLOCK if concurrency else 1.0)  # vLLM tells the concurrency that its pool allows
            blocks = tokens // size
        if not blocks or not size or not 1 <= blocks <= MOST_COUNT or not 1 <= size <= MOST_BLOCK:
            return None
        return int(blocks), int(size)

    @property
    def hybrid(self) -> bool:
        """Whether blocks do not tell tokens: layers of several kinds take them from one pool."""
        return "kv_capacity_said_tokens" in self.values

    def measured(self, values: Mapping[str, float]) -> None:
        """Facts of the pool that stand on lines of another kind."""
        for name in ("kv_blocks", "block_tokens"):
            if values.get(name):
                self.values.setdefault(name, values[name])

    def info(self, place: str, engine: str, rank: int, generation: int, ranks: int) -> EngineInfo:
        """The facts as EngineInfo; ``place`` names the log, ``generation`` counts the starts of the engine in it."""
        text = f"{place}|{engine}|{rank}|{generation}"
        found: dict[str, Any] = {}
        for name, kind in KINDS.items():
            if name not in OWN and (value := self._field(name, kind)) is not None:
                found[name] = value
        if (pool := self.pool) is not None:
            found["kv_blocks"], found["block_tokens"] = pool
        base = found.get("base_model_name")
        if base is not None:
            found["base_model_name"] = base.rpartition("/")[2]
            found.setdefault("model_name", base)
        if self.values.get("eager"):
            found.setdefault("graph_mode", "NONE")
        found["data_parallel"] = max(ranks, found.get("data_parallel", 1))
        instance = "log-" + hashlib.sha256(text.encode()).hexdigest()[:12]
        return EngineInfo(instance=instance, engine=engine, rank=rank, **found)

    def _field(self, name: str, kind: str) -> Any:
        value, text = self.values.get(name), self.words.get(name)
        if kind == "str":
            return None if text is None or text.casefold() in DTYPES else text
        if kind == "bool":
            if name == "expert_parallel":
                return None if value is None else value > 1
            return bool(value) if value is not None else TRUTHS.get((text or "").casefold())
        if kind == "int":
            if value is None or not 0 <= value <= MOST_COUNT or (name in LEAST_ONE and value < 1):
                return None
            return int(value)
        if kind.startswith("tuple[int") and text is not None:
            sizes = text.replace(",", " ").split()
            return tuple(int(size) for size in sizes if size.isdecimal() and len(size) < 8)
        return None
