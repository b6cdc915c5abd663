"""The NVML double for the tests of this folder: built once a session, loaded anew for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from nvml_fixture import Double, build, loaded

# What a driver of early 2022 does not export yet.
OLD_DRIVER_LACKS = (
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetTemperatureV",
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetMemoryBusWidth",
    "nvmlGpmQueryDeviceSupport",
    "nvmlGpmSampleAlloc",
    "nvmlGpmSampleFree",
    "nvmlGpmSampleGet",
    "nvmlGpmMigSampleGet",
    "nvmlGpmMetricsGet",
)


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The double as a file; without a compiler or nvml.h the tests fail and say what to install."""
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture(scope="session")
def old_nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One that lacks functions, as an older driver does."""
    return build(tmp_path_factory.mktemp("old_nvml"), without=OLD_DRIVER_LACKS)


@pytest.fixture
def double(nvml_library: Path, tmp_path: Path) -> Iterator[Double]:
    with loaded(nvml_library, tmp_path) as opened:
        yield opened


@pytest.fixture
def old_double(old_nvml_library: Path, tmp_path: Path) -> Iterator[Double]:
    with loaded(old_nvml_library, tmp_path) as opened:
        yield opened
