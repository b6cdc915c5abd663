"""Rings of the engine tests go to a folder of their own; the hook is loaded the way vLLM loads it."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
pytest.register_assert_rewrite("books", "server_checks")
collect_ignore_glob = [] if importlib.util.find_spec("vllm") else ["test_*.py"]


@pytest.fixture
def rings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A private ring folder."""
    folder = tmp_path / "rings"
    monkeypatch.setenv("ROOFLENS_DIR", str(folder))
    return folder


@pytest.fixture
def hook() -> Iterator[None]:
    """The hook in this process, and no recording left behind."""
    from core_harness import MadeUpExecutor

    from rooflens.adapters.vllm import core, patch, register

    register()
    for name in ("execute_model", "sample_tokens"):
        patch.wrap(MadeUpExecutor, name, core.timed)
    yield
    for capture in list(patch.captures):
        patch.detach(capture.scheduler)
