"""A page as a live source: a thread that fetches, failures and recovery, and read() that never waits."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from scrape_pages import DECODE_1, DECODE_2, Site, numbers, page, recorded, serving

from rooflens.adapters.scrape import page_source
from rooflens.adapters.scrape.fetch import Limits, Page
from rooflens.adapters.scrape.page_source import MetricsPage
from rooflens.live_records import State
from rooflens.protocols import Batch
from rooflens.records import RooflensError

PATIENCE_S = 20.0


def until(source: MetricsPage, holds: Callable[[list[Batch]], bool]) -> list[Batch]:
    """Read until the batches of one read satisfy ``holds``."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        batches = source.read()
        if holds(batches):
            return batches
        threading.Event().wait(0.01)
    raise AssertionError(f"did not come about: {source.state} {source.problem}")


def test_rows_come_by_themselves() -> None:
    site = Site(page(**DECODE_1))
    with serving(site) as url:
        source = MetricsPage(url, period_s=0.05)
        source.start()
        source.start()
        until(source, lambda batches: len(batches) == 1)
        site.page = page(**DECODE_2)
        (batch,) = until(source, lambda batches: any(len(batch.steps) for batch in batches))
        source.close()
    assert numbers(batch)["requests"] == 1000
    assert (source.state, source.problem, source.failures) == (State.LIVE, None, 0)
    assert source.last_read_unix_s is not None
    assert source.read_s is not None
    assert 0 < source.read_s < PATIENCE_S
    threads = [thread.name for thread in threading.enumerate()]
    assert not [name for name in threads if name == f"scrape {source.name}"]


def test_a_page_is_of_the_middle_of_its_fetch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A starved server answers late with what it knew early: the interval between two pages is not the one's delay."""
    now_s = 1_700_000_100.0

    def fetched(text: str, took_s: float) -> Page:
        nonlocal now_s
        now_s += took_s
        return Page(text)

    clock = SimpleNamespace(monotonic=lambda: now_s, time=lambda: now_s)
    monkeypatch.setattr(page_source, "time", clock)
    source = MetricsPage("http://engine:8000")
    for text, begin_s, took_s in ((page(**DECODE_1), 100.0, 2.0), (page(**DECODE_2), 105.0, 0.2)):
        now_s = 1_700_000_000.0 + begin_s
        monkeypatch.setattr(page_source, "fetch", lambda *_, text=text, took_s=took_s: fetched(text, took_s))
        assert source.fetch_once()
    row = numbers(source.read()[0])
    assert row["submit_monotonic_s"] == 1_700_000_101.0
    assert row["output_monotonic_s"] == pytest.approx(1_700_000_105.1)
    assert source.last_read_unix_s == pytest.approx(1_700_000_105.2)


def test_failure_is_said_in_one_line_and_recovery_is_seen() -> None:
    site = Site(page(**DECODE_1))
    with serving(site) as url:
        source = MetricsPage(url.replace("//", "//me:hush@"), period_s=0.05)
        source.start()
        until(source, lambda batches: len(batches) == 1)
        site.status = 503
        (batch,) = until(source, lambda _: source.state is State.UNREACHABLE)
        (batch,) = source.read()
        assert batch.progress is not None
        assert batch.progress.state is State.UNREACHABLE
        assert source.problem is not None
        assert source.problem.endswith("(503)")
        assert "hush" not in source.problem + source.name
        assert source.failures >= 1
        site.status, site.page = 200, page(**DECODE_2)
        (batch,) = until(source, lambda batches: any(len(batch.steps) for batch in batches))
        source.close()
    assert (source.state, source.problem) == (State.LIVE, None)
    assert all(b"Authorization: Basic bWU6aHVzaA==\r\n" in head for head in site.heads)


def test_pause_doubles_with_failures_up_to_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    class Stop(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            pauses.append(timeout or 0.0)
            if len(pauses) == 8:
                self.set()
            return self.is_set()

    source = MetricsPage("http://127.0.0.1:9")
    monkeypatch.setattr(source, "_stop", Stop())
    monkeypatch.setattr(page_source.random, "uniform", lambda *_: 0.0)
    monkeypatch.setattr(source, "fetch_once", lambda: False)
    source._run()
    assert [round(pause) for pause in pauses] == [10, 20, 40, 60, 60, 60, 60, 60]


def test_read_does_not_wait_for_a_server_that_hangs() -> None:
    asked, leave = threading.Event(), threading.Event()

    def hang(connection: socket.socket, _: bytes) -> None:
        asked.set()
        leave.wait(PATIENCE_S)

    with serving(hang) as url:
        source = MetricsPage(url, limits=Limits(silence_s=PATIENCE_S, total_s=PATIENCE_S))
        source.start()
        assert asked.wait(PATIENCE_S)
        assert source.read() == []
        assert source.state is State.UNREACHABLE
        assert source.problem == "not read yet"
        leave.set()
        source.close()


@pytest.mark.parametrize(
    ("text", "words", "state"),
    [
        ("<html>Sign in</html>\n", "not with the metrics of an engine", State.UNREACHABLE),
        ("", "not with the metrics of an engine", State.UNREACHABLE),
        ("# TYPE vllm:num_requests_running gauge\n", "has no value yet", State.LIVE),
        ("# HELP process_start_time_seconds x\n", "not with the metrics of an engine", State.UNREACHABLE),
        ('vllm:num_preemptions_total{model_name="x"} 0.0\n', "names vLLM's metrics and has no value", State.LIVE),
        (page(model="x" * 9000), "none that can be read: vllm:num_requests_running: 1 lines with labels", State.LIVE),
    ],
)
def test_page_without_an_engine_is_a_problem_and_no_failure(text: str, words: str, state: State) -> None:
    with serving(Site(text)) as url:
        source = MetricsPage(url)
        assert source.fetch_once()
    assert source.problem is not None
    assert words in source.problem
    assert (source.read(), source.failures, source.state) == ([], 0, state)


def test_a_fault_of_ours_does_not_end_the_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("secret detail")

    with serving(Site(page())) as url:
        source = MetricsPage(url)
        monkeypatch.setattr(page_source, "read_page", broken)
        assert not source.fetch_once()
    assert source.problem == f"{source.name} could not be understood (ZeroDivisionError): please report it"


def test_data_parallel_page_has_one_batch_for_each_engine() -> None:
    text, _ = recorded("vllm-0.32-dp2-decode2")
    with serving(Site(text)) as url:
        source = MetricsPage(url, model_config={"model_type": "llama"}, weight_dtype="bfloat16", tensor_parallel=2)
        assert source.fetch_once()
    infos = [batch.info for batch in source.read() if batch.info]
    assert [(info.model_name, info.rank, info.data_parallel, info.tensor_parallel) for info in infos] == [
        ("m", 0, 2, 2), ("m", 1, 2, 2),
    ]  # fmt: skip
    assert {info.weight_dtype for info in infos} == {"bfloat16"}
    assert all(info.model_config == {"model_type": "llama"} and info.engine_version is None for info in infos)


def test_url_that_cannot_be_fetched_is_refused_at_once() -> None:
    with pytest.raises(RooflensError, match="only http and https"):
        MetricsPage("file:///etc/passwd")
