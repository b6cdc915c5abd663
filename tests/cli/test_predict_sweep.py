"""Sweeps, what-ifs and plots of `rooflens predict`, from the command to what it prints or writes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from rooflens.analyzer.arch import known_models
from rooflens.analyzer.hardware import known_hardware
from rooflens.cli import EXIT_FAULT, main

LLAMA = ("predict", "--model", "meta-llama-3-70b", "--hardware", "h100-sxm5-80", "--devices", "8")
QWEN = ("predict", "--model", "qwen3-8b", "--hardware", "h100-sxm5-80")
SVG = "{http://www.w3.org/2000/svg}"


def text_of(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(list(words)) == 0
    return capsys.readouterr().out


def json_of(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    return json.loads(text_of(capsys, *words, "--json"))


def fault(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(list(words)) == EXIT_FAULT
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    return captured.err


def table(text: str) -> list[list[str]]:
    """The cells of a table: columns are two or more spaces apart."""
    lines = text.splitlines()
    start = next(n for n, line in enumerate(lines) if not line) + 1
    end = next(n for n, line in enumerate(lines) if n > start and not line)
    return [re.split(r" {2,}", line.strip()) for line in lines[start:end]]


def test_a_sweep_has_a_row_for_each_point(capsys: pytest.CaptureFixture[str]) -> None:
    words = (*LLAMA, "--context", "8k", "--batch", "1..512")
    text, points = text_of(capsys, *words), json_of(capsys, *words)
    head, *rows = table(text)
    assert head == ["batch", "floor", "reachable", "tokens/s", "TPOT", "bound", "MFU", "MBU", "fits"]
    assert [row[0] for row in rows] == ["1", "2", "4", "8", "16", "32", "64", "128", "256", "512"]
    assert [point["batch"] for point in points] == [1 << n for n in range(10)]
    assert text.startswith("meta-llama-3-70b on 8 x h100-sxm5-80, weights bf16, KV bf16, decode, 8,192 tokens each\n")
    # 618.5 GB less 141.1 GB of weights hold 177 caches of 2.68 GB.
    assert [row[-1] for row in rows] == ["yes"] * 8 + ["NO"] * 2
    assert "the largest is 177, or 16 devices with --tp 8 would hold it" in text
    assert rows[6][1] == "11.6 ms"
    one = json_of(capsys, *LLAMA, "--context", "8k", "--batch", "64")
    assert points[6]["floor_s"] == one["floor_s"]
    assert float(rows[6][3].replace(",", "")) == pytest.approx(one["reachable_tokens_per_s"], rel=0.01)
    assert "tokens/s are of all sequences and TPOT is of one, at the reachable step" in text
    assert "floor: no step can be shorter" in text


def test_two_axes_are_all_combinations(capsys: pytest.CaptureFixture[str]) -> None:
    head, *rows = table(text_of(capsys, *QWEN, "--batch", "1,4", "--context", "1k..4k"))
    assert head[:2] == ["batch", "context"]
    assert [tuple(row[:2]) for row in rows] == [(b, c) for b in ("1", "4") for c in ("1,024", "2,048", "4,096")]


def test_experts_have_a_column(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("predict", "--model", "gpt-oss-120b", "--hardware", "b200-sxm", "--batch", "1,32")
    text = text_of(capsys, *words)
    assert "expected" in table(text)[0]
    assert "expected: the floor with the distinct experts of uniform or measured routing; not a bound" in text


def test_speculation_by_depth_and_by_batch(capsys: pytest.CaptureFixture[str]) -> None:
    words = (*LLAMA, "--spec-method", "eagle3", "--acceptance", "0.8")
    depths = json_of(capsys, *words, "--spec-tokens", "0..8")
    assert [point["speculation"]["depth"] for point in depths] == list(range(9))  # every depth, not doubling
    assert depths[0]["speculation"]["gain"] == 1.0
    best = {point["speculation"]["best"]["depth"] for point in depths}
    assert len(best) == 1
    batches = json_of(capsys, *words, "--spec-tokens", "4", "--batch", "1..512")
    gains = [point["speculation"]["gain"] for point in batches]
    assert gains[0] == max(gains) > 2.5
    assert gains[-1] < 1 < gains[-2]
    text = text_of(capsys, *words, "--spec-tokens", "4", "--batch", "1..512")
    assert table(text)[0][-6:] == ["depth", "tokens/step", "verify", "draft", "speculating", "gain"]
    assert "over plain decoding, with acceptance 0.8" in text


def test_a_point_that_cannot_be_is_left_out_with_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("predict", "--model", "gemma-2-2b", "--hardware", "l40s", "--tp", "1..16")
    text, points = text_of(capsys, *words), json_of(capsys, *words)
    assert [row[0] for row in table(text)[1:]] == ["1", "2", "4", "8"]
    assert "left out: tp 16: tensor parallel 16 does not divide 8 attention heads" in text
    assert [point["error"] is None for point in points] == [True] * 4 + [False]
    assert points[4]["tp"] == 16


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--batch", "1..1000:1", "--context", "1..1000:1"), "the sweep has 1,000,000 points, at most 2,000 are shown"),
        (("--batch", "1..4", "--set", "kv=fp8"), "--set changes one point: leave the sweep out"),
        (("--tp", "3,5,7"), "--devices 8 is not a multiple of --tp 3"),  # none is possible
        (("--set", "weigths=fp8"), "--set knows no 'weigths' (did you mean weights?)"),
        (("--set", "tp=3"), "--set tp=3: --devices 8 is not a multiple of --tp 3"),
        (("--chunk", "512"), "--chunk belongs to a prompt: add --phase prefill"),
        (("--spec-tokens", "4"), "--spec-tokens says nothing without --spec-method"),
        (("--acceptance", "0.5"), "--acceptance says nothing without --spec-method"),
        (("--spec-method", "model"), "add --draft-model NAME"),
        (("--spec-method", "ngram", "--draft-model", "qwen3-8b"), "--draft-model belongs to --spec-method model"),
        (("--spec-method", "mtp"), "has no layers of multi-token prediction"),
        (("--ep", "4"), "--ep 4 is not --tp x --dp = 8"),
        (("--dp", "3"), "--devices 8 is not a multiple of --pp x --dp = 3"),
        (("--plot", "plot.gif"), "must end in .svg or .png"),
        (("--plot", "-", "--json"), "both write to standard output"),
        (("--context", "1k..64k", "--batch", "1,2", "--plot", "-"), "--plot would draw 7 curves, at most 6"),
        (("--kv-link", "fast"), "argument --kv-link: 'fast' is no rate of a link"),
        (("--lora", "16:many"), "argument --lora: 'many' is no count"),
    ],
)
def test_a_fault_is_one_line(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], message: str) -> None:
    assert message in fault(capsys, *LLAMA, *words)


def test_what_ifs_stand_beside_now(capsys: pytest.CaptureFixture[str]) -> None:
    words = (*LLAMA, "--context", "8k", "--set", "weights=fp8", "--set", "batch=128,kv=fp8")
    lines = [re.split(r" {2,}", line.strip()) for line in text_of(capsys, *words).splitlines()]
    cells = {line[0]: line[1:] for line in lines if len(line) > 2}
    assert ["now", "weights=fp8", "change", "batch=128,kv=fp8", "change"] in lines
    # 2.68 GB of KV cache at bf16 are half of it at fp8; weights at fp8 leave embedding and head at bf16.
    assert cells["KV a sequence"] == ["2.68 GB", "2.68 GB", "=", "1.34 GB", "x 0.5"]
    assert cells["weights"] == ["141 GB", "72.7 GB", "-48.5%", "141 GB", "="]
    assert cells["flops"][-1] == "x 128"
    data = json_of(capsys, *words)
    first, second = data["what_ifs"]
    alone = json_of(capsys, *LLAMA, "--context", "8k", "--weights", "fp8")
    assert (first["set"], first["floor_s"]) == ("weights=fp8", alone["floor_s"])
    assert first["change"]["floor_s"] == pytest.approx(alone["floor_s"] / data["floor_s"])
    assert second["change"]["flops"] == pytest.approx(128)
    assert "what_ifs" not in alone


def test_a_what_if_that_does_not_fit_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    text = text_of(capsys, *LLAMA, "--set", "devices=1")
    assert re.search(r"^fits +yes +NO$", text, re.MULTILINE)
    assert "with devices=1: DOES NOT FIT: the weights and one sequence do not fit in the memory" in text


def texts(file: Path) -> set[str]:
    return {"".join(node.itertext()).strip() for node in ET.parse(file).iter(f"{SVG}text")}


def test_the_plot_names_ceilings_ridge_and_limits(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "plot.svg"
    assert text_of(capsys, *QWEN, "--plot", str(file)).endswith(f"plotted in {file}\n")
    words = texts(file)
    assert {
        "Roofline of one h100-sxm5-80",
        "Tokens a second",
        "FLOP/s",
        "tokens/s",
        "at the floor",
        "reachable",
    } <= words
    assert {"memory 3.35 TB/s", "bf16 peak 989 TFLOP/s", "bf16 highest clock 1.07 PFLOP/s"} <= words
    assert "ridge of bf16: 295 FLOP/B" in words
    cap = json_of(capsys, *QWEN)["max_batch"]
    assert f"largest batch that fits {cap}" in words
    (knee,) = (int(word.removeprefix("knee of reachable ")) for word in words if word.startswith("knee "))

    def rate(batch: int) -> float:
        return float(json_of(capsys, *QWEN, "--batch", str(batch))["reachable_tokens_per_s"])

    # Twice the knee's batch brings less than 1.5 times the tokens/s, of a batch well below it more.
    assert rate(2 * knee) < 1.5 * rate(knee)
    assert rate(knee) > 1.5 * rate(knee // 2)


def test_the_ridge_is_marked_where_compute_binds(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = (*QWEN, "--context", "1", "--plot", str(tmp_path / "plot.svg"))
    text_of(capsys, *words)
    (mark,) = (word for word in texts(tmp_path / "plot.svg") if word.startswith("ridge, compute binds from batch"))
    batch = int(mark.split()[-1])
    at, below = (json_of(capsys, *QWEN, "--context", "1", "--batch", str(n)) for n in (batch, batch - 1))
    assert at["compute_s"] >= at["memory_s"]
    assert below["compute_s"] < below["memory_s"]
    assert 250 < batch < 450  # near the ridge of 295 FLOP/B at 2 FLOP and 2 bytes a weight, at the highest clock


def test_the_plot_of_a_sweep_has_a_curve_for_each_other_value(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    text_of(capsys, *QWEN, "--batch", "1..64", "--context", "1k,8k", "--plot", str(tmp_path / "plot.svg"))
    words = texts(tmp_path / "plot.svg")
    assert {"at the floor, context 1,024", "at the floor, context 8,192", "reachable, context 8,192"} <= words


def test_the_terminal_plot_is_as_wide_as_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for columns in (60, 110):
        monkeypatch.setenv("COLUMNS", str(columns))
        text = text_of(capsys, *QWEN, "--plot", "-")
        axes = [line for line in text.splitlines() if re.match(r" *\+-", line)]
        assert [len(line) for line in axes] == [columns, columns]
        assert "A ridge of bf16: 295 FLOP/B" in text
        assert re.search(r"^ +[A-C] largest batch that fits \d+$", text, re.MULTILINE)


def test_what_ifs_are_curves_too(capsys: pytest.CaptureFixture[str]) -> None:
    text = text_of(capsys, *QWEN, "--set", "kv=fp8", "--plot", "-")
    assert "at the floor, now" in text
    assert "at the floor, kv=fp8" in text


def test_without_matplotlib_only_a_picture_fails(tmp_path: Path) -> None:
    code = "import sys; sys.modules['matplotlib'] = None; from rooflens.cli import main; sys.exit(main())"
    for name, status in (("-", 0), (str(tmp_path / "x.svg"), EXIT_FAULT)):
        run = subprocess.run(
            [sys.executable, "-c", code, *QWEN, "--plot", name], capture_output=True, text=True, check=False
        )
        assert run.returncode == status
    assert run.stderr == "rooflens: 'predict' needs matplotlib: pip install 'rooflens[plot]'\n"


def test_the_list_names_models_and_hardware(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", "--list"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"^  deepseek-v3 +deepseek-ai/DeepSeek-V3$", out, re.MULTILINE)
    assert re.search(r"^  h100-sxm5-80 +H100 SXM5 80 GB$", out, re.MULTILINE)


@pytest.mark.parametrize("words", [["--list", "--json"], ["--json", "--list"]])
def test_the_list_is_json_where_that_is_asked_for(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    assert main(["predict", *words]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {"id": "deepseek-v3", "hf_id": "deepseek-ai/DeepSeek-V3"} in found["models"]
    assert {"id": "h100-sxm5-80", "name": "H100 SXM5 80 GB"} in found["hardware"]
    assert found["hardware"][-1] == {"id": "this-cpu", "name": None}
    assert "fp8" in found["weight_formats"]
    assert "fp8" in found["kv_formats"]
    assert main(["predict", "--json"]) == 2
    assert "required: --hardware" in capsys.readouterr().err


def test_the_readme_counts_what_is_known() -> None:
    readme = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")
    assert f"{len(known_models())} models and {len(known_hardware())} devices are known" in " ".join(readme.split())


def test_options_without_effect_are_said(capsys: pytest.CaptureFixture[str]) -> None:
    text = text_of(capsys, *LLAMA, "--ep", "--encoder-tokens", "5")
    assert "--ep changes nothing: the model has no experts" in text
    assert "--encoder-tokens changes nothing: the model has no encoder" in text
