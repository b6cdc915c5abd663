"""Whether the tests notice a slip in a formula: wrong edits of the formula modules, and how many the tests kill.

Works on a copy of the last commit in a temporary folder. Every mutant of benchmarks/mutants.py that is drawn (a seeded
sample of each module, or all) is written into the copy, and the test files of the module run until one fails, each in
a process forked from one that has the libraries loaded. A module that ran again replaces its own entry in the result.
Survivors that change nothing are named with the reason in benchmarks/data/equivalent_mutants.toml; the score still
counts them as survivors.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # a process that is forked must have one thread

import argparse
import json
import platform
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import hypothesis
import hypothesis.extra.numpy
import numpy as np  # noqa: F401  loaded before the fork
import pytest
from formula_modules import module_tests
from mutants import Mutant, mutants_of

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "benchmarks" / "results" / "mutation.json"
EQUIVALENT = ROOT / "benchmarks" / "data" / "equivalent_mutants.toml"
GOAL = 0.9
SAMPLE = 30
SEED = 20261130
EXAMPLES = 12  # at most, of a hypothesis test
SLOW = 8  # times what a test file took unharmed is taken as never ending
LEAST_LIMIT_S = 20.0
MEMORY_BYTES = 8 << 30
FAILED = 100  # and above: exit statuses of a child, by the place of the test file that failed


def git(*words: str) -> bytes:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, check=True).stdout


def copy_commit(folder: Path) -> str:
    """The last commit's files, links and all, in a folder; the commit."""
    commit = git("rev-parse", "HEAD").decode().strip()
    subprocess.run(["tar", "-x", "-C", str(folder)], input=git("archive", commit), check=True)
    return commit


