"""The double itself: the real nvidia-ml-py finds and reads it as it would a driver's library; how it is built."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import nvml_fixture
import pytest
from nvml_fixture import SOURCES, DoubleError, build, header_folder

READER = """
import pynvml
pynvml.nvmlInit()
handle = pynvml.nvmlDeviceGetHandleByIndex(1)
print(pynvml.nvmlDeviceGetCount(), pynvml.nvmlDeviceGetName(handle), pynvml.nvmlLib._name)
try:
    pynvml.nvmlDeviceGetFanSpeed(handle)
except pynvml.NVMLError_NotSupported:
    print("exported, and not supported")
from rooflens.collector.nvml import NvmlProbe
print([facts.name for facts in NvmlProbe().sample().devices])
"""


def test_another_process_finds_it_as_the_driver_library(nvml_library: Path, tmp_path: Path) -> None:
    (tmp_path / "clock").write_bytes(struct.pack("<d", 1.0))
    environment = os.environ | {
        "LD_LIBRARY_PATH": str(nvml_library.parent),
        "NVMLSIM_PROFILE": str(SOURCES / "decode.profile"),
        "NVMLSIM_CLOCK": str(tmp_path / "clock"),
    }
    run = subprocess.run(
        [sys.executable, "-P", "-c", READER], capture_output=True, text=True, env=environment, check=True
    )
    assert run.stdout.splitlines() == [
        "2 NVIDIA A100-SXM4-80GB libnvidia-ml.so.1",
        "exported, and not supported",
        "['NVIDIA H200', 'NVIDIA A100-SXM4-80GB']",
    ]


def test_without_a_compiler_the_failure_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(DoubleError, match=r"no C compiler .* apt-get install gcc"):
        build(tmp_path)


def test_without_the_header_the_failure_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml_fixture.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(DoubleError, match="pip install nvidia-nvml-dev"):
        header_folder()


def test_what_the_compiler_says_is_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml_fixture, "QUIET", ("-no-such-flag",))
    with pytest.raises(DoubleError, match=r"does not build:\n.*no-such-flag"):
        build(tmp_path)
