"""What `rooflens doctor` says of the installation: which rooflens this is, and which verbs can run."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from importlib.util import find_spec

from rooflens import __version__
from rooflens.cli.doctor_checks import Check, Machine, Standing

# What each verb cannot do without beyond the standard library, and the extra that brings it.
NEEDS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "analyze": ("sidecar", ("numpy",)),
    "predict": ("sidecar", ("numpy",)),
    "diff": ("sidecar", ("numpy",)),
    "calibrate": ("sidecar", ("numpy",)),
    "demo": ("demo", ("numpy", "fastapi", "uvicorn")),
    "top": ("sidecar", ("numpy",)),
    "sidecar": ("sidecar", ("numpy", "fastapi", "uvicorn", "pydantic_settings")),
}
TRACED = ("duckdb", "pyarrow", "fsspec")  # of every verb that keeps, reads or exports traces; the rest runs without


def check_install(machine: Machine) -> Iterator[Check]:
    """Which rooflens this is, and which verbs can run."""
    del machine
    python = ".".join(map(str, sys.version_info[:3]))
    yield Check("rooflens", Standing.OK, f"rooflens {__version__} with Python {python} in {sys.prefix}")
    missing = {verb: [m for m in modules if find_spec(m) is None] for verb, (_, modules) in NEEDS.items()}
    stopped = [verb for verb, modules in missing.items() if modules]
    if find_spec("psutil") is None:
        yield Check("processes", Standing.NOTE, "psutil is not installed: the processor time of engines is not known",
                    "pip install 'rooflens[sidecar]'")  # fmt: skip
    if untraced := [name for name in TRACED if find_spec(name) is None]:
        what = f"not installed: {', '.join(untraced)}: no trace is kept, read or exported"
        yield Check("traces", Standing.NOTE, what, "pip install 'rooflens[trace]'")
    if not stopped:
        yield Check("verbs", Standing.OK, "everything that the verbs need is installed")
        return
    modules = ", ".join(dict.fromkeys(module for verb in stopped for module in missing[verb]))
    extras = ",".join(dict.fromkeys(NEEDS[verb][0] for verb in stopped if verb != "demo")) or "demo"
    words = [f"{verb} (shows counts only)" if verb == "analyze" else verb for verb in stopped]
    yield Check("verbs", Standing.MISSING, f"not installed: {modules}, for {', '.join(words)}",
                f"pip install 'rooflens[{extras}]'")  # fmt: skip
