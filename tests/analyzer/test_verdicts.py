"""Hysteresis: two of three fire, three clean ones clear, not knowing decides nothing until it has lasted."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rooflens.analyzer.verdicts import WINDOWS_SHOWN, Verdicts
from rooflens.findings import Code, Evidence, Finding, Severity, Status

KV, HOST, STALL = Code.KV_PRESSURE, Code.HOST_OVERHEAD, Code.ENGINE_STALLED

LETTERS = {Status.FIRING: "f", Status.CLEARED: "c", Status.CANNOT_TELL: "?"}


def finding(letter: str, code: Code = KV, number: int = 0) -> Finding:
    """f fires, c is clean, ? cannot tell; ``number`` marks the window."""
    status = {"f": Status.FIRING, "c": Status.CLEARED, "?": Status.CANNOT_TELL}[letter]
    missing = ("the queue",) if letter == "?" else ()
    return Finding(code, Severity.WARNING, status, f"window {number}", "i", (Evidence("n", number),), missing=missing)


def course(letters: str, code: Code = KV) -> tuple[list[str], list[int], Verdicts, tuple[Finding, ...]]:
    """(what is published after each verdict, windows in which it was raised, the value, the last publication)."""
    verdicts, shown, raised, published = Verdicts(), [], [], ()
    for number, letter in enumerate(letters):
        verdicts, published, new = verdicts.judged([finding(letter, code, number)], 100.0 + number)
        shown.append(LETTERS[published[0].status] if published else "-")
        raised += [number] * len(new)
    return shown, raised, verdicts, published


@pytest.mark.parametrize(
    ("letters", "fires", "raised"),
    [
        ("f", [False], []),
        ("ff", [False, True], [1]),
        ("fcf", [False, False, True], [2]),
        ("fccf", [False] * 4, []),
        ("f?f", [False, False, True], [2]),
        ("ffcc", [False, True, True, True], [1]),
        ("ffccc", [False, True, True, True, False], [1]),
        ("ffccfccc", [False] + [True] * 6 + [False], [1]),
        ("ff?????", [False] + [True] * 6, [1]),
        ("ff??????", [False] + [True] * 6 + [False], [1]),
        ("ff?????c??????", [False] + [True] * 12 + [False], [1]),
        ("f??????f", [False] * 8, []),
        ("ffcccff", [False, True, True, True, False, False, True], [1, 6]),
    ],
)
def test_when_a_code_fires(letters: str, fires: list[bool], raised: list[int]) -> None:
    verdicts, found, new_in = Verdicts(), [], []
    for number, letter in enumerate(letters):
        verdicts, published, new = verdicts.judged([finding(letter, number=number)], float(number))
        found.append(any(f.status is Status.FIRING for f in published))
        new_in += [number] * len(new)
    assert (found, new_in) == (fires, raised)


def test_a_stalled_engine_fires_at_once_and_clears_like_the_others() -> None:
    shown, raised, _, _ = course("fccc", STALL)
    assert (shown[:3], raised) == (["f", "f", "f"], [0])
    assert shown[3] == "c"


def test_times_and_facts_of_what_is_published() -> None:
    _, _, _, published = course("ccfffc")
    assert [(f.status, f.since_unix_s, f.until_unix_s, f.summary) for f in published] == [
        (Status.FIRING, 103.0, None, "window 4"),
    ]
    _, _, _, published = course("ccfffccc")
    assert [(f.status, f.since_unix_s, f.until_unix_s, f.summary) for f in published] == [
        (Status.CLEARED, 103.0, 107.0, "window 4"),
    ]


def test_what_has_cleared_stays_in_sight_for_six_windows() -> None:
    shown, _, _, _ = course("ffccc" + "c" * 10)
    assert shown[4:] == ["c"] * (WINDOWS_SHOWN + 1) + ["-"] * 4
    verdicts = course("fccc", STALL)[2]
    for turn in range(60):  # a stalled engine is judged every second: turns are no windows
        verdicts, published, _ = verdicts.judged([finding("c", STALL)], 200.0 + turn)
        assert [f.status for f in published] == [Status.CLEARED]


def test_one_finding_a_code_firing_first_then_cleared_then_what_cannot_be_told() -> None:
    verdicts = course("ffccc")[2]
    for number in range(2):
        verdicts, published, _ = verdicts.judged(
            [finding("?", Code.MEMORY_BOUND_WASTE), finding("c"), finding("f", HOST)], 200.0 + number
        )
    assert [(f.code, f.status.value) for f in published] == [
        (HOST, "firing"), (KV, "cleared"), (Code.MEMORY_BOUND_WASTE, "cannot_tell"),
    ]  # fmt: skip
    _, published, _ = verdicts.judged([finding("?")], 210.0)
    assert [f.status.value for f in published if f.code is KV] == ["cannot_tell"]


def test_codes_without_a_verdict_stay_as_they_are() -> None:
    verdicts = course("ff")[2]
    for turn in range(20):
        verdicts, published, raised = verdicts.judged([finding("c", STALL)], 200.0 + turn)
        assert [f.code for f in published] == [KV]
        assert raised == ()


def test_a_value_is_not_changed_by_judging() -> None:
    verdicts = course("f")[2]
    before = dict(verdicts.courses)
    one = verdicts.judged([finding("f")], 1.0)
    two = verdicts.judged([finding("f")], 1.0)
    assert one == two
    assert dict(verdicts.courses) == before
    with pytest.raises(TypeError):
        verdicts.courses[KV] = before[KV]  # type: ignore[index]


@given(st.text("fc?", max_size=40))
def test_firing_needs_two_firing_verdicts_and_never_outlives_three_clean_ones(letters: str) -> None:
    verdicts = Verdicts()
    for number, letter in enumerate(letters):
        verdicts, published, raised = verdicts.judged([finding(letter, number=number)], float(number))
        decided = letters[: number + 1].replace("?", "")
        fires = [f for f in published if f.status is Status.FIRING]
        assert len(published) <= 1
        if fires:
            assert decided.count("f") >= 2
            assert not decided.endswith("ccc")
            assert not letters[: number + 1].endswith("??????")
            assert replace(fires[0], since_unix_s=None).summary.startswith("window")
        if raised:
            assert letter == "f"
