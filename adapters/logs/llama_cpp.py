"""llama.cpp's timings of a request: a block of lines, of one slot or of the whole program.

Three to six lines in this order, each era with some of them: load, sample, prompt eval, eval and total time, drafts
accepted, graphs reused, and the slot's release. Read in llama_print_timings (2023), the server's print_timings (2024,
with the slot behind or in JSON), llama_perf_context_print (2024) and slot print_timing (2024 to build 10434, 2026; one
line a fact since 2026, before that a line with the slot and a block after it) of ggml-org/llama.cpp, and in issues
#12237 and #27444.
"""

from __future__ import annotations

import re

from rooflens.adapters.logs import slots
from rooflens.log_records import LogRecord, RecordKind

ENGINE = "llama.cpp"
MARKS = (
    " eval time ",
    "total time ",
    "load time ",
    "sample time ",
    "draft acceptance",
    "graphs reused =",
    "print_timing: id",
    "stop processing: n_tokens =",
    "stop processing: n_past =",
    *slots.MARKS,
)
_NUMBER = r"(\d{1,12}(?:\.\d{1,9})?)"
_TIME = re.compile(
    r"(prompt eval|eval|total|load|sample) time {0,8}= {0,16}"
    + _NUMBER
    + r" ms(?: {0,4}/ {0,12}(\d{1,12}) (?:token|run)s?)?"
)
_RATE = re.compile(r" {0,16}" + _NUMBER + r" tokens per second")
_DRAFTS = re.compile(
    r"draft acceptance(?: rate)? {0,4}= {0,8}"
    + _NUMBER
    + r" \( {0,12}(\d{1,12}) accepted / {0,12}(\d{1,12}) generated\)(?:, mean len = {0,8}"
    + _NUMBER
    + r")?"
)
_GRAPHS = re.compile(r"graphs reused = {0,16}(\d{1,12})")
_SLOT = re.compile(r"\bid {1,4}(\d{1,6}) \| task|\bid_slot=(\d{1,6})\b")
_RELEASE = re.compile(r"stop processing: n_(?:tokens|past) = {0,8}(\d{1,12})")
# Of each kind of time: what its seconds, its tokens and its rate are called.
TIMES = {
    "load": ("load_s", None, None),
    "sample": ("sample_s", None, None),
    "prompt eval": ("prompt_s", "prompt_tokens", "prompt_tokens_per_s"),
    "eval": ("generation_s", "generated_tokens", "generated_tokens_per_s"),
    "total": ("total_s", "total_tokens", None),
}
FIRST = ("load", "sample", "prompt eval")  # with these a block may begin


class Timings:
    """The block that is being read; ``open`` is whether there is one."""

    def __init__(self) -> None:
        self._values: dict[str, float] = {}
        self._slot: int | None = None
        self._unix_s: float | None = None
        self._whole = False
        self._slots = slots.Slots()

    @property
    def open(self) -> bool:
        """Whether lines of a block were read that has not been handed out."""
        return bool(self._values)

    def take(self, line: str, unix_s: float | None) -> tuple[LogRecord, ...]:
        """What this line, in which one of MARKS stands, completes."""
        slot = _SLOT.search(line)
        before: tuple[LogRecord, ...] = ()
        number = int(slot[1] or slot[2]) if slot is not None else None
        if number is not None and number != self._slot:
            before = self.flush()
            self._slot = number
        if self._slots.take(line, number):
            return (*before, *self.flush())
        release = _RELEASE.search(line)
        if release is not None:
            if not self.open:
                self._unix_s = unix_s
            self._values["sequence_tokens"] = float(release[1])
            return (*before, *self.flush())
        found = _TIME.search(line)
        if found is not None:
            name = TIMES[found[1]][0]
            if name in self._values or (self._whole and found[1] in FIRST):
                held = self._slot if slot is not None else None
                before = (*before, *self.flush())
                self._slot = held
            self._time(found, line)
        else:
            self._more(line)
        if self._values and self._unix_s is None:
            self._unix_s = unix_s
        return before

    def _time(self, found: re.Match[str], line: str) -> None:
        seconds, tokens, rate = TIMES[found[1]]
        self._values[seconds] = float(found[2]) / 1000
        if tokens is not None and found[3] is not None:
            self._values[tokens] = float(found[3])
        at = line.find("per token,", found.end())
        told = _RATE.match(line, at + len("per token,")) if at >= 0 else None
        if rate is not None and told is not None:
            self._values[rate] = float(told[1])
        self._whole = self._whole or found[1] == "total"

    def _more(self, line: str) -> None:
        drafts = _DRAFTS.search(line)
        if drafts is not None:
            self._values["acceptance_ratio"] = float(drafts[1])
            self._values["accepted_tokens"], self._values["drafted_tokens"] = float(drafts[2]), float(drafts[3])
            if drafts[4]:
                self._values["acceptance_length"] = float(drafts[4])
        graphs = _GRAPHS.search(line)
        if graphs is not None:
            self._values["graphs_reused"] = float(graphs[1])

    def flush(self) -> tuple[LogRecord, ...]:
        """The block as it is, if there is one."""
        values, slot, unix_s = self._values, self._slot, self._unix_s
        self._values, self._slot, self._unix_s, self._whole = {}, None, None, False
        if not values:
            return ()
        most = self._slots.most(slot)
        if most is not None and "generation_s" in values:
            values["slots_busy_max"] = float(most)
        if "generation_s" in values or "sequence_tokens" in values:
            self._slots.stop(slot)
        ranks = {"slot": slot} if slot is not None else {}
        return (LogRecord(ENGINE, RecordKind.TIMING, values, {}, ranks, unix_s),)
