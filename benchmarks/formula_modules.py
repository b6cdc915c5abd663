"""The modules that hold formulas, and the test files that belong to each: for benchmarks/prove_mutation.py."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[1]
ROWS = [
    *("operators", "operators_experts", "operators_mixers", "operators_devices", "mixers_rows", "kv_bytes"),
    *("whole_models", "operators_relations", "counting", "traps"),
]
ARCH = ["mixers", "mixers_spelling", "kv_bytes", "whole_models", "mixers_bad", "arch", "arch_configs"]
STEP = ["point", "features", "roofline_kinds", "roofline_rows"]
PLAN = ["predict", "predict_deployments"]
# The test files that belong to a module or to the modules of a folder, without tests/analyzer/test_ and .py.
TESTS: dict[str, list[str]] = {
    "operators/": ROWS,
    "architecture/": ARCH,
    "acceptance": ["speculation"],
    "arch": ARCH,
    "capacity": ["capacity", "predict_deployments"],
    "collectives": ["collectives", "reachable"],
    "compiled_rows": ["roofline_kinds", "roofline_rows", "roofline"],
    "correction": ["correction"],
    "counting": ["counting", "whole_models", "kv_bytes"],
    "drafting": ["drafting", "speculation"],
    "efficiency": ["efficiency", "collectives"],
    "features": STEP,
    "figures": ["summary", "window_figures"],
    "ggml_types": ["header_limits", "precision"],
    "gguf_header": ["header_limits", "tensor_files"],
    "gguf_model": ["header_limits", "tensor_files"],
    "group_formats": ["precision", "quantization"],
    "handover": ["handover"],
    "hardware": ["hardware", "hardware_slices"],
    "mig": ["hardware_slices", "hardware"],
    "modules": ["precision", "quantization"],
    "number_formats": ["format_names", "precision", "quantization"],
    "plan": ["plan", *PLAN],
    "point": ["point", "predict_deployments"],
    "precision": ["precision", "quantization", "operators"],
    "predict": ["prediction_sums", *PLAN],
    "quantization": ["format_names", "quantization", "precision"],
    "quantization_methods": ["quantization", "precision"],
    "quantization_schemes": ["quantization", "precision"],
    "quantization_vendors": ["quantization", "precision"],
    "reachable": ["reachable", "step_time"],
    "reachable_steps": ["reachable"],
    "roofline": ["roofline_kinds", "roofline_rows", "roofline"],
    "safetensors_header": ["header_limits", "tensor_files"],
    "sides": ["step_time", "roofline_kinds", "predict_deployments"],
    "span_features": ["features", "point", "roofline_kinds"],
    "spans": ["spans", "features", "point"],
    "speculation": ["drafting", "speculation"],
    "step_time": ["step_time", "predict_deployments", "speculation"],
    "stored_modules": ["tensor_files"],
    "tensor_check": ["tensor_files"],
    "tensor_files": ["tensor_files"],
    "tensor_groups": ["tensor_files"],
    "work": ["operators", "counting", "kv_bytes"],
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
