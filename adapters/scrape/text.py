"""The text of a metrics page into samples, as fast as a page of many engines needs: only wanted names are looked at."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

# More complaints than this about one page help nobody.
MOST_COMPLAINTS = 5
# Labels of a sample longer than this are no engine's; it also bounds what the cache of labels holds.
LONGEST_LABELS = 8192
LONGEST_KEPT = 512  # of a comment; it bounds what the cache of comments holds
ANY_PROCESS = "process_"  # what every client library tells of its own process; no sign of an engine

_NUMBER = r"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|[iI]nf(?:inity)?|[nN]a[nN])"
_VALUE = re.compile(_NUMBER, re.ASCII)
_SAMPLE = re.compile(
    rf"""[ \t]*(?:\{{(?P<labels>(?:[^"}}]|"(?:[^"\\]|\\.)*+")*+)\}})?[ \t]*
    (?P<value>{_NUMBER})
    (?:[ \t]+-?\d+)?[ \t\r]*\Z""",
    re.VERBOSE | re.ASCII,
)
_LABEL = re.compile(r'[ \t]*([a-zA-Z_][a-zA-Z0-9_]*)[ \t]*=[ \t]*"((?:[^"\\]|\\.)*+)"[ \t]*(?:,[ \t]*|\Z)', re.ASCII)
_ESCAPE = re.compile(r'\\([\\"n])')

Labels = tuple[tuple[str, str], ...]


class Sample(NamedTuple):
    """One line: ``name`` as it stands on the page, ``labels`` sorted by name; a timestamp is left out."""

    name: str
    labels: Labels
    value: float


@dataclass(frozen=True, slots=True)
class Samples:
    """The wanted samples in the order of the page; ``complaints`` are lines of wanted names that cannot be read.

    ``announced`` are the wanted names that have a HELP or TYPE line and may never have been set: of each program's
    process, which is no sign of an engine, none.
    """

    samples: tuple[Sample, ...]
    complaints: tuple[str, ...] = ()
    announced: frozenset[str] = frozenset()


def read_samples(text: str, wanted: Collection[str]) -> Samples:
    """Every sample of ``text`` (exposition format 0.0.4) whose name is ``wanted``; other lines are not judged."""
    samples: list[Sample] = []
    broken: dict[str, int] = {}
    too_long: dict[str, int] = {}
    announced: set[str] = set()
    for line in text.split("\n"):
        if line.startswith("#"):  # no name does
            told = _announced(line) if len(line) > LONGEST_KEPT else _announced_once(line)
            if told in wanted:
                announced.add(told)
            continue
        name = _name(line)
        if name not in wanted:
            continue
        rest = line.lstrip()[len(name) :]
        sample = _sample(name, rest)
        if sample is None:
            wrong = too_long if len(rest) > LONGEST_LABELS else broken
            wrong[name] = wrong.get(name, 0) + 1
        else:
            samples.append(sample)
    complaints = [
        f"{name}: {count} lines with labels of more than {LONGEST_LABELS:,} characters, which are not read: "
        "give the model a shorter name (--served-model-name)"
        for name, count in too_long.items()
    ]
    complaints += [f"{name}: {count} lines that cannot be read" for name, count in broken.items()]
    return Samples(tuple(samples), tuple(complaints[:MOST_COMPLAINTS]), frozenset(announced))


def name_of(line: str) -> str:
    """The name of the series that a line is of; nothing for a comment or an empty line."""
    return "" if line.startswith("#") else _name(line)


def _name(line: str) -> str:
    brace = line.find("{")
    return line[:brace].strip() if brace >= 0 else line.split(None, 1)[0] if line.strip() else ""


def value_of(text: str) -> float | None:
    """The value that ``text`` is and nothing else; None for any other."""
    return float(text) if _VALUE.fullmatch(text) else None


def value_at(line: str) -> int | None:
    """Where the value of a sample begins that ends its line; None where more follows it, or it is no sample."""
    before = len(line) - len(line.lstrip()) + len(_name(line))
    match = _SAMPLE.match(line[before:])
    return None if match is None or match.end("value") != len(line) - before else before + match.start("value")


def _announced(line: str) -> str:
    """The name of which a comment tells the type or the help; nothing for any other comment."""
    if not line.startswith("# "):
        return ""
    words = line.split(None, 3)
    told = len(words) > 2 and words[1] in ("HELP", "TYPE") and not words[2].startswith(ANY_PROCESS)
    return words[2] if told else ""


@lru_cache(maxsize=4096)
def _announced_once(line: str) -> str:
    """As _announced; kept, because a page has the same comments each time."""
    return _announced(line)


def _sample(name: str, rest: str) -> Sample | None:
    match = _SAMPLE.match(rest)
    if match is None:
        return None
    text = match["labels"]
    labels = parsed_labels(text) if text and len(text) <= LONGEST_LABELS else None if text else ()
    return None if labels is None else Sample(name, labels, float(match["value"]))


@lru_cache(maxsize=4096)
def parsed_labels(text: str) -> Labels | None:
    """What stands between the braces, sorted by name; None if it is no list of labels, or names one twice.

    Kept, because an engine writes the same few label sets thousands of times.
    """
    found: dict[str, str] = {}
    at, text = 0, text.strip()
    while at < len(text):
        match = _LABEL.match(text, at)
        if match is None or match[1] in found:
            return None
        found[match[1]] = _ESCAPE.sub(_unescaped, match[2]) if "\\" in match[2] else match[2]
        at = match.end()
    return tuple(sorted(found.items()))


def _unescaped(match: re.Match[str]) -> str:
    return "\n" if match[1] == "n" else match[1]
