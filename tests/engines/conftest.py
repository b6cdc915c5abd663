"""Rings of the engine tests go to a folder of their own; the hook is loaded the way vLLM loads it."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
collect_ignore_glob = [] if importlib.util.find_spec("vllm") else ["test_*.py"]


@pytest.fixture
def rings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A private ring folder."""
    folder = tmp_path / "rings"
    monkeypatch.setenv("ROOFLENS_DIR", str(folder))
    return folder
