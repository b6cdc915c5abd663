"""One member of a group is slower than the others at the same kind and size of steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from rooflens.analyzer.peers import EXPECTED, REACHABLE, SECONDS, Bin, Peer, Peers, Speed, Speeds

LEAST_SLOWER = 0.15  # beyond its peers: less is within what kernels and clocks of equal devices vary
LEAST_SLOWER_SECONDS = 0.5  # without bounds: loads that count as equal differ by as much
SPREADS = 3.0  # times the spread of the windows and of the peers, beyond which a member is no longer one of them
LEAST_WINDOWS = 3  # in which it must be slow: one may be a hiccup, of its host or of its peers'
LEAST_MATCHED = 0.5  # of a window's steps that peers must have made at the same load
LEAST_PEER_STEPS = 20.0  # of the same load, or the peer says nothing about it
UNLIKE = "three windows with steps of the same kind and size as its peers make"


@dataclass(frozen=True, slots=True)
class Slow:
    """How much slower: ratios of observed time to ``basis``, own and the peers', ``spread`` as a part of theirs.

    ``extra_s`` is of the newest window, with ``expected_s`` what its matched steps would have taken at its peers' pace.
    ``fires`` is False where that is within the spread, or not in every one of the last windows.
    """

    fires: bool
    times: float
    own: float
    peers: float
    spread: float
    extra_s: float
    expected_s: float
    steps: float
    compared: int
    basis: str


@dataclass(frozen=True, slots=True)
class _Pace:
    """Of one bin the peers' median: observed seconds for each of the base, and seconds beyond the base a step."""

    ratio: float
    beyond_s: float
    peers: int


def slow_rank(peers: Peers) -> Slow | None:
    """How this engine's pace compares with its peers'; None where too few steps of the same load are known of both.

    A ratio grows as a step of fixed cost shrinks, and the seconds beyond what is reachable grow with the step: an
    engine counts as slow only as far as both are above its peers', so that more or less work makes nobody slow.
    """
    basis = _basis(peers)
    paces = _paces(peers, basis)
    windows = [_window(window, paces, basis) for window in peers.windows]
    judged = [each for each in windows if each is not None]
    if len(judged) < LEAST_WINDOWS or windows[-1] is None:
        return None
    spread = _spread(peers.others, paces, basis, judged)
    least = 1.0 + max(LEAST_SLOWER_SECONDS if basis == SECONDS else LEAST_SLOWER, SPREADS * spread)
    last = judged[-1]
    return Slow(
        fires=all(each.times >= least for each in judged[-LEAST_WINDOWS:]),
        times=last.times,
        own=last.own,
        peers=last.peers,
        spread=spread,
        extra_s=last.extra_s,
        expected_s=last.observed_s - last.extra_s,
        steps=last.steps,
        compared=max((pace.peers for pace in paces.values()), default=0),
        basis=basis,
    )


@dataclass(frozen=True, slots=True)
class _Judged:
    times: float
    own: float
    peers: float
    extra_s: float
    observed_s: float
    steps: float


def _basis(peers: Peers) -> str:
    """What all can be held against alike: reachable by the same kernels, else expected, else the steps themselves."""
    windows = [*peers.windows, *(window for peer in peers.others for window in peer.windows)]
    told = [window for window in windows if window.bins]
    common = frozenset.intersection(*(window.bases for window in told)) if told else frozenset((SECONDS,))
    if REACHABLE in common and len({window.kernels for window in told}) == 1:
        return REACHABLE
    return EXPECTED if EXPECTED in common else SECONDS


def _near(place: Bin, basis: str) -> Iterator[Bin]:
    """The bins of nearly the same load; without bounds only the same."""
    kind, batch, context, tokens = place
    reach = (0,) if basis == SECONDS else (-1, 0, 1)
    yield from (
        (kind, batch + more, context + longer, tokens + wider)
        for more in reach
        for longer in reach
        for wider in (reach if tokens else (0,))
    )


def _paces(peers: Peers, basis: str) -> dict[Bin, _Pace]:
    """The peers' pace at each load that this engine had."""
    sums = [_summed(peer.windows) for peer in peers.others]
    found = {}
    for place in {place for window in peers.windows for place in window.bins}:
        ratios, beyond = [], []
        for speeds in sums:
            near = [speeds[each] for each in _near(place, basis) if each in speeds]
            steps, observed_s = sum(each.steps for each in near), sum(each.observed_s for each in near)
            base_s = sum(each.base_s(basis) or 0.0 for each in near)
            if steps >= LEAST_PEER_STEPS and base_s > 0:
                ratios.append(observed_s / base_s)
                beyond.append((observed_s - base_s) / steps)
        if ratios:
            found[place] = _Pace(median(ratios), median(beyond), len(ratios))
    return found


def _summed(windows: Sequence[Speeds]) -> dict[Bin, Speed]:
    found: dict[Bin, Speed] = {}
    for window in windows:
        for place, speed in window.bins.items():
            had = found.get(place)
            found[place] = speed if had is None else _sum(had, speed)
    return found


def _sum(one: Speed, other: Speed) -> Speed:
    def both(first: float | None, second: float | None) -> float | None:
        return None if first is None or second is None else first + second

    return Speed(
        one.steps + other.steps,
        one.observed_s + other.observed_s,
        both(one.reachable_s, other.reachable_s),
        both(one.expected_s, other.expected_s),
    )


def _window(window: Speeds, paces: dict[Bin, _Pace], basis: str) -> _Judged | None:
    """One window at its peers' pace; None where they made too few steps like these."""
    matched = [(speed, paces[place]) for place, speed in window.bins.items() if place in paces]
    steps = sum(speed.steps for speed, _ in matched)
    if not window.steps or steps < LEAST_MATCHED * window.steps:
        return None
    observed_s = sum(speed.observed_s for speed, _ in matched)
    base_s = sum(speed.base_s(basis) or 0.0 for speed, _ in matched)
    by_ratio = sum((speed.base_s(basis) or 0.0) * pace.ratio for speed, pace in matched)
    by_seconds = base_s + sum(speed.steps * pace.beyond_s for speed, pace in matched)
    expected_s = max(by_ratio, by_seconds)
    if base_s <= 0 or expected_s <= 0:
        return None
    return _Judged(
        observed_s / expected_s, observed_s / base_s, by_ratio / base_s, observed_s - expected_s, observed_s, steps
    )


def _spread(others: Sequence[Peer], paces: dict[Bin, _Pace], basis: str, judged: Sequence[_Judged]) -> float:
    """How far windows of one engine, and engines, usually lie from each other: parts of their pace, added."""
    levels, misses = [], []
    for own in ([each.times for each in judged], *(_times(peer, paces, basis) for peer in others)):
        if own:
            level = median(own)
            misses += [abs(each / level - 1.0) for each in own]
            levels.append(level)
    between = [abs(level / median(levels[1:]) - 1.0) for level in levels[1:]]
    return (median(misses) if misses else 0.0) + (median(between) if between else 0.0)


def _times(peer: Peer, paces: dict[Bin, _Pace], basis: str) -> list[float]:
    """Each window of a peer over the pace of all peers."""
    return [found.times for window in peer.windows if (found := _window(window, paces, basis)) is not None]
