"""What rooflens' hook relies on in a transformers release, read from its source text; nothing is imported or installed.

    python tests/engines/contract/read_transformers.py transformers-5.24.0-py3-none-any.whl ...

Each writes tests/data/transformers_surface/VERSION.json; tests/test_transformers_contract.py holds the hook against
these files. The wheels come from `pip download --no-deps transformers==VERSION`.
"""

from __future__ import annotations

import ast
import hashlib
import json
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "data" / "transformers_surface"
PACKAGE = "transformers/generation/continuous_batching/"
# Of these the parameters of each method, the fields or slots, and what they assign to self.
CLASSES = (
    "ContinuousBatchProcessor", "ContinuousBatchingManager", "Scheduler", "FIFOScheduler", "PrefillFirstScheduler",
    "RequestState", "FutureRequestState", "RequestStatus", "PagedAttentionCache", "CachePool", "CacheAllocator",
    "FullAttentionCacheAllocator", "BlockLedger", "BlockManager", "OffloadingManager", "ContinuousBatchingIOs",
    "ContinuousBatchingAsyncIOs", "HostDeviceIOPair", "ModelRunner",
)  # fmt: skip


def class_facts(node: ast.ClassDef) -> dict[str, Any]:
    """Methods with their parameters, fields, slots and attributes of one class, each in the order of the source."""
    methods, fields, slots = {}, [], []
    for part in node.body:
        if isinstance(part, ast.FunctionDef):
            methods[part.name] = [one.arg for one in (*part.args.args, *part.args.kwonlyargs)]
        elif isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
            fields.append(part.target.id)
        elif isinstance(part, ast.Assign) and isinstance(part.targets[0], ast.Name):
            if part.targets[0].id == "__slots__":
                slots = list(ast.literal_eval(part.value))
            else:
                fields.append(part.targets[0].id)
    return {"methods": methods, "fields": fields, "slots": slots, "attributes": sorted(set(assigned(node)))}


def assigned(node: ast.ClassDef) -> Iterator[str]:
    """Names that the class's methods assign to self."""
    for part in ast.walk(node):
        stored = isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store)
        if stored and isinstance(part.value, ast.Name) and part.value.id == "self":
            yield part.attr


def calls_in(node: ast.ClassDef, method: str) -> list[str]:
    """Methods that ``method`` calls on self or on something of self, in the order of the source."""
    for part in node.body:
        if isinstance(part, ast.FunctionDef) and part.name == method:
            found = [call.func for call in ast.walk(part) if isinstance(call, ast.Call)]
            named = sorted((one for one in found if isinstance(one, ast.Attribute)), key=lambda one: one.lineno)
            return [ast.unparse(one).removeprefix("self.") for one in named if ast.unparse(one).startswith("self.")]
    return []


def facts(wheel: Path) -> dict[str, Any]:
    """All of one wheel."""
    found: dict[str, Any] = {
        "version": wheel.name.split("-")[1],
        "wheel": wheel.name,
        "sha256": hashlib.sha256(wheel.read_bytes()).hexdigest(),
        "classes": {},
        "calls": {},
    }
    with zipfile.ZipFile(wheel) as archive:
        for name in sorted(archive.namelist()):
            if not name.startswith(PACKAGE) or not name.endswith(".py"):
                continue
            for node in ast.parse(archive.read(name)).body:
                if isinstance(node, ast.ClassDef) and node.name in CLASSES:
                    place = name.removeprefix(PACKAGE).removesuffix(".py").replace("/", ".")
                    found["classes"][node.name] = {"place": place, **class_facts(node)}
                    for method in ("prepare_next_batch", "update_batch"):
                        if calls := calls_in(node, method):
                            found["calls"][method] = calls
    return found


def main(wheels: list[str]) -> None:
    """Write the facts of each wheel."""
    FOLDER.mkdir(exist_ok=True)
    for wheel in map(Path, wheels):
        found = facts(wheel)
        (FOLDER / f"{found['version']}.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
