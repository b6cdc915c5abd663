"""Times and lengths of time as people write them."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rooflens.cli import main
from rooflens.cli.amounts import Refused
from rooflens.cli.analysis.period import checked, moment, price, width
from rooflens.records import RooflensError

END_UNIX_S = datetime(2026, 11, 30, 15, 0, 30, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("2026-11-30T14:32", "2026-11-30T14:32:00+00:00"),
        ("2026-11-30 14:32:10Z", "2026-11-30T14:32:10+00:00"),
        ("2026-11-30T14:32:10.5+02:00", "2026-11-30T12:32:10.500000+00:00"),
        ("2026-11-30 14:32 -0530", "2026-11-30T20:02:00+00:00"),
        ("2026-11-30", "2026-11-30T00:00:00+00:00"),
        ("14:32", "2026-11-30T14:32:00+00:00"),
        ("14:32:10", "2026-11-30T14:32:10+00:00"),
        ("16:32+02:00", "2026-11-30T14:32:00+00:00"),
        ("00:30+09:00", "2026-11-30T15:30:00+00:00"),  # the last day there began at 15:00 UTC
        ("24:00", "2026-12-01T00:00:00+00:00"),
        ("-15m", "2026-11-30T14:45:30+00:00"),
        ("-1.5h", "2026-11-30T13:30:30+00:00"),
        ("-90", "2026-11-30T14:59:00+00:00"),
        ("1796049030", "2026-11-30T14:30:30+00:00"),
    ],
)
def test_a_time_means(text: str, meant: str) -> None:
    assert datetime.fromtimestamp(moment(text).of(END_UNIX_S), UTC).isoformat() == meant


@pytest.mark.parametrize(
    "text", ["", "now", "25:00", "14:60", "2026-13-01", "2026-02-30T10:00", "12", "1e99", "14:32+99:00", "-"]
)
def test_what_is_no_time_is_one_line(text: str) -> None:
    with pytest.raises(Refused) as fault:
        moment(text)
    assert "\n" not in str(fault.value)


@given(st.text(max_size=40))
def test_any_text_is_a_time_or_refused(text: str) -> None:
    try:
        found = moment(text)
    except argparse.ArgumentTypeError:
        return
    assert abs(found.of(END_UNIX_S)) < 1e12


@given(st.floats(1e9, 3e9))
def test_a_time_that_is_written_out_is_read_back(unix_s: float) -> None:
    text = datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    assert moment(text).of(0.0) == pytest.approx(unix_s, abs=2e-6)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("500ms", 0.5), ("10s", 10), ("10", 10), ("5m", 300), ("5min", 300), ("1.5h", 5400), ("2d", 172800)],
)
def test_lengths_of_time(text: str, seconds: float) -> None:
    assert width(text) == seconds


@pytest.mark.parametrize("text", ["0s", "-5s", "ten", "1y", "", "1e3"])
def test_what_is_no_length_of_time(text: str) -> None:
    with pytest.raises(Refused):
        width(text)


def test_prices_and_periods() -> None:
    assert price("2.50") == 2.5
    for text in ("free", "-1", "nan", "inf"):
        with pytest.raises(Refused):
            price(text)
    with pytest.raises(RooflensError, match="--from b is not before --to a"):
        checked(2.0, 1.0, ("b", "a"))


def test_a_time_before_the_end_is_a_value_and_no_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", "/nowhere/at/all.ring", "--from", "-15m"]) == 2
    assert "no such file" in capsys.readouterr().err
