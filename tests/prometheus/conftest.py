"""One Prometheus and one half minute of life for all tests here."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from nvml_fixture import DoubleError, build

sys.path.insert(0, str(Path(__file__).parent))
from prom_harness import missing
from prom_world import World, lived_through


@pytest.fixture(scope="module", autouse=True)
def _programs() -> None:
    if names := missing():
        pytest.skip(f"{' and '.join(names)} not installed (on Debian: apt install prometheus)")


@pytest.fixture(scope="module")
def world(_programs: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    try:
        played = build(tmp_path_factory.mktemp("nvml"))
    except DoubleError as error:
        pytest.skip(str(error))
    with lived_through(tmp_path_factory.mktemp("prometheus"), played) as lived:
        yield lived
