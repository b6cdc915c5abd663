"""Asks the server of a metrics page what it says of itself: a few small requests, none of which may hinder the page."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rooflens.adapters.scrape.address import Address
from rooflens.adapters.scrape.fetch import Limits, fetch
from rooflens.adapters.scrape.readings import NAMES_NONE
from rooflens.adapters.scrape.server_facts import ASKED, facts_from
from rooflens.records import EngineInfo, RooflensError

LIMITS = Limits(silence_s=2.0, total_s=2.0, most_bytes=1 << 20)
# For all of its paths together: a server that hangs on one of them is not asked the others.
LONGEST_S = 2.0
AGAIN_S = 600.0  # where a server told nothing
# Servers that start anew all the time, or several that answer in turn, are not asked each time.
APART_S = 10.0
# TensorRT-LLM's page in Prometheus' format is below a folder of its own, its API is not.
FOLDERS = ("/metrics", "/prometheus")
INSTEAD: Mapping[str, str] = {"/get_server_info": "/server_info"}  # the same under its older name
# What holds for every model of a server.
OF_THE_SERVER = ("engine_version",)
UNTOLD: Mapping[str, Any] = {"tensor_parallel": 1, "data_parallel": 1, "pipeline_parallel": 1}


class Asked:
    """Who was asked, when, and what they told; belongs to the thread of one page."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._runs: frozenset[str] = frozenset()
        self._asked_s: float | None = None
        self.facts: Mapping[str, Any] = {}

    def due(self, engine: str | None, runs: frozenset[str], now_s: float) -> bool:
        """Whether to ask now: of new runs, and again where nothing was told."""
        if engine not in ASKED or not runs:
            return False
        if self._asked_s is None:
            return True
        pause_s = APART_S if not runs <= self._runs else AGAIN_S
        missing = not self.facts or not runs <= self._runs
        return missing and now_s - self._asked_s >= pause_s

    def ask(self, engine: str, runs: frozenset[str]) -> Mapping[str, Any]:
        """What the server says of itself; what fails is not known, and nothing is said of it."""
        began_s = self._asked_s = time.monotonic()
        self._runs = runs
        answers: dict[str, str] = {}
        for path in ASKED[engine]:
            if INSTEAD.get(path) in answers or time.monotonic() - began_s >= LONGEST_S:
                continue
            if (text := answer_at(self._address, path)) is not None:
                answers[path] = text
        self.facts = facts_from(answers, engine)
        return self.facts


def answer_at(address: Address, path: str) -> str | None:
    """What the server of a page answers at another path, asked as the page is; None where that is nothing."""
    before, question, query = address.target.partition("?")
    for folder in FOLDERS:
        before = before.removesuffix(folder)
    try:
        return fetch(replace(address, target=before + path + question + query), LIMITS).text
    except (RooflensError, ValueError):
        return None


def with_facts(info: EngineInfo, facts: Mapping[str, Any], only_model: bool) -> EngineInfo:
    """``info`` with what the server says where nothing else did.

    ``only_model`` is whether the page has no other model. Of a page with several, and of one whose model the server
    calls otherwise, what may differ between models is left out.
    """
    told = dict(facts)
    names = [told.pop("model_name", None), told.pop("base_model_name", None)]
    own = None if (info.model_name or "").lower() in NAMES_NONE else info.model_name
    if not only_model or (own is not None and names[0] is not None and own not in names):
        told, names = {name: told[name] for name in OF_THE_SERVER if name in told}, [None, None]
    if info.kv_blocks is not None or info.block_tokens is not None:  # they belong together
        told = {name: value for name, value in told.items() if name not in ("kv_blocks", "block_tokens")}
    if own is None and names[0] is not None:
        told["model_name"] = own = names[0]
        info = replace(info, model_name=None)
    if names[1] is not None and names[1] != own:
        told["base_model_name"] = names[1]
    unsaid = {name: value for name, value in told.items() if getattr(info, name) in (None, UNTOLD.get(name))}
    return replace(info, **unsaid) if unsaid else info
