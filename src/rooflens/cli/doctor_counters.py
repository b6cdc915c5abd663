"""What `rooflens doctor` says of counters and ceilings: what would be read of each device, and what was calibrated."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from rooflens.cli import apart
from rooflens.cli.devices import proc_names
from rooflens.cli.doctor_checks import Check, Machine, Standing
from rooflens.cli.find_servers import ask, body_of, listening
from rooflens.device_records import DeviceFacts, DeviceSample
from rooflens.protocols import Probe
from rooflens.records import RooflensError

MODULE = "rooflens.cli.doctor_counters"
DEADLINE_S = 20.0  # two answers of every library, the first of which may load its driver
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
    here = machine.devices
    if here.silent is not None:
        return  # check_devices has said what is wrong with the driver
    try:
        found = [_check(**each) for each in apart.ask(MODULE, "a library of counters", deadline_s=DEADLINE_S)]
    except apart.Unanswered as error:
        yield Check("counters", Standing.BROKEN, f"{error}; a sidecar is hindered in the same way",
                    "rooflens sidecar --no-counters, and look at nvidia-smi or rocm-smi")  # fmt: skip
        return
    yield from found
    names = here.names or proc_names(machine.root)
    if names and not found:
        yield Check("counters", Standing.MISSING, f"{names[0]} is here, but no library that reads its counters",
                    "; or ".join(library.remedy for library in libraries()))  # fmt: skip


def _check(name: str, standing: str, found: str, remedy: str | None) -> Check:
    return Check(name, Standing(standing), found, remedy)


def told() -> list[dict[str, Any]]:
    """What the libraries of this machine say, from inside this process, which goes down with their drivers."""
    return [asdict(check) for check in _heard()]


def _heard() -> Iterator[Check]:
    for library in libraries():
        probe = library.make()
        first = probe.sample()
        if not first.devices:
            continue
        time.sleep(PAUSE_S)
        second = probe.sample()
        samples = {sample.uuid: sample for sample in second.samples}
        found = [_device(library, facts, samples.get(facts.uuid)) for facts in second.devices or first.devices]
        yield from _counted(found)
        for problem in dict.fromkeys((*first.problems, *second.problems)[:MOST_PROBLEMS]):
            yield Check("counters", Standing.NOTE, problem)


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
    from rooflens.analyzer.unsteady import is_disturbed
    from rooflens.cli.identities import machine_here
    from rooflens.collector.calibrate import find, state_folder
    from rooflens.collector.calibrate.store import AGAIN

    if machine.devices.silent is not None:
        return  # check_devices has said what is wrong with the driver
    try:
        folder = state_folder(os.environ)
        identities, versions = machine_here()
    except RooflensError as error:
        yield Check("calibration", Standing.NOTE, str(error))
        return
    chosen = [identity for identity in identities if identity.kind != "cpu"] or list(identities)
    now_s, found = time.time(), []
    for identity in chosen:
        at = find(identity, folder, now_s, versions)
        if at.calibration is not None:
            day = time.strftime("%Y-%m-%d", time.gmtime(at.calibration.measured_unix_s))
            told = f"{identity.name}: measured {day}"
            if is_disturbed(at.calibration):
                beside = f"{told} while others used it, so its rates may be too low"
                found.append(Check("calibration", Standing.NOTE, beside, f"{CALIBRATE}, when nothing else runs"))
            else:
                found.append(Check("calibration", Standing.OK, told))
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

if __name__ == "__main__":
    apart.answer(told)
