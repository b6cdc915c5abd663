"""One result while it is read: what may stand in an Observation is kept, what cannot be is complained about."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from rooflens.adapters.bench.amounts import number_of
from rooflens.adapters.bench.checks import completed, contradictions
from rooflens.adapters.bench.names import TOTAL_RATES, WITHHELD
from rooflens.observation_records import Observation

TIMES = ("ttft_s", "tpot_s", "itl_s", "e2e_s")
COUNTS = ("requests", "failed_requests", "prompt_tokens", "generated_tokens", "devices", "tensor_parallel")
MOST_REMARKS = 20  # of each kind: a file that is not understood at all would name every line
MOST_NAME = 80
LARGEST = 1e15  # of any count, rate or number of seconds


class Draft:
    """What was read of one result so far."""

    def __init__(self, origin: str, client_side: bool, engine: str | None = None) -> None:
        self.origin, self.client_side = origin, client_side
        self.values: dict[str, Any] = {}
        self.times: dict[str, dict[str, float]] = {name: {} for name in TIMES}
        self.remarks: dict[str, list[str]] = {"withheld": [], "unknown": [], "complaints": []}
        self.total_tokens_per_s: float | None = None
        self.zeros: list[str] = []
        self.word("engine", engine)

    def number(self, field: str, value: object, label: str, scale: float = 1.0) -> None:
        """Keep a count, a rate or a duration that can be; zero is one but for a duration."""
        found = number_of(value)
        if found is None:
            return
        found *= scale
        if not math.isfinite(found) or found < 0 or found > LARGEST or (found == 0 and field == "duration_s"):
            self.complain(f"{_short(label)} is {_shown(value)}: left out")
        elif field not in COUNTS:
            self.values[field] = found
        elif found == round(found):
            self.values[field] = round(found)
        else:
            self.complain(f"{_short(label)} is {_shown(value)}, which counts nothing: left out")

    def time(self, field: str, statistic: str, value: object, label: str, scale: float = 1.0) -> None:
        """Keep one statistic of a latency, in seconds; a spread may be zero, a latency may not."""
        found = number_of(value)
        if found is None:
            return
        found *= scale
        if not math.isfinite(found) or found < 0 or found > LARGEST or math.copysign(1.0, found) < 0:
            self.complain(f"{_short(label)} is {_shown(value)}: left out")
        elif found == 0 and statistic not in ("std", "min"):
            self.zeros.append(_short(label))
        else:
            self.times[field][statistic] = found

    def word(self, field: str, value: object) -> None:
        """Keep a short word, such as the name of a model without the folder before it."""
        if isinstance(value, str) and (found := value.strip()[:MOST_NAME]):
            self.values[field] = "".join(char if char.isprintable() else "?" for char in found)

    def model(self, value: object) -> None:
        """Keep a model's name: owner and name as on the hub, the last part of anything that looks like a path."""
        if isinstance(value, str):
            self.word("model_name", model_name(value))

    def withhold(self, reason: str) -> None:
        """Name a figure that is there and is not used, with why."""
        self._remark("withheld", reason)

    def withheld_figure(self, name: str, value: object) -> None:
        """Withhold the figure called ``name`` in names.WITHHELD where it has a value; zero is none."""
        found = number_of(value)
        if not found or not math.isfinite(found):
            return
        self.withhold(WITHHELD[name])
        if name in TOTAL_RATES and found > 0:
            self.total_tokens_per_s = found

    def not_known(self, label: str) -> None:
        """Name a label that this version does not know."""
        self._remark("unknown", _short(label))

    def complain(self, complaint: str) -> None:
        """Say in one line what cannot be."""
        self._remark("complaints", complaint)

    def _remark(self, kind: str, text: str) -> None:
        kept = self.remarks[kind]
        if text not in kept and len(kept) < MOST_REMARKS:
            kept.append(text)

    @property
    def holds(self) -> bool:
        """Whether it says anything that was measured."""
        measured = [name for name in self.values if name not in ("engine", "model_name", "hardware", "label")]
        return bool(measured) or any(self.times.values())

    def observation(self) -> Observation:
        """The result, its sums and rates held against each other."""
        values = completed(self.values, self.total_tokens_per_s)
        for complaint in contradictions(values, self.times, self.total_tokens_per_s):
            self.complain(complaint)
        if self.zeros:
            more = f" and {len(self.zeros) - 1} more" if len(self.zeros) > 1 else ""
            why = "no request succeeded" if values.get("requests") == 0 else "as where nothing was streamed"
            self.complain(f"{self.zeros[0]}{more}: 0, {why}: left out")
        for found in self.times.values():
            if set(found) <= {"std", "min"}:  # of what was left out
                found.clear()
        fields: dict[str, Any] = {**values}
        fields |= {name: dict(found) for name, found in self.times.items()}
        fields |= {name: tuple(found) for name, found in self.remarks.items()}
        return Observation(self.origin, self.client_side, **fields)


def observations(drafts: Iterable[Draft]) -> tuple[Observation, ...]:
    """Those that say anything."""
    return tuple(draft.observation() for draft in drafts if draft.holds)


def model_name(value: str) -> str:
    """ "Qwen/Qwen3-8B" as it is; of a path its last part, and of a folder of the hub's cache the name it stands for."""
    parts = [part for part in value.strip().replace("\\", "/").split("/") if part not in ("", ".", "..", "~")]
    for part in parts:
        if part.startswith("models--") and part.count("--") >= 2:
            return "/".join(part.split("--")[1:3])
    is_path = value.strip().startswith(("/", ".", "~", "\\")) or len(parts) != 2 or ":" in parts[0]
    return "/".join(parts) if not is_path else parts[-1] if parts else ""


def _short(label: str) -> str:
    shown = " ".join(label.split())[:MOST_NAME]
    return "".join(char if char.isprintable() else "?" for char in shown)


def _shown(value: object) -> str:
    return _short(str(value)[:MOST_NAME])
