"""The hardware that nobody names: the one known kind of device that this machine has, or none."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli.driver import lose, nvml
from cli.pages import served
from made_engine import made_engine

from rooflens.analyzer.hardware import find_hardware
from rooflens.cli import main
from rooflens.cli.devices import NamedDevices, hardware_here, named_devices
from rooflens.cli.watched import watched
from rooflens.pipeline.watch import Watch
from rooflens.pipeline.watch_settings import WatchSettings

H200 = "NVIDIA H200"
AWAY = "http://10.1.2.3:8000/metrics"


@pytest.mark.parametrize(
    ("names", "sliced", "pages", "found"),
    [
        ([H200], False, (), "h200-sxm-141"),
        ([H200] * 8, False, ("http://127.0.0.1:8000", "localhost:8001"), "h200-sxm-141"),
        ([H200, "NVIDIA H100 80GB HBM3"], False, (), None),
        (["NVIDIA Odd 1"], False, (), None),
        ([], False, (), None),
        ([H200], True, (), None),
        ([H200], False, ("http://127.0.0.1:8000", AWAY), None),
    ],
)
def test_one_known_kind_of_whole_device(
    names: list[str], sliced: bool, pages: tuple[str, ...], found: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml(names, sliced=sliced))
    hardware, _ = hardware_here(pages)
    assert (hardware.id if hardware else None) == found


def test_a_lost_device_takes_none_of_the_others_away(monkeypatch: pytest.MonkeyPatch) -> None:
    for call in ("nvmlDeviceGetHandleByIndex", "nvmlDeviceGetName"):
        made = nvml([H200] * 8)
        lose(made, call, 3)
        monkeypatch.setitem(sys.modules, "pynvml", made)
        hardware, here = hardware_here(())
        assert hardware is not None
        assert hardware.id == "h200-sxm-141"
        assert [each.problem for each in here.devices if each.name is None] == ["GPU is lost"]


@pytest.mark.parametrize(("value", "absent"), [(9, True), (12, True), (15, False), (4, False)])
def test_only_a_driver_that_is_not_there_is_none(value: int, absent: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    made = nvml([H200])

    def refuse() -> None:
        error = made.NVMLError("why")
        error.value = value
        raise error

    monkeypatch.setattr(made, "nvmlInit", refuse)
    monkeypatch.setitem(sys.modules, "pynvml", made)
    here = named_devices()
    assert (here.absent, here.silent is None) == (absent, absent)
    assert "(why)" in str(here.problem)


def test_without_a_driver_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = nvml([H200])
    monkeypatch.setattr(broken, "nvmlInit", lambda: 1 / 0)
    for binding in (None, broken):
        monkeypatch.setitem(sys.modules, "pynvml", binding)
        assert hardware_here(())[0] is None


def test_the_sidecar_says_that_it_found_it(tmp_path: Path) -> None:
    settings = WatchSettings(hardware=find_hardware("h200-sxm-141"), use_rings=False)
    assert next(iter(watched(settings, found=True))) == (
        "hardware  h200-sxm-141 (datasheet, the device of this machine; else give --hardware ID): 4,800.0 GB/s"
    )
    assert next(iter(watched(settings, found=False))) == "hardware  h200-sxm-141 (datasheet): 4,800.0 GB/s"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    tmp_path.chmod(0o700)
    with made_engine(tmp_path) as engine:
        engine.steps(60)
        yield tmp_path


def test_top_draws_the_floor_of_what_it_found(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["top", "--once", str(folder)]
    for names, told in (
        ([H200], "hardware  h200-sxm-141, the device of this machine; else give --hardware ID\n"),
        ([], ""),
    ):
        monkeypatch.setitem(sys.modules, "pynvml", nvml(names))
        assert main(words) == 0
        shown = capsys.readouterr()
        assert shown.err == told
        assert ("h200-sxm-141" in shown.out) is bool(names)


def test_the_sidecar_looks_for_it_unless_it_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[tuple[str, ...]] = []

    def nothing(pages: tuple[str, ...], _: object) -> tuple[None, NamedDevices]:
        asked.append(pages)
        return None, NamedDevices()

    monkeypatch.setattr("rooflens.cli.devices.hardware_here", nothing)
    monkeypatch.setattr("rooflens.pipeline.loop.run_loop", lambda *_: None)
    with served({}) as port:
        words = ["sidecar", "--no-rings", "--listen", "127.0.0.1:0", "--scrape", f"http://127.0.0.1:{port}"]
        assert main(words) == 0
        assert "hardware  not known" in capsys.readouterr().out
        assert main([*words, "--hardware", "h200-sxm-141"]) == 0
    assert asked == [(f"http://127.0.0.1:{port}",)]


def test_an_engine_on_a_cpu_has_no_floor_of_a_gpu(folder: Path) -> None:
    with made_engine(folder, device="cpu", rank=1) as engine:
        watch = Watch(WatchSettings(folders=(folder,), hardware=find_hardware("h200-sxm-141")))
        engine.steps(10)
        views = {view.engine: view for view in watch.turn().engines}
        watch.close()
    assert views["0"].recent_analysis is not None
    assert views["1"].recent_analysis is None
    assert "give --hardware this-cpu" in (views["1"].problem or "")
