"""Whose calibration it is, from made-up files of /proc and made-up answers of drivers."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from rooflens.collector.calibrate.drivers import DriverDevice, address_of, amd_devices, nvidia_devices
from rooflens.collector.calibrate.identity import (
    identities_here,
    identity_of_cpu,
    machine_digest,
    match,
    visible_slice,
)
from rooflens.collector.calibrate.versions import versions_here
from rooflens.collector.cpu_facts import usable_cores

MACHINE_ID = "0123456789abcdef0123456789abcdef"


def put(root: Path, path: str, words: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(words)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A machine with one cache for all of its cores."""
    put(tmp_path, "etc/machine-id", MACHINE_ID + "\n")
    put(tmp_path, "proc/cpuinfo", "processor\t: 0\nmodel name\t: Some CPU @ 3 GHz\n\nprocessor\t: 1\nmodel name\t: b\n")
    put(tmp_path, "proc/meminfo", "MemTotal:       24000000 kB\nMemAvailable:  1000 kB\n")
    for core in usable_cores():
        for index, (level, size) in enumerate((("1", "32K"), ("3", "32768K"))):
            folder = f"sys/devices/system/cpu/cpu{core}/cache/index{index}"
            put(tmp_path, f"{folder}/level", level)
            put(tmp_path, f"{folder}/size", size)
            put(tmp_path, f"{folder}/shared_cpu_list", "all")
    return tmp_path


def test_a_processor(root: Path) -> None:
    found = identity_of_cpu(root)
    assert (found.kind, found.name, found.device_uuid) == ("cpu", "Some CPU @ 3 GHz", None)
    assert (found.units, found.cache_bytes, found.memory_bytes) == (len(usable_cores()), 32 << 20, 23 << 30)
    assert found == identity_of_cpu(root)
    put(root, "proc/meminfo", "MemTotal:       23990000 kB\n")  # another kernel keeps a little more
    assert identity_of_cpu(root) == found
    put(root, "etc/machine-id", "f" * 32)
    assert identity_of_cpu(root) != found


def test_the_machine_id_itself_is_kept_nowhere(root: Path) -> None:
    digest = machine_digest(root)
    assert digest is not None
    assert digest not in MACHINE_ID
    assert len(digest) == 16


@pytest.mark.parametrize("words", ["", "uninitialized\n", "0123456789abcdef\n", "!" * 32])
def test_a_machine_without_an_id(root: Path, words: str) -> None:
    put(root, "etc/machine-id", words)
    assert machine_digest(root) is None


def test_a_processor_of_which_nothing_is_said(tmp_path: Path) -> None:
    found = identity_of_cpu(tmp_path)
    assert (found.machine, found.memory_bytes, found.cache_bytes) == (None, None, None)
    assert found.name
    put(tmp_path, "proc/cpuinfo", "CPU implementer\t: 0x41\nCPU part\t: 0xd4f\n")
    assert identity_of_cpu(tmp_path).name.endswith("0x41 0xd4f")


def refuse(*_arguments: Any) -> Any:
    raise RuntimeError("not supported")


def made_nvml(**more: Callable[..., Any]) -> Any:
    """NVML with a whole device, one that is cut in two slices, and one that has fallen off the bus."""

    def by_index(index: int) -> str:
        if index == 2:
            raise RuntimeError("GPU is lost")
        return f"device {index}"

    def slice_of(handle: str, number: int) -> str:
        if number > 1:
            raise RuntimeError("not found")
        return f"{handle} slice {number}"

    calls: dict[str, Callable[..., Any]] = {
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetCount": lambda: 3,
        "nvmlDeviceGetHandleByIndex": by_index,
        "nvmlDeviceGetMigMode": lambda handle: [1, 1] if handle == "device 1" else refuse(),
        "nvmlDeviceGetMaxMigDeviceCount": lambda _handle: 7,
        "nvmlDeviceGetMigDeviceHandleByIndex": slice_of,
        "nvmlDeviceGetUUID": lambda handle: f"{'MIG' if 'slice' in handle else 'GPU'}-{handle}".replace(" ", "-"),
        "nvmlDeviceGetName": lambda handle: b"NVIDIA H200 MIG 1g.18gb" if "slice" in handle else "NVIDIA H200",
        "nvmlDeviceGetPciInfo": lambda handle: SimpleNamespace(domain=0, bus=int(handle[-1]) + 16, device=0),
        "nvmlSystemGetDriverVersion": lambda: "580.65.06",
        **more,
    }
    found = ModuleType("pynvml")
    for name, call in calls.items():
        setattr(found, name, call)
    return found


