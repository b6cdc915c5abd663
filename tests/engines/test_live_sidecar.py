"""Sidecars beside a real vLLM: by its ring and by its metrics page alone, they see the same and find what is wrong."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import agreement
import pytest
from agreement import Follower, Stretch
from live_harness import ROOF, Load, Sidecar, Stream, firing, paused, quiet, sidecar
from server_harness import Server, running
from trace_files import are_those_of, once, rows

from rooflens.collector.trace.schema import steps_of
from rooflens.pipeline.recording import read_ring

pytestmark = pytest.mark.engine

FAST = ("--window", "3", "--scrape-period", "1")
FLAGS = ("--block-size", "32", "--max-num-seqs", "16", "--max-num-batched-tokens", "512")
ROOMY = ("--num-gpu-blocks-override", "1024")
LATE_S = (
    0.5  # from a step's output to its place on the page, at worst: a busy API server on two cores shared with others
)
SEEN_S = 60  # two windows of three seconds, on a machine that others use as well


@dataclass
class Watched:
    """A server, and two sidecars that watch it: one by its ring, which keeps a trace, one by its page alone."""

    server: Server
    ring: Sidecar
    page: Sidecar
    trace: Path

    def both(self, what: Any, limit_s: float = SEEN_S) -> tuple[Any, Any]:
        """What becomes true of the ring's sidecar, and of the page's."""
        deadline = time.monotonic() + limit_s
        first = self.ring.until(what, limit_s)
        return first, self.page.until(what, max(0.0, deadline - time.monotonic()))


@contextmanager
def watched(folder: Path, *flags: str) -> Iterator[Watched]:
    """A server with these flags and the hook, and both sidecars, up."""
    roof, model = folder / "roof.toml", folder / "model" / "config.json"
    roof.write_text(ROOF)
    options = (*FAST, "--hardware", str(roof), "--model", str(model))
    with ExitStack() as stack:
        server = stack.enter_context(running(folder, *FLAGS, *flags))
        page = f"http://127.0.0.1:{server.port}/metrics"
        trace = ("--trace", str(folder / "trace"), "--trace-period", "1")
        ring = stack.enter_context(sidecar(folder, "ring", *options, *trace, rings=server.rings))
        scraped = stack.enter_context(sidecar(folder, "page", *options, "--scrape", page))
        yield Watched(server, ring, scraped, folder / "trace")


def why(found: Watched) -> str:
    """What both say, for the message of a failed assertion."""
    said = {}
    for name, one in (("ring", found.ring), ("page", found.page)):
        findings = one.findings().values()
        said[name] = [f"{f['code']} {f['status']}: {f['summary']}" for f in findings]
        engine = one.engine()
        said[name] += [json.dumps(engine["windows"][-1])] if engine and engine["windows"] else ["no window"]
    return json.dumps(said, indent=1)


def fired(finding: dict[str, Any]) -> dict[str, Any]:
    """The finding, whole: with evidence, a remedy and a page to read."""
    assert finding["status"] == "firing"
    assert finding["evidence"]
    assert finding["remedy"]
    assert finding["runbook"] == f"docs/findings.md#{finding['code']}"
    return finding


@pytest.fixture(scope="class")
def found(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """One launch for all the tests of a class."""
    with watched(tmp_path_factory.mktemp("live"), *ROOMY) as one:
        yield one


@pytest.fixture(scope="class")
def steady(found: Watched) -> list[Stretch]:
    """The rows of the page while eight streams only decoded, each with the ring's steps in the same time."""
    followers = [Follower(found.ring), Follower(found.page)]
    load = Load(found.server, [Stream(64 + 37 * number, 750) for number in range(8)])
    load.wait(240)
    time.sleep(2.0)  # the last second reaches the page, and the page its reader
    steps, rows = (follower.end() for follower in followers)
    alike = [row for row in rows if row["requests"] == 8 * row["resolution_steps"] and not row["prefill_tokens"]]
    assert {row["kind"] for row in alike} == {"decode"}
    assert len(alike) >= 8, [(row["kind"], row["requests"], row["resolution_steps"]) for row in rows]
    return agreement.stretches(alike, steps, followers[1])


