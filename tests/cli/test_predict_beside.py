"""What `rooflens predict` says beside its figures: how sure they are, what they take for granted, what adds to them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from rooflens.analyzer.accuracy import published_accuracy
from rooflens.cli import main

ROOT = Path(__file__).resolve().parents[2]
LLAMA = ("predict", "--model", "meta-llama-3-70b", "--hardware", "h100-sxm5-80", "--devices", "8", "--context", "8k")
DEEPSEEK = ("predict", "--model", "deepseek-v3", "--hardware", "h200-sxm-141")


def text_of(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(list(words)) == 0
    return capsys.readouterr().out


def json_of(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    return json.loads(text_of(capsys, *words, "--json"))


def row(text: str, label: str) -> str:
    """The line of one label, its columns one space apart."""
    (line,) = re.findall(rf"^{re.escape(label)} {{2,}}(.+)$", text, re.MULTILINE)
    return " ".join(line.split())


def noted(text: str) -> list[str]:
    return re.findall(r"^note +(.+)$", text, re.MULTILINE)


def test_a_decode_step_says_the_time_of_a_token_and_how_far_reachable_is(capsys: pytest.CaptureFixture[str]) -> None:
    text, data = text_of(capsys, *LLAMA), json_of(capsys, *LLAMA)
    # A step computes one token of each sequence, so it takes as long as a token: 5.27 ms and 10.2 ms (docs/predict.md).
    assert row(text, "TPOT") == "5.27 ms of one sequence, at the floor, 10.2 ms reachable"
    assert data["reachable_floor_ratio"] == data["reachable_s"] / data["floor_s"]
    assert row(text, "reachable").startswith(f"10.2 ms x {data['reachable_floor_ratio']:.2f} the floor; ")


def test_a_first_token_waits_for_the_transfer(capsys: pytest.CaptureFixture[str]) -> None:
    words = (*LLAMA, "--phase", "prefill", "--kv-link", "400Gbit/s")
    text, data = text_of(capsys, *words), json_of(capsys, *words)
    # 8,192 tokens x 327,680 bytes over 50 GB/s are 53.7 ms: 141 + 53.7 = 195 ms and 292 + 53.7 = 346 ms.
    sent = 8192 * 327_680 / 50e9
    assert data["token_with_transfer_s"] == pytest.approx(data["token_s"] + sent)
    assert data["reachable_token_with_transfer_s"] == pytest.approx(data["reachable_token_s"] + sent)
    said = "141 ms of each prompt, at the floor, 292 ms reachable; 195 ms and 346 ms with the KV transfer"
    assert row(text, "TTFT") == said
    assert json_of(capsys, *LLAMA, "--kv-link", "400Gbit/s")["token_with_transfer_s"] is None  # decode: no prompt
    chunk = json_of(capsys, *words, "--chunk", "1k")  # the transfer is that of a whole prompt
    assert chunk["token_with_transfer_s"] is None


def test_the_quoted_errors_are_those_of_the_committed_measurement() -> None:
    measured = json.loads((ROOT / "benchmarks" / "results" / "roofline.json").read_text(encoding="utf-8"))
    found = published_accuracy()
    number, middle, most = measured["uncalibrated_rows_median_p90"]
    assert found.decode_rows == number
    assert found.decode_median_ratio == pytest.approx(middle, abs=0.0006)
    assert found.decode_p90_ratio == pytest.approx(most, abs=0.0006)
    firsts = measured["first_token_rows_median"]
    assert found.first_token_rows == sum(rows for rows, _ in firsts.values())
    assert found.first_token_ratio == {engine: pytest.approx(ratio, abs=0.006) for engine, (_, ratio) in firsts.items()}
    assert f"{measured['rows']} figures" in found.source


def test_how_far_published_figures_are_stands_beside_reachable(capsys: pytest.CaptureFixture[str]) -> None:
    found = published_accuracy()
    decode, prefill = json_of(capsys, *LLAMA), json_of(capsys, *LLAMA, "--phase", "prefill")
    assert decode["reachable_error_median_ratio"] == found.decode_median_ratio
    assert (decode["reachable_error_p90_ratio"], decode["first_token_reachable_ratio"]) == (
        found.decode_p90_ratio,
        None,
    )
    assert prefill["first_token_reachable_ratio"] == found.first_token_ratio
    assert prefill["reachable_error_median_ratio"] is None
    text = text_of(capsys, *LLAMA)
    said = f"within {found.decode_median_ratio:.1%} of it, nine in ten within {found.decode_p90_ratio:.1%}"
    assert said in text
    assert text.splitlines().index(next(line for line in text.splitlines() if said in line)) == 1 + next(
        n for n, line in enumerate(text.splitlines()) if line.startswith("reachable")
    )
    assert "first tokens of servers took 2." in text_of(capsys, *LLAMA, "--phase", "prefill")


def test_expert_parallelism_says_when_it_changes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    none, even = "--ep changes nothing here: --tp alone cuts each expert over the same 8", "routing is taken to be even"
    same = " ".join(noted(text_of(capsys, *DEEPSEEK, "--tp", "8", "--ep")))
    assert none in same
    # 8 of 256 experts on 8 devices: the busiest reads one of them at least; on 16 it is one as well, a cut is half.
    assert (
        f"--ep: {even} over 8 devices; the floor is that of the busiest, which reads at least 1 of a token's 8" in same
    )
    wide = " ".join(noted(text_of(capsys, *DEEPSEEK, "--tp", "16", "--ep")))
    assert "changes nothing" not in wide
    assert f"{even} over 16 devices" in wide
    assert "at least 2 of a token's 8" in " ".join(noted(text_of(capsys, *DEEPSEEK, "--tp", "4", "--dp", "1", "--ep",
                                                                  "--memory", "2TB")))  # fmt: skip
    assert "--ep" not in " ".join(noted(text_of(capsys, *DEEPSEEK, "--tp", "8")))


def test_ranks_without_a_sequence_are_said(capsys: pytest.CaptureFixture[str]) -> None:
    words = (*DEEPSEEK, "--dp", "16", "--ep", "--batch")
    assert "12 of 16 data-parallel ranks have no sequence: they run dummy passes" in text_of(capsys, *words, "4")
    assert "dummy" not in text_of(capsys, *words, "16")


def test_speculation_says_what_it_takes_for_granted(capsys: pytest.CaptureFixture[str]) -> None:
    one, trained = "one acceptance for all positions is optimistic", "was trained to draft 1 token in this model"
    words = (*DEEPSEEK, "--tp", "8", "--spec-method", "mtp")
    text, data = text_of(capsys, *words), json_of(capsys, *words)
    assert (data["speculation"]["depth"], data["speculation"]["best"]["depth"]) == (1, 1)  # one MTP layer
    assert row(text, "speculation").startswith("mtp, 1 draft ")
    assert row(text, "draft").endswith("for 1 token of every sequence")
    assert row(text, "gains up to").startswith("any batch always: ")
    assert not any(one in note or trained in note for note in noted(text))
    deep = text_of(capsys, *words, "--spec-tokens", "3")
    assert any(note.startswith(f"mtp {trained}") for note in noted(deep))
    assert any(note.startswith(one) for note in noted(deep))
    assert row(deep, "speculation").startswith("mtp, 3 drafts ")
    listed = text_of(capsys, *words, "--spec-tokens", "3", "--acceptance", "0.8,0.6,0.4")
    assert not any(note.startswith(one) for note in noted(listed))
    never = text_of(capsys, *words, "--spec-tokens", "3", "--acceptance", "0.01,0,0")
    assert row(never, "gains up to").startswith("no batch never: ")


def test_the_longest_context_is_not_beyond_the_model(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("predict", "--model", "qwen3-8b", "--hardware", "h100-sxm5-80")
    data = json_of(capsys, *words)
    limit = data["model_max_context_tokens"]
    assert limit == 40_960 < data["max_context_tokens"]
    held = f"all that the model was made for; memory holds {data['max_context_tokens']:,}"
    assert row(text_of(capsys, *words), "longest context") == f"40,960 tokens, with a batch of 1: {held}"
    many = json_of(capsys, *words, "--batch", "64")["max_context_tokens"]
    assert many < limit
    assert row(text_of(capsys, *words, "--batch", "64"), "longest context") == f"{many:,} tokens, with a batch of 64"


def test_a_format_without_units_names_the_rate(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("predict", "--model", "qwen3-8b", "--weights", "fp8", "--hardware")
    said = "a100-sxm4-80 states no rate for fp8: what would be multiplied in it is, at the bf16 rate"
    assert said in noted(text_of(capsys, *words, "a100-sxm4-80"))
    assert "states no rate" not in text_of(capsys, *words, "h100-sxm5-80")


@pytest.mark.parametrize("more", [(), ("--batch", "5000"), ("--phase", "prefill"), ("--tp", "2", "--devices", "2")])
def test_the_json_notes_what_the_text_notes(capsys: pytest.CaptureFixture[str], more: tuple[str, ...]) -> None:
    words = ("predict", "--model", "meta-llama-3-70b", "--hardware", "h100-sxm5-80", "--weights", "fp8", *more)
    text, data = text_of(capsys, *words), json_of(capsys, *words)
    unfit = re.findall(r"^DOES NOT FIT: (.+)$", text, re.MULTILINE)
    assert [*unfit, *noted(text)] == data["notes"]
    assert data["hardware_flags"]  # a datasheet's remarks stand apart
    assert not set(data["hardware_flags"]) & set(data["notes"])


def test_the_depth_of_a_verify_step_is_said_to_be_assumed(capsys: pytest.CaptureFixture[str]) -> None:
    said = "4 drafted tokens are assumed (say --spec-tokens)"
    assert said in json_of(capsys, *LLAMA, "--phase", "verify")["notes"]
    assert said not in json_of(capsys, *LLAMA, "--phase", "verify", "--spec-tokens", "4")["notes"]