def test_nvidia_devices_by_their_own_uuid() -> None:
    assert nvidia_devices(made_nvml()) == [
        DriverDevice("cuda", "GPU-device-0", "NVIDIA H200", (0, 16, 0)),
        DriverDevice("cuda", "MIG-device-1-slice-0", "NVIDIA H200 MIG 1g.18gb"),
        DriverDevice("cuda", "MIG-device-1-slice-1", "NVIDIA H200 MIG 1g.18gb"),
    ]
    assert nvidia_devices(made_nvml(nvmlDeviceGetUUID=refuse)) == []
    assert nvidia_devices(made_nvml(nvmlDeviceGetCount=refuse)) == []
    nameless = nvidia_devices(made_nvml(nvmlDeviceGetName=refuse, nvmlDeviceGetPciInfo=refuse))
    assert nameless[0] == DriverDevice("cuda", "GPU-device-0", "NVIDIA")


def test_identities_here_are_those_of_the_processor_and_of_every_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", made_nvml())
    monkeypatch.setitem(sys.modules, "amdsmi", made_amdsmi())
    found = identities_here()
    assert [(one.kind, one.device_uuid) for one in found] == [
        ("cpu", None),
        ("cuda", "GPU-device-0"),
        ("cuda", "MIG-device-1-slice-0"),
        ("cuda", "MIG-device-1-slice-1"),
        ("rocm", "aaff74a1-0000-1000-80aa-aaaaaaaaaaaa"),
    ]
    assert len({one.machine for one in found}) == 1
    assert versions_here()["driver"] == "580.65.06"


@pytest.mark.parametrize("broken", [None, made_nvml(nvmlInit=refuse)])
def test_a_machine_without_devices(monkeypatch: pytest.MonkeyPatch, broken: Any) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", broken)  # None: it cannot be imported
    monkeypatch.setitem(sys.modules, "amdsmi", None)
    assert identities_here() == (identity_of_cpu(),)
    assert "driver" not in versions_here()


def test_finding_them_loads_no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert identities_here()[0] == identity_of_cpu()


def made_amdsmi() -> Any:
    """amdsmi with one device and one that answers nothing."""
    found = ModuleType("amdsmi")
    calls: dict[str, Callable[..., Any]] = {
        "amdsmi_init": lambda: None,
        "amdsmi_get_processor_handles": lambda: [0, 1],
        "amdsmi_get_gpu_device_uuid": lambda n: refuse() if n else "aaff74a1-0000-1000-80aa-aaaaaaaaaaaa",
        "amdsmi_get_gpu_asic_info": lambda _n: {"market_name": "AMD Instinct MI300X"},
        "amdsmi_get_gpu_enumeration_info": lambda _n: {"hip_uuid": "GPU-aabbccddeeff0011"},
        "amdsmi_get_gpu_device_bdf": lambda _n: "0000:c1:00.0",
    }
    for name, call in calls.items():
        setattr(found, name, call)
    return found


def test_amd_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "amdsmi", made_amdsmi())
    (found,) = amd_devices()
    assert found == DriverDevice(
        "rocm", "aaff74a1-0000-1000-80aa-aaaaaaaaaaaa", "AMD Instinct MI300X", (0, 0xC1, 0), "GPU-aabbccddeeff0011"
    )
    assert match(SimpleNamespace(uuid="61616262-6363-6464-6565-666630303131"), [found, FIRST], None) == found
    assert match(SimpleNamespace(pci_domain_id=0, pci_bus_id=0xC1, pci_device_id=0), [FIRST, found], None) == found


def test_a_pci_address() -> None:
    assert address_of("0001:C1:1f.7") == (1, 0xC1, 0x1F)
    assert address_of("") is None
    assert address_of("not:an:address") is None


FIRST = DriverDevice("cuda", "GPU-11111111-2222-3333-4444-555555555555", "NVIDIA H200", (0, 16, 0))
SECOND = DriverDevice("cuda", "GPU-99999999-2222-3333-4444-555555555555", "NVIDIA H200", (0, 17, 0))
SLICE = DriverDevice("cuda", "MIG-77777777-2222-3333-4444-555555555555", "NVIDIA H200 MIG 1g.18gb")


def test_what_torch_sees_is_found_among_the_drivers_devices() -> None:
    devices = [FIRST, SECOND, SLICE]
    assert match(SimpleNamespace(uuid="99999999-2222-3333-4444-555555555555"), devices, None) == SECOND
    assert match(SimpleNamespace(uuid="77777777-2222-3333-4444-555555555555"), devices, None) == SLICE
    # An older torch has no uuid; the address does, and without both only a single device is certain.
    assert match(SimpleNamespace(pci_domain_id=0, pci_bus_id=17, pci_device_id=0), devices, None) == SECOND
    assert match(SimpleNamespace(), devices, None) is None
    assert match(SimpleNamespace(), [SECOND], None) == SECOND
    assert match(SimpleNamespace(uuid="00000000-2222-3333-4444-555555555555"), devices, None) is None
    assert match(SimpleNamespace(), devices, SLICE.uuid.upper()) == SLICE


def test_a_slice_is_named_by_the_variable() -> None:
    visible = {"CUDA_VISIBLE_DEVICES": "GPU-1, MIG-2"}
    assert [visible_slice(index, visible) for index in range(3)] == [None, "MIG-2", None]
    assert visible_slice(0, {}) is None
