"""One real server under one load, seen through the hook's ring and through its metrics page at the same time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest
from server_harness import running

from rooflens.adapters.scrape.page_source import MetricsPage
from rooflens.collector.ring_source import RingSource
from rooflens.live_records import Derived, State
from rooflens.protocols import Batch
from rooflens.records import StepKind

pytestmark = pytest.mark.engine

PERIOD_S = 4.0
# A page is not written at one moment: a step may be in one of its counters and not yet in another.
STEPS_OFF = 2
# And it tells what the API server has heard of, which on a busy machine is this much behind the engine.
LATE_S = 0.5
# On a machine whose cores the engine has all to itself a page may fail its deadline; the next interval is longer then.
FAILURES = 1
# What the page takes for busy time has the time between the steps in it.
BETWEEN_STEPS_RATIO = 0.25


@dataclass(frozen=True)
class Pair:
    """One interval: the row from the page, and the sums of the ring's steps in it."""

    row: dict[str, float]
    steps: dict[str, float]
    derived: dict[str, Derived]
    steady: bool


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> list[Pair]:
    folder = tmp_path_factory.mktemp("scraped")
    batches: list[Batch] = []
    with running(folder, "--max-num-seqs", "16") as server:
        server.complete([5] * 20, 4)
        (ring,) = server.rings.glob("*.ring")
        source = RingSource(ring)
        page = MetricsPage(f"http://127.0.0.1:{server.port}", PERIOD_S)
        done = threading.Event()

        def pull() -> None:
            while not done.wait(0.2):
                batches.extend(page.read())

        puller = threading.Thread(target=pull)
        page.start()
        puller.start()
        with ThreadPoolExecutor(24) as pool:
            jobs = [pool.submit(server.complete, [7 + n] * (100 + 60 * n), 1400) for n in range(8)]
            threading.Event().wait(4 * PERIOD_S)
            jobs += [pool.submit(server.complete, [30 + n] * 600, 60) for n in range(12)]
            for job in jobs:
                job.result()
        threading.Event().wait(1.5 * PERIOD_S)
        done.set()
        puller.join()
        page.close()
        assert (page.state, page.problem) == (State.LIVE, None)
        assert page.failures <= FAILURES
        columns = source.read().steps.columns
        source.close()
    return list(_paired(batches, columns))


def _paired(batches: list[Batch], columns: Any) -> Iterator[Pair]:
    ended = columns["output_monotonic_s"]
    for batch in batches:
        assert batch.complaints == ()
        for at in range(len(batch.steps)):
            row = {n: c[at].item() for n, c in batch.steps.columns.items() if batch.steps.where(n)[at]}
            inside = (ended > row["submit_monotonic_s"]) & (ended <= row["output_monotonic_s"])
            inside &= columns["requests"] > 0
            names = ("requests", "query_tokens", "generated_tokens", "context_tokens", "observed_s", "kv_blocks_used")
            sums = {name: float(columns[name][inside].sum()) for name in names} | {"steps": float(inside.sum())}
            steady = row["kind"] == StepKind.DECODE and "context" in {
                d.name for d in batch.derived if d.low is not None
            }
            yield Pair(row, sums, {d.name: d for d in batch.derived}, steady)


def test_the_load_had_windows_of_each_kind(pairs: list[Pair]) -> None:
    assert sum(pair.steady for pair in pairs) >= 2
    assert any(pair.row["kind"] == StepKind.MIXED for pair in pairs)


def test_steps_and_tokens_are_the_rings(pairs: list[Pair]) -> None:
    for pair in pairs:
        batch = pair.steps["requests"] / pair.steps["steps"]
        interval_s = pair.row["output_monotonic_s"] - pair.row["submit_monotonic_s"]
        off = STEPS_OFF + LATE_S * pair.steps["steps"] / interval_s
        assert pair.row["resolution_steps"] == pytest.approx(pair.steps["steps"], abs=off)
        assert pair.row["generated_tokens"] == pytest.approx(pair.steps["generated_tokens"], abs=off * (batch + 1))
    for name, column in (("generated_tokens", "generated_tokens"), ("query_tokens", "query_tokens")):
        total = sum(pair.steps[column] for pair in pairs)
        assert sum(pair.row[name] for pair in pairs) == pytest.approx(total, rel=0.01)


def test_batch_context_and_blocks_of_steady_windows_are_the_rings(pairs: list[Pair]) -> None:
    for pair in filter(lambda pair: pair.steady, pairs):
        n, steps = pair.row["resolution_steps"], pair.steps["steps"]
        batch = pair.steps["requests"] / steps
        assert pair.row["requests"] / n == pytest.approx(batch, rel=0.02)
        low, high = pair.derived["batch"].low, pair.derived["batch"].high
        assert low is not None
        assert high is not None
        assert low <= batch <= high
        context = pair.steps["context_tokens"] / pair.steps["requests"]
        low, high = pair.derived["context"].low, pair.derived["context"].high
        assert low is not None
        assert high is not None
        assert low <= context <= high
        assert pair.derived["context"].value == pytest.approx(context, rel=0.1)
        assert pair.row["kv_blocks_used"] == pytest.approx(pair.steps["kv_blocks_used"] / steps, abs=2)


def test_busy_time_of_steady_windows_is_the_rings_and_the_time_between_steps(pairs: list[Pair]) -> None:
    for pair in filter(lambda pair: pair.steady, pairs):
        high_s = pair.derived["observed_s"].high
        # A step, since the page's steps of an interval are not quite the ring's.
        busy_s = pair.row["observed_s"] / pair.row["resolution_steps"]
        step_s = pair.steps["observed_s"] / pair.steps["steps"]
        assert step_s * 0.95 <= busy_s <= step_s * (1 + BETWEEN_STEPS_RATIO)
        assert high_s is not None
        assert pair.steps["observed_s"] <= high_s
