"""A made-up GPU for the tests of device time."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from fake_device import Device

from rooflens.adapters.vllm import device as device_time


@pytest.fixture
def gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Device]:
    """A device, and a private folder for rings."""
    tmp_path.chmod(0o700)
    monkeypatch.setenv("ROOFLENS_DIR", str(tmp_path))
    made = Device()
    monkeypatch.setitem(sys.modules, "torch", made.torch)
    yield made
    for timer in list(device_time._timers):
        if timer.ring is not None:
            timer.ring.close()
