"""What holds for every file: short files and functions, and nothing that is true of one machine only."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MAX_FILE_LINES = 300
MAX_FUNCTION_LINES = 50
# "file" or "file::function" and the reason why it may be longer.
LONGER: dict[str, str] = {}

# Written in pieces, so that this file does not find itself.
FORBIDDEN = {
    "a path of one machine": r"(?<![\w./-])/(?:" + "wo" + r"rk|fa" + r"rm|ro" + r"ot)/",
    "a home folder": r"(?<![\w./-])/(?:ho" + r"me|Us" + r"ers)/[a-z]+/",
    "a virtual environment of one machine": "/opt/" + "venvs",
    "a registry's host": r"\b(?:py[p]i|python[h]osted|np[m]js|de[b]\.[a-z]+)" + r"\.(?:org|com|net)\b",
    "an index setting": r"--(?:extra-)?index-url|find-" + "links",
    "how the work is organised": r"(?i)\bsub-?agents?\b|\bco-?pilot\b|\bwork" + r"place\b|\bissues sh" + r"ow\b",
    "a note that is not in the repository": r"shared/(?:not" + r"es|des" + r"ign|har" + r"ness|cas" + r"es|da" + r"ta)",
}


def tracked() -> list[Path]:
    """Every file that is or would be committed, links left out."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    paths = (ROOT / name for name in listed.split("\0") if name)
    return sorted(path for path in paths if path.is_file() and not path.is_symlink())


def too_long(path: Path, name: str) -> Iterator[str]:
    """The file and the functions in it that exceed the limits, as keys of LONGER with their length."""
    text = path.read_text(encoding="utf-8")
    lines = len(text.splitlines())
    if lines > MAX_FILE_LINES:
        yield f"{name} ({lines} lines)"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > MAX_FUNCTION_LINES:
                yield f"{name}::{node.name} ({length} lines)"


def unfit(text: str) -> Iterator[str]:
    """What a text says that only holds, or is only known, where it was written."""
    for number, line in enumerate(text.splitlines(), 1):
        for why, pattern in FORBIDDEN.items():
            if found := re.search(pattern, line):
                yield f"{number}: {found.group()!r} is {why}"


def test_files_and_functions_are_short() -> None:
    sources = [path for path in tracked() if path.suffix == ".py" and "tests" not in path.relative_to(ROOT).parts]
    found = [entry for path in sources for entry in too_long(path, path.relative_to(ROOT).as_posix())]
    assert [entry for entry in found if entry.split(" (")[0] not in LONGER] == []
    assert set(LONGER) <= {entry.split(" (")[0] for entry in found}, "an exception that is no longer needed"
    assert all(LONGER.values()), "an exception without a reason"


def test_long_ones_are_found(tmp_path: Path) -> None:
    body = "\n".join("    pass" for _ in range(MAX_FUNCTION_LINES))
    file = tmp_path / "long.py"
    file.write_text(f"def f():\n{body}\n" + "x = 1\n" * MAX_FILE_LINES)
    assert [entry.split(" (")[0] for entry in too_long(file, "long.py")] == ["long.py", "long.py::f"]


def test_nothing_holds_for_one_machine_only() -> None:
    found = []
    for path in tracked():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found += [f"{path.relative_to(ROOT)}:{entry}" for entry in unfit(text)]
    assert found == []


@pytest.mark.parametrize(
    "line",
    [
        "path = '/wo" + "rk/main'",
        "see /ro" + "ot/.cache",
        "cd /fa" + "rm/x",
        "/opt/" + "venvs/v1/bin/python",
        "fetched from https://py" + "pi.org/simple",
        "pip install --index-" + "url x",
        "../shared/no" + "tes/a.md",
        "/ho" + "me/ann/models",
    ],
)
def test_unfit_lines_are_found(line: str) -> None:
    assert list(unfit(line))


@pytest.mark.parametrize("line", ["src/work/x", "a/root/b", "<root>/x", "/dev/shm", "a user session", "home/", "docs/"])
def test_fit_lines_pass(line: str) -> None:
    assert not list(unfit(line))


def test_the_client_library_of_prometheus_is_for_tests_alone() -> None:
    """Decision 0007: what is installed beside an engine renders its own page."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = settings["project"]["optional-dependencies"]
    assert [name for name, needs in extras.items() for need in needs if need.startswith("prometheus-client")] == []
    assert any(need.startswith("prometheus-client") for need in settings["dependency-groups"]["dev"])
    sources = [
        p for p in tracked() if p.suffix == ".py" and p.relative_to(ROOT).parts[0] not in ("tests", "benchmarks")
    ]
    users = [p.name for p in sources if re.search(r"(?:import|from) +prometheus_client", p.read_text(encoding="utf-8"))]
    assert users == []


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/decisions/0001-package-layout.md"])
def test_the_wiring_is_where_the_pages_say(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    (line,) = [line for line in text.splitlines() if "`config.py`" in line]
    named = [name.removeprefix("src/rooflens/") for name in re.findall(r"`([\w./]+)`", line)]
    assert len(named) == 3
    assert [name for name in named if not (ROOT / "src" / "rooflens" / name).exists()] == []