class TestOneServer:
    def test_both_see_one_engine_and_say_how(self, found: Watched, steady: list[Stretch]) -> None:
        ring, page = found.ring.engine(), found.page.engine()
        assert ring is not None
        assert page is not None
        assert [one["source"] for one in (ring, page)] == ["ring", "metrics"]
        assert [one["model_name"] for one in (ring, page)] == ["m", "m"]
        assert [one["engine"] for one in (ring, page)] == ["0", "0"]
        assert ring["facts"]["kv_blocks"] == page["facts"]["kv_blocks"] == 1023
        assert ring["problem"] is page["problem"] is None

    def test_the_trace_is_the_ring(self, found: Watched, steady: list[Stretch]) -> None:
        (path,) = found.server.rings.glob("*.ring")
        ring = read_ring(path).steps
        last = int(ring["sequence"][-1])
        found.ring.until(lambda _: int(steps_of(rows(found.trace))["sequence"].max()) >= last, SEEN_S)
        table = rows(found.trace)
        steps = once(table)
        steps = steps.take(steps["sequence"] <= last)
        assert len(steps) > 750
        are_those_of(steps, ring.take(ring["sequence"] >= steps["sequence"][0]))
        assert table.column("floor_s").drop_null()
        assert table.column("keyframe_contexts").drop_null()

    def test_counters_lose_nothing(self, steady: list[Stretch]) -> None:
        """A page is behind the engine by as long as its server is busy, which shifts steps from row to row."""
        ring, page = agreement.both(steady)
        print(agreement.table("8 streams, decode", ring, page))
        assert ring.batch == page.batch == 8
        at_the_edges = 2 * LATE_S / ring.step_s * _runs(steady)
        assert abs(ring.steps - page.steps) <= at_the_edges
        assert abs(ring.tokens_per_s - page.tokens_per_s) * sum(one.seconds for one in steady) <= 8 * at_the_edges

    def test_context_and_kv_agree_within_their_bounds(self, steady: list[Stretch]) -> None:
        ring, page = agreement.both(steady)
        late_tokens = LATE_S / ring.step_s
        # Half a block a sequence is taken to be empty: wrong by at most half a block of 32 tokens, of hundreds.
        assert abs(page.context_tokens - ring.context_tokens) <= 16 + 1 + late_tokens
        assert abs(page.kv_blocks - ring.kv_blocks) <= 8 * (1 + late_tokens / 32)
        bounded = 0
        for one in steady:
            context = one.derived.get("context")
            if context is None or context["low"] is None or not one.inside:
                continue
            inside = agreement.figures(one.inside, one.seconds)
            assert context["low"] - late_tokens <= inside.context_tokens <= context["high"] + late_tokens
            assert context["derivation"]
            bounded += 1
        assert bounded

    def test_step_time_and_mbu_agree_but_for_the_time_between_steps(self, steady: list[Stretch]) -> None:
        """The page knows the time from token to token, the ring the busy time within it."""
        ring, page = agreement.both(steady)
        whole_s = sum(one.seconds for one in steady)
        between = 1 - ring.step_s * ring.steps / whole_s
        print(f"time between steps: {between:.1%}")
        assert ring.step_s * 0.95 <= page.step_s <= ring.step_s / (1 - between) * 1.05
        assert page.mbu == pytest.approx(ring.mbu * ring.step_s / page.step_s, rel=0.05)
        assert 0.001 < page.mbu < 1

    def test_totals_and_windows_agree(self, found: Watched, steady: list[Stretch]) -> None:
        names = ("rooflens_tokens_total", "rooflens_requests_finished_total")
        ring, page = (_samples(one.text("/metrics"), names) for one in (found.ring, found.page))
        for labels in ('kind="generated"', 'kind="prefill"', 'kind="recomputed"'):
            picked = [sum(v for k, v in one.items() if labels in k) for one in (ring, page)]
            assert picked[0] == picked[1], labels
        assert [sum(v for k, v in one.items() if "finished" in k) for one in (ring, page)] == [8, 8]

    def test_long_prompts_stall_the_decodes(self, found: Watched, steady: list[Stretch]) -> None:
        """Pauses between the prompts: a page tells what they cost only by intervals without any."""
        streams = [Stream(64, 1900) for _ in range(6)] + [Stream(1800, 2, rounds=100, pause_s=2.5)]
        load = Load(found.server, streams)
        ring = found.ring.until(firing("prefill_interference"), SEEN_S)
        page = found.page.until(firing("prefill_interference"), 8)
        said = found.page.findings().get("prefill_interference")
        load.hang_up()
        assert ring, why(found)
        assert "--max-num-batched-tokens" in fired(ring)["remedy"]
        assert ring["price"]["saved_s"] > 0
        if page:
            fired(page)
        elif said and said["status"] == "cannot_tell":
            assert said["missing"]
        print("by the page alone:", (page or said or {"summary": "nothing"})["summary"])

    def test_a_process_that_stands_still_is_seen_and_forgotten(self, found: Watched, steady: list[Stretch]) -> None:
        load = Load(found.server, [Stream(64, 600) for _ in range(4)])
        moving = found.both(lambda one: (one.engine() or {}).get("progress", {}).get("state") == "live")
        assert all(moving)
        time.sleep(3.0)
        assert found.ring.until(quiet("engine_stalled"), 10)
        with paused(found.server.engine_pids()):
            ring, page = found.both(firing("engine_stalled"), 40)
        assert ring, why(found)
        assert page, why(found)
        assert all(found.both(quiet("engine_stalled"), 30)), why(found)
        load.wait(120)
        assert (fired(ring)["severity"], fired(page)["severity"]) == ("critical", "warning"), "it may be a long prompt"
        for one in (found.ring, found.page):
            raised = _samples(one.text("/metrics"), ("rooflens_findings_total",))
            assert [v for k, v in raised.items() if '"engine_stalled"' in k] == [1.0]


