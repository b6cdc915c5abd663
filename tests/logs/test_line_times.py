"""Every form of time stamp, with and without a zone, a year and a fraction; numbers with their units."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rooflens.adapters.logs.pairs import number
from rooflens.adapters.logs.times import stamp

NOW = datetime(2026, 3, 1, 12).timestamp()


def local(*when: int) -> float:
    return datetime(*when).timestamp()  # type: ignore[arg-type]


def utc(*when: int) -> float:
    return datetime(*when, tzinfo=UTC).timestamp()  # type: ignore[arg-type,misc]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("INFO 02-22 02:21:04 metrics.py:229] x", local(2026, 2, 22, 2, 21, 4)),
        ("INFO 05-22 02:21:04 metrics.py:229] x", local(2025, 5, 22, 2, 21, 4)),  # not in the future
        ("INFO 03-02 01:00:00 x", local(2026, 3, 2, 1)),  # another zone's clock may be ahead
        ("INFO 02-29 02:21:04 x", local(2024, 2, 29, 2, 21, 4)),  # the latest year that has the day
        ("[2024-07-08 15:17:34] INFO 07-08 07:17:34 metrics.py:334] x", local(2024, 7, 8, 15, 17, 34)),
        ("[2025-02-27 04:46:39 TP0] x", local(2025, 2, 27, 4, 46, 39)),
        ("[2025-02-27 04:46:39.250 TP0] x", local(2025, 2, 27, 4, 46, 39) + 0.25),
        ("2026-02-27T23:03:15.250907Z x", utc(2026, 2, 27, 23, 3, 15) + 0.250907),
        ("2026-02-27T23:03:15.250907123+02:00 stdout F x", utc(2026, 2, 27, 21, 3, 15) + 0.250907123),
        ("2026-02-27 23:03:15,123 INFO x", local(2026, 2, 27, 23, 3, 15) + 0.123),
        ("2025-01-02 03:04:05 | 2025-01-02T01:04:05Z x", utc(2025, 1, 2, 1, 4, 5)),  # the one with a zone
        ("[04/28/2025-09:56:44] [TRT-LLM] x", local(2025, 4, 28, 9, 56, 44)),
        ("04-07-2025 20:33:17.747028", local(2025, 4, 7, 20, 33, 17) + 0.747028),
        ("I1218 03:35:37.688135 20559 libtensorrtllm.cc:1205] x", local(2025, 12, 18, 3, 35, 37) + 0.688135),
        ("Feb 24 20:27:29 host python[1]: x", local(2026, 2, 24, 20, 27, 29)),
        ("Feb  4 20:27:29 host python[1]: x", local(2026, 2, 4, 20, 27, 29)),
        ("[GIN] 2024/02/24 - 20:27:29 | 200", local(2024, 2, 24, 20, 27, 29)),
        ("1753795326.5 x", 1753795326.5),
        ("1753795326500 x", 1753795326.5),
        ("[1753795326] x", 1753795326.0),
    ],
)
def test_a_stamp_is_read(line: str, expected: float) -> None:
    assert stamp(line, NOW) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "Avg prompt throughput: 1.0 tokens/s",
        "0.02.128.455 I slot print_timing: x",  # since the start
        "INFO 13-45 02:21:04 x",
        "2024-02-30 02:21:04 x",
        "0000-00-00 00:00:00 x",
        "Foo 24 20:27:29 x",
        "17537953261234567890123 x",
        "x" * 200 + " 2024-02-03 02:21:04",
    ],
)
def test_what_is_no_stamp_is_none(line: str) -> None:
    assert stamp(line, NOW) is None


@given(st.text(alphabet="0123456789-/:.,T Z+IWJanFeb[]", max_size=80), st.floats(0, 4e9))
def test_nothing_raises_and_nothing_is_beyond_the_year_9999(line: str, now: float) -> None:
    found = stamp(line, now)
    assert found is None or -7e10 < found < 2.6e11


@given(st.datetimes(datetime(2000, 1, 1), datetime(2029, 12, 31)))
def test_a_stamp_without_a_year_is_of_the_latest_that_is_not_ahead(when: datetime) -> None:
    now = when.timestamp() + 3600
    found = stamp(f"INFO {when:%m-%d %H:%M:%S} x", now)
    assert found == when.replace(microsecond=0).timestamp()


@given(st.integers(0, 100_000), st.sampled_from((("%", 2), ("ms", 3), ("us", 6), ("ns", 9))))
def test_parts_are_the_decimal_that_is_meant(hundredths: int, unit: tuple[str, int]) -> None:
    """90.6 % is 0.906; divided by a hundred it would be 0.9059999999999999."""
    name, places = unit
    digits = f"{hundredths // 100}.{hundredths % 100:02d}"
    assert number(f"{digits} {name}") == (float(Decimal(digits).scaleb(-places)), name)
