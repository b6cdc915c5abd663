"""One server read at two addresses is one engine, also where its page does not say when it started (MET-11)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from engine_pages import sglang
from scrape_pages import Site, page, serving

from rooflens.adapters.scrape.page_source import MetricsPage

LLAMA_CPP = Path(__file__).parents[1] / "data" / "llamacpp"
STEP = {"iter": 7, "iterLatencyMS": 20.0, "numActiveRequests": 8, "inflightBatchingStats": {"numGenRequests": 8}}
PAGES = {
    "vllm": page(started=None, running=1),
    "sglang": sglang(5),
    "llama.cpp": (LLAMA_CPP / "metrics_busy.txt").read_text(),
    "tgi": "tgi_batch_current_size 3\ntgi_queue_size 0\n",
    "tensorrt-llm": json.dumps([STEP]),
}


def run(url: str) -> str:
    """The engine that a page tells of, as others see it."""
    source = MetricsPage(url)
    assert source.fetch_once(), source.problem
    (batch,) = source.read()
    assert batch.info is not None
    return batch.info.instance


@pytest.mark.parametrize("engine", PAGES)
def test_however_its_address_is_spelled(engine: str) -> None:
    with serving(Site(PAGES[engine])) as url:
        port = url.rpartition(":")[2]
        spelled = [url, f"http://localhost:{port}", f"127.0.0.1:{port}/metrics"]
        assert len({run(each) for each in spelled}) == 1
        assert run(f"{url}/other/metrics") != run(url), "a proxy has several servers behind one port"
        assert run(f"{url}/metrics?model=a") != run(f"{url}/metrics?model=b"), "llama.cpp's router too"


def test_a_restart_is_another_run_at_both() -> None:
    site = Site()
    with serving(site) as url:
        sources = [MetricsPage(url), MetricsPage(url.replace("127.0.0.1", "localhost"))]
        told: list[list[str]] = [[], []]
        for name in ("busy", "idle"):
            site.page = (LLAMA_CPP / f"metrics_{name}.txt").read_text()
            for source, runs in zip(sources, told, strict=True):
                assert source.fetch_once(), source.problem
                runs += [batch.info.instance for batch in source.read() if batch.info is not None]
    assert told[0] == told[1]
    assert len(set(told[0])) == 2
