"""A ring for each engine: generate_batch builds an engine for each call, and calls that follow are one run."""

from __future__ import annotations

import atexit
import json
import threading
from typing import Any

from rooflens.adapters.recorder import Recorder
from rooflens.adapters.transformers.info import facts

ENGINE = "transformers"
MOST_IDLE = 2  # recorders that wait for an engine with the same facts
_idle: dict[str, Recorder] = {}
_guard = threading.Lock()  # taken when a loop begins or ends, never in a step


def take(processor: Any) -> tuple[Recorder, str]:
    """A recorder for a batch processor, and the key to give it back by.

    It is that of an earlier one with the same facts, which has ended, or a new one.
    """
    stated = facts(processor)
    key = json.dumps(stated, sort_keys=True, default=str)
    with _guard:
        found = _idle.pop(key, None)
    if found is None:
        found = Recorder(ENGINE, **{name: value for name, value in stated.items() if value is not None})
    return found, key


def give_back(recorder: Recorder, key: str) -> None:
    """Its engine has ended; the next one with the same facts goes on in the same ring."""
    with _guard:
        spare = [_idle.pop(key)] if key in _idle else []
        _idle[key] = recorder
        spare += [_idle.pop(key) for key in list(_idle)[:-MOST_IDLE]]
    for one in spare:
        one.close()


def close_idle() -> None:
    """Mark every recording whose engine has ended as ended in order."""
    with _guard:
        spare = list(_idle.values())
        _idle.clear()
    for one in spare:
        one.close()


atexit.register(close_idle)
