"""What `rooflens predict` says about its own figures: what is assumed, ignored, not known, or does not fit."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rooflens.analyzer.hardware import find_hardware
from rooflens.cli import EXIT_FAULT, main, predict_answer
from rooflens.collector import cpu_roof, step_roof

LLAMA_70B = ("predict", "--model", "meta-llama-3-70b", "--hardware", "h100-sxm5-80")
TINY = {
    "model_type": "llama", "hidden_size": 288, "num_hidden_layers": 6, "num_attention_heads": 6,
    "intermediate_size": 768, "vocab_size": 32000,
}  # fmt: skip


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[str, dict[str, Any]]:
    assert main(list(words)) == 0
    text = capsys.readouterr().out
    assert main([*words, "--json"]) == 0
    return text, json.loads(capsys.readouterr().out)


def fault(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(list(words)) == EXIT_FAULT
    return capsys.readouterr().err


@pytest.fixture
def tiny(tmp_path: Path) -> str:
    (tmp_path / "config.json").write_text(json.dumps(TINY))
    return str(tmp_path)


@pytest.fixture
def cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = {"fp32": 1e12}
    spec = replace(
        find_hardware("l40s"), id="this-cpu", peak_flops_per_s=rates, ceiling_flops_per_s=rates, flags=(),
        origin="measured", memory_bandwidth_bytes_per_s=1e11, cache_bytes=32 << 20,
    )  # fmt: skip
    monkeypatch.setattr(predict_answer, "measured_cpu", lambda: spec)


@pytest.mark.usefixtures("cpu")
def test_without_a_rate_the_floor_is_that_of_memory(capsys: pytest.CaptureFixture[str]) -> None:
    text, data = shown(capsys, "predict", "--model", "qwen2.5-0.5b", "--hardware", "this-cpu")
    assert (data["weights"], data["kv"]) == ("bf16", "bf16")  # never another precision than the one said
    assert (data["compute_s"], data["mfu"], data["ridge_flop_per_byte"]) == (None, None, None)
    assert data["floor_s"] == data["memory_s"] > 0
    assert sum("states no rate for bf16 (it knows fp32)" in note for note in data["notes"]) == 1
    assert re.search(r"^MFU, MBU +not known, 100.0% ", text, re.MULTILINE)
    assert re.search(r"^bandwidth +100 GB/s  measured on this machine$", text, re.MULTILINE)
    assert re.search(r"^floor .*  of memory alone, another side may take longer; no step can be shorter$", text, re.M)
    assert re.search(r"^tokens .*  at this floor; the real rate may be far lower$", text, re.MULTILINE)
    assert "What bounds this decode step is not known; no step can be shorter, since reading 988 MB" in text
    assert "bound by" not in text
    chosen = shown(capsys, "predict", "--model", "qwen2.5-0.5b", "--hardware", "this-cpu", "--weights", "fp32")[1]
    assert chosen["mfu"] > 0
    assert "no dtype" not in " ".join(chosen["notes"])


def test_a_roof_that_others_disturbed_claims_no_floor(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = cpu_roof.BUSY.format(load=8.3, cores=2), step_roof.BUSY.format(load=8.3, cores=2)
    for flag in found:
        spec = replace(find_hardware("l40s"), id="this-cpu", origin="measured", flags=(flag,))
        monkeypatch.setattr(predict_answer, "measured_cpu", lambda spec=spec: spec)
        words = ("predict", "--model", "qwen2.5-0.5b", "--hardware", "this-cpu")
        for more in ((), ("--batch", "1,2")):
            assert main([*words, *more]) == 0
            text = capsys.readouterr().out
            assert "less on a quiet machine, others used it" in text
            assert "no step can be shorter" not in text
    spec = replace(find_hardware("l40s"), id="this-cpu", origin="measured", flags=())
    monkeypatch.setattr(predict_answer, "measured_cpu", lambda: spec)
    assert main([*words]) == 0
    assert "no step can be shorter" in capsys.readouterr().out


def test_whoever_waits_is_told_for_what(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(cpu_roof, "measure_cpu", lambda progress: find_hardware("l40s"))
    predict_answer.measured_cpu()
    told = capsys.readouterr()
    assert (told.out, told.err) == ("", f"{predict_answer.MEASURING}\n")
    assert "ten seconds" in told.err


@pytest.mark.usefixtures("cpu")
def test_hardware_alone_says_which_ridge_and_what_is_ignored(capsys: pytest.CaptureFixture[str]) -> None:
    text, data = shown(capsys, "predict", "--hardware", "this-cpu", "--batch", "4", "--context", "9", "--devices", "2")
    assert data["weights"] == "fp32"
    for found in (text, " ".join(data["notes"])):
        assert "the ridge is that of fp32" in found
        assert "--devices, --batch, --context ignored: without --model" in found
    text, data = shown(capsys, "predict", "--hardware", "this-cpu", "--weights", "bf16")
    assert data["ridge_flop_per_byte"] is None
    assert "not known  no rate stated for bf16 weights" in text


def test_a_model_that_fits_the_cache_has_no_bound(capsys: pytest.CaptureFixture[str], tiny: str) -> None:
    text, data = shown(capsys, "predict", "--model", tiny, "--hardware", "l40s")
    note = "37.5 MB may stay in the last-level cache from step to step and are not counted: all of it, so the memory"
    assert note in text
    assert (data["bound_known"], round(data["cached_bytes"] / 1e6, 1)) == (False, 37.5)
    assert "bound by" not in text
    assert "What bounds this decode step is not known" in text
    notes = " ".join(data["notes"])
    assert "a gated MLP (silu) is assumed" in notes
    assert "bf16 is assumed for weights and KV cache" in notes
    large = shown(capsys, *LLAMA_70B, "--devices", "8")[1]
    assert "cache from step" not in " ".join(large["notes"])


@pytest.mark.usefixtures("cpu")
def test_nothing_known_at_all_has_no_floor(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(TINY | {"vocab_size": 100}))
    text, data = shown(capsys, "predict", "--model", str(file), "--hardware", "this-cpu", "--context", "1")
    assert (data["floor_s"], data["tokens_per_s"], data["bound"], data["mbu"]) == (0.0, None, None, None)
    assert "What bounds this decode step is not known, and neither is its floor" in text


def test_what_does_not_fit_is_said_first(capsys: pytest.CaptureFixture[str]) -> None:
    text, data = shown(capsys, *LLAMA_70B)
    assert text.startswith("DOES NOT FIT: the weights and one sequence do not fit in the memory (141 GB of weights")
    assert "2 devices with --tp 2 would hold it" in text.splitlines()[0]
    assert data["fits"] is False
    assert data["notes"][0] in text.splitlines()[0]
    batch = shown(capsys, *LLAMA_70B, "--devices", "8", "--batch", "6000", "--context", "8192")[0]
    assert batch.startswith("DOES NOT FIT: a batch of 6,000 does not fit")
    assert "the largest is 177, or " in batch.splitlines()[0]
    assert "batch 6,000" in batch
    text, data = shown(capsys, *LLAMA_70B, "--devices", "8")
    assert (data["fits"], "NOT FIT" in text) == (True, False)


def test_the_link_says_what_it_assumes(capsys: pytest.CaptureFixture[str]) -> None:
    domain, latency = "one NVLink domain of 16 devices is assumed", "the link term counts bytes only, no latency"
    notes = {n: shown(capsys, *LLAMA_70B, "--tp", n)[1]["notes"] for n in ("1", "8", "16")}
    assert [domain in notes[n] for n in notes] == [False, False, True]
    assert [latency in notes[n] for n in notes] == [False, True, True]


def test_compute_times_name_their_rate(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, *LLAMA_70B, "--devices", "8", "--batch", "64", "--context", "8192")[0]
    assert "compute 1.2 ms at the highest clock" in text
    assert "of the peaks (datasheet); compute times are at the highest clock" in text
    prefill = shown(capsys, *LLAMA_70B, "--devices", "8", "--phase", "prefill")[0]
    assert "FLOP at the highest clock takes" in prefill


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--tp", "0"), "--tp must be at least 1"),
        (("--devices", "0"), "--devices must be at least 1"),
        (("--memory", "80XB"), "'80XB' is no memory size: write 80GB, 80GiB or 80e9"),
        (("--memory", ""), "is no memory size"),
        (("--memory=-5GB",), "--memory must be a positive"),
        (("--bogus",), "unrecognized arguments: --bogus (see 'rooflens predict --help')"),
        (("--cont", "5"), "unrecognized arguments: --cont (did you mean --context?) (see 'rooflens predict --help')"),
    ],
)
def test_a_fault_names_the_option_at_fault(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], message: str
) -> None:
    assert message in fault(capsys, *LLAMA_70B, *words)


def tensors(narrow: bool) -> dict[str, tuple[str, list[int]]]:
    """Name -> (dtype, shape) of the tiny model; the MLP in eight bits if ``narrow``, with a scale for each matrix."""
    found: dict[str, tuple[str, list[int]]] = {"model.embed_tokens.weight": ("BF16", [32000, 288])}
    found["lm_head.weight"] = ("BF16", [32000, 288])
    for layer in range(6):
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            found[f"model.layers.{layer}.self_attn.{name}.weight"] = ("BF16", [288, 288])
        for name, shape in (("gate_proj", [768, 288]), ("up_proj", [768, 288]), ("down_proj", [288, 768])):
            found[f"model.layers.{layer}.mlp.{name}.weight"] = ("F8_E4M3" if narrow else "BF16", shape)
            if narrow:
                found[f"model.layers.{layer}.mlp.{name}.weight_scale"] = ("F32", [1])
    return found


def write_safetensors(folder: Path, narrow: bool) -> None:
    """A file whose header is true and whose data are zeros that take no disk."""
    header, end = {}, 0
    for name, (dtype, shape) in tensors(narrow).items():
        start, end = end, end + math.prod(shape) * {"BF16": 2, "F8_E4M3": 1, "F32": 4}[dtype]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)


def test_a_folder_with_weights_gives_their_bytes(capsys: pytest.CaptureFixture[str], tiny: str) -> None:
    words = ("predict", "--model", tiny, "--hardware", "l40s")
    said = shown(capsys, *words)[1]
    write_safetensors(Path(tiny), narrow=False)
    text, exact = shown(capsys, *words)
    assert (said["exact_weights"], exact["exact_weights"]) == (False, True)
    assert "weights bf16 (bytes of its files)" in text
    assert exact["weight_bytes"] == pytest.approx(said["weight_bytes"], rel=1e-3)
    write_safetensors(Path(tiny), narrow=True)
    text, narrow = shown(capsys, *words)
    # 6 layers x 3 matrices of 768 x 288: a byte less for each element, four more for each matrix.
    assert exact["weight_bytes"] - narrow["weight_bytes"] == pytest.approx(6 * 3 * (768 * 288 - 4), rel=1e-6)
    given = shown(capsys, *words, "--weights", "fp8")[1]
    assert given["exact_weights"] is False  # what the user says goes before what the files say


def test_a_file_of_weights_needs_its_config(capsys: pytest.CaptureFixture[str], tiny: str) -> None:
    write_safetensors(Path(tiny), narrow=False)
    file = Path(tiny, "model.safetensors")
    assert shown(capsys, "predict", "--model", str(file), "--hardware", "l40s")[1]["exact_weights"] is True
    Path(tiny, "config.json").unlink()
    for name in (str(file), tiny):
        message = fault(capsys, "predict", "--model", name, "--hardware", "l40s")
        assert "model.safetensors: the model's config.json must lie beside it" in message


def test_a_gguf_file_that_is_none_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    for name in (str(tmp_path / "model.gguf"), str(tmp_path)):
        message = fault(capsys, "predict", "--model", name, "--hardware", "l40s")
        assert message.count("\n") == 1
        assert "model.gguf" in message


def test_what_is_not_understood_is_a_note(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    odd = TINY | {"model_type": "brandnew", "hidden_act": "silu", "hyper_gate_rank": 64}
    file = tmp_path / "odd.json"
    file.write_text(json.dumps(odd | {"layer_types": ["full_attention", "weird_mixer"] * 3}))
    text, data = shown(capsys, "predict", "--model", str(file), "--hardware", "l4")
    for note in (
        "layers of kind 'weird_mixer' are not understood: what mixes tokens in them is not counted",
        "config field 'hyper_gate_rank' is not understood and not counted",
        "model_type 'brandnew' is not known here: taken as its fields describe it",
    ):
        assert note in data["notes"]
        assert re.search(rf"^note +{re.escape(note)}$", text, re.MULTILINE)
