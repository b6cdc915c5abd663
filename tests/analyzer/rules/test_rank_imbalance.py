"""One rank among others: slow, stalled by prompts, loaded more; and everything that must not be taken for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_windows import INFO, case, info_with, merged, steps, window

from rooflens.analyzer.groups import group_view
from rooflens.analyzer.peers import Peer, Peers, Prompts, Speeds, speeds_of
from rooflens.analyzer.rules.case import Case
from rooflens.analyzer.rules.rank_imbalance import IN_LOCKSTEP, NO_RANKS, rank_imbalance
from rooflens.findings import Finding, Severity, Status
from rooflens.group_records import Group, GroupKind, MemberFigures, Role
from rooflens.records import StepKind, StepTable

RANKS = info_with(data_parallel=2)


def group(members: int = 2, lockstep: bool | None = False, kind: GroupKind = GroupKind.DATA_PARALLEL) -> Group:
    keys = tuple(("m", str(n)) for n in range(members))
    guessed = ("that a router sends to all",) if kind is GroupKind.REPLICAS else ()
    return Group(kind, "m", "0", keys, (Role.BOTH,) * members, guessed, lockstep)


def figures(engine: str = "0", **facts: Any) -> MemberFigures:
    return MemberFigures("m", engine, Role.BOTH, **facts)


def speeds(*tables: StepTable, **more: Any) -> tuple[Speeds, ...]:
    return tuple(speeds_of(window(table, RANKS, **more)) for table in tables)


def noisy(count: int, factor: float, seed: int, context: int = 1000, decode: int = 32) -> StepTable:
    rng = np.random.default_rng(seed)
    return steps(count, decode, context, factor=factor * np.exp(rng.normal(0.0, 0.02, count)))


def beside(
    own: list[StepTable], others: list[list[StepTable]], the: Group | None = None, members: Any = None, **peers: Any
) -> Case:
    """The case of engine 0 with these windows beside others with theirs."""
    made = case(*own, info=RANKS)
    the = the or group(1 + len(others))
    told = members or [figures(str(n)) for n in range(1 + len(others))]
    view = group_view(the, told)
    rest = tuple(Peer(str(n + 1), speeds(*tables)) for n, tables in enumerate(others))
    return replace(made, peers=Peers(view, "0", speeds(*own), rest, **peers))


def judged(*arguments: Any, **more: Any) -> Finding:
    return rank_imbalance(beside(*arguments, **more))


def fact(found: Finding, name: str) -> Any:
    (value,) = [fact.value for fact in found.evidence if fact.name == name]
    return value


def test_one_slow_rank_fires_with_what_it_costs() -> None:
    slow = [noisy(200, 1.4 * 1.3, seed) for seed in range(4)]
    twins = [[noisy(200, 1.4, 10 * n + seed) for seed in range(4)] for n in range(1, 4)]
    found = judged(slow, twins)
    assert (found.status, found.severity) == (Status.FIRING, Severity.WARNING)
    assert fact(found, "times_its_peers") == pytest.approx(1.3, abs=0.02)
    assert fact(found, "peers_compared") == 3
    assert found.price is not None
    assert found.price.saved_s == pytest.approx(found.price.judged_s * (1 - 1 / 1.3), rel=0.1)
    assert found.price.saved_low_s <= found.price.saved_s <= found.price.saved_high_s
    assert "--data-parallel-size 3" in (found.remedy or "")
    others = judged(twins[0], [slow, twins[1], twins[2]])
    assert others.status is Status.CLEARED


def test_healthy_twins_are_cleared() -> None:
    found = judged([noisy(200, 1.4, seed) for seed in range(4)], [[noisy(200, 1.45, 9 - seed) for seed in range(4)]])
    assert found.status is Status.CLEARED
    assert "times its peers'" in found.summary


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    contexts=st.tuples(st.integers(100, 8000), st.floats(0.5, 2.0)).map(
        lambda drawn: (drawn[0], int(drawn[0] * drawn[1]))
    ),
    batches=st.tuples(st.integers(4, 120), st.floats(0.5, 2.0)).map(lambda drawn: (drawn[0], int(drawn[0] * drawn[1]))),
    overhead_s=st.sampled_from([0.0, 0.002, 0.01]),
    prefill=st.sampled_from([0, 0, 256]),
)
def test_more_or_less_work_at_equal_speed_makes_nobody_slow(
    seed: int, contexts: tuple[int, int], batches: tuple[int, int], overhead_s: float, prefill: int
) -> None:
    """Both lose the same seconds on the host every step, and kernels of both reach the same."""

    def one(context: int, batch: int, windows: int) -> list[StepTable]:
        rng = np.random.default_rng(seed + windows)
        found = []
        for _ in range(4):
            spread = np.clip(batch + rng.integers(-3, 4, 100), 1, 250)
            first = steps(100, spread, context, np.where(rng.random(100) < 0.2, prefill, 0), 1.4)
            taken = first["observed_s"] * np.exp(np.abs(rng.normal(0.0, 0.05, 100))) + overhead_s
            found.append(StepTable({**first.columns, "observed_s": taken}))
        return found

    first, second = one(contexts[0], batches[0], 0), one(contexts[1], batches[1], 1)
    assert judged(first, [second]).status is not Status.FIRING
    assert judged(second, [first]).status is not Status.FIRING


def test_other_loads_alone_cannot_tell() -> None:
    found = judged([noisy(100, 2.0, n, decode=8) for n in range(4)], [[noisy(100, 1.4, n) for n in range(4)]])
    assert found.status is Status.CANNOT_TELL
    assert "same kind and size" in found.missing[0]


def test_one_slow_window_or_two_are_no_slow_rank() -> None:
    twins = [[noisy(200, 1.4, seed) for seed in range(4)]]
    for slow in (1, 2):
        own = [noisy(200, 1.4, seed) for seed in range(4 - slow)] + [noisy(200, 2.0, seed) for seed in range(slow)]
        assert judged(own, twins).status is Status.CLEARED


def test_peers_that_differ_among_themselves_widen_what_is_usual() -> None:
    own = [noisy(200, 1.4 * 1.3, seed) for seed in range(4)]
    apart = [[noisy(200, 1.4 * level, seed) for seed in range(4)] for level in (0.85, 1.0, 1.25)]
    assert judged(own, apart).status is Status.CLEARED


def test_a_rank_without_calibration_is_held_against_the_floor_like_the_others() -> None:
    own = [noisy(200, 1.4 * 1.4, seed) for seed in range(4)]
    made = beside(own, [[noisy(200, 1.4, seed) for seed in range(4)]])
    bare = tuple(
        replace(each, kernels=None, bins={place: replace(s, reachable_s=None) for place, s in each.bins.items()})
        for each in made.peers.others[0].windows
    )
    found = rank_imbalance(replace(made, peers=replace(made.peers, others=(Peer("1", bare),))))
    assert found.status is Status.FIRING
    assert "floor" in fact(found, "base")
    assert fact(found, "times_its_peers") == pytest.approx(1.4, abs=0.03)


def test_without_bounds_only_equal_steps_are_compared() -> None:
    def bare(factor: float, context: int = 1000) -> tuple[Speeds, ...]:
        tables = [noisy(200, factor, seed, context) for seed in range(4)]
        return tuple(speeds_of(replace(window(t, RANKS), analysis=None)) for t in tables)

    made = beside([noisy(200, 2.8, seed) for seed in range(4)], [[noisy(200, 1.4, 0)]])

    def of(own: tuple[Speeds, ...], other: tuple[Speeds, ...]) -> Finding:
        return rank_imbalance(replace(made, peers=replace(made.peers, windows=own, others=(Peer("1", other),))))

    assert of(bare(2.8), bare(1.4)).status is Status.FIRING
    assert of(bare(1.4 * 1.3), bare(1.4)).status is Status.CLEARED
    assert of(bare(2.8), bare(1.4, context=4000)).status is Status.CANNOT_TELL


def test_alone_is_clear_and_missing_ranks_are_missing() -> None:
    assert rank_imbalance(case(steps())).status is Status.CLEARED
    found = rank_imbalance(case(steps(), info=RANKS))
    assert (found.status, found.missing) == (Status.CANNOT_TELL, (NO_RANKS,))


def test_ranks_in_lockstep_are_never_called_slow() -> None:
    own, others = [noisy(200, 3.0, n) for n in range(4)], [[noisy(200, 1.4, n) for n in range(4)]]
    found = judged(own, others, group(2, lockstep=True))
    assert (found.status, found.missing) == (Status.CANNOT_TELL, (IN_LOCKSTEP,))


@pytest.mark.parametrize(("devices", "severity"), [((None, None), Severity.INFO), (("H100", "H100"), Severity.WARNING),
                                                   (("H100", "A100"), Severity.INFO)])  # fmt: skip
def test_a_slow_replica_warns_only_where_its_device_is_known_to_be_the_same(
    devices: tuple[str | None, str | None], severity: Severity
) -> None:
    own, others = [noisy(200, 2.0, n) for n in range(4)], [[noisy(200, 1.4, n) for n in range(4)]]
    made = beside(own, others, group(2, None, GroupKind.REPLICAS), device=devices[0])
    peers = replace(made.peers, others=tuple(replace(peer, device=devices[1]) for peer in made.peers.others))
    found = rank_imbalance(replace(made, peers=peers))
    assert (found.status, found.severity) == (Status.FIRING, severity)
    assert "router" in (found.remedy or "")


def lockstep(stall: float, chance: float = 0.0, skew_s: float = 0.0) -> tuple[StepTable, Prompts]:
    """200 decode steps of which every tenth takes ``stall`` times as long, while a peer computes 2000 tokens then."""
    rng = np.random.default_rng(1)
    stalled = np.arange(200) % 10 == 9
    factor = 1.4 * np.where(stalled, stall, np.where(rng.random(200) < chance, stall, 1.0))
    table = steps(200, factor=factor, gap_ratio=0.0)
    end_s = table["output_monotonic_s"][stalled] + skew_s
    begin_s = end_s - table["observed_s"][stalled]
    prompts = Prompts(end_s, np.full(20, 2000.0), np.full(20, 1), np.stack([begin_s, end_s], axis=1), -1.0, 1e9)
    return table, prompts


def test_a_decode_rank_that_waits_for_a_peer_s_prompts_fires() -> None:
    table, prompts = lockstep(5.0)
    found = judged([table], [[steps()]], group(2, True), prompts=prompts)
    assert (found.status, found.severity) == (Status.FIRING, Severity.WARNING)
    assert fact(found, "decode_steps_that_waited") == 20
    assert fact(found, "prompt_tokens_of_peers_in_such_a_step") == 2000
    assert fact(found, "most_prompts_of_engine") == "1"
    assert fact(found, "step_while_a_peer_prefills") == pytest.approx(5 * fact(found, "step_otherwise"), rel=0.01)
    assert found.price is not None
    assert found.price.saved_high_s == pytest.approx(found.price.judged_s * 80 / 280, rel=0.05)
    assert found.price.saved_low_s == pytest.approx(found.price.saved_high_s / 2, rel=0.01)
    assert "--max-num-batched-tokens" in (found.remedy or "")


def test_prompts_of_others_that_cost_nothing_or_end_elsewhere_are_silent() -> None:
    table, prompts = lockstep(1.2)
    assert judged([table], [[steps()]], group(2, True), prompts=prompts).status is not Status.FIRING
    table, prompts = lockstep(5.0, skew_s=-0.012)  # they do not end together: slow for another cause
    assert judged([table], [[steps()]], group(2, None), prompts=prompts).status is not Status.FIRING
    table, prompts = lockstep(5.0, chance=0.5)  # slow as often without
    assert judged([table], [[steps()]], group(2, True), prompts=prompts).status is not Status.FIRING


def test_what_of_prompts_is_not_known_yet_is_not_judged() -> None:
    table, prompts = lockstep(5.0)
    found = judged([table], [[steps()]], group(2, True), prompts=replace(prompts, until_s=-0.5))
    assert found.status is not Status.FIRING


def test_the_most_loaded_rank_of_a_lockstep_fires() -> None:
    def members(*needs: float) -> list[MemberFigures]:
        return [figures(str(n), reachable_step_s=need, running=100 * need) for n, need in enumerate(needs)]

    own, others = [steps(100)], [[steps(100)]] * 3
    found = judged(own, others, group(4, True), members(0.02, 0.01, 0.01, 0.0))
    assert found.status is Status.FIRING
    assert fact(found, "running") == 2.0
    assert found.price is not None
    assert found.price.saved_s <= found.price.judged_s
    assert "--data-parallel-hybrid-lb" in (found.remedy or "")
    for needs in ((0.01, 0.02, 0.01, 0.01), (0.0102, 0.01, 0.01, 0.01)):
        assert judged(own, others, group(4, True), members(*needs)).status is Status.CLEARED


def test_requests_that_wait_while_another_has_room_fire() -> None:
    pool = {"kv_tokens": 100_000.0, "cap": 64.0, "generated_tokens_per_s": 800.0}
    full = figures("0", running=51.0, waiting=117.0, waiting_share=1.0, kv_tokens_used=100_000.0, **pool)
    free = figures("1", running=20.0, waiting=0.0, waiting_share=0.0, kv_tokens_used=30_000.0, **pool)
    own = [noisy(100, 1.4, n) for n in range(4)]
    found = judged(own, [own], None, [full, free])
    assert found.status is Status.FIRING
    assert fact(found, "requests_with_room_elsewhere") == 32
    assert fact(found, "engine_with_room") == "1"
    crowded = replace(free, waiting=40.0, waiting_share=1.0)
    filled = replace(free, kv_tokens_used=89_000.0)
    for other in (crowded, filled, replace(free, kv_tokens=None), replace(free, running=64.0)):
        assert judged(own, [own], None, [full, other]).status is Status.CLEARED
    assert judged(own, [own], None, [replace(full, waiting_share=0.2), free]).status is Status.CLEARED


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_no_peers_make_the_rule_fail(data: st.DataObject) -> None:
    """Members without figures, windows of nothing, pages beside rings, prompts of nobody."""
    maybe = st.one_of(st.none(), st.floats(0, 1e6))
    names = ("running", "waiting", "waiting_share", "kv_tokens", "kv_tokens_used", "reachable_step_s", "cap")
    count = data.draw(st.integers(1, 5))
    told = [figures(str(n), **{name: data.draw(maybe) for name in names}) for n in range(count)]
    tables = st.sampled_from(
        [steps(100), steps(5), merged(steps(100), 5), steps(50, kind=StepKind.DUMMY), StepTable({})]
    )
    windows = [speeds_of(replace(window(steps(30), RANKS), steps=data.draw(tables), analysis=None)) for _ in range(3)]
    made = case(steps(100), info=INFO)
    view = group_view(group(count, data.draw(st.sampled_from([True, False, None]))), told)
    empty = Prompts(np.empty(0), np.empty(0), np.empty(0, np.int64), np.empty((0, 2)), 0.0, 1e9)
    prompts = data.draw(st.sampled_from([None, empty]))
    peers = Peers(view, "0", tuple(windows), (Peer("1", tuple(windows)),), prompts)
    found = rank_imbalance(replace(made, peers=peers))
    assert found.price is None or 0 <= found.price.saved_low_s <= found.price.saved_s <= found.price.saved_high_s
