"""Which engines of a Watch belong together, each and together: ranks, prefill and decode, replicas."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from counted_calls import calls_of
from made_engine import MadeEngine, made_engine
from made_snapshot import made_engine as made_view
from made_snapshot import made_info, made_snapshot
from pipeline.conftest import SHORT
from pipeline.made_pages import SERIES, URL, Site

from rooflens import catalogue as metrics
from rooflens.adapters.scrape.fetch import Page
from rooflens.cli.top_groups import group_lines
from rooflens.exporters.json_view import engines_json
from rooflens.findings import Code, Status
from rooflens.group_records import GroupKind, GroupView, Role
from rooflens.live_records import EngineView, Snapshot, SourceKind, State
from rooflens.pipeline.engine_beside import Beside, Handed
from rooflens.pipeline.group_members import Member
from rooflens.pipeline.groups import Groups
from rooflens.pipeline.prompt_history import PromptHistory, prompts_of
from rooflens.pipeline.watch import Watch
from rooflens.records import StepTable

MakeWatch = Callable[..., Watch]
NOW_UNIX_S = 1_790_000_001.0


def member(
    label: str,
    place: str | None = None,
    handed: Handed | None = None,
    source: SourceKind = SourceKind.RING,
    view: EngineView | None = None,
    **facts: Any,
) -> Member:
    """A live engine with six windows; ``facts`` change what it says of itself."""
    made = view or made_view(1, "m", label)
    rank = int(label) if label.isdecimal() else 0
    info = replace(made_info("m", rank), **{"instance": label, **facts})
    beside = Beside(6)
    beside.handed = handed or Handed()
    return Member(replace(made, info=info, source=source, engine=label), beside, place, True, "H100")


def looked(*members: Member, groups: Groups | None = None) -> tuple[GroupView, ...]:
    return (groups or Groups()).look(members, time.monotonic(), NOW_UNIX_S)


def only(*members: Member) -> GroupView:
    (view,) = looked(*members)
    return view


def labels(view: GroupView) -> list[str]:
    return [engine for _, engine in view.group.members]


def test_rings_that_say_so_are_ranks_of_one_server() -> None:
    view = only(*(member(str(n), data_parallel=4) for n in (2, 0, 3, 1)))
    assert (view.group.kind, labels(view), view.group.guessed) == (
        GroupKind.DATA_PARALLEL, ["0", "1", "2", "3"], ()
    )  # fmt: skip
    rate = view.members[0].generated_tokens_per_s
    assert rate is not None
    assert view.together.generated_tokens_per_s == pytest.approx(4 * rate)
    assert view.together.kv_tokens == 4 * 20_000 * 16
    assert view.together.kv_used_ratio == pytest.approx(0.15)  # a ratio of sums, never a sum of ratios
    assert view.together.waiting == 12


def test_two_servers_of_a_kind_are_told_apart_by_when_they_started() -> None:
    first = [member(str(n), data_parallel=2, start_unix_s=1000.0 + n) for n in (0, 1)]
    second = [member(f"{n}.1", data_parallel=2, rank=n, start_unix_s=2000.0 + n) for n in (0, 1)]
    views = looked(*first, *second)
    assert [labels(view) for view in views] == [["0", "1"], ["0.1", "1.1"]]
    assert all(view.group.guessed for view in views)


@pytest.mark.parametrize(
    "other",
    [
        {"host": "node-2"},
        {"start_unix_s": 1.0},
        {"engine_version": "0.31.0"},
        {"rank": 0},
        {"model_config": {"hidden_size": 1}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_is_unlike_is_no_rank_of_one_server(other: dict[str, Any]) -> None:
    assert looked(member("0", data_parallel=2), member("1", data_parallel=2, **other)) == ()


def test_engines_of_one_page_are_ranks_and_of_two_pages_replicas() -> None:
    page = "http://127.0.0.1:8000/metrics"
    ranks = [member(str(n), page, source=SourceKind.METRICS, data_parallel=2) for n in (0, 1)]
    view = only(*ranks)
    assert (view.group.kind, view.group.guessed) == (GroupKind.DATA_PARALLEL, ())
    two = [member(label, f"http://h{label}:8000/metrics", source=SourceKind.METRICS, rank=0) for label in ("0", "0.1")]
    view = only(*two)
    assert (view.group.kind, view.group.lockstep) == (GroupKind.REPLICAS, None)
    assert "router" in view.group.guessed[0]


def test_pages_of_one_host_with_a_rank_each_are_ranks_by_guess() -> None:
    places = ["http://127.0.0.1:8000/metrics", "http://127.0.0.1:8001/metrics"]
    view = only(*(member(str(n), place, source=SourceKind.METRICS) for n, place in enumerate(places)))
    assert (view.group.kind, len(view.group.guessed)) == (GroupKind.DATA_PARALLEL, 1)


def test_other_models_precisions_and_versions_are_no_replicas() -> None:
    for change in ({"quantization": "fp8"}, {"engine_version": "0.33.0"}, {"max_sequences": 8}, {"tensor_parallel": 2}):
        assert looked(member("0"), member("0.1", **change)) == ()
    assert looked(member("0"), member("0.1", view=made_view(1, "other", "0.1"))) == ()


def prefill_only(label: str = "0") -> EngineView:
    view = made_view(1, "m", label)
    windows = [replace(w, kinds={"prefill": replace(w.kinds["mixed"])}, generated_tokens=12) for w in view.windows]
    return replace(view, windows=tuple(windows))


def test_prefill_and_decode_by_what_they_do_are_a_guess_and_said_so() -> None:
    giver = member("0", view=prefill_only(), handed=Handed(20_000.0, 0.0))
    taker = member("0.1", handed=Handed(100.0, 19_900.0))
    view = only(giver, taker)
    assert (view.group.kind, view.group.roles) == (GroupKind.PREFILL_DECODE, (Role.PREFILL, Role.DECODE))
    assert "seen to do" in view.group.guessed[0]
    (line, *_) = group_lines(engines_json(replace(made_snapshot(), groups=(view,)))["groups"], 118)
    assert "2 prefill and decode (1 + 1)" in line.text


def test_prefill_and_decode_of_one_page_are_no_ranks_of_each_other() -> None:
    page = "http://127.0.0.1:8000/metrics"
    parts = [member(str(n), page, source=SourceKind.METRICS, role=role) for n, role in enumerate(("prefill", "decode"))]
    assert only(*parts).group.kind is GroupKind.PREFILL_DECODE


def test_prefill_and_decode_that_say_so() -> None:
    takers = [member(label, role="decode") for label in ("0.1", "0.2")]
    views = looked(member("0", role="prefill"), *takers)
    assert [view.group.kind for view in views] == [GroupKind.PREFILL_DECODE, GroupKind.REPLICAS]
    assert "seen to do" not in views[0].group.guessed[0]
    assert labels(views[1]) == ["0.1", "0.2"]


def test_a_prefill_without_decode_and_prefix_hits_alone_are_no_pair() -> None:
    assert looked(member("0", view=prefill_only(), handed=Handed(20_000.0, 0.0))) == ()
    both = only(member("0", handed=Handed(5000.0, 4000.0)), member("0.1", handed=Handed(5000.0, 4000.0)))
    assert both.group.kind is GroupKind.REPLICAS


def test_a_mixture_of_ranks_steps_together_and_so_do_those_that_run_dummies() -> None:
    assert only(*(member(str(n), data_parallel=2) for n in (0, 1))).group.lockstep is None
    experts = {"num_experts": 128}
    assert only(*(member(str(n), data_parallel=2, model_config=experts) for n in (0, 1))).group.lockstep
    windows = made_view(1, "m", "0").windows
    idle = replace(windows[-1], kinds={"dummy": windows[-1].kinds["decode"]})
    dummy = member("0", view=replace(made_view(1, "m", "0"), windows=(idle,)), data_parallel=2)
    view = only(dummy, member("1", data_parallel=2))
    assert view.group.lockstep
    assert view.members[0].dummy_share == pytest.approx(900 / 912)


@pytest.mark.parametrize(("steps_a_turn", "together"), [((100, 100), True), ((100, 80), False)])
def test_ranks_of_as_many_steps_step_together(steps_a_turn: tuple[int, int], together: bool) -> None:
    groups = Groups()
    for turn in range(1, 41):
        parts = []
        for label, count in zip(("0", "1"), steps_a_turn, strict=True):
            view = made_view(1, "m", label)
            columns = {**view.recent.columns, "sequence": np.arange(512) + turn * count}
            parts.append(member(label, view=replace(view, recent=StepTable(columns)), data_parallel=2))
        (view_of_group,) = looked(*parts, groups=groups)
    assert view_of_group.group.lockstep is together


def test_members_that_are_gone_old_or_new_are_not_counted() -> None:
    new = member("1", view=replace(made_view(1, "m", "1"), windows=()), data_parallel=3)
    old = made_view(1, "m", "2")
    stale = tuple(replace(w, end_unix_s=w.end_unix_s - 1000) for w in old.windows)
    view = only(member("0", data_parallel=3), new, member("2", view=replace(old, windows=stale), data_parallel=3))
    assert (len(view.group.members), [m.engine for m in view.members]) == (3, ["0"])
    assert view.spreads == ()


def test_a_sum_of_which_a_part_is_not_told_is_not_told() -> None:
    other = made_view(1, "m", "1")
    blind = tuple(replace(w, waiting_mean=None, kv_used_mean=None) for w in other.windows)
    view = only(member("0", data_parallel=2), member("1", view=replace(other, windows=blind), data_parallel=2))
    assert (view.together.waiting, view.together.kv_used_ratio) == (None, None)
    assert view.together.running == 64


def test_a_turn_over_64_ranks_costs_as_many_times_that_of_8() -> None:
    def cost(count: int) -> int:
        members, groups = [member(str(n), data_parallel=count) for n in range(count)], Groups()
        looked(*members, groups=groups)

        def turn() -> None:
            looked(*members, groups=groups)
            for each in members:
                each.beside.peers()

        return calls_of(turn)

    assert cost(64) < 1.3 * 8 * cost(8)
    ranks = [member(str(n), data_parallel=64) for n in range(64)]
    looked(*ranks)
    told = ranks[63].beside.peers()
    assert (len(told.others), "63" in {peer.engine for peer in told.others}) == (8, False)


def test_prompts_are_complete_only_between_what_was_read_and_what_was_lost() -> None:
    def recent(first: int, count: int, prefill: int = 7) -> StepTable:
        end = np.arange(first, first + count) * 0.1
        tokens = np.where(np.arange(first, first + count) % 10 == 0, prefill, 0)
        return StepTable({"output_monotonic_s": end, "observed_s": np.full(count, 0.1), "prefill_tokens": tokens})

    one, two = PromptHistory(), PromptHistory()
    one.take(recent(1, 30), 3.05)
    one.take(recent(10, 30), 4.0)
    two.take(recent(1, 35), 3.6)
    found = prompts_of([one, two])
    assert found is not None
    assert found.end_s.tolist() == pytest.approx([1.0, 1.0, 2.0, 2.0, 3.0, 3.0])
    assert found.busy_s.tolist() == [pytest.approx([n - 0.1, n]) for n in (1.0, 2.0, 3.0)]
    assert found.until_s == pytest.approx(3.6)
    assert found.overlap_s(np.array([0.85, 1.5]), np.array([0.95, 2.5])).tolist() == pytest.approx([0.05, 0.1])
    one.take(recent(100, 30), 13.0)  # more came than are kept
    again = prompts_of([one, two])
    assert again is None  # they have no time in common any more


def rounds(watch: Watch, engines: list[tuple[MadeEngine, dict[str, Any]]], count: int = 8) -> list[Snapshot]:
    """Windows of half a second: each engine makes its steps, as long as they say, then a turn."""
    snapshots = []
    for _ in range(count):
        for engine, facts in engines:
            engine.steps(**{"count": 60, "step_s": 0.01, **facts})
        time.sleep(0.65)
        snapshots.append(watch.turn())
    return snapshots


def firing(snapshot: Snapshot) -> dict[str, str]:
    return {
        view.engine: finding.summary
        for view in snapshot.engines
        for finding in view.findings
        if finding.code is Code.RANK_IMBALANCE and finding.status is Status.FIRING
    }


def test_a_slow_rank_is_found_live_and_its_peers_are_not(watch: MakeWatch, folder: Path) -> None:
    with ExitStack() as stack:
        ranks = [stack.enter_context(made_engine(folder, rank=n, data_parallel=3, host="h")) for n in range(3)]
        it = watch()
        last = rounds(it, [(ranks[0], {}), (ranks[1], {"step_s": 0.0145, "count": 42}), (ranks[2], {})])[-1]
        assert list(firing(last)) == ["1"]
        (view,) = last.groups
        assert (view.group.kind, view.worst, view.group.lockstep) == (GroupKind.DATA_PARALLEL, "1", None)
        assert "1.45 times" in (view.why or "")
        counted = {s.metric.name: s.value for s in last.samples if s.metric.name.startswith("rooflens_group_")}
        assert counted[metrics.GROUP_MEMBERS.name] == 3
        text = "\n".join(line.text for line in group_lines(engines_json(last)["groups"], 118))
        assert "group llama: 3 data-parallel ranks" in text
        assert "engine 1: its steps take 1.45 times" in text
        ranks[1].end()
        after = it.turn()
        assert [len(each.group.members) for each in after.groups] == [2]
        assert (firing(after), after.groups[0].worst) == ({}, None)
        ranks[0].kill()
        assert it.turn().groups == ()
        assert all(not problem.startswith("groups") for problem in it.turn().problems)


def test_healthy_ranks_and_replicas_with_other_contexts_stay_silent(watch: MakeWatch, folder: Path) -> None:
    with made_engine(folder) as one, made_engine(folder) as two:
        it = watch()
        alike = rounds(it, [(one, {}), (two, {"contexts": (110, 215)})], 6)
        assert [view.group.kind for view in alike[-1].groups] == [GroupKind.REPLICAS]
        assert not any(map(firing, alike))
        assert all(view.state is State.LIVE for view in alike[-1].engines)


def test_ranks_of_one_page_are_told_each_and_together(watch: MakeWatch, site: Site) -> None:
    it = watch(scrape_urls=(URL,), windows=replace(SHORT, least_steps=1, window_s=0.2))

    def tell(read: int) -> None:
        lines = [f"process_start_time_seconds {site.began_s!r}"]
        for engine, running, waiting, usage in (("0", 51, 117, 1.0), ("1", 20, 0, 0.3)):
            labels = f'{{engine="{engine}",model_name="llama"}}'
            values = {
                **{name: value(100 * read) for name, value in SERIES.items()},
                "num_requests_running": running,
                "num_requests_waiting": waiting,
                "kv_cache_usage_perc": usage,
            }
            lines += [f"vllm:{name}{labels} {float(value)!r}" for name, value in values.items()]
            lines.append(f'vllm:cache_config_info{{block_size="16",num_gpu_blocks="1000",engine="{engine}"}} 1.0')
        site.pages[0].take(Page("\n".join(lines) + "\n"), time.time(), time.monotonic())
        site.pages[0].last_read_unix_s = time.time()

    it.turn()
    for read in range(8):
        tell(read)
        last = it.turn()
        time.sleep(0.3)
    (view,) = last.groups
    assert (view.group.kind, view.group.guessed, labels(view)) == (GroupKind.DATA_PARALLEL, (), ["0", "1"])
    assert (view.together.waiting, view.together.running) == (117, 71)
    assert view.together.kv_used_ratio == pytest.approx(0.65, rel=0.01)
    assert list(firing(last)) == ["0"]
    assert "117 requests wait here while engine 1 has room" in firing(last)["0"]
