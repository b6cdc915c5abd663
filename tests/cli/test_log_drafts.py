"""Drafts in the summary of a log: counted once, and not told where the lines tell only a length."""

from __future__ import annotations

from logs.log_lines import decode

from rooflens.adapters.logs.lines import LineReader
from rooflens.cli.recorded.log_text import _beside
from rooflens.cli.recorded.said import MOST_NAMES, Said

# ggml-org/llama.cpp, pull request 23269.
TOTALS = (
    "statistics {}: #calls(b,g,a) = 10 730 3, #gen drafts = 3, #acc drafts = 3, #gen tokens = {}, #acc tokens = {}, "
    "dur(b,g,a) = 0.01, 1.20, 0.00 ms"
)
REQUEST = "draft acceptance rate = 0.81944 (  118 accepted /   144 generated)"


def said_of(*lines: str) -> Said:
    said, reader = Said("log"), LineReader()
    for line in lines:
        said.take(reader.take(line))
    said.take(reader.close())
    said.end()
    return said


def test_the_last_totals_of_each_drafter_are_the_drafts() -> None:
    lines = (("ngram-mod", 100, 20), ("draft", 50, 30), ("ngram-mod", 192, 43))
    found = said_of(*(TOTALS.format(*line) for line in lines)).speculation()
    assert found == {"drafted_tokens": 242, "accepted_tokens": 73, "acceptance_ratio": 73 / 242}


def test_totals_do_not_count_the_drafts_of_requests_again() -> None:
    eval_time = "       eval time =    1000.00 ms /   200 tokens (    5.00 ms per token,   200.00 tokens per second)"
    found = said_of(*(eval_time, REQUEST, TOTALS.format("ngram-mod", 192, 43)) * 2).speculation()
    assert found == {"drafted_tokens": 288, "accepted_tokens": 236, "acceptance_ratio": 236 / 288}


def test_drafters_are_kept_up_to_a_number() -> None:
    said = said_of(*(TOTALS.format(f"drafter{index}", 2, 1) for index in range(MOST_NAMES + 9)))
    assert len(said.drafter_totals) == MOST_NAMES


def test_where_only_a_length_is_told_there_are_no_counts() -> None:
    lines = [decode(4 * i, 400.0).replace("gen throughput", "accept len: 2.50, gen throughput") for i in range(3)]
    said = said_of(*lines)
    assert said.speculation() == {"acceptance_length_mean": 2.5}
    assert _beside(said) == ["drafts    2.50 tokens a verification"]
