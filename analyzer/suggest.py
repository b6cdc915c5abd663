"""What a mistyped or shortened name may have meant; a hint in an error, never a choice made for the user."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

MOST = 3  # suggestions in one line
LONGEST = 60  # characters of a name that are compared
LEAST_START = 3  # characters of a name that others may begin with
LIKENESS = 0.7  # of difflib's ratio, from which a name looks mistyped


def did_you_mean(name: str, names: Mapping[str, str]) -> str:
    """', did you mean A or B?' for the values of ``names`` whose keys look like ``name``, else nothing.

    A short name (h200, llama-3-8b) means every key that has its words side by side, else every key that has all of
    them (llama-70b), else those that begin with it (h100-sxm) before those that merely look like it.
    """
    wanted = _words(name)
    if not wanted:
        return ""
    words = {key: _words(key) for key in names}
    holding = [key for key, text in words.items() if f"-{wanted}-" in f"-{text}-"]
    holding = holding or [key for key, text in words.items() if set(wanted.split("-")) <= set(text.split("-"))]
    beginning = [key for key, text in words.items() if len(wanted) >= LEAST_START and text.startswith(wanted)]
    starts: dict[str, list[str]] = {}
    for key, text in words.items():
        for start in {text, text.partition("-")[0]}:
            starts.setdefault(start, []).append(key)
    near = difflib.get_close_matches(wanted, starts, n=MOST, cutoff=LIKENESS)
    found = holding or [*beginning, *(key for start in near for key in starts[start])]
    ids = list(dict.fromkeys(names[key] for key in found))[:MOST]
    return f" (did you mean {' or '.join(ids)}?)" if ids else ""


def _words(name: str) -> str:
    return "-".join(name[:LONGEST].casefold().replace("/", " ").replace("_", " ").replace("-", " ").split())
