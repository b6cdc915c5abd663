"""Lines of any engine's log into records: the engine is recognised by what the line says."""

from __future__ import annotations

import re
import time

from rooflens.log_records import LogRecord, RecordKind

LONGEST_LINE = 1 << 16  # characters; the rest of a longer line is not read


class LineReader:
    """Reads one stream of lines; what spans several lines is kept until it is whole.

    ``engine`` ("vllm", "sglang", "tensorrt-llm", "llama.cpp") narrows it to one engine's lines; None recognises each.
    ``now_unix_s`` is the time no later than which a stamp without a year lies; None is the clock's.
    """

    def __init__(self, engine: str | None = None, now_unix_s: float | None = None) -> None:
        self._engine = engine
        self._now_unix_s = time.time() if now_unix_s is None else now_unix_s

    def take(self, line: str) -> tuple[LogRecord, ...]:
        """The records that this line completes, most often none; never raises for what a line holds."""
        at = line.find("Avg prompt throughput: ")
        if at < 0 or self._engine not in (None, "vllm"):
            return ()
        labels = {
            "Avg prompt throughput": ("prompt_tokens_per_s", 1.0),
            "Avg generation throughput": ("generated_tokens_per_s", 1.0),
            "Running": ("running", 1.0),
            "Waiting": ("waiting", 1.0),
            "Pending": ("waiting", 1.0),
            "Swapped": ("swapped", 1.0),
            "Deferred": ("deferred", 1.0),
            "GPU KV cache usage": ("kv_used_ratio", 0.01),
            "Prefix cache hit rate": ("prefix_hit_ratio", 0.01),
        }
        values: dict[str, float] = {}
        for item in line[at:LONGEST_LINE].split(", "):
            label, _, text = item.partition(": ")
            number = re.match(r"-?\d+(?:\.\d+)?", text)
            if number and label in labels:
                name, factor = labels[label]
                values[name] = float(number[0]) * factor
        engine = re.search(r"Engine (\d{1,9}):", line[:at])
        ranks = {"engine": int(engine[1])} if engine else {}
        return (LogRecord("vllm", RecordKind.INTERVAL, values, {}, ranks),)

    def close(self) -> tuple[LogRecord, ...]:
        """What was kept of lines that have not come: the end of the log."""
        return ()
