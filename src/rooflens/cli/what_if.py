"""The what-ifs of --set: changes to a deployment as KEY=VALUE, several of one what-if joined by commas.

One --set is one what-if: ``--set weights=fp8 --set batch=128,kv=fp8`` are two, each beside what is there now. A part
without a key goes on with the value before it, so that a value may hold commas: ``acceptance=0.9,0.7``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from rooflens.analyzer.drafting import METHODS as DRAFT_METHODS
from rooflens.analyzer.precision import KV_FORMATS, WEIGHT_FORMATS, normalise
from rooflens.analyzer.suggest import did_you_mean
from rooflens.cli.amounts import Refused, count, link_rate, memory_size, ratio, ratios
from rooflens.records import RooflensError

MOST_WHAT_IFS = 8  # as many columns as a page holds
ON, OFF = ("on", "yes", "true"), ("off", "no", "false")
Parse = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class WhatIf:
    """One what-if: as it was written, and its changes by key, each of the type of KEYS."""

    text: str
    changes: Mapping[str, object]


def one_of(*names: str) -> Parse:
    """A parser of one of ``names``."""

    def parse(text: str) -> str:
        wanted = text.strip().casefold()
        if wanted in names:
            return wanted
        hint = did_you_mean(wanted, {name: name for name in names})
        raise Refused(f"{text[:40]!r} is none of {', '.join(names)}{hint}")

    return parse


def one_format(known: Iterable[str]) -> Parse:
    """A parser of a number format, in any spelling of engines and files."""
    names = tuple(known)
    exact = one_of(*names)

    def parse(text: str) -> object:
        return exact(normalise(text))

    return parse


def switch(text: str) -> bool:
    """on or off."""
    wanted = text.strip().casefold()
    if wanted not in ON + OFF:
        raise Refused(f"{text[:40]!r} is neither on nor off")
    return wanted in ON


def positive(text: str) -> int:
    """One whole number, 1 or more."""
    value = count(text)
    if value < 1:
        raise Refused(f"must be at least 1, not {value}")
    return value


def depth(text: str) -> int | str:
    """A number of drafted tokens, or 'best'."""
    return "best" if text.strip().casefold() == "best" else count(text)


def words(text: str) -> str:
    """Any name."""
    if not text.strip():
        raise Refused("names nothing")
    return text.strip()


METHODS = ("none", *DRAFT_METHODS)
PHASE_NAMES = ("decode", "prefill", "verify")

KEYS: Mapping[str, Parse] = {
    "model": words,
    "hardware": words,
    "devices": positive,
    "tp": positive,
    "pp": positive,
    "dp": positive,
    "cp": positive,
    "ep": switch,
    "batch": positive,
    "context": count,
    "phase": one_of(*PHASE_NAMES),
    "chunk": positive,
    "shared-prefix": count,
    "cached": count,
    "weights": one_format(WEIGHT_FORMATS),
    "kv": one_format(KV_FORMATS),
    "memory": memory_size,
    "utilization": ratio,
    "spec-method": one_of(*METHODS),
    "spec-tokens": depth,
    "acceptance": ratios,
    "draft-model": words,
    "kv-link": link_rate,
}


def what_ifs(texts: Iterable[str], keys: Mapping[str, Parse] = KEYS) -> tuple[WhatIf, ...]:
    """The what-ifs of all --set given, in order; RooflensError in one line for one that cannot be read.

    ``keys`` are those that the verb can change; a verb may know fewer than KEYS.
    """
    found = tuple(what_if(text, keys) for text in texts)
    if len(found) > MOST_WHAT_IFS:
        raise RooflensError(f"--set was given {len(found)} times: at most {MOST_WHAT_IFS} fit beside each other")
    return found


def what_if(text: str, keys: Mapping[str, Parse] = KEYS) -> WhatIf:
    """The changes in one --set."""
    changes: dict[str, object] = {}
    for key, value in _pairs(text):
        if key not in keys:
            hint = did_you_mean(key, {name: name for name in keys})
            raise RooflensError(f"--set knows no {key[:40]!r}{hint or ': it knows ' + ', '.join(keys)}")
        if key in changes:
            raise RooflensError(f"--set {text[:60]} says {key} twice: give each what-if a --set of its own")
        try:
            changes[key] = keys[key](value)
        except (Refused, RooflensError) as error:
            raise RooflensError(f"--set {key}: {error}") from None
    return WhatIf(text, changes)


def _pairs(text: str) -> list[tuple[str, str]]:
    """Keys and values; a part without a key belongs to the value before it."""
    pairs: list[tuple[str, str]] = []
    for part in text.split(","):
        key, equals, value = part.partition("=")
        if equals:
            pairs.append((key.strip().casefold().removeprefix("--").replace("_", "-"), value.strip()))
        elif pairs and part.strip():
            pairs[-1] = (pairs[-1][0], f"{pairs[-1][1]},{part.strip()}")
        else:
            raise RooflensError(f"--set {text[:60]!r} changes nothing: write KEY=VALUE, such as weights=fp8,batch=128")
    return pairs
