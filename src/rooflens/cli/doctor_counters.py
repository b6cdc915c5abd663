"""What `rooflens doctor` says of counters and ceilings: what would be read of each device, and what was calibrated."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rooflens.cli.devices import device_names
from rooflens.cli.doctor_checks import Check, Machine, Standing
from rooflens.cli.find_servers import ask, body_of, listening
from rooflens.device_records import DeviceFacts, DeviceSample
from rooflens.protocols import Probe
from rooflens.records import RooflensError

PAUSE_S = 0.3  # between two answers: the driver refreshes its counters every 100 ms
CALIBRATE = "rooflens calibrate"
MOST_PROBLEMS = 4  # lines of one library
# What is read of a device, in words, by a field of its sample that is known only then.
READ = {
    "DRAM bandwidth": "dram_ratio",
    "tensor cores": "tensor_ratio",
    "SMs": "sm_ratio",
    "PCIe": "pcie_rx_bytes_per_s",
    "NVLink": "nvlink_rx_bytes_per_s",
    "C2C": "c2c_rx_bytes_per_s",
    "clocks": "sm_clock_hz",
    "power": "power_w",
    "energy": "energy_j",
    "memory": "memory_used_bytes",
    "throttle reasons": "throttles",
}
DCGM_NAME = re.compile(rb"^DCGM_FI_(\w+)\{", re.MULTILINE | re.IGNORECASE)
DCGM_UUID = re.compile(rb'[{,]\s*uuid="([^"]+)"', re.IGNORECASE)
DCGM_DRAM = (b"PROF_DRAM_ACTIVE", b"PROF_DRAM_UTIL_RATIO")  # its spelling before and since DCGM 4.6


@dataclass(frozen=True, slots=True)
class Library:
    """A vendor's library: ``name`` in words, ``make`` makes its probe, ``remedy`` is how it is installed."""

    name: str
    make: Callable[[], Probe]
    remedy: str


def libraries() -> tuple[Library, ...]:
    """Those whose counters a sidecar reads."""
    from rooflens.collector.amd import AmdProbe
    from rooflens.collector.nvml import NvmlProbe

    return (
        Library("NVML", NvmlProbe, "pip install 'rooflens[sidecar]'"),
        Library("AMD SMI", AmdProbe, "pip install amdsmi, in the version of the driver"),
    )


def check_counters(machine: Machine) -> Iterator[Check]:
    """Which devices have counters, and what would be read of each; equal devices once."""
    names, _ = device_names(machine.root)
    seen = False
    for library in libraries():
        probe = library.make()
        first = probe.sample()
        if not first.devices:
            continue
        seen = True
        time.sleep(PAUSE_S)
        second = probe.sample()
        samples = {sample.uuid: sample for sample in second.samples}
        found = [_device(library, facts, samples.get(facts.uuid)) for facts in second.devices or first.devices]
        yield from _counted(found)
        for problem in dict.fromkeys((*first.problems, *second.problems)[:MOST_PROBLEMS]):
            yield Check("counters", Standing.NOTE, problem)
    if names and not seen:
        yield Check("counters", Standing.MISSING, f"{names[0]} is here, but no library that reads its counters",
                    "; or ".join(library.remedy for library in libraries()))  # fmt: skip


def _device(library: Library, facts: DeviceFacts, sample: DeviceSample | None) -> Check:
    """What would be read of one device."""
    slice_ = f", MIG slice {facts.mig_profile or 'of unknown size'}" if facts.parent_uuid else ""
    name = f"{facts.name or 'a device without a name'}{slice_}"
    if sample is None:
        return Check("counters", Standing.BROKEN, f"{name}: {library.name} shows it but answers nothing",
                     "look at what the lines below say, and at nvidia-smi or rocm-smi")  # fmt: skip
    read = [words for words, field in READ.items() if getattr(sample, field) is not None]
    told = f"{name}: {library.name} reads {', '.join(read) or 'nothing'}"
    if sample.dram_ratio is not None:
        return Check("counters", Standing.OK, told)
    if facts.counters:
        return Check("counters", Standing.MISSING, f"{told}; not its bandwidth, which it can measure",
                     "allow profiling by all users (NVreg_RestrictProfilingToAdminUsers=0), or run as root; end other "
                     "profilers")  # fmt: skip
    return Check("counters", Standing.NOTE, f"{told}; no bandwidth: this device or driver does not measure it",
                 "dcgm-exporter with its profiling fields, where DCGM supports the device: rooflens sidecar --dcgm URL")  # fmt: skip  # noqa: E501


def check_exporter(machine: Machine) -> Iterator[Check]:
    """Whether a dcgm-exporter runs here, and whether its page tells of the bandwidth."""
    answers = ask(dict.fromkeys(listening(machine.root, machine.exporter_ports), "/metrics"), lambda _: False)
    for (host, port), answer in sorted(answers.items()):
        page = body_of(answer)
        names = {name.upper() for name in DCGM_NAME.findall(page)}
        if not names:
            continue
        devices = len(set(DCGM_UUID.findall(page)))
        url = f"http://[{host}]:{port}/metrics" if ":" in host else f"http://{host}:{port}/metrics"
        told = f"dcgm-exporter, read with --dcgm {url}: {devices} device{'' if devices == 1 else 's'}"
        if names.isdisjoint(DCGM_DRAM):
            yield Check("exporter", Standing.NOTE, f"{told}, without the bandwidth of their memory",
                        "add DCGM_FI_PROF_DRAM_ACTIVE to its list of fields (-f FILE)")  # fmt: skip
        else:
            yield Check("exporter", Standing.OK, f"{told}, with the bandwidth of their memory")


def check_calibration(machine: Machine) -> Iterator[Check]:
    """Whether what these devices reach was measured, and still holds; of the processor where there is no device."""
    from rooflens.collector.calibrate import find, identities_here, state_folder, versions_here
    from rooflens.collector.calibrate.store import AGAIN

    del machine
    try:
        folder = state_folder(os.environ)
    except RooflensError as error:
        yield Check("calibration", Standing.NOTE, str(error))
        return
    identities = identities_here()
    chosen = [identity for identity in identities if identity.kind != "cpu"] or list(identities)
    now_s, versions, found = time.time(), versions_here(), []
    for identity in chosen:
        at = find(identity, folder, now_s, versions)
        if at.calibration is not None:
            day = time.strftime("%Y-%m-%d", time.gmtime(at.calibration.measured_unix_s))
            found.append(Check("calibration", Standing.OK, f"{identity.name}: measured {day}"))
        elif at.problem is not None:
            found.append(Check("calibration", Standing.NOTE, at.problem.removesuffix(f"; {AGAIN}"), CALIBRATE))
        else:
            found.append(Check("calibration", Standing.NOTE, f"{identity.name} was never calibrated", CALIBRATE))
    yield from _counted(found)


def _counted(found: list[Check]) -> Iterator[Check]:
    """Equal answers once, with their number."""
    for check in dict.fromkeys(found):
        count = f"{found.count(check)} x " if found.count(check) > 1 else ""
        yield Check(check.name, check.standing, f"{count}{check.found}", check.remedy)


COUNTER_CHECKS: tuple[Callable[[Machine], Iterator[Check]], ...] = (check_counters, check_exporter, check_calibration)
