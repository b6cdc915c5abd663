"""SGLang without --enable-metrics: no page, but what it says of itself at other paths tells what it holds now.

Read in the releases 0.4.9 to 0.5.23 (srt/entrypoints/http_server.py, v1_loads.py, managers/scheduler.py): /server_info,
to 0.5.4 /get_server_info, has no request in its internal_states, only memory_usage.token_capacity and
last_gen_throughput, the mean over the last line of the log with idle time in it, which is not taken. Requests are told
at /v1/loads (num_running_reqs, num_waiting_reqs, num_used_tokens, max_total_num_tokens of each rank; since 0.5.9) and
from 0.5.4 to 0.5.20 at /get_load (num_reqs with those that wait in it, num_waiting_reqs; num_tokens has prompts that
wait in it); 0.4.9 tells of none.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from rooflens.adapters.scrape.address import Address
from rooflens.adapters.scrape.asked import answer_at
from rooflens.adapters.scrape.readings import Key, PageReading, Reading
from rooflens.adapters.scrape.recognised import Recognised
from rooflens.adapters.scrape.server_facts import facts_from

ENGINE = "sglang"
INFO, LOADS = ("/server_info", "/get_server_info"), ("/v1/loads", "/get_load")
WITHOUT_METRICS = "has no metrics: what it holds now is read of its server info; --enable-metrics of SGLang gives steps"
AGAIN_S = 60.0  # where nothing of the kind answered
MOST_RANKS = 256
MOST = 1e12
NAMES: Mapping[str, str] = {
    "num_running_reqs": "running", "num_waiting_reqs": "waiting", "num_used_tokens": "kv_used_tokens",
    "max_total_num_tokens": "kv_capacity_tokens",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Standing(Recognised):
    """What the server holds at a moment."""

    unix_s: float
    monotonic_s: float


class WithoutMetrics:
    """Asks one server; belongs to the thread of its page."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._asked_s: float | None = None
        self._paths: dict[tuple[str, ...], str] = {}  # those that answered, of each kind

    def ask(self) -> Standing | None:
        """What the server says now; None where it is not SGLang, which is asked again after a while."""
        if self._asked_s is not None and time.monotonic() - self._asked_s < AGAIN_S:
            return None
        began_s = time.monotonic()
        info = self._answer(INFO)
        late_s = (time.monotonic() - began_s) / 2
        now = time.time() - late_s, time.monotonic() - late_s
        if not isinstance(info, Mapping) or not isinstance(info.get("internal_states"), list):
            self._asked_s = time.monotonic()
            self._paths.clear()
            return None
        return Standing(ENGINE, PageReading(standing(info, self._answer(LOADS), *now)), *now)

    def _answer(self, paths: tuple[str, ...]) -> Any:
        """What the first of these paths that answers says, as JSON."""
        for path in (self._paths[paths],) if paths in self._paths else paths:
            data = _json(answer_at(self._address, path))
            if data is not None:
                self._paths[paths] = path
                return data
        return None


def standing(info: Mapping[str, Any], loads: Any, unix_s: float, monotonic_s: float) -> dict[Key, Reading]:
    """A reading of each rank; anything may stand in the answers."""
    facts = facts_from({"/server_info": json.dumps(info)}, ENGINE)
    model, page_tokens = facts.get("model_name") or "", facts.get("block_tokens", 1)
    told = loads.get("loads") if isinstance(loads, Mapping) else loads
    ranks = [load for load in told if isinstance(load, Mapping)][:MOST_RANKS] if isinstance(told, list) else []
    found: dict[Key, Reading] = {}
    for number, load in enumerate(ranks or [{}]):
        values = {name: value for key, name in NAMES.items() if (value := _count(load, key)) is not None}
        every = _count(load, "num_reqs")
        if "running" not in values and every is not None and "waiting" in values:
            values["running"] = max(every - values["waiting"], 0.0)
        if (blocks := facts.get("kv_blocks")) is not None:
            values.setdefault("kv_capacity_tokens", float(blocks * page_tokens))
        values["page_tokens"] = float(page_tokens)
        if (used := values.get("kv_used_tokens")) is not None and values.get("kv_capacity_tokens"):
            values["kv_used"] = used / values["kv_capacity_tokens"]
        rank = _count(load, "dp_rank")
        key = (model, str(number if rank is None else int(rank)))
        found[key] = Reading(*key, unix_s, monotonic_s, values, engine_kind=ENGINE)
    return {key: replace(reading, sharing=len(found)) for key, reading in found.items()}


def _count(data: Mapping[str, Any], key: str) -> float | None:
    value = data.get(key)
    known = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= MOST
    return float(value) if known and value is not None else None


def _json(text: str | None) -> Any:
    try:
        data = json.loads(text) if text else None
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, Mapping | list) else None