class FirstFailure:
    """Ends the process at the first failure, with a status that tells the test file."""

    def __init__(self, tests: Sequence[str]) -> None:
        self.tests = tests

    def pytest_runtest_logreport(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.failed:
            file = report.nodeid.split("::")[0]
            os._exit(FAILED + (self.tests.index(file) if file in self.tests else 0))

    pytest_collectreport = pytest_runtest_logreport

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Worked examples before properties, which take longer."""
        items.sort(key=lambda item: item.get_closest_marker("hypothesis") is not None)


def run_in_child(tests: Sequence[str]) -> None:
    """In a forked process: the test files, in silence; 0 if all pass."""
    os.setpgrp()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    try:
        code = int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "--assert=plain", *tests], [FirstFailure(tests)]))
    except BaseException:
        code = FAILED
    os._exit(code)


def killer(tests: Sequence[str], limit_s: float) -> str | None:
    """The first of the test files that fails, or the first if they do not end in time; None if all pass."""
    if not tests:
        return None
    start = time.monotonic()
    child = os.fork()
    if child == 0:
        run_in_child(tests)
    while time.monotonic() - start < limit_s:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            if code == int(pytest.ExitCode.NO_TESTS_COLLECTED):
                sys.exit(f"error: no tests in {', '.join(tests)}")
            return None if code == 0 else tests[code - FAILED if code >= FAILED else 0]
        time.sleep(0.01)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return tests[0]


def few_examples() -> None:
    """Hypothesis draws the same examples every time, and few, also where a test asks for more."""
    plain = hypothesis.settings.__init__

    def capped(self: hypothesis.settings, *parent: Any, **given: Any) -> None:
        if "max_examples" in given:
            given["max_examples"] = min(given["max_examples"], EXAMPLES)
        plain(self, *parent, **given)

    hypothesis.settings.register_profile(
        "mutants", derandomize=True, max_examples=EXAMPLES, deadline=None, database=None
    )
    hypothesis.settings.load_profile("mutants")
    hypothesis.settings.__init__ = capped  # type: ignore[method-assign]


class Bench:
    """The copy of the commit with the test files' usual times; it runs one mutant after another."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.usual_s: dict[str, float] = {}
        self.broken: set[str] = set()

    def measure(self, tests: Sequence[str]) -> None:
        """Runs test files on the unharmed copy, twice the first time: the first run writes the bytecode."""
        for test in tests:
            if test in self.usual_s or test in self.broken:
                continue
            sys.dont_write_bytecode = False
            failed = killer([test], 300.0)
            start = time.monotonic()
            failed = failed or killer([test], 300.0)
            self.usual_s[test] = time.monotonic() - start
            sys.dont_write_bytecode = True
            if failed:
                del self.usual_s[test]
                self.broken.add(test)
                print(f"left out, it fails unharmed: {test}", file=sys.stderr)

    def killer(self, file: Path, mutant: Mutant, tests: Sequence[str]) -> str | None:
        """The test file that notices a mutant; None if all pass. The first runs alone, as it often does."""
        unharmed = file.read_text()
        file.write_text(mutant.text)
        for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*.pyc"):
            compiled.unlink()
        try:
            found = None
            for some in (tests[:1], tests[1:]):
                limit_s = max(LEAST_LIMIT_S, SLOW * sum(self.usual_s[test] for test in some))
                found = found or killer(some, limit_s)
            return found
        finally:
            file.write_text(unharmed)

    def score(self, module: str, tests: Sequence[str], sample: int | None, reasons: dict[tuple[str, str], str]) -> Any:
        """One module's entry of the result."""
        self.measure(tests)
        known = [test for test in tests if test in self.usual_s]
        if not known:
            sys.exit(f"error: no test file of {module} passes unharmed")
        file, start = self.folder / module, time.monotonic()
        made = mutants_of(file.read_text())
        drawn = made
        if sample is not None and sample < len(made):
            chosen = random.Random(f"{SEED} {module}").sample(range(len(made)), sample)
            drawn = [made[index] for index in sorted(chosen)]
        kills: Counter[str] = Counter()
        survivors = []
        for mutant in drawn:
            # The file that killed most so far goes first, then the quick ones: the verdict is the same in any order.
            order = sorted(known, key=lambda test: (-kills[test] / self.usual_s[test], self.usual_s[test]))
            found = self.killer(file, mutant, order)
            if found:
                kills[found] += 1
                continue
            one = {"at": f"{module}:{mutant.line}", "change": mutant.change, "in": mutant.where}
            if mutant.key in reasons:
                one["equivalent"] = reasons[mutant.key]
            survivors.append(one)
            print(
                f"  survives {one['at']}  {mutant.change}  {'(equivalent)' if 'equivalent' in one else ''}", flush=True
            )
        killed = len(drawn) - len(survivors)
        return {
            "made": len(made), "run": len(drawn), "killed": killed, "seconds": round(time.monotonic() - start),
            "tests": [Path(test).stem for test in known], "survivors": survivors,
        }  # fmt: skip


def equivalents() -> dict[str, dict[tuple[str, str], str]]:
    """By module the edits that change nothing, each with the reason."""
    found: dict[str, dict[tuple[str, str], str]] = {}
    for one in tomllib.loads(EQUIVALENT.read_text())["mutant"]:
        found.setdefault(one["module"], {})[one["in"], one["change"]] = one["why"]
    return found


def totals(modules: dict[str, Any]) -> dict[str, Any]:
    """All modules together: of the mutants run the share killed, and the same without those that change nothing."""
    run = sum(one["run"] for one in modules.values())
    killed = sum(one["killed"] for one in modules.values())
    same = sum("equivalent" in survivor for one in modules.values() for survivor in one["survivors"])
    below = [name for name, one in modules.items() if one["killed"] < GOAL * one["run"]]
    return {
        "commits": sorted({one["commit"] for one in modules.values()}),
        "made": sum(one["made"] for one in modules.values()), "run": run, "killed": killed,
        "share_killed": round(killed / run, 4), "equivalent": same,
        "share_killed_without_equivalent": round(killed / (run - same), 4), "goal": GOAL, "modules_below_goal": below,
        "modules_not_run": [name for name in module_tests() if name not in modules],
    }  # fmt: skip


def prove(folder: Path, wanted: Sequence[str], sample: int | None) -> Iterator[tuple[str, Any]]:
    """Every wanted module that has mutants, with its entry."""
    commit = copy_commit(folder)
    os.chdir(folder)
    os.environ["PYTHONPATH"] = str(folder / "src")
    sys.path.insert(0, str(folder / "src"))
    few_examples()
    bench, reasons = Bench(folder), equivalents()
    for module, tests in module_tests().items():
        if (wanted and not any(word in module for word in wanted)) or not mutants_of((folder / module).read_text()):
            continue
        entry = {"commit": commit, **bench.score(module, tests, sample, reasons.get(module, {}))}
        print(f"{module}: {entry['killed']} of {entry['run']} killed in {entry['seconds']} s", flush=True)
        yield module, entry


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--modules", nargs="*", default=[], help="only modules whose path has one of these in it")
    parser.add_argument("--sample", type=int, default=SAMPLE, help="mutants of a module (default %(default)s)")
    parser.add_argument("--all", action="store_true", help="every mutant")
    parser.add_argument("--json", type=Path, default=RESULT, help="where the result is (default %(default)s)")
    options = parser.parse_args()
    result_file, folder = options.json.resolve(), Path(tempfile.mkdtemp(prefix="mutants-"))
    modules: dict[str, Any] = {}
    os.nice(2)
    try:
        for module, entry in prove(folder, options.modules, None if options.all else options.sample):
            if result_file.exists():  # another run may have written other modules
                before = json.loads(result_file.read_text())["modules"]
                modules = {name: one for name, one in before.items() if name in module_tests()}
            modules[module] = entry
            head = {"python": platform.python_version(), "seed": SEED, **totals(modules)}
            result_file.write_text(json.dumps({**head, "modules": dict(sorted(modules.items()))}, indent=1) + "\n")
    finally:
        os.chdir(ROOT)
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps(totals(modules), indent=1))


if __name__ == "__main__":
    main()
