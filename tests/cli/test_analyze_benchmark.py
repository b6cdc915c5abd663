from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from rooflens.cli import main
from rooflens.cli.recorded.bench_roof import known_device, known_name

FILE = Path(__file__).resolve().parents[1] / "data" / "benchmarks" / "samples.toml"
SAMPLES = {one["id"]: one["text"] for one in tomllib.loads(FILE.read_text(encoding="utf-8"))["sample"]}
H100 = ("--hardware", "h100-sxm5-80")
LLAMA = ("--model", "meta-llama-3-8b")


@pytest.fixture
def sample(tmp_path: Path) -> Any:
    def written(name: str) -> str:
        file = tmp_path / name
        file.write_text(SAMPLES[name], encoding="utf-8")
        return str(file)

    return written


def report(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main(["analyze", *words, "--json"]) == 0
    (one,) = json.loads(capsys.readouterr().out)
    assert isinstance(one, dict)
    return one


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["analyze", *words]) == 0
    return capsys.readouterr().out


def test_a_result_lies_beside_the_step_that_predict_bounds(sample: Any, capsys: pytest.CaptureFixture[str]) -> None:
    found = report(capsys, sample("BJ-02"), *H100, *LLAMA)
    assert found["format"] == "benchmark"
    (seen,) = found["observations"]
    decode, prefill = seen["points"]
    assert main(["predict", *LLAMA, *H100, "--batch", "18", "--context", "18444", "--json"]) == 0
    predicted = json.loads(capsys.readouterr().out)
    assert decode["floor_s"] == predicted["floor_s"]
    assert decode["reachable_s"] == predicted["reachable_s"]
    assert decode["floor_alone_s"] < decode["floor_s"]
    assert decode["times_floor"] == pytest.approx(0.01741 / predicted["floor_s"])
    assert (prefill["phase"], prefill["batch"]) == ("prefill", 1.0)
    assert any("how many devices" in line for line in decode["remarks"])


def test_the_text_says_whose_time_it_is(sample: Any, capsys: pytest.CaptureFixture[str]) -> None:
    told = shown(capsys, sample("BJ-02"), *H100, *LLAMA)
    assert "measured by a client" in told
    assert "upper bound of the step" in told
    assert "Little's law" in told
    assert "withheld  peak output token throughput counts streamed chunks" in told


def test_without_model_or_hardware_one_line_says_so(sample: Any, capsys: pytest.CaptureFixture[str]) -> None:
    told = shown(capsys, sample("BJ-02"))
    assert "roofline  none: the model is not told, or by no name that is known exactly: give --model NAME" in told
    assert "give --hardware ID" in shown(capsys, sample("BJ-02"), *LLAMA)


def test_a_model_that_the_result_names_exactly_is_taken(sample: Any, capsys: pytest.CaptureFixture[str]) -> None:
    (seen,) = report(capsys, sample("vllm-json-0.9"), *H100)["observations"]
    assert "the model is not told" in seen["problem"]  # Llama-3.2-3B-Instruct is not Llama-3.2-3B
    file = Path(sample("vllm-json-0.9"))
    file.write_text(file.read_text().replace("3B-Instruct", "3B"))
    (seen,) = report(capsys, str(file), *H100)["observations"]
    assert seen["points"][0]["model"] == "llama-3.2-3b"
    assert known_name("meta-llama/Llama-3.3-70B-Instruct") == known_name("Llama-3.3-70B-Instruct")
    assert known_name("Llama-3.3-70B") is None
    assert known_name("qwen35 27B") is None
    assert known_device("NVIDIA H100 80GB HBM3") == "h100-sxm5-80"
    assert known_device("4xNVIDIA_L40S") is None


def test_tests_of_llama_bench_are_a_table_with_its_mix_of_types(
    sample: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    found = report(capsys, sample("LC-04"), *H100, *LLAMA)
    prefill, decode = (seen["points"][0] for seen in found["observations"])
    assert (decode["phase"], decode["weights"], decode["planned_batch"]) == ("decode", "q4_k_m", 1)
    assert decode["measured_s"] == pytest.approx(1 / 30.09)
    assert not decode["bound"]
    assert prefill["measured_s"] == pytest.approx(1024 / 1515.83)
    told = shown(capsys, sample("LC-04"), *H100, *LLAMA)
    assert "tg400" in told
    assert "no queue" in told


def test_devices_are_given_or_told(sample: Any, capsys: pytest.CaptureFixture[str]) -> None:
    (one,) = report(capsys, sample("BJ-02"), *H100, *LLAMA)["observations"]
    (two,) = report(capsys, sample("BJ-02"), *H100, *LLAMA, "--devices", "2")["observations"]
    assert two["points"][0]["floor_s"] < one["points"][0]["floor_s"]
    assert not any("how many devices" in line for line in two["points"][0]["remarks"])


def test_faster_than_the_floor_is_no_efficiency(sample: Any, capsys: pytest.CaptureFixture[str]) -> None:
    (seen,) = report(capsys, sample("BJ-02"), *H100, "--model", "meta-llama-3-70b")["observations"]
    assert any("measured below the floor" in line for line in seen["points"][0]["remarks"])
    assert any("do not fit" in line for line in seen["points"][0]["remarks"])


def test_an_unknown_name_on_the_command_line_is_a_fault(sample: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", sample("BJ-02"), "--hardware", "h1000", *LLAMA]) == 2
    assert "unknown hardware" in capsys.readouterr().err


@pytest.mark.parametrize("name", SAMPLES)
def test_every_sample_is_shown_and_is_json(name: str, sample: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert report(capsys, sample(name), *H100, *LLAMA)["observations"]
    assert shown(capsys, sample(name), *H100, *LLAMA).startswith("file ")


def test_several_files_end_in_a_table_and_a_plot(
    sample: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = (sample("BJ-02"), sample("BJ-03"))
    told = shown(capsys, *files, *H100, *LLAMA, "--plot", "-")
    rows = [line.split() for line in told.splitlines() if line.startswith("BJ-0")]
    assert [row[0] for row in rows] == ["BJ-02", "BJ-03"]
    assert "decode, tokens/s of all sequences" in told
    picture = tmp_path / "plot.svg"
    assert main(["analyze", *files, *H100, *LLAMA, "--json", "--plot", str(picture)]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 2
    assert "reachable" in picture.read_text()
    assert "nothing to plot" in shown(capsys, files[0], "--plot", "-")
    assert main(["analyze", files[0], "--plot", "x.txt"]) == 2
    assert ".svg or .png" in capsys.readouterr().err
