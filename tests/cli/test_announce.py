"""What a sidecar says while there is no engine: nothing at first, then once how to come by one."""

from __future__ import annotations

from dataclasses import replace

from made_snapshot import made_snapshot

from rooflens.cli.announce import NOT_READ_YET, PATIENCE_TURNS, Announcer
from rooflens.live_records import Snapshot, SourceHealth, SourceKind, State

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
