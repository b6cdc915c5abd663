"""The command line: one verb's module only, one line for a fault, and predict's keys and words."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rooflens import cli
from rooflens.cli import EXIT_BROKEN_PIPE, EXIT_FAULT, EXIT_INTERRUPTED, VERBS, Verb, main

KEYS = {
    "floor_s", "serial_floor_s", "link_s", "tokens_per_s", "bound", "weight_bytes", "kv_bytes", "kv_bytes_per_token",
    "flops", "ridge_flop_per_byte", "max_batch", "capacity_bytes", "mfu", "mbu",
}  # fmt: skip
LLAMA_70B = ("predict", "--model", "meta-llama-3-70b", "--hardware", "h100-sxm5-80", "--devices", "8")


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main([*words, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def fault(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(list(words)) == EXIT_FAULT
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("rooflens: ")
    return captured.err


def test_json_has_the_promised_keys(capsys: pytest.CaptureFixture[str]) -> None:
    data = answer(capsys, *LLAMA_70B)
    assert set(data) >= KEYS
    assert (data["tensor_parallel"], data["devices"]) == (8, 8)  # devices without tp work together
    assert round(data["ridge_flop_per_byte"]) == 295
    assert data["bound"] == "memory"


def test_tp_alone_says_the_devices(capsys: pytest.CaptureFixture[str]) -> None:
    data = answer(capsys, "predict", "--model", "qwen3-8b", "--hardware", "NVIDIA H200", "--tp", "2")
    assert (data["devices"], data["hardware"]) == (2, "h200-sxm-141")


def test_hardware_alone_shows_both_ridges(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("predict", "--hardware", "rubin-vr200", "--weights", "nvfp4")
    data = answer(capsys, *words)
    assert set(data) >= KEYS
    assert data["floor_s"] is None
    assert round(data["ridge_flop_per_byte"]) == 1591
    assert round(data["ridge_announced_flop_per_byte"]) == 2273
    assert main(list(words)) == 0
    out = capsys.readouterr().out
    assert "50 PFLOP/s announced for inference, not dense" in out
    assert "2,273 FLOP/B  at the announced rate, not dense" in out


def test_the_table_and_the_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*LLAMA_70B, "--batch", "64", "--context", "8192"]) == 0
    out = capsys.readouterr().out
    assert "11.6 ms  bound by memory" in out
    assert "This decode step is bound by memory: reading 139 GB of weights and 172 GB of KV cache takes 11.6 ms" in out


def test_notes_say_what_the_figures_hide(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("predict", "--model", "qwen3-8b", "--hardware", "h100-sxm5-80", "--devices", "16", "--weights", "fp8")
    notes = " ".join(answer(capsys, *words, "--batch", "5000", "--context", "8192")["notes"])
    assert "each KV head is stored on several devices" in notes
    assert "a batch of 5,000 does not fit" in notes
    assert "embedding and head are taken at bf16" in notes
    assert "exceeds 1" in " ".join(answer(capsys, *LLAMA_70B, "--phase", "prefill")["notes"])


def test_config_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text('{"hidden_size": 64, "num_experts": 8}')
    message = fault(capsys, "predict", "--model", str(file), "--hardware", "l40s")
    assert "config.json: config field num_hidden_layers is missing" in message


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("predict", "--hardware", "h900"), "unknown hardware 'h900' (did you mean h"),
        (("predict", "--hardware", "l40s", "--weights", "fp7"), "unknown weight format 'fp7'"),
        (("predict", "--hardware", "l40s", "--model", "qwen3-8b", "--kv", "fp7"), "unknown KV format 'fp7'"),
        (("predict", "--hardware", "l40s", "--model", "qwen3-8b", "--weights", "fp32", "--kv", "x"), "unknown KV"),
        (("predict",), "--hardware"),
        ((*LLAMA_70B, "--batch", "many"), "argument --batch: 'many' is no count: write 128, 8k (8,192)"),
        ((*LLAMA_70B, "--batch", "0"), "--batch must be from 1"),
        ((*LLAMA_70B, "--devices", "6", "--tp", "4"), "not a multiple of --tp 4"),
        ((*LLAMA_70B, "--memory", "nan"), "--memory"),
        (("bogus",), "invalid choice: 'bogus'"),
        (("predict", "--bogus"), "arguments"),
    ],
)
def test_a_fault_is_one_line(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], message: str) -> None:
    assert message in fault(capsys, *words)


def test_no_verb_shows_the_verbs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == EXIT_FAULT
    out = capsys.readouterr().out
    assert all(name in out for name in VERBS)


def test_help_holds_the_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["predict", "--help"])
    assert stopped.value.code == 0
    assert "rooflens predict --model meta-llama-3-70b" in capsys.readouterr().out


def verb_that(monkeypatch: pytest.MonkeyPatch, error: BaseException, extra: str = "sidecar") -> None:
    module = ModuleType("fake_verb")
    module.__doc__ = "A verb that fails."
    module.add_arguments = lambda parser: None  # type: ignore[attr-defined]

    def run(args: object) -> int:
        raise error

    module.run = run  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "fake_verb", module)
    monkeypatch.setattr(cli, "VERBS", {"fail": Verb("fake_verb", "fails", extra)})


@pytest.mark.parametrize(
    ("missing", "extra", "named"),
    [("numpy", "demo", "demo"), ("numpy.linalg", "sidecar", "sidecar"), ("duckdb", "sidecar", "trace")],
)
def test_a_missing_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], missing: str, extra: str, named: str
) -> None:
    verb_that(monkeypatch, ModuleNotFoundError(f"No module named {missing!r}", name=missing), extra)
    assert f"pip install 'rooflens[{named}]'" in fault(capsys, "fail")


def test_a_missing_module_of_our_own_is_a_bug_and_not_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    verb_that(monkeypatch, ModuleNotFoundError("No module", name="rooflens.lost"))
    with pytest.raises(ModuleNotFoundError):
        main(["fail"])


def test_interrupt_is_quiet(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    verb_that(monkeypatch, KeyboardInterrupt())
    assert main(["fail"]) == EXIT_INTERRUPTED
    assert capsys.readouterr().err == ""


RUN = "import sys; from rooflens.cli import main; sys.exit(main())"


def test_a_closed_pipe_is_quiet() -> None:
    script = f"import sys; sys.argv[1:] = ['predict', '--hardware', 'l40s']; {RUN}"
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    with process.stderr as stderr:
        assert stderr.read() == b""
    assert process.wait() == EXIT_BROKEN_PIPE


def test_predict_needs_no_numpy() -> None:
    script = f"import sys; sys.modules['numpy'] = None; sys.argv[1:] = {list(LLAMA_70B)}; {RUN}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_this_cpu_without_numpy_names_the_extra() -> None:
    words = ["predict", "--hardware", "this-cpu"]
    script = f"import sys; sys.modules['numpy'] = None; sys.argv[1:] = {words}; {RUN}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == EXIT_FAULT
    assert done.stderr == "rooflens: 'predict' needs numpy: pip install 'rooflens[sidecar]'\n"
