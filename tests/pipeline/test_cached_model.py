"""Where a model's shape comes from: stated, given, in this host's cache, shipped, in this order."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rooflens.pipeline.pages import with_model
from rooflens.records import EngineInfo

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache that holds another Llama 3 70B than the shipped one."""
    hub = tmp_path / "hub"
    model = hub / "models--meta-llama--Meta-Llama-3-70B"
    (model / "refs").mkdir(parents=True)
    (model / "refs" / "main").write_text(COMMIT)
    (model / "snapshots" / COMMIT).mkdir(parents=True)
    (model / "snapshots" / COMMIT / "config.json").write_text(json.dumps({"hidden_size": 7}))
    monkeypatch.setenv("HF_HUB_CACHE", str(hub))
    return hub


def size(**facts: object) -> object:
    info = with_model(EngineInfo("x", "vllm", **facts), None)  # type: ignore[arg-type]
    return None if info is None or info.model_config is None else info.model_config.get("hidden_size")


def test_the_order_in_which_a_models_shape_is_found(cached: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "Meta-Llama-3-70B"
    assert size(model_name=name) == 7
    assert size(model_name="demo", base_model_name=name) == 7
    assert size(model_name=name, model_config={"hidden_size": 1}) == 1
    given = with_model(EngineInfo("x", "vllm", model_name=name), {"hidden_size": 2})
    assert given is not None
    assert given.model_config == {"hidden_size": 2}
    monkeypatch.setenv("HF_HUB_CACHE", str(cached / "none"))
    assert size(model_name=name) == 8192
    assert size(model_name="demo", base_model_name=name) == 8192
    assert size(model_name="demo") is None
