"""The base install: a wheel without dependencies that imports and runs in an environment holding nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from email.parser import Parser
from pathlib import Path
from typing import NamedTuple

import pytest

import rooflens

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("adapters", "collector", "analyzer", "exporters", "dashboards")

CREATE_RING = """
import sys
from pathlib import Path
from rooflens.adapters.recorder import Recorder
recorder = Recorder("test", folder=Path(sys.argv[1]), strict=True)
for context in range(16, 80):
    with recorder.step(contexts=[context]) as step:
        step.generated_tokens = 1
recorder.close()
assert recorder.failures == 0
print(recorder.path)
"""
LOADED_BY_THE_ENGINE = """
import sys
from importlib.metadata import entry_points
import rooflens, rooflens.adapters.vllm, rooflens.adapters.recorder, rooflens.adapters.frames
import rooflens.ring, rooflens.ring_writer, rooflens.ring_folder
(hook,) = entry_points(group="vllm.general_plugins", name="rooflens")
assert callable(hook.load()), hook
outside = {name.split(".")[0] for name in sys.modules} - set(sys.stdlib_module_names)
print(*sorted(name for name in outside if not name.startswith("_") and "rooflens" not in name))
"""


class Built(NamedTuple):
    """The two artefacts of one build."""

    wheel: Path
    sdist: Path


class Environment(NamedTuple):
    """A virtual environment with the wheel and nothing else."""

    folder: Path

    def run(self, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A program of the environment, away from the checkout and its variables."""
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "ROOFLENS_"))}
        command = [str(self.folder / "bin" / name), *arguments]
        return subprocess.run(command, capture_output=True, text=True, env=clean, cwd=self.folder, check=False)


def build(source: Path, target: Path) -> Built:
    """Wheel and sdist of a source tree, without the network."""
    command = [sys.executable, "-P", "-m", "hatchling", "build", "-t", "wheel", "-t", "sdist", "-d", str(target)]
    run = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    (wheel,) = target.glob("*.whl")
    (sdist,) = target.glob("*.tar.gz")
    return Built(wheel, sdist)


def contents(wheel: Path) -> dict[str, bytes]:
    """Every file of a wheel but the list of them."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/RECORD")}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build(ROOT, tmp_path_factory.mktemp("built"))


@pytest.fixture(scope="module")
def bare(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, with_pip=False, symlinks=True)
    # Without an index, a dependency of the base install could not be met and this would fail.
    pip = [sys.executable, "-P", "-m", "pip", "--python", str(folder / "bin" / "python"), "install", "--quiet"]
    clean = {key: value for key, value in os.environ.items() if not key.startswith("PIP_")}
    subprocess.run([*pip, "--no-index", str(built.wheel)], check=True, env={**clean, "PIP_CONFIG_FILE": os.devnull})
    return Environment(folder)


def test_the_metadata_names_no_dependency(built: Built) -> None:
    (name,) = (name for name in contents(built.wheel) if name.endswith(".dist-info/METADATA"))
    metadata = Parser().parsestr(contents(built.wheel)[name].decode())
    required = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
    assert required == []
    assert metadata["Version"] == rooflens.__version__
    assert "Apache-2.0" in metadata["License-Expression"]


def test_the_wheel_holds_every_file_of_the_linked_folders(built: Built) -> None:
    held = contents(built.wheel)
    sources = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file()]
    wanted = {path.relative_to(ROOT).as_posix() for path in sources if "__pycache__" not in path.parts}
    assert {f"rooflens/{name}" for name in wanted} <= set(held)
    assert {"rooflens/py.typed", "rooflens/findings.toml"} <= set(held)
    assert not [name for name in held if name.endswith((".pyc", ".ring")) or name.startswith("tests/")]


def test_the_sdist_builds_the_same_wheel(built: Built, tmp_path: Path) -> None:
    with tarfile.open(built.sdist) as archive:
        assert not [member.name for member in archive if member.issym()], "links do not survive every unpacker"
    subprocess.run(["tar", "-xzf", str(built.sdist), "-C", str(tmp_path)], check=True)
    (source,) = tmp_path.iterdir()
    assert contents(build(source, tmp_path / "again").wheel) == contents(built.wheel)


def test_all_that_an_engine_loads_imports_bare(bare: Environment) -> None:
    run = bare.run("python", "-I", "-c", LOADED_BY_THE_ENGINE)
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == [], "the hook pulls in packages"


def test_help_needs_nothing(bare: Environment) -> None:
    run = bare.run("rooflens", "--help")
    assert run.returncode == 0, run.stderr
    assert "analyze" in run.stdout


def test_analyze_without_numpy_works_or_names_the_extra(bare: Environment, tmp_path: Path) -> None:
    made = bare.run("python", "-I", "-c", CREATE_RING, str(tmp_path / "rings"))
    assert made.returncode == 0, made.stderr
    run = bare.run("rooflens", "analyze", made.stdout.strip())
    assert "Traceback" not in run.stderr
    if run.returncode != 0:
        assert len(run.stderr.strip().splitlines()) == 1, run.stderr
        assert "rooflens[" in run.stderr
