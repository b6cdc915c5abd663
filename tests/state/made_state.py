"""A file of state that holds words, and a process that adds to it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rooflens.collector.state.file import Format, StateFile

NAME = "words.json"


def _parse(data: Mapping[str, Any]) -> tuple[str, ...]:
    words = data.get("words")
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise ValueError("it holds no words")
    return tuple(words)


FORM: Format[tuple[str, ...]] = Format(2, _parse, lambda words: {"words": words}, tuple, {})


def words_in(folder: Path) -> StateFile[tuple[str, ...]]:
    """The file in this folder."""
    return StateFile(folder, NAME, FORM)


# Adds "NAME 0", "NAME 1" ..., and says each number once it is on disk.
WRITER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from state.made_state import words_in
file, name, rounds = words_in(Path(sys.argv[2])), sys.argv[3], int(sys.argv[4])
for number in range(rounds):
    outcome = file.change(lambda words: (*words, f"{name} {number}"), patience_s=30.0)
    assert outcome.saved and outcome.problem is None, outcome
    print(number, flush=True)
"""


def writer(folder: Path, name: str, rounds: int) -> subprocess.Popen[str]:
    """A process that adds so many words."""
    tests = str(Path(__file__).resolve().parents[1])
    command = [sys.executable, "-c", WRITER, tests, str(folder), name, str(rounds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
