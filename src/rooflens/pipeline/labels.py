"""What an engine is called in metrics and views: its model and a short label, unique while it lives."""

from __future__ import annotations

from collections.abc import Hashable

from rooflens.records import EngineInfo

UNKNOWN_MODEL = "unknown"
LONGEST_NAME = 128  # of a label value; served names are chosen by whoever started the engine
Key = tuple[str, str]  # (model_name, engine)


def model_name(info: EngineInfo | None) -> str:
    """The served name without the folders or the organisation before it, so that ring and page call it the same."""
    served = (info.model_name or "") if info is not None else ""
    name = served.rstrip("/").rpartition("/")[2]
    plain = "".join(char if char.isprintable() else "?" for char in name)
    return plain[:LONGEST_NAME] or UNKNOWN_MODEL


class Labels:
    """Hands out (model_name, engine): the rank as text, or the lowest free of "0.1", "0.2"... where that is taken.

    A label that was given back goes to the next run of the same model and rank, whose counters go on from there.
    """

    def __init__(self) -> None:
        self._holders: dict[Key, Hashable] = {}

    def take(self, run: Hashable, info: EngineInfo | None, rank: int) -> Key:
        """The label of ``run``, its own for as long as it keeps it."""
        name, number = model_name(info), 0
        while True:
            key = (name, str(rank) if number == 0 else f"{rank}.{number}")
            if self._holders.setdefault(key, run) == run:
                return key
            number += 1

    def give_back(self, run: Hashable) -> None:
        """The run has ended."""
        self._holders = {key: holder for key, holder in self._holders.items() if holder != run}
