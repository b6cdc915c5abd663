"""The documentation is in step: verbs, findings, targets, variables and commands are there, and nothing else is."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

import rooflens
from rooflens.cli import VERBS
from rooflens.findings import FINDINGS

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("adapters", "collector", "analyzer", "exporters", "dashboards")
ROOFLENS = [sys.executable, "-P", "-c", "import sys; from rooflens.cli import main; sys.exit(main())"]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def headings(name: str) -> list[str]:
    return re.findall(r"^#+ (.+)$", read(name), re.MULTILINE)


@cache
def help_of(*arguments: str) -> str:
    """What the command line says of itself, in a wide plain terminal."""
    env = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1"}
    run = subprocess.run([*ROOFLENS, *arguments, "--help"], capture_output=True, text=True, env=env, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout


def targets() -> list[str]:
    run = subprocess.run(["make", "-C", str(ROOT), "--no-print-directory"], capture_output=True, text=True, check=True)
    return re.findall(r"^  make ([a-z-]+) ", run.stdout, re.MULTILINE)


def commands(page: Path) -> list[list[str]]:
    """Every rooflens and make command in the page's shell blocks."""
    blocks = re.findall(r"^```sh\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    lines = (shlex.split(line, comments=True) for block in blocks for line in block.splitlines())
    return [line for line in lines if line and line[0] in ("rooflens", "make")]


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_docs", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_verb_has_a_heading_and_no_other_is_described() -> None:
    assert re.findall(r"^## (.+)$", read("docs/cli.md"), re.MULTILINE) == [f"rooflens {verb}" for verb in VERBS]
    assert [verb for verb in VERBS if not re.search(rf"^ +{verb} +\w", help_of(), re.MULTILINE)] == []


@pytest.mark.parametrize("verb", VERBS)
def test_every_option_of_a_verb_is_described_under_it(verb: str) -> None:
    section = read("docs/cli.md").split(f"## rooflens {verb}\n")[1].split("\n## ")[0]
    options = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", help_of(verb))) - {"--help"}
    assert [option for option in sorted(options) if f"`{option}" not in section] == []


def test_every_finding_has_a_heading() -> None:
    assert headings("docs/findings.md")[1:] == [str(code) for code in FINDINGS]


def test_generated_pages_are_fresh() -> None:
    for name, render in generator().PAGES.items():
        assert (ROOT / "docs" / name).read_text(encoding="utf-8") == render(), f"docs/{name}: run `make docs`"


def test_every_make_target_has_a_row() -> None:
    listed = targets()
    assert {"help", "demo", "test", "test-engines", "bench", "lint", "prove"} <= set(listed)
    assert re.findall(r"^\| `make ([a-z-]+)` \|", read("CONTRIBUTING.md"), re.MULTILINE) == listed


def test_every_variable_is_described() -> None:
    sources = [path for folder in ("src", *FOLDERS) for path in ROOT.glob(f"{folder}/**/*.py")]
    used = {name for path in sources for name in re.findall(r'"(ROOFLENS_[A-Z_]+)"', path.read_text(encoding="utf-8"))}
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert used <= set(re.findall(r"`(ROOFLENS_[A-Z_]+)", text))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_exist(page: Path) -> None:
    for program, verb, *rest in commands(page):
        if program == "make":
            assert verb in targets()
            continue
        assert verb in VERBS
        text = help_of(verb, *(rest[:1] if verb == "export" else ()))  # which has verbs of its own
        assert [word for word in rest if word.startswith("--") and word.split("=")[0] not in text] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert re.match(r"https?://", target) or (page.parent / target).exists(), target


def anchors(page: Path) -> set[str]:
    """Of the page's headings, as GitHub makes them."""
    found = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_into_pages_lead_to_a_heading(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", page.read_text(encoding="utf-8")):
        assert anchor in anchors(page.parent / target if target else page), f"{target}#{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_has_one_title(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    assert len(re.findall(r"^# ", text, re.MULTILINE)) == 1


def test_the_readme_says_how_far_off_published_steps_are() -> None:
    result = json.loads(read("benchmarks/results/roofline.json"))
    count, middle, most = result["uncalibrated_rows_median_p90"]
    text = " ".join(read("README.md").split())
    assert f"{count} decode steps, off by {middle:.1%} in the middle and {most:.0%} at".replace("%", " %") in text
    assert f"{result['rows']} figures" in text


def test_the_changelog_begins_with_this_version() -> None:
    first = next(heading for heading in headings("CHANGELOG.md") if re.match(r"\d", heading))
    assert first.split()[0] == rooflens.__version__


def test_decisions_are_numbered_and_short() -> None:
    pages = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    assert [page.name[:4] for page in pages] == [f"{number:04}" for number in range(1, len(pages) + 1)]
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert text.startswith(f"# {page.name[:4]}: ")
        assert all(f"**{part}.**" in text for part in ("Context", "Choice", "Price"))
        assert len(text.splitlines()) <= 40