def test_a_pool_that_is_too_small(tmp_path: Path) -> None:
    flags = ("--num-gpu-blocks-override", "24", "--max-model-len", "640")
    with watched(tmp_path, *flags) as found:
        load = Load(found.server, [Stream(100, 300, rounds=50) for _ in range(8)])
        ring, page = found.both(firing("kv_pressure"))
        assert ring, why(found)
        assert page, why(found)
        load.hang_up()
    for finding in (ring, page):
        assert "--gpu-memory-utilization" in fired(finding)["remedy"]
        evidence = {fact["name"]: fact["value"] for fact in finding["evidence"]}
        assert evidence["kv_blocks"] == 23
        assert evidence["preempted_requests"] + evidence["requests_waiting_mean"] > 0


def test_a_cap_of_one_sequence_with_a_queue(tmp_path: Path) -> None:
    with watched(tmp_path, *ROOMY, "--max-num-seqs", "1") as found:
        load = Load(found.server, [Stream(64, 200, rounds=50) for _ in range(6)])
        ring, page = found.both(firing("missed_batching"))
        assert ring, why(found)
        assert page, why(found)
        load.hang_up()
    for finding in (ring, page):
        assert fired(finding)["remedy"].startswith("--max-num-seqs 6"), finding["remedy"]
        assert finding["price"]["saved_s"] > 0
        evidence = {fact["name"]: fact["value"] for fact in finding["evidence"]}
        assert evidence["batch_mean"] == pytest.approx(1, abs=0.1)


def _runs(found: list[Stretch]) -> int:
    """How many stretches without a gap these are: each has two edges."""
    gaps = [
        later.row["submit_monotonic_s"] > earlier.row["output_monotonic_s"] + 1e-6 for earlier, later in pairwise(found)
    ]
    return 1 + sum(gaps)


def _samples(page: str, names: tuple[str, ...]) -> dict[str, float]:
    """The samples of these names, by name and labels."""
    rows = (line.rsplit(" ", 1) for line in page.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, value in rows if name.startswith(names)}
