"""A machine without devices: whether the kernel tells of any, and that nothing is said of what it lacks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pipeline.made_probes import MadeProbe, sampled
from pipeline.test_beside_feeds import LOG, MadeLog

from rooflens.pipeline import device_watch
from rooflens.pipeline.device_here import device_here
from rooflens.pipeline.watch import Watch
from rooflens.pipeline.watch_settings import WatchSettings


@pytest.mark.parametrize("there", [True, False])
def test_a_log_on_a_machine_without_devices_makes_no_library_missed(
    there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    probe = MadeProbe(problems=("NVML: no library",))
    monkeypatch.setattr(device_watch, "device_here", lambda: there)
    log = MadeLog(replace(LOG, device="cuda"))
    it = Watch(WatchSettings(use_rings=False, feeds=(log,), probes=(sampled(probe),)))
    try:
        it.turn()
        probe.settled()
        assert ("NVML: no library" in it.turn().problems) is there
    finally:
        it.close()


@pytest.mark.parametrize(
    ("vendor", "kind", "found"),
    [
        ("0x10de", "0x030200", True),  # an NVIDIA H100: 3D controller
        ("0x1002", "0x120000", True),  # an AMD MI300X: processing accelerator
        ("0x10de", "0x068000", False),  # NVIDIA's NVSwitch: a bridge
        ("0x1af4", "0x030000", False),  # virtio's display
    ],
)
def test_devices_on_the_bus(tmp_path: Path, vendor: str, kind: str, found: bool) -> None:
    device = tmp_path / "sys/bus/pci/devices/0000:01:00.0"
    device.mkdir(parents=True)
    (device / "vendor").write_text(f"{vendor}\n")
    (device / "class").write_text(f"{kind}\n")
    assert device_here(tmp_path) is found


@pytest.mark.parametrize("driver", ["proc/driver/nvidia", "dev/kfd"])
def test_a_driver_is_enough(tmp_path: Path, driver: str) -> None:
    (tmp_path / driver).mkdir(parents=True)
    assert device_here(tmp_path)


def test_nothing_at_all(tmp_path: Path) -> None:
    (tmp_path / "sys/bus/pci/devices/0000:01:00.0").mkdir(parents=True)
    assert not device_here(tmp_path)
