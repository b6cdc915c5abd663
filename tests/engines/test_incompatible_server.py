"""A vLLM whose scheduler has a field renamed: the server serves, and says one line."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import pytest
from server_harness import running

pytestmark = pytest.mark.engine
OLD, NEW = "scheduled_spec_decode_tokens", "scheduled_draft_tokens"


def renamed_vllm(folder: Path) -> Path:
    """vLLM as installed but for one field, which is renamed throughout; a folder for PYTHONPATH."""
    spec = importlib.util.find_spec("vllm")
    assert spec is not None
    assert spec.origin is not None
    source = Path(spec.origin).parent
    target = folder / "vllm"
    changed = 0
    for path in source.rglob("*"):
        place = target / path.relative_to(source)
        if path.is_dir():
            place.mkdir(parents=True, exist_ok=True)
        elif path.suffix == ".py" and OLD in (text := path.read_text()):
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text.replace(OLD, NEW))
            changed += 1
        elif "__pycache__" not in path.parts:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(path)
    assert changed > 3
    return folder


def test_a_renamed_field_costs_one_warning_and_nothing_else(tmp_path: Path) -> None:
    overlay = renamed_vllm(tmp_path / "overlay")
    with running(tmp_path, environment={"PYTHONPATH": str(overlay)}) as server:
        usage = server.complete([5, 6, 7] * 10, 12)
        log = server.log.read_text(errors="replace")
        rings = list(server.rings.glob("*.ring")) if server.rings.exists() else []
    assert usage["completion_tokens"] == 12
    assert rings == []
    said = [line for line in log.splitlines() if "rooflens" in line and "EngineCore" in line]
    assert len(said) == 1, said
    assert f"SchedulerOutput.{OLD}" in said[0]
    shutil.rmtree(overlay)
