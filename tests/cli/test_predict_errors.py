"""What `rooflens predict` says to who mistypes: the path in front, plain words, what was meant, what to do."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from rooflens.analyzer.hardware import find_hardware
from rooflens.analyzer.number_formats import WEIGHT_FORMATS
from rooflens.analyzer.suggest import did_you_mean
from rooflens.cli import EXIT_FAULT, main

ON = ("--hardware", "h100-sxm5-80")
DEVICE = """id = "mine"
name = "Mine"
vendor = "me"
memory_bytes = {memory}
memory_bandwidth_bytes_per_s = {bandwidth}
[peak_flops_per_s]
bf16 = {peak}
[source]
title = "my bench"
"""


def fault(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(list(words)) == EXIT_FAULT
    captured = capsys.readouterr()
    assert (captured.out, captured.err.count("\n")) == ("", 1)
    assert "Errno" not in captured.err
    return captured.err.removeprefix("rooflens: ")


def device(folder: Path, memory: float = 8e10, bandwidth: float = 2e12, peak: float = 3e14, more: str = "") -> str:
    file = folder / "mine.toml"
    file.write_text(DEVICE.format(memory=memory, bandwidth=bandwidth, peak=peak) + more)
    return str(file)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--model", "{0}/config.json", *ON), "{0}/config.json: no such file: give the path of a model's config.json"),
        (("--model", "{0}/x.gguf", *ON), "{0}/x.gguf: no such file"),
        (("--model", "{0}", *ON), "{0}: this folder holds no config.json: give the path of a model's config.json"),
        (("--hardware", "{0}/x.toml"), "{0}/x.toml: no such file: give the path of a device's TOML"),
    ],
)
def test_a_missing_file_is_said_plainly_after_its_path(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    found = fault(capsys, "predict", *(word.format(tmp_path) for word in words))
    assert found.startswith(message.format(tmp_path))
    assert "'rooflens predict --list'" in found


@pytest.mark.parametrize("name", ["hf_quant_config.json", "quantised.json"])
def test_what_only_says_the_formats_is_no_model(capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.write_text(json.dumps({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8"}}))
    message = fault(capsys, "predict", "--model", str(file), *ON)
    assert message.startswith(f"{file}: says only how weights are quantised: give the config.json beside it")


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("predcit",), "(did you mean predict?)"),
        (("predict", *ON, "--bacth", "4"), "unrecognized arguments: --bacth (did you mean --batch?)"),
        (("predict", *ON, "--bacth=4"), "(did you mean --batch?)"),
        (("predict", "--hardwre", "l4"), "(did you mean --hardware?)"),  # before the one that is missing
        (("predict", *ON, "--phase", "decoding"), "(did you mean decode?)"),
        (("predict", *ON, "--spec-method", "eagle"), "(did you mean eagle3?)"),
        (("predict", "--hardware", "H100-SXM"), "(did you mean h100-sxm5-80 or "),
        (("predict", *ON, "--model", "llama-70b"), "(did you mean llama-2-70b-hf or "),
        (("predict", *ON, "--model", "qwen3-8b", "--weights", "fp7"), "; 'rooflens predict --list' names all"),
        (("predict", *ON, "--model", "qwen3-8b", "--spec-method", "model"), "--draft-model"),
    ],
)
def test_a_mistyped_word_is_told_what_it_may_have_meant(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], meant: str
) -> None:
    assert meant in fault(capsys, *words)


def test_what_begins_with_a_name_comes_before_what_looks_like_it() -> None:
    names = {name: name for name in ("h800-sxm", "h100-sxm5-80", "b300-sxm")}
    assert did_you_mean("h100-sxm", names).startswith(" (did you mean h100-sxm5-80 or ")
    assert did_you_mean("h1", {"h100-sxm5-80": "h100-sxm5-80"}) == ""  # too short to say anything


def test_a_memory_without_a_unit_is_not_taken_for_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("predict", "--model", "qwen3-8b", *ON, "--memory")
    assert "'80' has no unit and would be bytes: write 80GB, 80GiB or 80e9" in fault(capsys, *words, "80")
    for plenty in ("80e9", "80000000000", "900kB"):
        assert main([*words, plenty]) == 0


@pytest.mark.parametrize(
    ("figures", "key"),
    [
        ({"bandwidth": 3350}, "memory_bandwidth_bytes_per_s = 3350"),
        ({"memory": 80}, "memory_bytes = 80"),
        ({"peak": 989}, "peak_flops_per_s.bf16 = 989"),
        (
            {"more": "[link]\nbandwidth_per_direction_bytes_per_s = 900"},
            "link.bandwidth_per_direction_bytes_per_s = 900",
        ),
    ],
)
def test_a_device_in_other_units_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, figures: dict[str, float], key: str
) -> None:
    file = device(tmp_path, **figures)  # type: ignore[arg-type]
    message = fault(capsys, "predict", "--hardware", file)
    assert message.startswith(f"{file}: not a hardware TOML: {key} is too small to be in SI units")


def test_a_device_without_a_link_is_told_the_key(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ("predict", "--model", "qwen3-8b", "--tp", "2", "--hardware")
    assert "[link] bandwidth_per_direction_bytes_per_s" in fault(capsys, *words, device(tmp_path))
    linked = device(tmp_path, more="[link]\nbandwidth_per_direction_bytes_per_s = 4.5e11\n")
    assert main([*words, linked]) == 0


def test_the_page_shows_a_device_that_works_and_names_every_key(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    root = Path(__file__).resolve().parents[2]
    section = (root / "docs" / "predict.md").read_text(encoding="utf-8").split("## A device of your own")[1]
    (shown,) = re.findall(r"```toml\n(.*?)```", section, re.DOTALL)
    file = tmp_path / "mine.toml"
    file.write_text(shown)
    assert main(["predict", "--model", "qwen3-8b", "--tp", "2", "--hardware", str(file)]) == 0
    spec = find_hardware(str(file))
    # 100 units x 2,048 flops x 1.6 GHz are 327.7 TFLOP/s, 1.09 times the printed peak.
    assert spec.ceiling_flops_per_s["bf16"] == pytest.approx(3.2768e14)
    read = (root / "analyzer" / "hardware.py").read_text(encoding="utf-8").split("def _spec")[1].split("def _rates")[0]
    keys = set(re.findall(r"""(?:data|link|clock)(?:\["|\.get\(")([a-z_]+)""", read))
    assert {"memory_bytes", "cache_bytes", "announced_flops_per_s", "reduces_in_network", "sm_count"} <= keys
    assert not [key for key in sorted(keys) if key not in section]
    assert "bandwidth_per_direction_bytes_per_s" in section
    units = {unit for form in WEIGHT_FORMATS.values() for unit in form.compute}
    assert not [unit for unit in sorted(units) if unit not in section]
