"""The NVML double of tests/nvml_double, built with the system's compiler and loaded by the real nvidia-ml-py."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SOURCES = Path(__file__).with_name("nvml_double")
FLAGS = ("-O1", "-Wall", "-Wextra", "-fPIC", "-shared", "-fvisibility=hidden", "-Wl,-soname,libnvidia-ml.so.1")
# gcc warns that bounded copies may cut a text short; that nvml.h calls old functions deprecated is why they are played.
QUIET = ("-Wno-format-truncation", "-Wno-stringop-truncation", "-Wno-deprecated-declarations")
NAME = "libnvidia-ml.so.1"


class DoubleError(Exception):
    """The double cannot be built here; the message says what to install."""


def header_folder() -> Path:
    """Where PyPI's nvidia-nvml-dev put nvml.h."""
    spec = importlib.util.find_spec("nvidia")
    folders = [Path(folder) for folder in (spec.submodule_search_locations or ())] if spec is not None else []
    found = sorted(path.parent for folder in folders for path in folder.glob("*/include/nvml.h"))
    if not found:
        raise DoubleError("nvml.h is not here, and the NVML double is built against it: pip install nvidia-nvml-dev")
    return found[-1]


def build(folder: Path, without: tuple[str, ...] = ()) -> Path:
    """The double as a shared library in ``folder``; functions named in ``without`` are not there, as in old drivers."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise DoubleError("there is no C compiler (cc), and the NVML double is built with one: apt-get install gcc")
    header = header_folder()
    sources = sorted(SOURCES.glob("*.c"))
    stubs = folder / "stubs.c"
    generator = [sys.executable, SOURCES / "gen_stubs.py", header / "nvml.h", stubs, *sources]
    subprocess.run([str(word) for word in generator], check=True)
    left_out = [f"-D{name}=left_out_{name}" for name in without]
    command = [compiler, *FLAGS, *QUIET, *left_out, f"-I{header}", "-o", folder / NAME, *sources, stubs]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if done.returncode or done.stderr:
        raise DoubleError(f"the NVML double does not build:\n{done.stderr}")
    return folder / NAME


class PlayedClock:
    """Seconds that the test moves, for the double (a file) and for a probe (a callable)."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.moves = False  # whether slow calls of the double move it as well
        self.at(0.0)

    def at(self, seconds: float) -> None:
        self.now_s = seconds
        self.file.write_bytes(struct.pack("<d", seconds))

    def __call__(self) -> float:
        if self.moves:
            (self.now_s,) = struct.unpack("<d", self.file.read_bytes())
        return self.now_s


class Double:
    """A loaded double: what it plays, its clock, and which functions of it were looked up."""

    def __init__(self, library: ctypes.CDLL, folder: Path) -> None:
        self.library = library
        self.clock = PlayedClock(folder / "clock")
        self._profile = folder / "profile"
        self._left_behind = library.nvml_double_live_samples()  # by tests that closed nothing: one library a process

    def play(self, text: str) -> None:
        """What the next opening of the library plays, from time 0 on."""
        self._profile.write_text(text)
        self.clock.moves = "\nslow " in text
        self.clock.at(0.0)

    def live_samples(self) -> int:
        """GPM samples that were allocated since it was loaded and not freed."""
        return int(self.library.nvml_double_live_samples() - self._left_behind)

    def functions(self) -> frozenset[str]:
        """The exported functions that nvidia-ml-py was asked for since the double was loaded."""
        import pynvml

        return frozenset(pynvml._nvmlGetFunctionPointer_cache)


@contextmanager
def loaded(library: Path, folder: Path) -> Iterator[Double]:
    """The double in place of libnvidia-ml.so.1 for the nvidia-ml-py of this process."""
    import pynvml

    module: Any = pynvml
    before = (module.nvmlLib, dict(module._nvmlGetFunctionPointer_cache), module._nvmlLib_refcount)
    environment = {name: os.environ.get(name) for name in ("NVMLSIM_PROFILE", "NVMLSIM_CLOCK")}
    opened = ctypes.CDLL(str(library))
    module.nvmlLib = opened
    module._nvmlGetFunctionPointer_cache.clear()
    os.environ["NVMLSIM_PROFILE"] = str(folder / "profile")
    os.environ["NVMLSIM_CLOCK"] = str(folder / "clock")
    try:
        yield Double(opened, folder)
    finally:
        while opened.nvmlShutdown() == 0:  # whatever a test left open
            pass
        module.nvmlLib, cache, module._nvmlLib_refcount = before
        module._nvmlGetFunctionPointer_cache.clear()
        module._nvmlGetFunctionPointer_cache.update(cache)
        for name, value in environment.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
