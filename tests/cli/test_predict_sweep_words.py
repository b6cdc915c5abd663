"""What a sweep of `rooflens predict` and its plot say beside the figures, and what may be swept."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from rooflens.cli import main
from rooflens.cli.predict import EXIT_MISFIT
from rooflens.cli.predict_options import SWEPT

QWEN = ("predict", "--model", "qwen3-8b", "--hardware", "h100-sxm5-80")


def text_of(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(list(words)) == 0
    return capsys.readouterr().out


def json_of(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    return json.loads(text_of(capsys, *words, "--json"))


def table(text: str) -> list[dict[str, str]]:
    """The rows of a sweep by the names of their columns, which are two or more spaces apart."""
    lines = text.split("\n\n")[1].splitlines()
    head, *rows = (re.split(r" {2,}", line.strip()) for line in lines)
    assert len(set(head)) == len(head)
    return [dict(zip(head, row, strict=True)) for row in rows]


def test_a_sweep_shows_the_transfer_and_whether_the_link_keeps_up(capsys: pytest.CaptureFixture[str]) -> None:
    words = (*QWEN, "--context", "1k,64k", "--phase", "prefill", "--kv-link")
    slow, fast = (table(text_of(capsys, *words, rate)) for rate in ("10Gbit/s", "400Gbit/s"))
    # 1,024 tokens of 36 layers x 8 heads x 128 x 2 x 2 bytes = 151 MB: 121 ms at 1.25 GB/s, 3.02 ms at 50 GB/s.
    assert [row["KV transfer"] for row in (slow[0], fast[0])] == ["121 ms", "3.02 ms"]
    assert [row["link"] for row in (slow[0], fast[0])] == ["TOO SLOW", "keeps up"]
    point = json_of(capsys, *words, "400Gbit/s")[0]
    assert fast[0]["with transfer"] == f"{1e3 * (point['reachable_token_s'] + 151e6 / 50e9):.3g} ms"
    decode = text_of(capsys, *QWEN, "--context", "1k,64k", "--kv-link", "10Gbit/s")
    assert "KV transfer" in table(decode)[0]
    assert "with transfer" not in decode
    assert "KV transfer" not in text_of(capsys, *QWEN, "--context", "1k,64k")


def test_a_sweep_says_how_far_published_figures_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert "published decode steps half are within" in text_of(capsys, *QWEN, "--batch", "1,2")


def test_what_holds_at_some_points_says_where(capsys: pytest.CaptureFixture[str]) -> None:
    text = text_of(capsys, *QWEN, "--context", "8k..128k")
    limit = "the model was made for contexts up to 40,960 tokens"
    assert f"note at context 65,536 and 1 more: {limit}\n" in text
    assert text.count(limit) == 1
    assert f"note: {limit}" in text_of(capsys, *QWEN, "--context", "64k,128k")


def test_a_misfit_names_its_point(capsys: pytest.CaptureFixture[str]) -> None:
    text = text_of(capsys, *QWEN, "--batch", "64", "--context", "1k..16k")
    fits = {row["context"]: row["fits"] for row in table(text)}
    first = next(context for context, word in fits.items() if word == "NO")
    assert f"the first point that does not fit, context {first}: a batch of 64 does not fit" in text


def test_a_misfit_fails_where_asked(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*QWEN, "--batch", "5000"]) == 0
    for words in (("--batch", "5000"), ("--batch", "1,5000"), ("--set", "batch=5000"), ("--batch", "5000", "--json")):
        assert main([*QWEN, *words, "--fail-if-misfit"]) == EXIT_MISFIT
    assert main([*QWEN, "--batch", "1,2", "--fail-if-misfit"]) == 0
    capsys.readouterr()
    assert "--fail-if-misfit ignored" in text_of(capsys, "predict", "--hardware", "l4", "--fail-if-misfit")


def test_chunks_have_one_column_of_that_name(capsys: pytest.CaptureFixture[str]) -> None:
    words = (*QWEN, "--phase", "prefill", "--context", "8k", "--chunk")
    rows = table(text_of(capsys, *words, "2k..8k"))
    assert [row["chunk"] for row in rows] == ["2,048", "4,096", "8,192"]
    assert all(row["chunk time"] == row["reachable"] for row in rows)
    assert "TTFT" in table(text_of(capsys, *words, "8k,16k"))[0]  # each is the whole prompt


def test_help_says_what_may_be_swept(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["predict", "--help"])
    text = capsys.readouterr().out
    several = set(re.findall(r"^  --([a-z-]+) N,\.\.\.", text, re.MULTILINE))
    assert several == set(SWEPT.values())
    assert "4 for --phase verify" in " ".join(text.split())
    assert "The exit code is 0 where there is an answer, also one that does not fit" in text


@pytest.mark.parametrize("option", ["--encoder-tokens", "--block"])
def test_encoder_and_block_may_be_swept(capsys: pytest.CaptureFixture[str], option: str) -> None:
    words = ("predict", "--model", "t5-v1_1-xxl", "--hardware", "h100-sxm5-80", "--context", "100", option, "16,1500")
    assert [row[option.removeprefix("--")] for row in table(text_of(capsys, *words))] == ["16", "1,500"]


def test_a_what_if_shows_gain_and_depth_and_the_notes(capsys: pytest.CaptureFixture[str]) -> None:
    words = (*QWEN, "--batch", "8", "--spec-method", "eagle3", "--set", "weights=fp8")
    text, data = text_of(capsys, *words), json_of(capsys, *words)
    now, then = data["speculation"], data["what_ifs"][0]["speculation"]
    assert re.search(rf"^drafted tokens +{now['depth']} +{then['depth']} ", text, re.MULTILINE)
    assert re.search(rf"^gain of speculation +x {now['gain']:.2f} +x {then['gain']:.2f} ", text, re.MULTILINE)
    assert "\nnote: one acceptance for all positions is optimistic" in text
    assert "drafted tokens" not in text_of(capsys, *QWEN, "--set", "weights=fp8")


def test_a_plot_over_contexts_marks_where_it_stops_fitting(capsys: pytest.CaptureFixture[str]) -> None:
    words = (*QWEN, "--batch", "16", "--context", "1k..64k")
    held = json_of(capsys, *words)[0]["max_context_tokens"]
    assert re.search(
        rf"^ +[A-C] longest context that fits {held:,}$", text_of(capsys, *words, "--plot", "-"), re.MULTILINE
    )
    # 77.3 GB that may be used - 16.4 GB of weights = 60.9 GB, / (16 x 147,456 bytes a token) = 25.8 thousand
    assert held == pytest.approx(25_824, rel=0.001)


def test_a_plot_of_experts_draws_what_is_expected(capsys: pytest.CaptureFixture[str]) -> None:
    mixture = text_of(capsys, "predict", "--model", "gpt-oss-120b", "--hardware", "b200-sxm", "--plot", "-")
    assert re.search(r"^ +\S expected$", mixture, re.MULTILINE)
    dense = text_of(capsys, *QWEN, "--plot", "-")
    assert not re.search(r"^ +\S expected$", dense, re.MULTILINE)
    assert re.search(r"^ +[A-C] knee of reachable \d+$", dense, re.MULTILINE)


def test_ticks_are_written_alike(capsys: pytest.CaptureFixture[str]) -> None:
    text = text_of(capsys, *QWEN, "--plot", "-")
    assert "1,024" in text
    assert not re.search(r"\dk\b", text.split("\n\n", 1)[1].split("Tokens a second")[1])
