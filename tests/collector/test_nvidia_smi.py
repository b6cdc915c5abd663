"""What nvidia-smi printed: as CSV, by -q and by dmon; with nothing made up for what it does not tell."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rooflens.collector.nvidia_smi import is_mine, read_text
from rooflens.collector.nvidia_smi_names import COLUMNS, DMON, POWER, REASONS, SECTIONS, SENSORS
from rooflens.log_records import RecordKind

# Driver 580 on a GB10 (nvitop#208).
UNIFIED = """\
memory.total [MiB], memory.used [MiB], memory.free [MiB], utilization.gpu [%], power.draw [W], temperature.gpu
[N/A], [N/A], [N/A], 0 %, 11.17 W, 35
"""
# Driver 545 (ollama#6163); the section was "Clocks Throttle Reasons" before driver 535.
REASONS_TEXT = """\
    Clocks Event Reasons
        Idle                              : Not Active
        SW Power Cap                      : Active
        HW Slowdown                       : Not Active
            HW Thermal Slowdown           : Not Active
        SW Thermal Slowdown               : Not Active
"""
# The head and the first row are of a public run report of 2026, the second device is made up.
DMON_TEXT = """\
# gpu    pwr  gtemp  mtemp     sm    mem    enc    dec    jpg    ofa   mclk   pclk     fb   bar1   ccpm
# Idx      W      C      C      %      %      %      %      %      %    MHz    MHz     MB     MB     MB
    0    218     43      -     95      0      0      0      0      0  12481   2325    725    725      0
    1    411     45     50     95      3      0      0      0      0  12481   2370    725    725      0
"""
# The head is of a public note on an H800, the second row's values are made up.
GPM_TEXT = """\
# gpu    pwr  gtemp  mtemp     sm    mem   mclk   pclk     gract    smutil     smocc    mmaact      dram     pcitx
# Idx      W      C      C      %      %    MHz    MHz     GPM:%     GPM:%     GPM:%     GPM:%     GPM:% GPM:MiB/s
    0     56     30     28      0      0   1593    210         -         -         -         -         -         -
    0    556     60     58    100     60   1593   1980       100        92        31        12        71        10
"""
QUERY = """\
==============NVSMI LOG==============

Timestamp                                 : Mon Jul  8 15:17:34 2024
Attached GPUs                             : 2
GPU 00000000:01:00.0
    Product Name                          : NVIDIA H100 80GB HBM3
    GPU UUID                              : GPU-1
    FB Memory Usage
        Total                             : 81559 MiB
        Used                              : 10 MiB
    BAR1 Memory Usage
        Total                             : 131072 MiB
    Utilization
        Gpu                               : 5 %
    Clocks
        SM                                : 1410 MHz
    Max Clocks
        SM                                : 1980 MHz
    GPU Power Readings
        Power Draw                        : 120.5 W
    Processes
        Process ID                        : 1234
            Name                          : /usr/bin/x
            Used GPU Memory               : 100 MiB
        Process ID                        : 1235
            Used GPU Memory               : 19135 MiB
GPU 00000000:02:00.0
    Product Name                          : NVIDIA GB10
    FB Memory Usage
        Total                             : N/A
