"""What device time relies on in the workers of a vLLM release, read from its source text; see read_surface.py."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

Found = tuple[ast.ClassDef, ast.Module] | None
Find = Callable[[str, str], Found]

FOLDER = "vllm/v1/worker"
RUNNERS = {"runner": f"{FOLDER}/gpu_model_runner.py", "runner_2": f"{FOLDER}/gpu/model_runner.py"}
METHODS = ("execute_model", "sample_tokens", "pool", "_dummy_run")
WORKER_METHODS = ("init_device", "compile_or_warm_up_model", "execute_model")
WRAPPERS = (f"{FOLDER}/worker_base.py", "vllm/worker/worker_base.py")


def functions(found: Found) -> dict[str, ast.FunctionDef]:
    """The methods that stand in the class itself."""
    return {line.name: line for line in found[0].body if isinstance(line, ast.FunctionDef)} if found else {}


def named(function: ast.FunctionDef | None) -> list[str]:
    """The parameters of a method, in order."""
    given = function.args if function else ast.arguments()
    return [argument.arg for argument in (*given.posonlyargs, *given.args, *given.kwonlyargs)]


def assigns(functions_of: dict[str, ast.FunctionDef], start: str, attribute: str) -> bool:
    """Whether a method, or one of self's that it calls, gives self an attribute."""
    seen, todo = set(), [start]
    while todo:
        name = todo.pop()
        if name in seen or name not in functions_of:
            continue
        seen.add(name)
        for node in ast.walk(functions_of[name]):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
                if node.attr == attribute and isinstance(node.ctx, ast.Store):
                    return True
                todo.append(node.attr)
    return False


def calls(nodes: ast.AST | None, method: str) -> Iterator[ast.Call]:
    """The calls of something's ``method`` below a node."""
    for node in ast.walk(nodes) if nodes else ():
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == method:
            yield node


def line_of(function: ast.FunctionDef | None, text: str) -> int | None:
    """The first statement inside a method that contains ``text``."""
    inner = [node for line in (function.body if function else ()) for node in ast.walk(line)]
    return min((n.lineno for n in inner if isinstance(n, ast.stmt) and text in ast.unparse(n)), default=None)


def plugins_first(find: Find) -> bool | None:
    """Whether a worker process loads its plugins before it builds the worker."""
    for path in WRAPPERS:
        start = functions(find("WorkerWrapperBase", path)).get("init_worker")
        if start is not None:
            loads, builds = line_of(start, "load_general_plugins()"), line_of(start, "worker_class(")
            return loads is not None and builds is not None and loads < builds
    return None


def workers(find: Find) -> dict[str, object]:
    """The facts of one release; a model runner that it does not have is None."""
    worker = find("Worker", f"{FOLDER}/gpu_worker.py")
    own, base = functions(worker), functions(find("WorkerBase", WRAPPERS[0]))
    facts: dict[str, object] = {
        "worker_methods": [name for name in WORKER_METHODS if name in own],
        "worker_base": bool(worker and any(ast.unparse(each) == "WorkerBase" for each in worker[0].bases)),
        "base_has_init": "__init__" in base,
        "worker_calls_base": line_of(own.get("__init__"), "super().__init__(") is not None,
        "runner_built_in_init_device": assigns(own, "init_device", "model_runner"),
        "plugins_before_worker": plugins_first(find),
    }
    for kind, path in RUNNERS.items():
        found = find("GPUModelRunner", path)
        if found is None:
            facts[kind] = None
            continue
        methods = functions(found)
        everywhere = [*calls(found[1], "execute_model"), *calls(worker[1] if worker else None, "execute_model")]
        facts[kind] = {
            "methods": [name for name in METHODS if name in methods],
            "execute_model": named(methods.get("execute_model"))[:3],
            "device": assigns(methods, "__init__", "device"),
            # No call passes more than the intermediate tensors by position, so a dummy run is told by its keyword.
            "dummy_by_keyword": all(len(call.args) <= 2 for call in everywhere),
            "dummy_through_execute_model": any(True for _ in calls(methods.get("_dummy_run"), "execute_model")),
        }
    return facts
