"""What calibration asks NVML, through the real nvidia-ml-py and the NVML double, a new driver's and an old one's."""

from __future__ import annotations

import pytest
from nvml_fixture import Double

from rooflens.collector.calibrate import identities_here, versions_here
from rooflens.collector.calibrate.busy import gpu_busy
from rooflens.collector.calibrate.drivers import nvidia_devices, nvml
from rooflens.collector.calibrate.torch_device import DeviceClocks
from rooflens.collector.nvml import NvmlProbe

PROFILE = """driver 580.82
device 0 name="NVIDIA H200" sm_max=1980 mem_clk_max=3201
device 1 name="NVIDIA H200"
mig 1 0 gi=3 name="NVIDIA H200 MIG 1g.18gb"
at 0 * sm_clk=1500 mem_clk=3201 gpu_util=5
at 5 0 sm_clk=1980 mem_clk=3201 gpu_util=80
proc 1/0 4242
"""


@pytest.mark.parametrize("driver", ["double", "old_double"])
def test_identities_have_the_uuids_that_samples_have(driver: str, request: pytest.FixtureRequest) -> None:
    double: Double = request.getfixturevalue(driver)
    double.play(PROFILE)
    probe = NvmlProbe(clock=double.clock)
    sampled = [facts.uuid for facts in probe.sample().devices]
    _cpu, *devices = identities_here()
    assert [one.device_uuid for one in devices] == sampled
    assert [(one.kind, one.name) for one in devices] == [("cuda", "NVIDIA H200"), ("cuda", "NVIDIA H200 MIG 1g.18gb")]
    assert versions_here()["driver"] == "580.82"
    double.clock.at(1.0)
    assert len(probe.sample().devices) == 2  # asking beside it has not closed the library for the probe
    probe.close()


def test_clocks_and_who_computes(double: Double) -> None:
    double.play(PROFILE)
    with nvml() as library:
        whole, part = (device.handle for device in nvidia_devices(library))
        clocks = DeviceClocks(library, whole)
        assert gpu_busy(library, whole, 0) is None
        assert gpu_busy(library, part, 0) == "1 other process computes on it (4242)"
        double.clock.at(6.0)
        assert gpu_busy(library, whole, 0) == "kernels ran on it for 80% of the last moment"
        clocks.look()
        assert clocks.clocks_hz() == {
            "sm": 1.98e9, "sm_before": 1.5e9, "sm_after": 1.98e9, "sm_max": 1.98e9,
            "memory": 3.201e9, "memory_before": 3.201e9, "memory_after": 3.201e9, "memory_max": 3.201e9,
        }  # fmt: skip
