"""One line by its table: labels into the names that every engine shares, what is not known by name."""

from __future__ import annotations

import re
from typing import NamedTuple

from rooflens.adapters.facts import word
from rooflens.adapters.logs.names import LONGEST_LIST
from rooflens.adapters.logs.pairs import Item, items, number
from rooflens.adapters.logs.table import Line, Value

MOST_UNKNOWN = 16
LONGEST_NAME = 256
LONGEST_VALUE = 8192  # of one key of a configuration: the list of captured sizes
# A label as engines make them; anything else on a line is no label of theirs, and might be of a user.
LABEL = re.compile(r"[A-Za-z#][\w #./()+%-]{0,63}")
TRUTHS = {"True": 1.0, "true": 1.0, "False": 0.0, "false": 0.0}
NOT_TOLD = frozenset(("None", "null", "N/A", "nan", "-nan", "inf", ""))
_DRIVE = re.compile(r"[A-Za-z]:[\\/]")


class Said(NamedTuple):
    """What a line holds, in the names of this project."""

    values: dict[str, float]
    words: dict[str, str]
    unknown: list[str]
    ranks: dict[str, int]


def read_line(line: Line, text: str) -> Said | None:
    """What ``text``, which begins at a mark of ``line``, says; None where it says nothing after all."""
    said = Said({}, {}, [], {})
    if line.head is not None:
        begin = line.head.read(text)
        if begin is None:
            return None
        said.values.update(begin[0])
        said.words.update(begin[1])
        text = text[begin[2] :]
    if line.reads == "config":
        _config(line, text, said)
    else:
        _pairs(line, text, said)
    for sign, name in line.flags.items():
        if sign in text:
            said.values[name] = 1.0
    if said.values.get("iteration_s") == 0:
        del said.values["iteration_s"]  # nothing takes no time: it was not measured, or rounded off
    for name, instead in line.otherwise.items():
        if instead not in said.values and name in said.values:
            said.values[instead] = said.values.pop(name)
    for name, (first, second) in line.less.items():
        if first in said.values and second in said.values:
            said.values[name] = said.values[first] - said.values[second]
    return said if said.values or said.words else None


def _pairs(line: Line, text: str, said: Said) -> None:
    series: tuple[Value, int] | None = None
    for item in items(text):
        label, value = _meaning(line, item)
        if value is None:
            if not label and series is not None:
                series = _next(series, item.text, said)
                continue
            if label in line.words:
                _word(line.words[label], item.text, said)
            elif label in line.ranks:
                rank = number(item.text)
                said.ranks.update({line.ranks[label]: int(rank[0])} if rank else {})
            elif label and line.names_unknown:
                _unknown(label, said)
            continue
        series = None
        if value.name.endswith("_N"):
            series = _next((value, 0), item.text, said)
        elif value.name:
            _number(value, item.text, said)


def _meaning(line: Line, item: Item) -> tuple[str, Value | None]:
    """The label by which the table knows an item, and what it is; None for a word and for what is not known."""
    label = item.label
    if item.under:
        joined = f"{item.under} {label}".strip()
        if joined in line.values:
            return joined, line.values[joined]
    if label in line.values:
        return label, line.values[label]
    for ending, value in line.endings.items():
        if label.endswith(ending):
            return label, value
    return label, None


def _next(series: tuple[Value, int], text: str, said: Said) -> tuple[Value, int] | None:
    """One more number of a list that stands under one label."""
    value, length = series
    read = number(text)
    if read is None or length >= LONGEST_LIST:
        return None
    said.values[value.name.replace("_N", f"_{length + 1}")] = read[0] * value.factor
    return value, length + 1


def _number(value: Value, text: str, said: Said) -> None:
    read = number(text)
    if read is not None:
        said.values[value.name] = read[0] * value.factor
    elif (truth := TRUTHS.get(text.strip(" .,'\""))) is not None:
        said.values[value.name] = truth


def _word(name: str, text: str, said: Said) -> None:
    """A word under its name, without the path that leads to it; what is not told is left out."""
    text = text.strip(" \t\r\n.,;'\"")
    if not name or text in NOT_TOLD:
        return
    kept = model_name(text) if name in ("model_name", "base_model_name") else word(text.removeprefix("torch."))
    if kept:
        said.words.setdefault(name, kept)


def model_name(text: str) -> str | None:
    """A model's name: "organisation/name" as it is, of a path its last part; None for what is no name."""
    if "://" in text:
        return None
    text = text.rstrip("/\\")
    parts = re.split(r"[/\\]+", text)
    if len(parts) > 2 or text[:1] in "/\\.~" or "\\" in text or _DRIVE.match(text):
        text = _snapshot(parts) or parts[-1]
    return text if text and len(text) <= LONGEST_NAME and text.isprintable() else None


def _snapshot(parts: list[str]) -> str | None:
    """The name in a path of a Hugging Face cache, ``models--organisation--name/snapshots/<hash>``."""
    named = [part for part in parts if part.startswith("models--")]
    return "/".join(named[-1].split("--")[1:]) if named else None


def _unknown(label: str, said: Said) -> None:
    if len(said.unknown) < MOST_UNKNOWN and label not in said.unknown and LABEL.fullmatch(label):
        said.unknown.append(label)


def _config(line: Line, text: str, said: Said) -> None:
    """The keys that the table names, each at its first place: what stands deeper comes later on these lines."""
    for key, value in line.values.items():
        found = config_value(text, key)
        if found is not None:
            _number(value, found, said)
    for key, name in line.words.items():
        found = config_value(text, key)
        if found is None:
            continue
        if name == "graph_sizes":
            sizes = [part.strip() for part in found.strip("[]").split(",")]
            if sizes and all(size.isdigit() and len(size) < 7 for size in sizes):
                said.words[name] = " ".join(sizes[:1024])
        else:
            _word(name, found, said)


def config_value(text: str, key: str) -> str | None:
    """What follows ``key=`` or ``'key':``, to the comma, the bracket or the quote that ends it."""
    at = text.find(key)
    while at >= 0:
        end = at + len(key)
        before, after = text[at - 1 : at], text[end : end + 1]
        quoted = before in ("'", '"') and after == before and before != ""
        start = end + 1 if quoted else end
        sign = text[start : start + 1]
        listed = text[start : start + 2] == " ["
        if (quoted or not (before.isalnum() or before == "_")) and (sign in ("=", ":") or listed) and sign:
            return _until(text[start + 1 : start + LONGEST_VALUE].lstrip(" "))
        at = text.find(key, end)
    return None


def _until(text: str) -> str:
    sign = text[:1]
    if sign in ("'", '"') and sign:
        return text[1:].partition(sign)[0]
    if sign == "[":
        return text.partition("]")[0] + "]"
    found = re.match(r"<\w+\.(\w+)", text)  # an enumeration, <CUDAGraphMode.FULL: 2>
    if found is not None:
        return found[1]
    found = re.match(r"[^,\s)\]}]*(?: [KMGT]i?B\b)?", text)
    return found[0] if found else ""
