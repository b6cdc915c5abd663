"""A metrics page that was saved to a file: what each engine on it says of that moment. One page tells no rates."""

from __future__ import annotations

import gzip
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rooflens.adapters.scrape.fetch import Page
from rooflens.adapters.scrape.names import wanted_names
from rooflens.adapters.scrape.page_source import MetricsPage
from rooflens.adapters.scrape.text import read_samples
from rooflens.cli.output import one_line
from rooflens.cli.recorded import GZIP, Asked
from rooflens.cli.recorded.log_text import engine_text
from rooflens.cli.units import aligned, seconds_text
from rooflens.live_records import Progress
from rooflens.protocols import Batch
from rooflens.records import RooflensError

FORMAT = "metrics-page"
MOST_BYTES = 64 << 20
NO_ADDRESS = "http://127.0.0.1/metrics"  # of nobody: nothing is fetched
NO_RATES = "rates     not told by one page: its counters hold the engine's whole life; --scrape reads it as it changes"


def is_mine(head: str) -> bool:
    """Whether series of an engine stand in it, or the words that announce them."""
    if "# TYPE " not in head and "{" not in head and "\n" not in head.strip():
        return False
    found = read_samples(head, wanted_names())
    return bool(found.samples or found.announced)


def report(path: Path, asked: Asked) -> tuple[dict[str, Any], str]:
    """What each engine of the page holds; RooflensError in one line where it tells of none."""
    page = MetricsPage(NO_ADDRESS)
    saved_unix_s = path.stat().st_mtime
    page.take(Page(_text_of(path)), saved_unix_s, time.monotonic())
    batches = page.read()
    if not batches:
        why = (page.problem or "no engine's metrics are on it").replace(page.name, "the page")
        raise RooflensError(f"{path}: {why}")
    complaints = dict.fromkeys(line for batch in batches for line in batch.complaints)
    data = {
        "format": FORMAT,
        "file": str(path),
        "saved_unix_s": saved_unix_s,
        "complaints": list(complaints),
        "engines": [
            {"engine": batch.info.to_json() if batch.info else None} | _now(batch.progress) for batch in batches
        ],
    }
    lines = [f"page      {path}; {len(batches):,} engine{'s' if len(batches) > 1 else ''}"]
    for batch in batches:
        lines += ["", *_engine(batch)]
    lines += ["", NO_RATES, *(f"warning   {line}" for line in complaints)]
    return data, "\n".join(map(one_line, lines))


def _text_of(path: Path) -> str:
    try:
        with path.open("rb") as opened:
            packed = opened.read(2) == GZIP
        with gzip.open(path, "rb") if packed else path.open("rb") as opened:
            return opened.read(MOST_BYTES).decode("utf-8", "replace")
    except (OSError, EOFError) as error:
        raise RooflensError(f"{path}: {(getattr(error, 'strerror', None) or 'cannot be read').lower()}") from None


def _now(progress: Progress | None) -> dict[str, Any]:
    if progress is None:
        return {}
    load = asdict(progress.load) if progress.load else {}
    load.pop("monotonic_s", None)
    return {**load, "steps_made": progress.steps_made, "mean_step_s": progress.mean_step_s, "asleep": progress.asleep}


def _engine(batch: Batch) -> list[str]:
    lines = [f"engine    {engine_text(batch.info) if batch.info else 'an engine'}"]
    progress, info = batch.progress, batch.info
    rows: list[tuple[str, str]] = []
    if progress is not None and progress.load is not None:
        load = progress.load
        for label, value in (("running", load.running), ("waiting", load.waiting), ("deferred", load.deferred)):
            rows += [(f"{label} requests", f"{value:,.0f}")] if value is not None else []
        if load.kv_blocks_used is not None and info is not None and info.kv_blocks:
            rows.append(("KV cache used", f"{load.kv_blocks_used / info.kv_blocks:.1%}"))
    if progress is not None and progress.steps_made is not None:
        rows.append(("steps since it began", f"{progress.steps_made:,}"))
    if progress is not None and progress.mean_step_s is not None:
        rows.append(("mean time between tokens since it began", seconds_text(progress.mean_step_s)))
    return [*lines, *(aligned(rows) if rows else ["          it tells nothing of this moment"])]