"""
MIB = 2**20
TEXTS = (UNIFIED, REASONS_TEXT, DMON_TEXT, GPM_TEXT, QUERY)


def test_a_device_with_unified_memory_tells_no_memory_and_none_is_made_up() -> None:
    """MET-12."""
    (record,) = read_text(UNIFIED)
    assert record.kind is RecordKind.SENSOR
    assert record.values == {"gpu_busy_ratio": 0.0, "power_w": 11.17, "temperature_celsius": 35.0}
    assert "unified memory" in record.words["complaint"]


@pytest.mark.parametrize("section", ["Clocks Event Reasons", "Clocks Throttle Reasons"])
def test_reasons_are_flags(section: str) -> None:
    (record,) = read_text(REASONS_TEXT.replace("Clocks Event Reasons", section))
    assert record.values == {
        "reason_idle": 0.0,
        "reason_power_cap": 1.0,
        "reason_hw_slowdown": 0.0,
        "reason_hw_thermal": 0.0,
        "reason_sw_thermal": 0.0,
    }


def test_dmon_is_a_record_a_device_and_moment() -> None:
    first, second = read_text(DMON_TEXT)
    assert first.ranks == {"gpu": 0}
    assert "memory_temperature_celsius" not in first.values
    assert first.values["gpu_busy_ratio"] == 0.95
    assert first.values["memory_clock_hz"] == 12.481e9
    assert first.values["memory_used_bytes"] == 725 * MIB
    assert second.ranks == {"gpu": 1}
    assert second.values["memory_temperature_celsius"] == 50


def test_dmon_s_gpm_metrics_are_bandwidth_and_its_mem_is_not() -> None:
    before, busy = read_text(GPM_TEXT)
    assert "dram_ratio" not in before.values
    assert (busy.values["dram_ratio"], busy.values["memory_busy_ratio"]) == (0.71, 0.6)
    assert busy.values["pcie_tx_bytes_per_s"] == 10 * MIB


def test_dmon_with_dates() -> None:
    head, units, row, _ = DMON_TEXT.splitlines()
    dated = f"#Date       Time       {head[2:]}\n#YYYYMMDD   HH:MM:SS   {units[2:]}\n 20240708   15:17:34   {row}\n"
    (record,) = read_text(dated)
    assert record.unix_s is not None
    assert record.values["power_w"] == 218
    assert record.ranks == {"gpu": 0}


def test_a_query_tells_each_device_by_its_own_sections() -> None:
    h100, gb10 = read_text(QUERY)
    assert h100.values["memory_total_bytes"] == 81559 * MIB  # not that of BAR1
    assert h100.values["sm_clock_hz"] == 1.41e9
    assert h100.values["sm_clock_max_hz"] == 1.98e9
    assert h100.values["process_used_bytes"] == 19235 * MIB
    assert h100.words == {"name": "NVIDIA H100 80GB HBM3", "uuid": "GPU-1"}
    assert h100.unix_s is not None
    assert gb10.values == {}
    assert gb10.ranks == {"gpu": 1}
    assert "unified memory" in gb10.words["complaint"]


def test_a_table_with_index_time_and_reasons() -> None:
    (record,) = read_text(
        "timestamp, index, name, memory.total, clocks.sm [MHz], clocks_event_reasons.sw_power_cap, novel.field\n"
        "2024/07/08 15:17:34.123, 1, NVIDIA H200, 143771 MiB, 1980 MHz, Active, 3\n"
    )
    assert record.values == {"memory_total_bytes": 143771 * MIB, "sm_clock_hz": 1.98e9, "reason_power_cap": 1.0}
    assert record.words == {"name": "NVIDIA H200"}
    assert record.ranks == {"gpu": 1}
    assert record.unknown == ("novel.field",)


def test_no_name_of_a_process_is_kept() -> None:
    (record,) = read_text("pid, process_name, used_memory [MiB]\n7, /opt/joe/run, 19135 MiB\n")
    assert record.values == {"process_used_bytes": 19135 * MIB}
    assert record.words == {}
    assert record.ranks == {}


@pytest.mark.parametrize("text", TEXTS)
def test_it_is_recognised(text: str) -> None:
    assert is_mine(text)


@pytest.mark.parametrize("text", ["", "INFO 06-06 14:20:44 x", "# a readme", "a, b, c\n1, 2, 3", '{"a": 1}'])
def test_nothing_else_is(text: str) -> None:
    assert not is_mine(text)


def test_every_sensor_is_declared() -> None:
    names = {*COLUMNS.values(), *DMON.values(), *REASONS.values(), *SECTIONS.values(), *POWER.values()}
    assert names == set(SENSORS)


@settings(max_examples=300)
@given(st.sampled_from(TEXTS), st.integers(0, 3000), st.integers(0, 60), st.text(max_size=20))
def test_wrong_texts_raise_nothing(text: str, at: int, gone: int, put: str) -> None:
    at = at % (len(text) + 1)
    wrong = text[:at] + put + text[at + gone :]
    is_mine(wrong)
    for record in read_text(wrong):
        assert set(record.values) <= set(SENSORS)
        assert all(math.isfinite(value) for value in record.values.values())
