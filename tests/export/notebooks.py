"""The example notebook, run by the running interpreter.

    PYTHONPATH=tests python tests/export/notebooks.py

runs it and writes its outputs into the file.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = ROOT / "examples" / "incident.ipynb"
KERNEL = "running-interpreter"


@contextmanager
def kernel() -> Iterator[str]:
    """The name of a kernel that is this interpreter, for as long as it is needed."""
    before = os.environ.get("JUPYTER_PATH")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "kernels" / KERNEL
        place.mkdir(parents=True)
        command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        spec = {"argv": command, "display_name": "Python 3", "language": "python"}
        (place / "kernel.json").write_text(json.dumps(spec))
        os.environ["JUPYTER_PATH"] = folder
        try:
            yield KERNEL
        finally:
            os.environ.pop("JUPYTER_PATH") if before is None else os.environ.update(JUPYTER_PATH=before)


def executed() -> Any:
    """The notebook with its outputs made anew."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(NOTEBOOK, as_version=4)
    os.environ["ROOFLENS_RECORDINGS"] = str(ROOT / "tests" / "data" / "traces")
    os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"
    try:
        with kernel() as name:
            NotebookClient(notebook, timeout=120, kernel_name=name).execute()
    finally:
        del os.environ["ROOFLENS_RECORDINGS"], os.environ["MPLBACKEND"]
    return notebook


def said(notebook: Any) -> str:
    """Everything that its cells print."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    return "".join(output.get("text", "") for output in outputs if output.output_type == "stream")


def plain(text: str) -> str:
    """Without digits, of which the last may differ between machines."""
    return re.sub(r"\d+", "0", text)


def main() -> None:
    """Write the outputs into the file, without what differs each time."""
    import nbformat

    notebook = executed()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        for output in cell.get("outputs", ()):
            if "data" in output and "image/png" in output.data:
                output.data.pop("text/plain", None)
    notebook.metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    nbformat.write(notebook, NOTEBOOK)


if __name__ == "__main__":
    main()
