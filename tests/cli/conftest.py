"""Drivers are asked in this process, where tests have made ones; those of cli/test_apart.py ask apart."""

from __future__ import annotations

import importlib
import json
from typing import Any

import pytest

from rooflens.cli import apart


@pytest.fixture(autouse=True)
def asked_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is asked goes through JSON all the same."""

    def ask(module: str, *_: Any, **__: Any) -> Any:
        return json.loads(json.dumps(importlib.import_module(module).told()))

    monkeypatch.setattr(apart, "ask", ask)
