"""The environment of the engine tests: vLLM as it is, rooflens as a user installs it, found without a flag."""

from __future__ import annotations

from pathlib import Path

import pytest

import rooflens

pytestmark = pytest.mark.engine
ROOT = Path(__file__).resolve().parents[1]


def test_the_wheel_is_tested_and_not_the_checkout() -> None:
    assert rooflens.__file__ is not None
    assert ROOT / "src" not in Path(rooflens.__file__).resolve().parents


def test_the_engine_finds_the_hook_by_its_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.plugins import load_plugins_by_group

    monkeypatch.delenv("VLLM_PLUGINS", raising=False)
    assert callable(load_plugins_by_group("vllm.general_plugins")["rooflens"])
