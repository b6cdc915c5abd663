"""AMD devices through a stand-in for amdsmi in the shapes of the real one's source, and the real import."""

from __future__ import annotations

import importlib.util
import math
import re
import sys
from collections.abc import Callable
from dataclasses import fields
from enum import IntEnum
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rooflens.collector.amd import NOT_INSTALLED, AmdProbe
from rooflens.collector.amd_values import Reading, sample_of
from rooflens.device_records import CounterSource, DeviceSample, Throttle

UUID = "a1ff74a1-0000-1000-80ef-3ad1a95d7b02"
RESOLUTION_UJ = 15.259


class ClkType(IntEnum):
    GFX = 1
    MEM = 4


class InitFlags(IntEnum):
    INIT_AMD_GPUS = 2


class LibraryError(Exception):
    """As amdsmi's AmdSmiLibraryException: ``err_info`` is the code's name and a sentence."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.err_info = f"{name} - Some sentence"


class Smi(ModuleType):
    """An MI300X at a steady load: 600 W, 40 % of the time held by its power limit, 3 GB a second over XGMI."""

    AmdSmiClkType, AmdSmiInitFlags = ClkType, InitFlags

    def __init__(self) -> None:
        super().__init__("amdsmi")
        self.now_s = 50.0
        self.uuids = [UUID]
        self.fail: dict[str, str] = {}
        self.calls: list[str] = []
        self.metrics: dict[str, Any] = {}

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name.startswith("amdsmi_"):
            self.calls.append(name)
            if name in self.fail:

                def failing(*_: Any) -> Any:
                    raise LibraryError(self.fail[name])

                return failing
        return found

    def amdsmi_init(self, flag: InitFlags) -> None:
        assert flag is InitFlags.INIT_AMD_GPUS

    def amdsmi_shut_down(self) -> None:
        pass

    def amdsmi_get_processor_handles(self) -> list[int]:
        return list(range(len(self.uuids)))

    def amdsmi_get_gpu_device_uuid(self, handle: int) -> str:
        return self.uuids[handle]

    def amdsmi_get_gpu_asic_info(self, handle: int) -> dict[str, Any]:
        return {"market_name": "AMD Instinct MI300X", "vendor_id": "0x1002"}

    def amdsmi_get_gpu_driver_info(self, handle: int) -> dict[str, str]:
        return {"driver_name": "amdgpu", "driver_version": "6.12.12", "driver_date": "N/A"}

    def amdsmi_get_power_cap_info(self, handle: int) -> dict[str, int]:
        return {"power_cap": 750_000_000, "default_power_cap": 750_000_000, "dpm_cap": 0}

    def amdsmi_get_gpu_vram_usage(self, handle: int) -> dict[str, int]:
        return {"vram_total": 196_592, "vram_used": 150_000}

    def amdsmi_get_gpu_process_list(self, handle: int) -> list[dict[str, Any]]:
        return [{"name": "python", "pid": 4242, "mem": 1}, {"name": "N/A", "pid": 17, "mem": 0}]

    def amdsmi_get_clock_info(self, handle: int, kind: ClkType) -> dict[str, Any]:
        clocks = {ClkType.GFX: (1701, 2100), ClkType.MEM: (1299, 1300)}[kind]
        return {"clk": clocks[0], "min_clk": 132, "max_clk": clocks[1], "clk_locked": False, "clk_deep_sleep": "N/A"}

    def amdsmi_get_power_info(self, handle: int) -> dict[str, Any]:
        return {"socket_power": 590, "current_socket_power": "N/A", "average_socket_power": 590, "power_limit": 750}

    def amdsmi_get_energy_count(self, handle: int) -> dict[str, Any]:
        return {
            "energy_accumulator": round(self.now_s * 600 / (RESOLUTION_UJ * 1e-6)),
            "counter_resolution": RESOLUTION_UJ,
            "timestamp": 1,
        }

    def amdsmi_get_gpu_metrics_info(self, handle: int) -> dict[str, Any]:
        ms = round(self.now_s * 1000)
        return {
            "temperature_edge": "N/A",
            "temperature_hotspot": 71,
            "average_gfx_activity": 98,
            "average_umc_activity": 44,
            "mem_activity_acc": ms * 44,
            "current_socket_power": 600,
            "average_socket_power": "N/A",
            "current_gfxclk": 1650,
            "current_gfxclks": [1600, 1700, 1650, 1650, "N/A", "N/A", "N/A", 0xFFFF],
            "current_uclk": 1300,
            "throttle_status": "N/A",
            "pcie_bandwidth_acc": ms,
            "xgmi_read_data_acc": [ms * 1000, ms * 2000, *(["N/A"] * 6)],
            "xgmi_write_data_acc": [0xFFFFFFFFFFFFFFFF] * 8,
            "accumulation_counter": ms,
            "ppt_residency_acc": round(ms * 0.4),
            "prochot_residency_acc": 0,
            "socket_thm_residency_acc": round(ms * 0.1),
            "vr_thm_residency_acc": round(ms * 0.25),
            "hbm_thm_residency_acc": "N/A",
            "vram_max_bandwidth": 5300,
            **self.metrics,
        }


@pytest.fixture
def smi(monkeypatch: pytest.MonkeyPatch) -> Smi:
    made = Smi()
    monkeypatch.setitem(sys.modules, "amdsmi", made)
    return made


def probe_of(smi: Smi) -> AmdProbe:
    return AmdProbe(clock=lambda: smi.now_s, driver=Path(__file__))


def second_sample(smi: Smi, span_s: float = 2.0) -> DeviceSample:
    probe = probe_of(smi)
    assert probe.sample().samples == ()
    smi.now_s += span_s
    (sample,) = probe.sample().samples
    return sample


def test_the_real_library_is_missing_here_and_that_is_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    """It raises KeyError, after printing where nobody asked it to."""
    now_s = [0.0]
    probe = AmdProbe(clock=lambda: now_s[0], driver=Path(__file__))
    for _ in range(3):
        probed = probe.sample()
        assert probed.devices == probed.samples == ()
        (problem,) = probed.problems
        assert problem.startswith("amdsmi cannot be loaded (KeyError 'libamd_smi.so'): install amd-smi-lib")
        now_s[0] += 100.0
    assert capfd.readouterr() == ("", "")


def test_without_the_driver_nothing_is_loaded(tmp_path: Path) -> None:
    probe = AmdProbe(driver=tmp_path / "kfd")
    (problem,) = probe.sample().problems
    assert problem.startswith(f"no AMD device: {tmp_path}/kfd is missing")
    assert "amdsmi" not in sys.modules


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [])
    assert AmdProbe(driver=Path(__file__)).sample().problems == (NOT_INSTALLED,)


def test_every_name_asked_for_is_one_of_the_real_library() -> None:
    spec = importlib.util.find_spec("amdsmi")
    assert spec is not None
    assert spec.origin is not None
    real = Path(spec.origin).with_name("amdsmi_interface.py").read_text()
    ours = "".join(
        Path(module.__file__ or "").read_text()
        for module in (sys.modules["rooflens.collector.amd"], sys.modules["rooflens.collector.amd_values"])
    )
    functions = set(re.findall(r"\bamdsmi_(?:get_\w+|init|shut_down)\b", ours))
    assert len(functions) >= 13
    keys = set(re.findall(r"get\(\"(\w+)\"\)", ours)) | set(
        re.findall(r"\"(\w+_(?:acc|counter|power|hotspot))\"", ours)
    )
    assert len(keys) >= 20
    for name in functions:
        assert f"def {name}(" in real
    for key in keys:
        assert f'"{key}"' in real or f"'{key}'" in real
    stand_in = {name for name in vars(Smi) if name.startswith("amdsmi_")}
    assert functions >= stand_in


def test_facts(smi: Smi) -> None:
    (facts,) = probe_of(smi).sample().devices
    assert (facts.uuid, facts.source, facts.name, facts.index) == (UUID, CounterSource.AMDSMI, "AMD Instinct MI300X", 0)
    assert facts.memory_bytes == 196_592 * 1024 * 1024
    assert facts.memory_bandwidth_bytes_per_s == 5.3e12
    assert (facts.sm_clock_max_hz, facts.memory_clock_max_hz) == (2.1e9, 1.3e9)
    assert facts.power_limit_w == 750.0
    assert facts.driver_version == "6.12.12"
    assert facts.pids == (17, 4242)
    assert facts.counters is False


def test_a_window_of_steady_load(smi: Smi) -> None:
    sample = second_sample(smi)
    assert (sample.start_monotonic_s, sample.end_monotonic_s) == (50.0, 52.0)
    assert sample.energy_j == pytest.approx(1200.0, abs=1e-4)
    assert sample.power_w == 600.0
    assert sample.sm_clock_hz == 1.65e9
    assert sample.memory_clock_hz == 1.3e9
    assert sample.temperature_celsius == 71.0
    assert sample.memory_used_bytes == 150_000 * 1024 * 1024
    assert sample.kernel_ratio == 0.98
    assert sample.throttled_s == {
        Throttle.POWER_CAP: pytest.approx(0.8),
        Throttle.HARDWARE_THERMAL: 0.0,
        Throttle.THERMAL: pytest.approx(0.5),
    }
    assert sample.throttles is None
    assert sample.nvlink_rx_bytes_per_s == pytest.approx(3_000_000 * 1024)


def test_the_busy_memory_controller_is_no_bandwidth(smi: Smi) -> None:
    sample = second_sample(smi)
    unknown = ("dram_ratio", "tensor_ratio", "sm_ratio", "graphics_ratio", "pcie_tx_bytes_per_s", "pcie_rx_bytes_per_s")
    assert {name: getattr(sample, name) for name in (*unknown, "nvlink_tx_bytes_per_s")} == dict.fromkeys(
        (*unknown, "nvlink_tx_bytes_per_s")
    )


def test_what_stands_for_nothing_is_none(smi: Smi) -> None:
    smi.metrics = {
        "temperature_hotspot": 0xFFFF,
        "average_gfx_activity": "N/A",
        "current_gfxclks": ["N/A"] * 8,
        "current_gfxclk": "N/A",
        "current_uclk": 0xFFFF,
        "current_socket_power": 0xFFFF,
        "accumulation_counter": "N/A",
        "xgmi_read_data_acc": "N/A",
        "throttle_status": False,
    }
    sample = second_sample(smi)
    assert (sample.temperature_celsius, sample.kernel_ratio, sample.nvlink_rx_bytes_per_s) == (None, None, None)
    assert sample.throttled_s == {}
    assert sample.throttles == ()
    # Asked for elsewhere: older parts tell them there.
    assert (sample.sm_clock_hz, sample.memory_clock_hz, sample.power_w) == (1.701e9, 1.299e9, 590.0)


def test_what_cannot_be_is_left_out_and_said_until_it_can(smi: Smi) -> None:
    """65534 W, more memory in use than there is, a clock of another unit."""
    probe = probe_of(smi)
    probe.sample()
    smi.now_s += 1.0
    smi.metrics = {"current_socket_power": 65534, "current_gfxclks": [165_000], "temperature_hotspot": 65534}
    smi.amdsmi_get_gpu_vram_usage = lambda handle: {"vram_total": 196_592, "vram_used": 2**64 - 2}  # type: ignore[method-assign]
    probed = probe.sample()
    (sample,) = probed.samples
    assert (sample.power_w, sample.sm_clock_hz, sample.memory_used_bytes) == (None, None, None)
    assert (sample.temperature_celsius, sample.memory_clock_hz, sample.energy_j) == (
        None,
        1.3e9,
        pytest.approx(600, abs=1e-4),
    )
    assert probed.problems == (
        "amdsmi: a value that cannot be for the SM clock of now, the power of now, the used memory, "
        f"the temperature of now of {UUID}: not known until it answers, see whether amd-smi does",
    )
    smi.metrics = {}
    del smi.amdsmi_get_gpu_vram_usage
    smi.now_s += 1.0
    assert probe.sample().problems == ()


def test_facts_that_cannot_be_are_left_out_and_said(smi: Smi) -> None:
    smi.metrics = {"vram_max_bandwidth": 2**64 - 2}
    probed = probe_of(smi).sample()
    assert probed.devices[0].memory_bandwidth_bytes_per_s is None
    (line,) = probed.problems
    assert "a value that cannot be for the memory's bandwidth" in line


def test_an_energy_beyond_any_number_is_none() -> None:
    now = {"energy_accumulator": 1.34e157, "counter_resolution": 1.34e157}
    then = {"energy_accumulator": 0, "counter_resolution": 1.34e157}
    assert sample_of("u", Reading(1.0, energy=then), Reading(2.0, energy=now)).energy_j is None


def test_a_counter_that_begins_anew_has_no_difference(smi: Smi) -> None:
    probe = probe_of(smi)
    probe.sample()
    smi.now_s += 1.0
    smi.metrics = {"accumulation_counter": 3, "xgmi_read_data_acc": [1, 10**9]}
    smi.amdsmi_get_energy_count = lambda handle: {"energy_accumulator": 5, "counter_resolution": 15.3}  # type: ignore[method-assign]
    (sample,) = probe.sample().samples
    assert (sample.energy_j, sample.nvlink_rx_bytes_per_s, sample.throttled_s) == (None, None, {})


COUNTED: dict[str, Callable[[DeviceSample], Any]] = {
    "amdsmi_get_gpu_metrics_info": lambda sample: sample.temperature_celsius,
    "amdsmi_get_energy_count": lambda sample: sample.energy_j,
    "amdsmi_get_gpu_vram_usage": lambda sample: sample.memory_used_bytes,
}


@pytest.mark.parametrize("function", COUNTED)
@pytest.mark.parametrize("code", ["AMDSMI_STATUS_NOT_SUPPORTED", "AMDSMI_STATUS_NO_PERM", "AMDSMI_STATUS_BUSY"])
def test_a_call_that_fails_is_its_figures_only_and_recovers(smi: Smi, function: str, code: str) -> None:
    probe = probe_of(smi)
    probe.sample()
    smi.now_s += 1.0
    assert COUNTED[function](probe.sample().samples[0]) is not None
    smi.fail = {function: code}
    smi.now_s += 1.0
    probed = probe.sample()
    (sample,), (problem,) = probed.samples, probed.problems
    assert COUNTED[function](sample) is None
    assert sample.sm_clock_hz is not None
    assert sample.power_w is not None
    assert problem.startswith(f"amdsmi: {code} for ")
    assert UUID in problem
    assert probed.lacks == (((UUID, problem),) if code.endswith("SUPPORTED") else ())
    smi.fail = {}
    smi.now_s += 1.0
    probe.sample()
    smi.now_s += 1.0
    probed = probe.sample()
    assert probed.problems == ()
    assert COUNTED[function](probed.samples[0]) is not None


def test_a_fact_that_fails_is_said_until_it_is_known(smi: Smi) -> None:
    smi.fail = {
        "amdsmi_get_power_cap_info": "AMDSMI_STATUS_NO_PERM",
        "amdsmi_get_gpu_process_list": "AMDSMI_STATUS_NO_PERM",
    }
    probe = probe_of(smi)
    for _ in range(2):
        probed = probe.sample()
        assert probed.problems == (
            f"amdsmi: AMDSMI_STATUS_NO_PERM for the power limit, its processes of {UUID}: "
            "not known until it answers, see whether amd-smi does",
        )
        assert (probed.devices[0].power_limit_w, probed.devices[0].pids) == (None, ())
        smi.now_s += 1.0
    smi.fail = {}
    smi.now_s += 30.0
    probed = probe.sample()
    assert (probed.problems, probed.devices[0].power_limit_w) == ((), 750.0)


def test_a_lost_driver_is_opened_again_less_and_less_often(smi: Smi) -> None:
    probe = probe_of(smi)
    probe.sample()
    smi.fail = dict.fromkeys(COUNTED, "AMDSMI_STATUS_NOT_INIT") | {"amdsmi_init": "AMDSMI_STATUS_DRIVER_NOT_LOADED"}
    smi.now_s += 1.0
    assert probe.sample().samples[0].energy_j is None
    smi.calls.clear()
    for _ in range(60):
        smi.now_s += 1.0
        probed = probe.sample()
        assert probed.samples == ()
    assert smi.calls.count("amdsmi_init") == 6
    assert probed.problems == (
        "amdsmi cannot be started (AMDSMI_STATUS_DRIVER_NOT_LOADED): see whether amd-smi answers; it is tried again",
    )
    smi.fail = {}
    energies = []
    for _ in range(70):
        smi.now_s += 1.0
        energies += [sample.energy_j for sample in probe.sample().samples]
    assert energies[-1] == pytest.approx(600.0, abs=1e-4)


def test_only_watched_devices_are_sampled_and_an_index_joins_nothing(smi: Smi) -> None:
    smi.uuids = ["one", "two"]
    probe = probe_of(smi)
    probe.watch(frozenset(["TWO"]))
    probe.sample()
    smi.now_s += 1.0
    probed = probe.sample()
    assert [facts.uuid for facts in probed.devices] == ["one", "two"]
    assert [sample.uuid for sample in probed.samples] == ["two"]
    probe.watch(None)
    probe.sample()
    smi.now_s += 1.0
    assert [sample.uuid for sample in probe.sample().samples] == ["one", "two"]


def test_two_calls_at_once_make_no_window(smi: Smi) -> None:
    probe = probe_of(smi)
    probe.sample()
    smi.now_s += 0.01
    assert probe.sample().samples == ()
    smi.now_s += 1.0
    assert probe.sample().samples[0].start_monotonic_s == 50.0


def test_close_lets_the_library_go(smi: Smi) -> None:
    probe = probe_of(smi)
    probe.sample()
    probe.close()
    assert smi.calls[-1] == "amdsmi_shut_down"


ANYTHING = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 1 << 65),
    st.floats(),
    st.text(max_size=4),
    st.lists(st.integers(), max_size=3),
)


@given(
    st.dictionaries(st.sampled_from([*Smi().amdsmi_get_gpu_metrics_info(0), "energy_accumulator"]), ANYTHING),
    st.dictionaries(
        st.sampled_from([*Smi().amdsmi_get_energy_count(0), *Smi().amdsmi_get_gpu_vram_usage(0)]), ANYTHING
    ),
)
def test_whatever_it_answers_no_figure_is_nan(metrics: dict[str, Any], other: dict[str, Any]) -> None:
    smi = Smi()
    then = Reading(1.0, 0.0, smi.amdsmi_get_gpu_metrics_info(0), smi.amdsmi_get_energy_count(0))
    sample = sample_of("u", then, Reading(2.0, 0.0, metrics, other, other, metrics, metrics, other))
    for entry in fields(sample):
        value = getattr(sample, entry.name)
        assert not isinstance(value, float) or (math.isfinite(value) and value >= 0)
    assert all(0 <= spent_s <= 1 for spent_s in sample.throttled_s.values())
