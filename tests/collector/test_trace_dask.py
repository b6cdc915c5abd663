"""A scheduler and two workers, processes of their own over TCP, give the same table; one may be killed midway."""

from __future__ import annotations

import gc
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from made_traces import facts_of, made_table, written

from rooflens.collector.trace import dask_cells
from rooflens.collector.trace.cells import cells_of
from rooflens.collector.trace.dask_cells import cells_on
from rooflens.collector.trace.files import TraceFiles, find_trace
from rooflens.records import RooflensError
from rooflens.trace_records import Cells, TraceFilter

ALL = TraceFilter()
SCHEDULER = ("distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard")
WORKER = ("distributed.cli.dask_worker", "--no-nanny", "--nthreads", "1", "--no-dashboard", "--host", "127.0.0.1")
WAIT_S = 30.0


def started(folder: Path, name: str, command: tuple[str, ...]) -> tuple[subprocess.Popen[bytes], Path]:
    log = folder / f"{name}.log"
    with log.open("wb") as stream:
        call = [sys.executable, "-W", "ignore", "-m", *command]
        return subprocess.Popen(call, stdout=stream, stderr=subprocess.STDOUT, cwd=folder), log


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    folder = tmp_path_factory.mktemp("dask")
    scheduler, log = started(folder, "scheduler", SCHEDULER)
    processes = [scheduler]
    try:
        end = time.monotonic() + WAIT_S
        while not (found := re.search(r"tcp://127\.0\.0\.1:\d+", log.read_text())):
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.05)
        workers = [started(folder, f"worker{number}", (*WORKER, found[0]))[0] for number in range(2)]
        processes += workers
        yield found[0], workers
    finally:
        for process in processes:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TraceFiles:
    folder = tmp_path_factory.mktemp("trace")
    for number in range(12):
        facts = facts_of(str(number % 3))
        table = made_table(facts, 200, number // 3)
        sequence = pa.array(np.arange(200) + 1000 * number)
        written(folder, table.set_column(2, "sequence", sequence), facts, f"{number:02}-a")
    return find_trace([str(folder)], ALL)


@pytest.fixture(autouse=True)
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rooflens.collector.trace.partials.GROUP_ROWS", 300)


def assert_same(one: Cells, other: Cells) -> None:
    assert (one.width_s, one.engines, one.facts, one.files, one.problems) == (
        other.width_s, other.engines, other.facts, other.files, other.problems)  # fmt: skip
    for name, column in one.columns.items():
        assert np.array_equal(column, other.columns[name], equal_nan=True), name
    for name, counts in one.histogram.items():
        assert np.array_equal(counts, other.histogram[name]), name


def test_workers_give_the_same_table_and_one_may_be_killed(
    cluster: tuple[str, list[subprocess.Popen[bytes]]], files: TraceFiles
) -> None:
    address, workers = cluster
    here = cells_of(files, ALL, 60.0)
    assert_same(here, cells_on(address, files, ALL, 60.0))
    killed = []

    def kill(words: str, ratio: float) -> None:
        if ratio > 0.2 and not killed:
            os.kill(workers[0].pid, signal.SIGKILL)
            killed.append(workers[0].wait())

    assert_same(here, cells_on(address, files, ALL, 60.0, kill))
    assert killed == [-signal.SIGKILL]


def test_workers_of_another_version_are_refused(
    cluster: tuple[str, list[subprocess.Popen[bytes]]], files: TraceFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dask_cells, "versions", lambda: ("0.0.1", "0.9"))
    with pytest.raises(RooflensError, match=r"here are 0\.0\.1 and 0\.9: install the same on both"):
        cells_on(cluster[0], files, ALL, 60.0)


def test_without_any_worker_left_it_ends_in_one_line(
    cluster: tuple[str, list[subprocess.Popen[bytes]]], files: TraceFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dask_cells, "ANSWER_S", 0.5)
    address, workers = cluster

    def kill(words: str, ratio: float) -> None:
        for worker in workers:
            worker.kill()

    with pytest.raises(RooflensError, match="the last worker went away"):
        cells_on(address, files, ALL, 60.0, kill)
    with pytest.raises(RooflensError, match="the scheduler has no workers"):
        cells_on(address, files, ALL, 60.0)


def test_a_scheduler_that_does_not_answer_is_one_line(files: TraceFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_cells, "ANSWER_S", 0.5)
    with pytest.raises(RooflensError, match="no scheduler answers") as said:
        cells_on("tcp://127.0.0.1:1", files, ALL, 60.0)
    assert "\n" not in str(said.value)


@pytest.mark.parametrize("address", ["nonsense", "tcp://", "quic://127.0.0.1:5", "tcp://127.0.0.1", "tcp://a b:1", ""])
def test_what_is_no_address_is_one_line(address: str, files: TraceFiles) -> None:
    with pytest.raises(RooflensError, match="no address of a scheduler"):
        cells_on(address, files, ALL, 60.0)


def test_without_dask_the_extra_is_named(files: TraceFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    missing: dict[str, Any] = {"distributed": None}
    for name, module in missing.items():
        monkeypatch.setitem(sys.modules, name, module)
    with pytest.raises(RooflensError, match=r"pip install 'rooflens\[trace,fleet\]'"):
        cells_on("tcp://127.0.0.1:1", files, ALL, 60.0)


def test_an_address_where_nobody_speaks_is_one_line(files: TraceFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_cells, "ANSWER_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"tcp://127.0.0.1:{listening.getsockname()[1]}"
        with pytest.raises(RooflensError, match=rf"--dask {address}: no scheduler answers \(nothing is said within"):
            cells_on(address, files, ALL)
    with pytest.raises(RooflensError, match=r"no scheduler answers \(connection refused\)"):
        cells_on(address, files, ALL)


def test_a_client_that_cannot_be_made_leaves_no_noise(files: TraceFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would close itself when it is collected, wait for that, and print a traceback."""
    noise: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", noise.append)
    with pytest.raises(RooflensError, match="no scheduler answers"):
        cells_on("tls://127.0.0.1:1", files, ALL)
    gc.collect()
    assert noise == []
