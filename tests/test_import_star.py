"""Imports form a star: five folders know the shared floor and themselves, only the wiring knows them all."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("adapters", "collector", "analyzer", "exporters", "dashboards")
RING = ("ring", "ring_writer", "ring_folder")
FLOOR = (
    "records",
    "info_fields",
    "spans",
    "arch_records",
    "model_records",
    "device_records",
    "calibration_records",
    "group_records",
    "live_records",
    "log_records",
    "observation_records",
    "protocols",
    *RING,
    "catalogue",
    "metric_records",
    "device_metrics",
    "findings",
    "trace_records",
    "trace_tables",
    "trace_metrics",
)
PACKAGES = ("rooflens", *(f"rooflens.{folder}" for folder in FOLDERS))
# Settings are read once, by the wiring, and handed on as values.
WIRING = ("pipeline", "config", "cli", "api", "__main__")
ENGINES = ("vllm", "torch", "sglang", "tensorrt_llm", "transformers", "lmdeploy", "llama_cpp", "mlx_lm", "dynamo")
# Calibration asks the library that engines compute with what the device reaches, where that is installed.
MEASURING = ("collector.calibrate", "torch")
# What is loaded into the engine's own process: the standard library, the floor and each other, nothing else.
HOOK = ("adapters.vllm", "adapters.sglang", "adapters.facts", "adapters.frames", "adapters.recorder", *RING)


class Import(NamedTuple):
    """One imported module by its full name; ``lazy`` inside a function or for type checking only."""

    target: str
    line: int
    lazy: bool


def module_name(package: Path, file: Path) -> str:
    """The dotted name below rooflens: 'adapters.vllm', 'ring', '' for the package itself."""
    parts = list(file.relative_to(package).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def sources(package: Path) -> Iterator[Path]:
    """Every Python file of the package, through the links, sorted."""
    for folder, _, names in sorted(os.walk(package, followlinks=True)):
        yield from (Path(folder, name) for name in sorted(names) if name.endswith(".py"))


def _is_typing_guard(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def _targets(node: ast.AST, here: str, is_package: bool) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            around = ["rooflens", *filter(None, here.split("."))]
            keep = len(around) - node.level + (1 if is_package else 0)
            base = ".".join([*around[:keep], *filter(None, [base])])
        # `from rooflens import ring` names a module, `from rooflens.ring import Ring` does not.
        holds_modules = base in PACKAGES
        yield from (f"{base}.{alias.name}" if holds_modules else base for alias in node.names)
    elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
        yield from (arg.value for arg in node.args[:1] if isinstance(arg, ast.Constant) and arg.value)


def imports(tree: ast.Module, here: str, is_package: bool) -> Iterator[Import]:
    """Every import of a file, wherever it stands."""

    def walk(node: ast.AST, lazy: bool) -> Iterator[Import]:
        for target in _targets(node, here, is_package):
            yield Import(target, getattr(node, "lineno", 0), lazy)
        lazy = lazy or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            yield from walk(child, lazy or _is_typing_guard(node))

    yield from walk(tree, lazy=False)


def belongs(name: str, groups: tuple[str, ...]) -> bool:
    """Whether a dotted name is one of the groups or lies inside one."""
    return any(name == group or name.startswith(f"{group}.") for group in groups)


def own_arrow(here: str, target: str) -> str | None:
    """Why a module of rooflens may not import another one of rooflens; None if it may."""
    folder = here.split(".")[0]
    if here == "" and target == "api":
        return None  # `rooflens.load`, which the package takes from there when it is first asked for
    if folder in WIRING or belongs(target, FLOOR) or target in ("", "__version__"):
        return None
    if folder in FOLDERS:
        return None if belongs(target, (folder,)) else f"{folder} knows the floor and itself only"
    return "the floor knows the floor only"


def outside_arrow(here: str, found: Import) -> str | None:
    """Why a module may not import something from outside rooflens; None if it may."""
    top = found.target.split(".")[0]
    if top in FOLDERS:
        return "the folders are imported as rooflens.X"
    measures = belongs(here, MEASURING[:1]) and top in MEASURING[1:] and found.lazy
    if top in ENGINES and not belongs(here, ("adapters",)) and not measures:
        return "only adapters may import an engine"
    if top in sys.stdlib_module_names or (found.lazy and (top in ENGINES or not belongs(here, HOOK))):
        return None
    if belongs(here, HOOK):
        return "loaded into the engine: standard library and floor only, the engine itself inside functions"
    if here in ("", *FLOOR, *FOLDERS):
        return "the base install has no dependencies: import it in the function that needs it"
    return None


def violations(package: Path) -> list[str]:
    """Every wrong arrow as 'file:line: imports X: why'."""
    wrong = []
    for file in sources(package):
        here = module_name(package, file)
        for found in imports(ast.parse(file.read_bytes()), here, file.name == "__init__.py"):
            top, _, rest = found.target.partition(".")
            why = own_arrow(here, rest) if top == "rooflens" else outside_arrow(here, found)
            if top == "rooflens" and why is None and belongs(here, HOOK) and not belongs(rest, (*HOOK, *FLOOR)):
                why = None if rest in ("", "__version__") else "hook files know the floor and each other only"
            if why is not None:
                wrong.append(f"{file.relative_to(package)}:{found.line}: imports {found.target}: {why}")
    return wrong


def test_the_tree_has_no_wrong_arrow() -> None:
    package = ROOT / "src" / "rooflens"
    assert {path.parts[len(package.parts)] for path in sources(package)} >= set(FOLDERS)
    assert violations(package) == []


WRONG = {
    "folder to folder": ("collector/join.py", "from rooflens.analyzer.roofline import floor_s"),
    "folder to folder, by the package": ("collector/join.py", "from rooflens import analyzer"),
    "folder to folder, relative": ("collector/join.py", "from ..analyzer import roofline"),
    "folder to folder, inside a function": ("exporters/api.py", "def f():\n    import rooflens.collector.window"),
    "folder to folder, for typing": (
        "exporters/api.py",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from rooflens.collector import window",
    ),
    "folder to folder, by name": (
        "dashboards/live.py",
        "import importlib\nimportlib.import_module('rooflens.analyzer')",
    ),
    "folder to wiring": ("analyzer/rules.py", "from rooflens.pipeline import Snapshot"),
    "folder to settings": ("analyzer/rules.py", "from rooflens import config"),
    "floor to folder": ("records.py", "from rooflens.collector import window"),
    "floor to wiring": ("findings.py", "from rooflens.cli import main"),
    "bare folder": ("collector/join.py", "import analyzer"),
    "engine outside adapters": ("collector/join.py", "def f():\n    import vllm"),
    "torch in the wiring": ("cli/demo.py", "import torch"),
    "torch at import time of calibration": ("collector/calibrate/torch_device.py", "import torch"),
    "torch elsewhere in the collector": ("collector/join.py", "def f():\n    import torch"),
    "numpy in the hook": ("adapters/vllm/hook.py", "def f():\n    import numpy"),
    "numpy in the ring": ("ring.py", "import numpy as np"),
    "engine at import time": ("adapters/vllm/__init__.py", "import vllm"),
    "hook to another adapter": ("adapters/vllm/hook.py", "from rooflens.adapters.embedded import Engine"),
    "hook to a sibling outside it": ("adapters/recorder.py", "from . import embedded"),
    "numpy at import time of the floor": ("records.py", "import numpy"),
    "numpy at import time of a folder": ("collector/__init__.py", "import numpy"),
}
RIGHT = {
    "floor": ("collector/join.py", "from rooflens.records import StepTable\nfrom rooflens import ring, __version__"),
    "own folder": ("collector/join.py", "from rooflens.collector.window import Window\nfrom .window import W"),
    "wiring": ("pipeline/watch.py", "from rooflens import collector, analyzer, exporters, config"),
    "verb": ("cli/demo.py", "from rooflens.adapters.embedded import Engine"),
    "engine in the hook": ("adapters/vllm/hook.py", "def f():\n    from vllm.v1.core.sched import scheduler"),
    "hook files": ("adapters/vllm/hook.py", "import time\nfrom rooflens.adapters import frames\nfrom . import seam"),
    "torch in calibration": ("collector/calibrate/torch_device.py", "def f():\n    import torch"),
    "numpy": ("analyzer/roofline.py", "import numpy as np"),
    "numpy for typing": ("records.py", "if TYPE_CHECKING:\n    import numpy"),
}


def tree(tmp_path: Path, file: str, text: str) -> Path:
    """A package like ours, folders linked, with one file more."""
    package = tmp_path / "src" / "rooflens"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text('__version__ = "0"\n')
    for folder in FOLDERS:
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").touch()
        (package / folder).symlink_to(Path("..", "..", folder))
    (package / file).parent.mkdir(parents=True, exist_ok=True)
    (package / file).write_text(text + "\n")
    return package


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_arrow_is_found(tmp_path: Path, case: str) -> None:
    file, text = WRONG[case]
    assert [line.split(":")[0] for line in violations(tree(tmp_path, file, text))] == [file]


@pytest.mark.parametrize("case", RIGHT)
def test_a_right_arrow_passes(tmp_path: Path, case: str) -> None:
    assert violations(tree(tmp_path, *RIGHT[case])) == []
