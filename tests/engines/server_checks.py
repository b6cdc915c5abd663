"""A run of vLLM's API server under load, killed in the end, and the checks of its ring against the server's words."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from compare import ring_terms
from server_harness import Server, running

from rooflens.collector.ring_source import RingSource
from rooflens.protocols import Batch

WORDS = [11, 12, 13, 14]  # few tokens, sampled at random: n-grams recur, and most drafts are wrong
REQUESTS = 64
FLAGS = (
    "--num-gpu-blocks-override", "40", "--block-size", "32", "--max-num-seqs", "16", "--max-num-batched-tokens", "128",
    "--max-model-len", "640", "--enable-prefix-caching", "--enable-logging-iteration-details",
)  # fmt: skip
NGRAMS = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 2, "prompt_lookup_min": 1}
DRAFTS = ("--speculative-config", json.dumps(NGRAMS))
ITERATION = re.compile(
    r"Iteration\((\d+)\): (\d+) context requests, (\d+) context tokens, (\d+) generation requests, "
    r"(\d+) generation tokens, iteration elapsed time: ([\d.]+) ms(?:, CPU KV cache usage: ([\d.]+)%)?"
)


@dataclass
class Run:
    """What was seen of one server: by its clients, in its metrics and log, and in its ring."""

    hits: str = "vllm:prefix_cache_hits_total"
    usages: list[dict[str, Any]] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)
    log: str = ""
    batch: Batch | None = None
    doubted: int = 0
    after_kill: Batch | None = None
    analysis: subprocess.CompletedProcess[str] | None = None
    live_after_kill: bool = True
    committed_at_kill: int = 0

    @property
    def steps(self) -> Any:
        """The StepTable of the run."""
        assert self.batch is not None
        return self.batch.steps

    def logged(self) -> list[tuple[float, ...]]:
        """The iteration log, in order of its own index; up to 0.18 it ends with the time, later with the KV usage."""
        return sorted({tuple(float(one) for one in found if one) for found in ITERATION.findall(self.log)})

    def iterations(self) -> list[tuple[float, ...]]:
        """Those that had requests; older releases log the empty turn after an abort too, which is no step."""
        return [row for row in self.logged() if row[1] or row[3]]


def _load(server: Server, run: Run) -> None:
    rng = random.Random(1)
    shared = [rng.choice(WORDS) for _ in range(64)]
    plans = []
    for number in range(REQUESTS):
        own = [rng.choice(WORDS) for _ in range(rng.randrange(5, 200))]
        plans.append(((shared if number % 2 else []) + own, rng.randrange(5, 60)))

    def one(prompt: list[int], most: int) -> None:
        run.usages.append(server.complete(prompt, most, temperature=1.0, allowed_token_ids=WORDS))

    leaver = threading.Thread(target=server.abandon, args=([3] * 300, 300, 6.0))
    leaver.start()
    time.sleep(3.0)
    threads = [threading.Thread(target=one, args=plan) for plan in plans]
    for thread in threads:
        thread.start()
    for thread in [*threads, leaver]:
        thread.join()
    time.sleep(1.0)


def _kill_mid_run(server: Server, run: Run, ring: Path) -> None:
    def doomed() -> None:
        with contextlib.suppress(Exception):
            server.complete([5] * 50, 500)

    for _ in range(6):
        threading.Thread(target=doomed, daemon=True).start()
    source = RingSource(ring)
    before = source.file.state().sequence
    deadline = time.monotonic() + 60
    while source.file.state().sequence < before + 20 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert source.file.live()
    for pid in server.engine_pids():
        os.kill(pid, signal.SIGKILL)
    time.sleep(1.0)
    run.committed_at_kill = source.file.state().sequence
    run.live_after_kill = source.file.live()
    run.after_kill = source.read()
    source.close()
    command = [sys.executable, "-m", "rooflens", "analyze", str(ring), "--json"]
    run.analysis = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def observe(folder: Path, *flags: str, python: str = sys.executable, environment: dict[str, str] | None = None) -> Run:
    """Start a server with this Python, put it under load, read what it and its ring say, kill it and read again."""
    seen = Run()
    with running(folder, *FLAGS, *flags, python=python, environment=environment) as server:
        _load(server, seen)
        seen.metrics = server.metrics()
        (ring,) = server.rings.glob("*.ring")
        source = RingSource(ring)
        seen.batch, seen.doubted = source.read(), source.doubted_frames
        source.close()
        seen.log = server.log.read_text(errors="replace")
        _kill_mid_run(server, seen, ring)
    return seen


def check_every_iteration_is_there_in_order(run: Run) -> None:
    assert run.batch is not None
    assert (run.batch.lost_steps, run.batch.torn_steps, run.doubted) == (0, 0, 0)
    assert np.all(np.diff(run.steps["sequence"]) >= 1)
    logged = run.logged()
    assert [int(row[0]) for row in logged] == list(range(len(logged)))
    assert len(run.iterations()) == len(run.steps)


def check_each_step_has_the_requests_and_tokens_of_the_iteration_log(run: Run) -> None:
    logged = np.array(run.iterations())
    assert np.array_equal(logged[:, 1] + logged[:, 3], run.steps["requests"])
    assert np.array_equal(logged[:, 2] + logged[:, 4], run.steps["query_tokens"])


def check_kv_blocks_agree_with_the_server_in_every_step(run: Run) -> None:
    assert run.batch is not None
    assert run.batch.info is not None
    usage = run.steps["kv_blocks_used"] / run.batch.info.kv_blocks * 100
    assert np.max(np.abs(usage - np.array(run.iterations())[:, 6])) <= 0.0500001


def check_kv_blocks_agree_with_the_metrics_at_the_end(run: Run) -> None:
    assert run.metrics["vllm:kv_cache_usage_perc"] == 0.0 == float(run.steps["kv_blocks_used"][-1])
    assert int(run.steps["kv_blocks_used"].max()) > 30


def check_times_agree_with_the_iteration_log(run: Run) -> None:
    # vLLM times from after execute_model() was called until the tokens are there; the ring from the same submit on.
    logged_s = np.array(run.iterations())[:, 5] / 1e3
    mine_s = run.steps["executor_s"] + run.steps["wait_s"]
    excess = mine_s - logged_s
    assert float(np.min(excess)) >= -1e-4
    assert float(np.median(excess)) <= max(2e-3, 0.1 * float(np.median(logged_s)))


def check_no_step_took_less_than_the_iteration_log_says(run: Run) -> None:
    assert np.all(run.steps["observed_s"] >= np.array(run.iterations())[:, 5] / 1e3 - 1e-4)


def check_the_identity_is_exact_and_its_terms_are_the_servers(run: Run) -> None:
    terms = ring_terms(run.batch)  # type: ignore[arg-type]
    prompts = sum(usage["prompt_tokens"] for usage in run.usages)
    answers = sum(usage["completion_tokens"] for usage in run.usages)
    new = int(run.steps["new_requests"].sum())
    assert len(run.usages) == REQUESTS
    assert new == REQUESTS + 1, "the abandoned request had begun"
    assert terms["prompt"] == prompts + 300
    first_tokens = REQUESTS + (terms["generated"] > answers)  # the abandoned one may not have come that far
    assert terms["generated"] >= answers
    # The API server drops the token that was under way when the client of the abandoned request hung up.
    assert 0 <= terms["generated"] - run.metrics["vllm:generation_tokens_total"] <= 1
    assert terms["hits_local"] == run.metrics[run.hits] > 0
    assert terms["preempted"] == run.metrics["vllm:num_preemptions_total"] > 0
    assert terms["recomputed"] > 0
    made = terms["prompt"] - terms["unprefilled"] - terms["hits_local"] + terms["generated"] - first_tokens
    assert terms["query"] == made + terms["recomputed"] + terms["rejected"] + terms["discarded"]
    assert int((run.steps["prefill_requests"] > 0).sum()) > int(run.steps["new_requests"].astype(bool).sum())


def check_drafts_are_the_servers(run: Run) -> None:
    terms = ring_terms(run.batch)  # type: ignore[arg-type]
    assert terms["drafted"] == run.metrics["vllm:spec_decode_num_draft_tokens_total"] > 100
    accepted = int(run.steps["accepted_tokens"].sum())
    assert accepted == run.metrics["vllm:spec_decode_num_accepted_tokens_total"]
    assert terms["rejected"] > 100


def check_nothing_but_lengths_and_counts_is_in_the_ring(run: Run) -> None:
    assert run.batch is not None
    told = json.dumps(run.batch.info.to_json() if run.batch.info else {})
    assert "/" not in told.replace("\\/", "/"), "a path"
    assert "cmpl-" not in told


def check_a_killed_engine_is_read_to_its_last_step(run: Run) -> None:
    assert run.after_kill is not None
    assert not run.live_after_kill
    assert int(run.after_kill.steps["sequence"][-1]) == run.committed_at_kill
    assert (run.after_kill.lost_steps, run.after_kill.torn_steps) == (0, 0)
    assert len(run.after_kill.steps) >= len(run.steps) + 20
    assert run.analysis is not None
    assert run.analysis.returncode == 0, run.analysis.stderr
    assert json.loads(run.analysis.stdout)


def check_the_server_said_one_thing_about_us(run: Run) -> None:
    said = [line for line in run.log.splitlines() if "rooflens" in line.lower() and "WARNING" in line]
    assert said == []
