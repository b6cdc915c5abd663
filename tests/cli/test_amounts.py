"""Amounts as people write them: counts, ranges and lists, sizes, link rates, ratios."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rooflens.cli.amounts import MOST_VALUES, Refused, count, counts, depths, link_rate, memory_size, ratio, ratios


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("128", (128,)),
        ("8k", (8192,)),  # 8 x 1024
        ("1M", (1_048_576,)),  # 1024 x 1024, the context that models of "a million tokens" have
        ("1.5k", (1536,)),
        ("1..512", (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)),
        ("1..500", (1, 2, 4, 8, 16, 32, 64, 128, 256, 500)),  # the end is always there
        ("3..20", (3, 6, 12, 20)),
        ("0..8", (0, 1, 2, 4, 8)),
        ("7..7", (7,)),
        ("1..512:64", (1, 64, 128, 192, 256, 320, 384, 448, 512)),  # batches of engines are multiples
        ("10..100:40", (10, 50, 90, 100)),
        ("1..3:1", (1, 2, 3)),
        ("1,2,4,8", (1, 2, 4, 8)),
        ("8,1..4,2", (8, 1, 2, 4)),  # in the order given, each once
        ("1k..4K", (1024, 2048, 4096)),
    ],
)
def test_counts(text: str, values: tuple[int, ...]) -> None:
    assert counts(text) == values


def test_depths_count_up_by_one() -> None:
    assert depths("0..8") == tuple(range(9))
    assert depths("0..8:4") == (0, 4, 8)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("many", "'many' is no count: write 128, 8k (8,192), a list 1,2,4, a range 1..512"),
        ("", "is no count"),
        ("..", "is no count"),
        ("1,", "is no count"),
        ("-1", "is no count"),
        ("1e3", "is no count"),
        ("1.3", "is no whole number"),
        ("0.3k", "is no whole number"),  # 307.2
        ("3..1", "'3..1' runs backwards: write the smaller end first"),
        ("1..4:0", "'1..4:0' has no step"),
        ("1..1M:1", "has more than 1,000 values: use a larger step"),
        ("9999999M", "is too large"),
        ("9" * 5000, "is no count"),
    ],
)
def test_what_is_no_count_is_said_in_one_line(text: str, message: str) -> None:
    with pytest.raises(Refused) as refused:
        counts(text)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_a_range_has_both_ends_and_doubles(first: int, more: int) -> None:
    values = counts(f"{first}..{first + more}")
    assert (values[0], values[-1]) == (first, first + more)
    assert all(a < b <= max(1, 2 * a) for a, b in itertools.pairwise(values))


@given(st.integers(0, 10**4), st.integers(0, 10**4), st.integers(1, 10**4))
def test_steps_rise_and_end_where_asked(first: int, more: int, step: int) -> None:
    text = f"{first}..{first + more}:{step}"
    if more // step > MOST_VALUES - 2:
        return
    values = counts(text)
    assert (values[0], values[-1]) == (first, first + more)
    assert all(0 < b - a <= step for a, b in itertools.pairwise(values))


def test_one_count_is_no_range() -> None:
    assert count("64") == 64
    with pytest.raises(Refused, match="write a number such as 128"):
        count("1..4")


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("50GB/s", 50e9),
        ("400Gbit/s", 50e9),  # 400e9 / 8
        ("400Gb/s", 50e9),
        ("400Gbps", 50e9),
        ("1.6 Tbit/s", 200e9),
        ("5e10", 5e10),
        ("900MB/s", 9e8),
    ],
)
def test_link_rate(text: str, rate: float) -> None:
    assert link_rate(text) == pytest.approx(rate)


@pytest.mark.parametrize("text", ["", "fast", "-5GB/s", "0", "nan", "inf", "5 apples", "1e999"])
def test_no_link_rate(text: str) -> None:
    with pytest.raises(Refused, match="is no rate of a link: write 50GB/s, 400Gbit/s or 5e10"):
        link_rate(text)


@pytest.mark.parametrize(
    ("text", "size"),
    [("80GB", 80e9), ("80 GiB", 80 * 2**30), ("640e9", 640e9), ("6.4e11", 6.4e11), ("80G", 80e9), ("1.5TB", 1.5e12),
     ("640,000,000,000", 640e9), ("500 kB", 5e5), ("100B", 100.0)],
)  # fmt: skip
def test_memory_has_units(text: str, size: float) -> None:
    assert memory_size(text) == size


def test_ratios() -> None:
    assert ratio("0.8") == ratio("80%") == 0.8
    assert ratios("0.9,70%,0.5") == (0.9, 0.7, 0.5)
    for text in ("", "most", "nan", "0.9,,0.5"):
        with pytest.raises(Refused, match=r"is no ratio: write 0\.8 or 80%"):
            ratios(text)
