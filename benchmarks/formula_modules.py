"""The modules that hold formulas, and the test files that belong to each: for benchmarks/prove_mutation.py."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[1]
ROWS = [
    *("operators", "operators_experts", "operators_mixers", "operators_devices", "mixers_rows", "kv_bytes"),
    *("whole_models", "operators_relations", "counting", "traps"),
]
ARCH = ["mixers", "mixers_spelling", "kv_bytes", "whole_models", "mixers_bad", "arch", "arch_configs"]
STEP = ["point", "features", "roofline_kinds", "roofline", "roofline_rows", "spans"]
PLAN = ["predict", "predict_deployments", "palm_mfu", "assumptions", "million_tokens"]
FORMATS = ["quantization", "precision", "tensor_files"]
# The test files that belong to a module or to the modules of a folder, without tests/analyzer/test_ and .py.
TESTS: dict[str, list[str]] = {
    "operators/": ROWS,
    "architecture/": ARCH,
    "acceptance": ["speculation"],
    "arch": ARCH,
    "capacity": ["capacity", *PLAN, "handover", "speculation"],
    "collectives": ["collectives", "reachable"],
    "compiled_rows": ["roofline_kinds", "roofline_rows", "roofline", "reachable"],
    "correction": ["correction"],
    "counting": ["counting", *ROWS],
    "drafting": ["speculation"],
    "efficiency": ["efficiency", "reachable", "collectives"],
    "features": STEP,
    "figures": ["summary", "window_figures"],
    "ggml_types": [*FORMATS],
    "gguf_header": ["tensor_files"],
    "gguf_model": ["tensor_files"],
    "group_formats": FORMATS,
    "handover": ["handover"],
    "hardware": ["hardware", "hardware_slices"],
    "mig": ["hardware_slices", "hardware"],
    "modules": [*FORMATS],
    "number_formats": [*FORMATS],
    "plan": [*PLAN, "handover", "speculation"],
    "point": STEP,
    "precision": [*FORMATS, "operators", "mixers_rows"],
    "predict": [*PLAN, "handover", "speculation"],
    "products": ["products", "features"],
    "quantization": FORMATS,
    "quantization_methods": FORMATS,
    "quantization_schemes": FORMATS,
    "quantization_vendors": FORMATS,
    "reachable": ["reachable", *PLAN],
    "reachable_steps": ["reachable", "roofline"],
    "roofline": ["roofline_kinds", "roofline_rows", "roofline", "reachable"],
    "safetensors_header": ["tensor_files"],
    "sides": ["step_time", "reachable", "roofline_kinds", "roofline", *PLAN],
    "span_features": STEP,
    "spans": ["spans", *STEP, "operators_relations"],
    "speculation": ["speculation"],
    "step_time": ["step_time", *PLAN, "reachable", "roofline", "speculation"],
    "stored_modules": ["tensor_files"],
    "tensor_files": ["tensor_files"],
    "tensor_groups": ["tensor_files"],
    "work": [*ROWS, "roofline_kinds"],
}


def module_tests() -> dict[str, list[str]]:
    """Every formula module with its test files."""
    found = {}
    for name, tests in TESTS.items():
        folder = ROOT / "analyzer" / name
        files = sorted(folder.glob("*.py")) if name.endswith("/") else [folder.with_suffix(".py")]
        for file in files:
            found[str(file.relative_to(ROOT))] = [f"tests/analyzer/test_{test}.py" for test in dict.fromkeys(tests)]
    return found
