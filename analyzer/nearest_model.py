"""What to say of an engine whose model is not known: its name, and the known one that is nearest to it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from rooflens.analyzer.arch import known_models

LONGEST = 80  # characters of a name
LEAST_WORDS = 2  # of a name that stands for a model: a family alone ("llama") does not
SIZE = re.compile(r"\d+(?:\.\d+)?[bm]|\d+x\d+b")


@lru_cache(maxsize=256)  # an engine asks at every step that has no floor
def nearest_model(name: str) -> str | None:
    """The id of the known model that ``name`` is nearest to, else None; a hint, never a choice.

    A known name must hold all words of ``name`` but some at its end (Instruct, AWQ), never without its size: a model
    of another size is not near.
    """
    words = _words(name)
    sized = next((place for place, word in enumerate(words) if SIZE.fullmatch(word)), -1)
    known = [(_words(str(row[key])), str(row["id"])) for row in known_models() for key in ("id", "hf_id")]
    for end in range(len(words), max(LEAST_WORDS, sized + 1) - 1, -1):
        wanted = f"-{'-'.join(words[:end])}-"
        found = [(len(of), model) for of, model in known if wanted in f"-{'-'.join(of)}-"]
        if found:
            return min(found)[1]
    return None


def model_unknown(names: Iterable[str | None]) -> str | None:
    """One line for an engine that tells these names of its model and no config; None where it tells no name."""
    told = [name.strip().rstrip("/").rpartition("/")[2] for name in names if name and name.strip(" /")]
    if not told:
        return None
    near = next((found for name in told if (found := nearest_model(name))), None)
    hint = f"; nearest: --model {near}" if near else ""
    return f"the model {told[0][:LONGEST]!r} is not known by exactly this name: give --model NAME or config.json{hint}"


def _words(name: str) -> list[str]:
    bare = name.strip().rstrip("/")[-LONGEST:].rpartition("/")[2].casefold().removesuffix(".gguf")
    return bare.replace("_", " ").replace("-", " ").split()
