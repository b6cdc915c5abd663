"""Fetching uPlot while rooflens is built: checked by its digest, bounded, and no reason to fail."""

from __future__ import annotations

import importlib.util
import os
import stat
from pathlib import Path
from types import ModuleType

import pytest

from rooflens.dashboards.vendored import FOLDER, uplot

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def hook() -> ModuleType:
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def fake_npm(folder: Path, script: str) -> dict[str, str]:
    """An environment whose npm is ``script``."""
    npm = folder / "npm"
    npm.write_text(f"#!/bin/sh\n{script}\n")
    npm.chmod(npm.stat().st_mode | stat.S_IXUSR)
    return {"PATH": f"{folder}:/usr/bin:/bin"}


@pytest.fixture(autouse=True)
def no_npm_of_the_environment(hook: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hook.sys, "executable", os.devnull)


def test_without_npm_and_registry_the_build_goes_on(hook: ModuleType, tmp_path: Path) -> None:
    told = hook.fetched(tmp_path / "vendor", {"PATH": str(tmp_path)})
    assert "neither npm nor NPM_CONFIG_REGISTRY is there" in told
    assert "\n" not in told
    assert uplot(tmp_path / "vendor") is None


@pytest.mark.parametrize("script", ["exit 1", "exit 0", "echo x > uplot-1.6.32.tgz"])
def test_npm_that_fails_or_brings_something_else_is_a_warning(hook: ModuleType, tmp_path: Path, script: str) -> None:
    told = hook.fetched(tmp_path / "vendor", fake_npm(tmp_path, script))
    assert "could not be fetched" in told
    assert not (tmp_path / "vendor").exists()


def test_npm_that_hangs_is_left(hook: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hook, "LIMIT_S", 0.2)
    told = hook.fetched(tmp_path / "vendor", fake_npm(tmp_path, "exec sleep 60"))
    assert "npm took more than 0.2 s" in told


def test_what_is_there_is_not_fetched_again(hook: ModuleType, tmp_path: Path) -> None:
    assert uplot() is not None, "python hatch_build.py fetches it; it needs npm"
    assert hook.fetched(FOLDER, {"PATH": str(tmp_path)}) is None


def test_the_licence_comes_along() -> None:
    found = uplot()
    assert found is not None
    assert found.name == "uplot 1.6.32"
    assert "MIT License" in found.licence
