"""What a watched page that tells no contexts says of its floor."""

from __future__ import annotations

import time
from collections.abc import Callable

from made_engine import CONFIG
from pipeline.made_pages import URL, Site

from rooflens.adapters.scrape.fetch import Page
from rooflens.pipeline.watch import Watch


def test_a_page_without_contexts_says_so_in_words(watch: Callable[..., Watch], site: Site) -> None:
    it = watch(scrape_urls=(URL,), model_config=CONFIG)
    for passes in (100, 200, 300):
        values = {"requests_processing": 4, "n_decode_total": passes, "n_busy_slots_per_decode": 4,
                  "tokens_predicted_total": 4 * passes, "prompt_tokens_total": 40}  # fmt: skip
        text = "".join(f"llamacpp:{name} {value}\n" for name, value in values.items())
        site.pages[0].take(Page(text), time.time(), time.monotonic())
        site.pages[0].last_read_unix_s = time.time()
        snapshot = it.turn()
        time.sleep(0.02)
    (view,) = snapshot.engines
    assert view.problem == (
        "llama.cpp's page tells no contexts, so there is no floor: its log tells them of each request (--log FILE)"
    )
