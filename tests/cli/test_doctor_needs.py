"""What doctor says a verb needs is what its modules import, followed through the whole package."""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import rooflens
from rooflens.cli import VERBS
from rooflens.cli.demo import NEEDED
from rooflens.cli.doctor_install import NEEDS, TRACED

PACKAGE = Path(rooflens.__file__).parent
BROUGHT_BY = {"pydantic": "pydantic_settings", "starlette": "fastapi", "h11": "uvicorn"}
# Without them there is no device, no hook, no picture, no processor time of processes, no feed of forward passes, no
# pushed msgpack, and NumPy calibrates. Of TRACED doctor tells apart.
OPTIONAL = {
    *TRACED, "distributed", "ijson", "pandas", "perfetto",
    "pynvml", "amdsmi", "psutil", "torch", "vllm", "transformers", "matplotlib", "msgspec", "zmq",
}  # fmt: skip


def file_of(module: str) -> Path | None:
    """The source of a module of rooflens; None for a name in one."""
    path = PACKAGE.joinpath(*module.split(".")[1:])
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)


def imported(node: ast.AST) -> Iterator[str]:
    """Every module that the code below ``node`` imports when it runs, in functions too."""
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        return
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield str(node.module)
        yield from (f"{node.module}.{alias.name}" for alias in node.names)
    for child in ast.iter_child_nodes(node):
        yield from imported(child)


def foreign(module: str) -> set[str]:
    """What is neither ours nor the standard library's, of all that the module can come to import."""
    seen: set[str] = set()
    found: set[str] = set()
    ahead = [module]
    while ahead:
        name = ahead.pop()
        if name in seen:
            continue
        seen.add(name)
        top = name.split(".")[0]
        if top != "rooflens":
            found.add(BROUGHT_BY.get(top, top))
        elif (file := file_of(name)) is not None:
            ahead += imported(ast.parse(file.read_bytes()))
    return {name for name in found if name not in sys.stdlib_module_names}


@pytest.mark.parametrize("verb", NEEDS)
def test_a_verb_needs_what_it_imports(verb: str) -> None:
    assert foreign(VERBS[verb].module) - OPTIONAL == set(NEEDS[verb][1])


def test_an_export_needs_what_traces_need() -> None:
    assert foreign("rooflens.cli.export_trace") >= set(TRACED)


def test_after_the_demo_every_verb_runs() -> None:
    """`make demo` installs the extra of the demo and nothing else, and its last line names other verbs."""
    extras = tomllib.loads((PACKAGE.parents[1] / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    brought = {line.split(">")[0].replace("-", "_") for line in extras["demo"]}
    assert brought >= {"psutil", *(module for _, modules in NEEDS.values() for module in modules)}
    assert set(NEEDED) == set(NEEDS["demo"][1])
