"""What to say where an engine does not tell what its floor follows from, in words and with who tells it."""

from __future__ import annotations

from rooflens.live_records import SourceKind
from rooflens.records import RooflensError

TOKENS = ("query_tokens", "generated_tokens", "prefill_tokens", "padded_tokens")
BATCH = ("requests", "sampled_rows")
# What tells the contexts of an engine whose page or log does not; of any other, the recorder or push.
PAGE = {
    "llama.cpp": "its log tells them of each request (--log FILE)",
    "tensorrt-llm": "its JSON at /metrics tells them where it holds numGenKvTokens",
    "vllm": "the hook tells them, the page where it has the KV pool's size and use",
    "sglang": "the hook tells them, the page where it has the KV pool's size and use",
}
LOG = {
    "tensorrt-llm": "its JSON statistics at /metrics tell them where they hold numGenKvTokens (--scrape URL)",
    "vllm": "the KV pool's size or use is missing: begin with the lines of its start, or install the hook",
    "sglang": "the KV pool's size or use is missing: begin with the lines of its start, or install the hook",
    "llama.cpp": "it tells them where the timings of a request are whole",
}
PLACES = {
    SourceKind.RING: "recording",
    SourceKind.PUSH: "sender",
    SourceKind.FEED: "feed",
    SourceKind.METRICS: "page",
    SourceKind.LOG: "log",
}
OTHERS = "the recorder in the engine, or push, tells them"


class UntoldColumn(RooflensError):
    """A column that the roofline needs and the table does not have at all; ``column`` is its name."""

    def __init__(self, column: str) -> None:
        """Its text names neither the engine nor a remedy: ``untold`` does."""
        self.column = column
        super().__init__(f"no {what_of(column)} are told ({column}), so there is no floor")


def what_of(column: str) -> str:
    """In a word what a step column is about."""
    base = column.partition("@")[0]
    return "tokens" if base in TOKENS else "sequences" if base in BATCH else "contexts"


def untold(column: str, engine: str, source: SourceKind) -> str:
    """One line: what ``engine`` does not tell in ``source``, and what tells it."""
    what, known = what_of(column), {SourceKind.METRICS: PAGE, SourceKind.LOG: LOG}.get(source, {})
    who = known.get(engine, OTHERS) if what == "contexts" else OTHERS
    return f"{engine}'s {PLACES[source]} tells no {what}, so there is no floor: {who}"
