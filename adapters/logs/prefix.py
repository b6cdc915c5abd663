"""What stands before an engine's own words: colours, envelopes of container runtimes, process and rank names."""

from __future__ import annotations

import json
import re

from rooflens.adapters.facts import word

_COLOUR = re.compile(r"\x1b\[[0-9;?]{0,16}[ -/]{0,4}[@-~]|\x1b[()][A-Z0-9]|[\x00-\x08\x0e-\x1a\x7f]")
_SPELT_COLOUR = re.compile(r"(?:#033|#x1[bB]|\\x1b|\\u001b|\^\[)\[[0-9;]{0,16}m")
_PROCESS = re.compile(r"\(?\b(?P<who>[A-Za-z]\w{2,40})(?: rank=(?P<rank>\d{1,6}))? pid=(?P<pid>\d{1,9})\b")
_RANKS = re.compile(r"(?<![A-Za-z0-9])(DP|TP|PP|EP|CP)_?(\d{1,5})(?![A-Za-z0-9])")
_ENGINE = re.compile(r"\bEngine (\d{1,9}): ?$|\bEngine (\d{1,9})\b")
_RANK = re.compile(r"\[RANK (\d{1,6})\]|^\[\d{1,6},(\d{1,6})\]<std|\[TensorRT-LLM\]\[\w{3,8}\]\[?[Rr]ank (\d{1,6})")
_DEVICE = re.compile(r"\[gpu(?:_id)?=(\d{1,5})\]")  # SGLang 0.1 and 0.2
_SLOT = re.compile(r"\bid {1,4}(\d{1,6}) \| task")
_TASK = re.compile(r"(\d{1,5}): ")
_SOURCE = re.compile(r"\[pod/([\w.-]{1,120})/[\w.-]{1,120}\] |([A-Za-z][\w.-]{0,80}) {1,40}\| ")
_ENGINES = re.compile(r"(\d{1,5}) Engines Aggregated: ")
MESSAGES = ("log", "message", "msg", "text", "MESSAGE")
SLOTS = ("id_slot", "slot_id")
MOMENTS = ("time", "timestamp", "ts", "@timestamp", "asctime")


def cleaned(line: str) -> str:
    """The line without colours and control characters, also those that a runtime spelt out."""
    if "\x1b" in line or not line.isprintable():
        line = _COLOUR.sub("", line)
    if "[" in line and ("#033[" in line or "1b[" in line or "1B[" in line or "^[[" in line):
        line = _SPELT_COLOUR.sub("", line)
    return line


def unwrapped(line: str) -> tuple[str, str] | None:
    """The message and the stamp of a line that is a JSON object, as docker and structured logging write; else None."""
    if line.lstrip()[:1] != "{":
        return None
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict):
        return None
    message = next((data[key] for key in MESSAGES if isinstance(data.get(key), str)), None)
    if message is None:
        return None
    slot = next((data[key] for key in SLOTS if isinstance(data.get(key), int)), None)
    if slot is not None:
        message += f" | id_slot={slot:d}"  # as llama.cpp's server writes it where it writes no JSON
    moment = next((str(data[key]) for key in MOMENTS if isinstance(data.get(key), str | int | float)), "")
    return message, moment[:64]


def ranks_of(head: str) -> dict[str, int]:
    """The numbers that a line gives itself, by what they count; ``head`` is what stands before its own words.

    "engine", "dp", "tp", "pp", "ep", "cp", "rank", "pid", "slot", "task": what srun puts before a line.
    """
    ranks: dict[str, int] = {}
    if not head:
        return ranks
    engine = _ENGINE.search(head)
    if engine is not None:
        ranks["engine"] = int(engine[1] or engine[2])
    process = _PROCESS.search(head)
    if process is not None:
        ranks["pid"] = int(process["pid"])
        if process["rank"]:
            ranks["rank"] = int(process["rank"])
    for kind, index in _RANKS.findall(head):
        ranks.setdefault(kind.lower(), int(index))
    rank = _RANK.search(head)
    if rank is not None:
        ranks["rank"] = int(rank[1] or rank[2] or rank[3])
    device = _DEVICE.search(head)
    if device is not None:
        ranks.setdefault("tp", int(device[1]))
    slot = _SLOT.search(head)
    if slot is not None:
        ranks["slot"] = int(slot[1])
    task = _TASK.match(head)
    if task is not None:
        ranks["task"] = int(task[1])
    return ranks


def engines_of(head: str) -> int | None:
    """How many engines a line speaks for; None where it is one's own."""
    found = _ENGINES.search(head)
    return int(found[1]) if found else None


def source_of(head: str) -> str | None:
    """The pod or the service that a runtime names before the line, None where none."""
    found = _SOURCE.match(head)
    return word(found[1] or found[2], 120) if found else None
