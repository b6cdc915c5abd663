"""What a sidecar says while there is no engine: nothing at first, then once how to come by one."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import pytest
from made_snapshot import made_snapshot

from rooflens.adapters.forward_pass.feed import ForwardPassFeed
from rooflens.adapters.logs.follow import LogFeed
from rooflens.cli.announce import NOT_READ_YET, NOTHING_YET, PATIENCE_TURNS, Announcer, fired, nothing_yet_of
from rooflens.cli.top_text import price_text
from rooflens.findings import Code, Finding, Price, Severity, Status
from rooflens.live_records import Snapshot, SourceHealth, SourceKind, State
from rooflens.pipeline.watch_settings import WatchSettings

EMPTY = replace(made_snapshot(), engines=(), sources=(), problems=())
ASKED = replace(EMPTY, sources=(SourceHealth("p", SourceKind.METRICS, State.UNREACHABLE, problem=NOT_READ_YET),))
REFUSED = replace(EMPTY, sources=(SourceHealth("p", SourceKind.METRICS, State.UNREACHABLE, problem="refused"),))


def told(*snapshots: Snapshot) -> list[list[str]]:
    """What is said of each snapshot, without the time."""
    lines: list[str] = []
    announcer, found = Announcer(lines.append), []
    for snapshot in snapshots:
        announcer.export(snapshot)
        found.append([line[10:] for line in lines])
        lines.clear()
    return found


def test_a_page_that_has_not_answered_yet_may_have_an_engine() -> None:
    said = told(*[ASKED] * (2 * PATIENCE_TURNS), made_snapshot(), *[EMPTY] * (2 * PATIENCE_TURNS))
    assert not [line for lines in said for line in lines if "no engine yet" in line]


def test_without_any_the_ways_to_one_are_named_once() -> None:
    lines = [line for lines in told(*[EMPTY] * (3 * PATIENCE_TURNS)) for line in lines]
    assert len(lines) == 1
    ways = ("--scrape URL", "while it starts up, wait", "the hook", "rooflens demo", "rooflens doctor")
    assert [lines[0].find(way) for way in ways] == sorted(lines[0].index(way) for way in ways)


def test_a_page_that_refuses_is_a_problem_first() -> None:
    first, *_ = told(*[REFUSED] * PATIENCE_TURNS)
    assert first == ["problem  refused"]


def test_of_many_problems_at_once_the_first_are_told() -> None:
    many = tuple(SourceHealth(f"{n}", SourceKind.RING, State.UNREACHABLE, problem=f"{n:04} bad") for n in range(3000))
    first, second, third = told(*[replace(EMPTY, sources=many)] * 2, replace(EMPTY, problems=("another",)))
    assert first[:2] == ["problem  0000 bad", "problem  0001 bad"]
    assert [line for line in first if "problem" in line][-1] == "problem  and 2,990 more, see 'rooflens doctor'"
    assert [line for line in (*second, *third) if "problem" in line] == ["problem  another"]


def test_what_is_named_is_what_is_waited_for(tmp_path: Path) -> None:
    feed, log = ForwardPassFeed("tcp://127.0.0.1:20380"), LogFeed(str(tmp_path / "server.log"))
    alone = WatchSettings(folders=[], use_rings=False, discover=None)
    cases = (
        (replace(alone, feeds=(feed,)), "no engine yet: waiting for forward-pass messages from tcp://127.0.0.1:20380"),
        (replace(alone, feeds=(log,)), f"no engine yet: waiting for lines of an engine's log in {log.health().name}"),
        (replace(alone, feeds=(log,), use_rings=True), " or an engine with the hook"),
        (replace(alone, scrape_urls=["http://127.0.0.1:8000"]), "the metrics page http://127.0.0.1:8000/metrics ("),
        (replace(alone, scrape_urls=[f"http://127.0.0.1:{port}" for port in range(8000, 8009)]), "and 6 more"),
    )
    for settings, words in cases:
        line = nothing_yet_of(settings)
        assert words in line
        assert "vLLM" not in line
    assert nothing_yet_of(replace(alone, discover=list)) == NOTHING_YET


def test_the_line_given_is_the_one_that_is_said() -> None:
    lines: list[str] = []
    announcer = Announcer(lines.append, "no engine yet: waiting for x")
    for _ in range(2 * PATIENCE_TURNS):
        announcer.export(EMPTY)
    assert [line[10:] for line in lines] == ["no engine yet: waiting for x"]


@pytest.mark.parametrize("kind", [SourceKind.FEED, SourceKind.LOG])
def test_a_problem_of_a_feed_names_it(kind: SourceKind) -> None:
    def said(problem: str) -> list[str]:
        return told(replace(EMPTY, sources=(SourceHealth("tcp://h:1", kind, State.UNREACHABLE, problem=problem),)))[0]

    assert said("nobody answers there") == ["problem  tcp://h:1: nobody answers there"]
    assert said("tcp://h:1 is silent") == ["problem  tcp://h:1 is silent"]
    assert said(NOT_READ_YET) == []


@pytest.mark.parametrize(("low_s", "interval"), [(10.0, False), (5.0, True)])
def test_an_interval_of_one_value_is_no_interval(low_s: float, interval: bool) -> None:
    price = Price(10.0, 10.0, low_s, 10.0, "made up")
    finding = Finding(Code.ENGINE_STALLED, Severity.CRITICAL, Status.FIRING, "it hangs", price=price)
    assert ("50% to 100%" in fired(finding)) is ("50% to 100%" in price_text(asdict(price))) is interval
    assert ("100% to 100%" in fired(finding) + price_text(asdict(price))) is False
