"""dcgm-exporter pages: every version's spelling, units, MIG slices, doubles, and the page's own period."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rooflens.collector import dcgm_text
from rooflens.collector.dcgm import DcgmProbe
from rooflens.collector.dcgm_names import BY_SPELLING
from rooflens.collector.dcgm_text import PageReading, read_page
from rooflens.device_records import CounterSource, DeviceSample, Throttle
from rooflens.protocols import Probed

PAGES = Path(__file__).parents[1] / "data" / "dcgm_pages"
UUID = "GPU-5d0b2f4e-0001-4c6e-9a55-6f2a9d2f7c11"


def line(name: str, value: object, uuid: str = UUID, more: str = "") -> str:
    return f'{name}{{gpu="0",UUID="{uuid}",device="nvidia0"{more}}} {value}\n'


def read(text: str) -> PageReading:
    return read_page(text.encode())


class Exporter:
    """A page by time: the clock moves only where the test moves it."""

    def __init__(self, page: Callable[[float], str], period_s: float = 30.0) -> None:
        self.now_s = 1000.0
        self.fetched_s: list[float] = []
        self._page = page
        self.probe = DcgmProbe("http://n1:9400", self._fetch, period_s, clock=lambda: self.now_s)

    def _fetch(self) -> bytes:
        self.fetched_s.append(self.now_s - 1000.0)
        return self._page(self.now_s - 1000.0).encode()

    def run(self, until_s: float, step_s: float = 0.5) -> list[Probed]:
        brought = []
        while self.now_s < 1000.0 + until_s:
            brought.append(self.probe.sample())
            self.now_s += step_s
        return brought

    def samples(self, until_s: float, step_s: float = 0.5) -> list[DeviceSample]:
        return [sample for brought in self.run(until_s, step_s) for sample in brought.samples]


def every(period_s: float, phase_s: float = 0.0) -> Callable[[float], str]:
    """An exporter that refreshes every ``period_s``: ratio n/1000 and 100 J more in its n-th period."""

    def page(at_s: float) -> str:
        turn = math.floor((at_s + phase_s) / period_s)
        return line("DCGM_FI_PROF_DRAM_ACTIVE", f"{turn % 1000 / 1000:f}") + line(
            "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 100_000 * turn
        )

    return page


class TestText:
    def test_the_example_of_its_documentation(self) -> None:
        """README.md of NVIDIA/dcgm-exporter."""
        page = read_page((PAGES / "readme.txt").read_bytes())
        (device,) = page.devices.values()
        assert device.uuid == "GPU-604ac76c-d9cf-fef3-62e9-d92044ab6e52"
        assert device.values == {"sm_clock_hz": 139e6, "memory_clock_hz": 405e6}
        assert page.problems == ()

    def test_both_spellings_say_the_same(self) -> None:
        old, new = (read_page((PAGES / name).read_bytes()) for name in ("old_names.txt", "new_names.txt"))
        assert old == new
        (device,) = old.devices.values()
        assert (device.name, device.index, device.driver_version) == ("NVIDIA H200", 0, "570.86.15")
        assert device.values["energy_j"] == pytest.approx(8395.0)
        assert device.values["memory_used_bytes"] == 130_000 * 1024 * 1024
        assert device.values["kernel_ratio"] == pytest.approx(0.97)
        assert device.values["pcie_tx_bytes_per_s"] == 1.2e6
        assert len(device.values) == 22

    def test_an_older_exporter(self) -> None:
        page = read_page((PAGES / "v100.txt").read_bytes())
        first, second = page.devices.values()
        assert first.values == {"dram_ratio": 0.0, "pcie_tx_bytes_per_s": 0.0, "pcie_rx_bytes_per_s": 0.0}
        assert second.values["energy_j"] == pytest.approx(129931554.972)
        assert second.values["power_w"] == pytest.approx(167.362)

    @pytest.mark.parametrize(
        "value",
        [
            "NaN",
            "nan",
            "+Inf",
            "-Inf",
            "1e999",
            "N/A",
            "[N/A]",
            "",
            "0x10",
            "1_000",
            "9223372036854775794",
            "9223372036854775792",
            "2147483632",
            "140737488355328.000000",
            "140737488355331",
        ],
    )
    def test_a_value_that_is_none_is_missing(self, value: str) -> None:
        page = read(line("DCGM_FI_DEV_POWER_USAGE", value) + line("DCGM_FI_DEV_GPU_TEMP", 50))
        (device,) = page.devices.values()
        assert device.values == {"temperature_celsius": 50.0}

    def test_a_ratio_beyond_one_is_left_out_and_said(self) -> None:
        page = read(line("DCGM_FI_PROF_DRAM_ACTIVE", 62) + line("DCGM_FI_PROF_SM_ACTIVE", 1.000001))
        (device,) = page.devices.values()
        assert device.values == {"sm_ratio": 1.0}
        assert page.problems == ("DCGM_FI_PROF_DRAM_ACTIVE: 62 is outside of what it can be and is left out",)

    def test_series_that_contradict_each_other_are_not_known(self) -> None:
        page = read(
            line("DCGM_FI_PROF_DRAM_ACTIVE", 0.5, more=',instance="a"')
            + line("DCGM_FI_PROF_DRAM_ACTIVE", 0.6, UUID.upper().replace("GPU", "gpu"), more=',instance="b"')
            + line("DCGM_FI_DEV_GPU_TEMP", 50, more=',pod="a"')
            + line("DCGM_FI_DEV_GPU_TEMP", 50, more=',pod="b"')
        )
        (device,) = page.devices.values()
        assert device.values == {"temperature_celsius": 50.0}
        (problem,) = page.problems
        assert problem.startswith(f"DCGM_FI_PROF_DRAM_ACTIVE of {UUID} is given with 2 different values")

    def test_slices_are_devices_of_their_own_and_draw_none_of_the_boards_power(self) -> None:
        page = read_page((PAGES / "mig.txt").read_bytes())
        seven, eight = page.devices.values()
        parent = "GPU-153bdcb7-df30-40e2-3f2c-379902ba72fa"
        assert (seven.uuid, seven.parent_uuid, seven.mig_profile) == (f"{parent}/GI-7", parent, "1g.11gb")
        assert eight.uuid == f"{parent}/GI-8"
        assert seven.values == {"memory_used_bytes": 12 * 1024 * 1024}
        of_slice = ',GPU_I_PROFILE="<<<NULL>>>",GPU_I_ID="7"'
        mixed = read(
            line("DCGM_FI_PROF_DRAM_ACTIVE", 0.5)
            + line("DCGM_FI_PROF_DRAM_ACTIVE", 0.9, more=of_slice)
            + line("DCGM_FI_DEV_POWER_USAGE", 300, more=of_slice)
            + line("DCGM_FI_DEV_SM_CLOCK", 1410, more=of_slice + ',dra_mig_device_uuid="MIG-1"')
        )
        board, part = mixed.devices.values()
        assert (board.uuid, board.parent_uuid, board.values) == (UUID, None, {"dram_ratio": 0.5})
        assert (part.uuid, part.parent_uuid, part.mig_profile) == ("MIG-1", UUID, None)
        assert part.values == {"dram_ratio": 0.9, "sm_clock_hz": 1.41e9}
        assert mixed.problems == ()

    def test_links_switches_and_processors_are_no_devices(self) -> None:
        page = read(
            'DCGM_FI_PROF_NVLINK_TX_BYTES{nvlink="0",gpu="0",gpu_uuid="GPU-1",model_name="H"} 5\n'
            'DCGM_FI_DEV_POWER_USAGE{nvswitch="0",hostname="n1"} 30\n'
        )
        assert page.devices == {}
        assert page.problems == (
            "has metrics of DCGM, and none of a device's counters: see the exporter's list of fields",
        )

    @pytest.mark.parametrize(
        "text", ["", "\n", "vllm:num_requests_running 3\n", "<html>DCGM_FI</html>", "# TYPE DCGM_FI_DEV"]
    )
    def test_a_page_of_something_else_is_said(self, text: str) -> None:
        assert read(text) == PageReading(
            {}, ("answers, but not with DCGM's metrics: dcgm-exporter listens on port 9400",)
        )

    def test_a_page_is_bounded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert read_page(b"DCGM_" * dcgm_text.MOST_BYTES).problems[0].startswith("has 83,886,080 bytes")
        monkeypatch.setattr(dcgm_text, "MOST_SERIES", 3)
        page = read("".join(line("DCGM_FI_DEV_GPU_TEMP", 1, f"GPU-{n}") for n in range(5)))
        assert len(page.devices) == 3
        assert page.problems == ("2 series beyond 3, or 1,024 devices, are left out",)
        monkeypatch.setattr(dcgm_text, "MOST_DEVICES", 1)
        page = read("".join(line("DCGM_FI_DEV_GPU_TEMP", 1, f"GPU-{n}") for n in range(3)))
        assert len(page.devices) == 1

    def test_what_cannot_be_read_is_counted_not_taken(self) -> None:
        page = read(
            "DCGM_FI_DEV_GPU_TEMP 50\n"
            'DCGM_FI_DEV_GPU_TEMP{UUID="GPU-1"\n'
            'DCGM_FI_DEV_GPU_TEMP{UUID="GPU-1",UUID="GPU-2"} 50\n'
            'DCGM_FI_DEV_SM_CLOCK{gpu="1"} 50\n'
            + line("DCGM_FI_DEV_GPU_TEMP", 50, "x" * 9000)
            + line("DCGM_FI_DEV_SM_CLOCK", 1, "GPU\t1")
        )
        assert page.devices == {}
        assert page.problems == (
            "DCGM_FI_DEV_GPU_TEMP: 4 lines that cannot be read",
            "2 series without the uuid of a device cannot be joined",
        )

    def test_problems_are_few_however_many_there_are(self) -> None:
        names = list(dict.fromkeys(field.spellings[0] for field in BY_SPELLING.values()))[:9]
        page = read("".join(f"{name} 1\n" for name in names))
        assert page.problems == (
            *(f"{name}: 1 lines that cannot be read" for name in names[:4]),
            "5 more of the kind",
        )

    def test_a_time_stamp_is_read_over(self) -> None:
        with_stamp = line("DCGM_FI_DEV_GPU_TEMP", "50 1790000000000")
        assert read(with_stamp) == read(line("DCGM_FI_DEV_GPU_TEMP", 50))

    @given(st.binary(max_size=400))
    def test_any_bytes_are_read(self, raw: bytes) -> None:
        read_page(raw)

    @given(
        st.lists(
            st.tuples(
                st.sampled_from([*BY_SPELLING, "DCGM_FI_OTHER"]),
                st.sampled_from(["UUID", "uuid", "GPU_I_ID", "x"]),
                st.text(max_size=12),
                st.one_of(st.floats().map(str), st.integers().map(str), st.text(max_size=8)),
                st.sampled_from(["", " 17", "\r", " #"]),
            ),
            max_size=12,
        )
    )
    def test_no_value_is_ever_nan_or_out_of_bounds(self, series: list[tuple[str, str, str, str, str]]) -> None:
        text = "".join(
            f'{name}{{UUID="GPU-1",{label}="{value}"}} {number}{end}\n' for name, label, value, number, end in series
        )
        page = read(text)
        for device in page.devices.values():
            assert device.uuid.isprintable()
            for key, value in device.values.items():
                assert math.isfinite(value)
                assert value >= 0
                assert not key.endswith("_ratio") or value <= 1
        assert all(problem.isprintable() for problem in page.problems)

    @given(st.lists(st.sampled_from('"\\,={}a \t'), max_size=2000))
    def test_labels_take_linear_time(self, characters: list[str]) -> None:
        read("DCGM_FI_DEV_GPU_TEMP{" + "".join(characters) * 20 + "} 1\n")


class TestProbe:
    def test_devices_and_what_they_say_of_themselves(self) -> None:
        text = (PAGES / "old_names.txt").read_text()
        (facts,) = Exporter(lambda at_s: text).probe.sample().devices
        assert (facts.uuid, facts.source, facts.name) == (UUID, CounterSource.DCGM, "NVIDIA H200")
        assert facts.memory_bytes == 143_771 * 1024 * 1024
        assert (facts.sm_clock_max_hz, facts.memory_clock_max_hz, facts.power_limit_w) == (1.98e9, 2.619e9, 700.0)
        assert facts.counters is True
        assert facts.memory_bandwidth_bytes_per_s is None

    def test_a_sample_has_all_that_the_page_has(self) -> None:
        text = (PAGES / "new_names.txt").read_text()
        exporter = Exporter(lambda at_s: text.replace("} 8395000", f"}} {8395000 + 512250 * int(at_s)}"), period_s=1.0)
        sample = exporter.samples(4.0)[-1]
        told = {entry.name: getattr(sample, entry.name) for entry in fields(sample)}
        assert told == {
            "uuid": UUID,
            "source": CounterSource.DCGM,
            "start_monotonic_s": 1001.0,
            "end_monotonic_s": 1002.0,
            "slack_s": 1.0,
            "dram_ratio": 0.62,
            "tensor_ratio": 0.093,
            "sm_ratio": 0.871,
            "sm_occupancy_ratio": 0.31,
            "graphics_ratio": 0.982,
            "pcie_tx_bytes_per_s": 1.2e6,
            "pcie_rx_bytes_per_s": 3.4e6,
            "nvlink_tx_bytes_per_s": 5.6e7,
            "nvlink_rx_bytes_per_s": 7.8e7,
            "c2c_tx_bytes_per_s": None,
            "c2c_rx_bytes_per_s": None,
            "sm_clock_hz": 1.755e9,
            "memory_clock_hz": 2.619e9,
            "power_w": 512.25,
            "energy_j": pytest.approx(512.25),
            "temperature_celsius": 61.0,
            "memory_used_bytes": 130_000 * 1024 * 1024,
            "throttles": (Throttle.POWER_CAP, Throttle.THERMAL),
            "throttled_s": {},
            "kernel_ratio": 0.97,
        }

    def test_a_slice_says_so(self) -> None:
        text = (PAGES / "mig.txt").read_text()
        first, second = Exporter(lambda at_s: text).probe.sample().devices
        assert (first.parent_uuid, first.mig_profile, first.counters) == (second.parent_uuid, "1g.11gb", None)

    def test_a_page_that_slows_down_is_read_less_often_again(self) -> None:
        exporter = Exporter(lambda at_s: every(1.0 if at_s < 200 else 30.0)(at_s))
        exporter.run(1000.0)
        at_first = [at_s for at_s in exporter.fetched_s if 100 <= at_s < 200]
        at_last = [at_s for at_s in exporter.fetched_s if 800 <= at_s < 1000]
        assert len(at_first) == 100
        assert 200 / 15 <= len(at_last) + 1 <= 200 / 6 + 1

    def test_a_read_that_comes_late_says_how_late(self) -> None:
        exporter = Exporter(every(1.0), period_s=1.0)
        exporter.samples(10.0)
        exporter.now_s += 20.0
        (late,) = exporter.probe.sample().samples
        assert (late.end_monotonic_s, late.slack_s) == (1029.0, 21.0)

    def test_a_page_of_thirty_seconds_is_read_twice_in_its_period(self) -> None:
        exporter = Exporter(every(30.0, phase_s=11.0))
        samples = exporter.samples(600.0)
        assert exporter.fetched_s[:4] == [0.0, 30.0, 45.0, 60.0]
        assert len(exporter.fetched_s) <= 42
        known = [sample for sample in samples if sample.dram_ratio is not None]
        assert len(known) >= 17
        for sample in known:
            # The page's n-th period ended when the n-th value came: the window says so within its slack.
            turn = round(sample.dram_ratio * 1000) if sample.dram_ratio is not None else 0
            assert sample.slack_s == 30.0
            assert abs(sample.end_monotonic_s - 1000.0 - (turn * 30.0 - 11.0)) <= sample.slack_s
            assert abs(sample.start_monotonic_s - 1000.0 - (turn * 30.0 - 41.0)) <= sample.slack_s
        for earlier, later in pairwise(samples):
            assert later.start_monotonic_s >= earlier.end_monotonic_s
        assert samples[-1].energy_j == pytest.approx(100.0)

    @pytest.mark.parametrize("period_s", [1.0, 5.0, 10.0, 13.0])
    def test_a_page_that_changes_sooner_is_found_out_and_read_sooner(self, period_s: float) -> None:
        exporter = Exporter(every(period_s, phase_s=0.3))
        settled = exporter.samples(300.0)[-10:]
        span_s = settled[-1].end_monotonic_s - settled[0].start_monotonic_s
        assert span_s == pytest.approx(10 * period_s, abs=period_s)
        for sample in settled:
            assert sample.dram_ratio is not None
            assert sample.slack_s == pytest.approx(period_s, rel=0.3)
            turn = round(sample.dram_ratio * 1000)
            assert abs(sample.end_monotonic_s - 1000.0 - (turn * period_s - 0.3)) <= sample.slack_s
        reads = [at_s for at_s in exporter.fetched_s if at_s > 200.0]
        assert len(reads) <= 100.0 / max(period_s / 4, 1.0) + 1

    def test_means_are_left_out_while_the_pages_period_is_not_known(self) -> None:
        """Read every 30 s, a page of every second holds the mean of one of 30."""
        exporter = Exporter(every(1.0))
        searching = exporter.samples(58.0)
        assert searching
        assert all(sample.dram_ratio is None for sample in searching)
        assert all(sample.energy_j is not None for sample in searching)

    def test_energy_of_any_windows_joins_to_that_of_their_stretch(self) -> None:
        samples = Exporter(every(5.0, phase_s=0.3)).samples(200.0)
        for first in range(len(samples) - 1):
            part = samples[first:]
            assert all(earlier.end_monotonic_s == later.start_monotonic_s for earlier, later in pairwise(part))
            stretch_s = part[-1].end_monotonic_s - part[0].start_monotonic_s
            joined_s = sum(sample.energy_j or 0.0 for sample in part) / 20.0
            assert abs(joined_s - stretch_s) <= part[0].slack_s + part[-1].slack_s
        assert joined_s == pytest.approx(stretch_s, abs=1.0)

    def test_a_counter_that_begins_anew_has_no_difference(self) -> None:
        def page(at_s: float) -> str:
            return line("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 900_000 if at_s < 3 else 1_000 * int(at_s))

        samples = Exporter(page, period_s=1.0).samples(8.0)
        assert [sample.energy_j for sample in samples] == [None, 1.0, 1.0, 1.0, 1.0]

    def test_profiling_stuck_at_zero_beside_a_busy_kernel_is_passed_on(self) -> None:
        text = (PAGES / "after_xid.txt").read_text()
        (sample,) = Exporter(lambda at_s: text).samples(31.0)
        assert (sample.graphics_ratio, sample.kernel_ratio, sample.dram_ratio) == (0.0, 1.0, None)
        assert (sample.start_monotonic_s, sample.end_monotonic_s, sample.slack_s) == (1000.0, 1030.0, 30.0)

    def test_a_page_whose_energy_stands_still_is_stuck_and_said(self) -> None:
        exporter = Exporter(lambda at_s: every(30.0)(0.0))
        brought = exporter.run(100.0)
        assert not any(turn.samples for turn in brought)
        assert brought[-1].problems == (
            "http://n1:9400 has shown the same energy for 90 s: it is stuck, restart dcgm-exporter",
        )

    def test_throttles_and_their_time(self) -> None:
        def page(at_s: float) -> str:
            return line("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", 0x1FF if at_s >= 2 else 0x1) + line(
                "DCGM_FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP_NS", int(at_s * 250_000_000)
            )

        samples = Exporter(page, period_s=1.0).samples(4.0)
        assert samples[-1].throttles is not None
        assert set(samples[-1].throttles) == set(Throttle)
        assert samples[-1].throttled_s == {Throttle.POWER_CAP: pytest.approx(0.25)}
        mask = read(line("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", 5))
        assert next(iter(mask.devices.values())).values == {"throttles": 5.0}

    def test_a_page_that_fails_and_returns(self) -> None:
        def page(at_s: float) -> str:
            if 20 <= at_s < 40:
                raise OSError("http://n1:9400 refuses the connection\nmore")
            return every(1.0)(at_s)

        exporter = Exporter(page, period_s=1.0)
        brought = exporter.run(60.0)
        during = brought[60]
        assert during.problems == (
            "http://n1:9400 refuses the connection: no counters from it, is dcgm-exporter running there?",
        )
        assert [facts.uuid for facts in during.devices] == [UUID]
        assert brought[-1].problems == ()
        samples = [sample for turn in brought for sample in turn.samples]
        assert samples[-1].end_monotonic_s > 1055
        assert all(earlier.end_monotonic_s == later.start_monotonic_s for earlier, later in pairwise(samples))
        (over,) = [sample for sample in samples if sample.start_monotonic_s < 1020 < sample.end_monotonic_s]
        assert (over.start_monotonic_s, over.end_monotonic_s, over.slack_s) == (1018.0, 1039.0, 1.0)
        assert over.energy_j == pytest.approx(2100.0)  # of every second of it
        assert (over.dram_ratio, over.sm_clock_hz) == (None, None)
        assert all(sample.dram_ratio is not None for sample in samples if sample.start_monotonic_s >= 1039)

    @pytest.mark.parametrize("period_s", [1.0, 30.0])
    def test_energy_loses_nothing_over_reads_that_fail(self, period_s: float) -> None:
        """One read in seven fails, or brings an empty page; each joule is told once, in a window that it is in."""

        def page(at_s: float) -> str:
            if at_s and not len(exporter.fetched_s) % 7:
                raise OSError("http://n1:9400 refuses the connection")
            if at_s and not len(exporter.fetched_s) % 11:
                return line("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", 1)
            clock = line("DCGM_FI_DEV_SM_CLOCK", 1500)
            return every(period_s, phase_s=0.3 * period_s)(at_s) + clock

        exporter = Exporter(page, period_s=period_s)
        samples = exporter.samples(100 * period_s)
        assert all(earlier.end_monotonic_s == later.start_monotonic_s for earlier, later in pairwise(samples))
        whole_s = samples[-1].end_monotonic_s - samples[0].start_monotonic_s
        joules = sum(sample.energy_j or 0.0 for sample in samples)
        assert joules / 100 * period_s == pytest.approx(whole_s, abs=2 * samples[0].slack_s)
        assert whole_s > 90 * period_s
        for sample in samples:
            assert sample.energy_j is not None
            assert abs(sample.energy_j / 100 * period_s - sample.span_s) <= 2 * sample.slack_s
        gaps = [sample for sample in samples if sample.sm_clock_hz is None]
        assert len(gaps) >= 8

    def test_a_page_without_counts_is_not_known_over_a_read_that_failed(self) -> None:
        def page(at_s: float) -> str:
            if 100 <= at_s < 130:
                raise OSError("http://n1:9400 refuses the connection")
            return line("DCGM_FI_DEV_POWER_USAGE", int(at_s))

        samples = Exporter(page, period_s=1.0).samples(200.0)
        assert samples[-1].end_monotonic_s > 1190
        assert not any(sample.start_monotonic_s < 1115 < sample.end_monotonic_s for sample in samples)

    def test_a_page_is_not_called_stuck_for_the_time_in_which_it_could_not_be_read(self) -> None:
        def page(at_s: float) -> str:
            if 100 <= at_s < 400:
                raise OSError("http://n1:9400 refuses the connection")
            return every(30.0)(min(at_s, 90.0) if at_s < 420 else at_s)

        brought = Exporter(page).run(700.0)
        lines = {problem for turn in brought for problem in turn.problems}
        assert not any("stuck" in problem for problem in lines)
        samples = [sample for turn in brought for sample in turn.samples]
        (over,) = [sample for sample in samples if sample.start_monotonic_s < 1200 < sample.end_monotonic_s]
        assert over.energy_j == pytest.approx(1100.0, abs=100.0)
        assert over.dram_ratio is None

    def test_what_cannot_be_is_left_out_and_said(self) -> None:
        """Each alone on the page, or by what the device says of itself."""
        page = read(
            line("DCGM_FI_DEV_GPU_TEMP", 65535)
            + line("DCGM_FI_DEV_SM_CLOCK", "1e12")
            + line("DCGM_FI_PROF_PCIE_TX_BYTES", "1e18")
            + line("DCGM_FI_DEV_POWER_USAGE", 300)
        )
        assert next(iter(page.devices.values())).values == {"power_w": 300.0}
        assert len(page.problems) == 3
        assert page.problems[0] == "DCGM_FI_DEV_GPU_TEMP: 65535 is outside of what it can be and is left out"

        def odd(at_s: float) -> str:
            return (
                line("DCGM_FI_DEV_ENFORCED_POWER_LIMIT", 700)
                + line("DCGM_FI_DEV_FB_TOTAL", 1000)
                + line("DCGM_FI_DEV_FB_USED", 1200)
                + line("DCGM_FI_DEV_POWER_USAGE", 4000)
                + line("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 10**9 * int(at_s))
            )

        exporter = Exporter(odd, period_s=1.0)
        last = exporter.run(8.0)[-2]
        (sample,) = last.samples
        assert (sample.power_w, sample.memory_used_bytes, sample.energy_j) == (None, None, None)
        assert last.problems == tuple(
            f"http://n1:9400 {words} of {UUID} is outside of what it can be and is left out"
            for words in ("the power of now", "the energy of a window", "the used memory")
        )

    def test_the_escapes_of_a_label_are_undone(self) -> None:
        page = read('DCGM_FI_DEV_GPU_TEMP{UUID="GPU-1",modelName="a\\"b\\\\c \\x"} 50\n')
        (device,) = page.devices.values()
        assert device.name == 'a"b\\c \\x'

    def test_all_spellings_that_contradict_each_other_are_named(self) -> None:
        names = ("DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_BOARD_POWER_WATTS", "dcgm_power_usage")
        page = read("".join(line(name, 100 + place) for place, name in enumerate(names)))
        (problem,) = page.problems
        assert problem.startswith(f"{' and '.join(names)} of {UUID} is given with 3 different values")

    def test_a_device_that_comes_and_goes(self) -> None:
        def page(at_s: float) -> str:
            other = line("DCGM_FI_DEV_POWER_USAGE", at_s, "GPU-2") if 10 <= at_s < 20 else ""
            return line("DCGM_FI_DEV_POWER_USAGE", at_s) + other

        exporter = Exporter(page, period_s=1.0)
        brought = exporter.run(30.0, step_s=1.0)
        assert [len(turn.devices) for turn in brought] == [1] * 10 + [2] * 10 + [1] * 10
        ends = [s.end_monotonic_s - 1000 for turn in brought for s in turn.samples if s.uuid == "GPU-2"]
        assert ends == [10.0 + n for n in range(9)]

    def test_anything_that_is_raised_is_one_line(self) -> None:
        def fetch() -> bytes:
            raise KeyError

        (problem,) = DcgmProbe("page", fetch).sample().problems
        assert problem == "page KeyError: no counters from it, is dcgm-exporter running there?"
        not_bytes = DcgmProbe("page", lambda: None)  # type: ignore[arg-type, return-value]
        assert not_bytes.sample().problems == ("page could not be understood (TypeError): please report it",)

    @given(st.lists(st.binary(max_size=60), max_size=6), st.integers(1, 40))
    def test_whatever_comes_no_sample_has_nan(self, pages: list[bytes], step_s: int) -> None:
        clock = iter(range(0, 10_000, step_s))
        queue = iter([*pages, b"DCGM_FI_DEV_GPU_TEMP{UUID='GPU-1'} 5", *([b""] * 40)])
        probe = DcgmProbe("page", lambda: next(queue), 5.0, clock=lambda: float(next(clock)))
        for _ in range(8):
            for sample in probe.sample().samples:
                values = [getattr(sample, entry.name) for entry in fields(sample)]
                assert all(math.isfinite(value) for value in values if isinstance(value, float))
