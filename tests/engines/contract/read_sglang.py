"""Read from an unpacked sglang wheel what the hook touches, without importing it: python read_sglang.py FOLDER VERSION.

`pip download --no-deps sglang==VERSION`, unpack, run; the answer goes to tests/data/sglang_surface/VERSION.json.
"""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3] / "src"))
from rooflens.adapters.sglang.surface import (
    BATCH_FIELDS,
    METHODS,
    MODES,
    REQUEST_PROPERTIES,
    SCHEDULER_ATTRIBUTES,
)

KEPT = {*METHODS, *MODES, *REQUEST_PROPERTIES}
FILES = {
    "Scheduler": "srt/managers/scheduler.py",
    "ScheduleBatch": "srt/managers/schedule_batch.py",
    "Req": "srt/managers/schedule_batch.py",
    "ForwardMode": "srt/model_executor/forward_batch_info.py",
    "ForwardPassMetrics": "srt/observability/forward_pass_metrics.py",
}


def read_class(file: Path, name: str) -> dict[str, Any]:
    """Annotated fields, methods with their parameters, and attributes set on self."""
    tree = ast.parse(file.read_text())
    found = next(node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == name)
    fields = [n.target.id for n in found.body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)]
    methods = {n.name: [arg.arg for arg in n.args.args] for n in found.body if isinstance(n, ast.FunctionDef)}
    stored = (node for node in ast.walk(found) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store))
    attributes = sorted({n.attr for n in stored if isinstance(n.value, ast.Name) and n.value.id == "self"})
    return {
        "fields": [field for field in fields if name != "ScheduleBatch" or field in BATCH_FIELDS],
        "methods": {key: value for key, value in methods.items() if key in KEPT},
        "attributes": [key for key in attributes if key in SCHEDULER_ATTRIBUTES],
    }


def read(folder: Path, version: str) -> dict[str, Any]:
    """The surface of a release."""
    package = folder / "sglang"
    plugins = (package / "srt/plugins/__init__.py").read_text()
    body = (package / FILES["Scheduler"]).read_text()
    return {
        "version": version,
        "provenance": f"sglang {version} wheel on PyPI",
        "plugin_group": "sglang.srt.plugins" if '"sglang.srt.plugins"' in plugins else None,
        "scheduler_loads_plugins": "load_plugins()" in body,
        "result_is_kept": "self.result_queue.append((batch.copy(), batch_result))" in body,
        "classes": {name: read_class(package / file, name) for name, file in FILES.items()},
    }


if __name__ == "__main__":
    print(json.dumps(read(Path(sys.argv[1]), sys.argv[2]), sort_keys=True))
