"""The wrong edits that benchmarks/prove_mutation.py makes: each is another program that compiles, and none is noise."""

from __future__ import annotations

import ast
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def mutants() -> ModuleType:
    """benchmarks/mutants.py, which is in no package."""
    path = ROOT / "benchmarks" / "mutants.py"
    if not path.exists():
        pytest.skip("only in a checkout")
    spec = importlib.util.spec_from_file_location("mutants", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["mutants"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("source", "changes"),
    [
        ("x = a + b", ["a + b -> a - b"]),
        ("x = 'a' + b", []),
        ("x += a", ["x += a -> x -= a"]),
        ("x = a < 3", ["a < 3 -> a <= 3", "3 -> 4"]),
        ("x = 1", ["1 -> 2", "1 -> 0"]),
        ("x = 0.5, 0.0, True, 'a'", ["0.5 -> 1.0", "0.0 -> 1.0", "True -> False"]),
        ("x = a and b", ["a and b -> a or b"]),
        ("x = min(a, b)", ["min(a, b) -> max(a, b)"]),
        ("x = math.ceil(a)", ["math.ceil(a) -> math.floor(a)"]),
        ("x = f(a, b=c)", ["f(...) without b=c"]),
        ("x = zip(a, b, strict=True)", []),
        ("x = {'a': b, c: d}", ["key 'a' -> 'a_'"]),
        ("x = -a if not b else c", ["-a -> a", "not b -> b", "-a if not b else c -> -a if not not b else c"]),
        ("def f(a: int = 1) -> 'x + y':\n    '''A text.'''\n    return a", ["1 -> 2", "1 -> 0", "return None"]),
        ("def f():\n    raise E(a + 1)", []),
        ("@g(a=1)\ndef f():\n    return None", []),
        ("if TYPE_CHECKING:\n    x = 1 + a", []),
    ],
)
def test_edits_of_a_statement(mutants: ModuleType, source: str, changes: list[str]) -> None:
    assert sorted(one.change for one in mutants.mutants_of(source)) == sorted(changes)


def test_every_edit_of_a_module_compiles_and_differs(mutants: ModuleType) -> None:
    source = (Path(__file__).parent.parent / "analyzer" / "point.py").read_text()
    found = mutants.mutants_of(source)
    assert len(found) > 50
    assert len({one.text for one in found} | {ast.unparse(ast.parse(source))}) == len(found) + 1
    lines = source.splitlines()
    for one in found:
        compile(one.text, "point.py", "exec")
        assert lines[one.line - 1].strip()
    assert source == (ROOT / "analyzer" / "point.py").read_text()
