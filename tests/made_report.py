"""Objects of `rooflens analyze --json` for tests of the report: recorded ones, a large one, and a hostile one."""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import tempfile
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from recorded_trace import OPTIONS, made_trace

from rooflens.cli import main

Found = list[dict[str, Any]]
START_UNIX_S = 1_796_040_000.0
HOSTILE = (
    "</script><img src=x onerror=\"document.title='owned'\">",
    "<svg onload=alert(1)>",
    "'\"><script>alert(1)</script>",
    "]]><!--",
    "\u2028\u2029\u202e</style>",
    "=HYPERLINK(1)",
)


def analysed(*words: str) -> Found:
    """What `rooflens analyze --json` prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert main(["analyze", *words, "--json"]) == 0
    found: Found = json.loads(out.getvalue())
    return found


def recorded(folder: Path | None = None) -> Found:
    """The trace of the recorded rings, with its finding, a price and a what-if; run where it is a folder."""
    before = os.getcwd()
    with contextlib.ExitStack() as stack:
        place = folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        made_trace(place)
        os.chdir(place)
        try:
            return analysed(*OPTIONS["trace"])
        finally:
            os.chdir(before)


def _text_of(engine: int) -> str:
    return f"llama-3-70b/{engine}@node-{engine // 8:02}"


def large(found: Found, engines: int = 100, windows: int = 400) -> Found:
    """The recorded report with as many engines and windows, one of them slow in the middle."""
    history = dict(found[0]["history"])
    width_s, each = 10.0, dict(history["time_line"][0])
    first = round(START_UNIX_S / width_s)
    history |= {"window_s": width_s, "from_unix_s": START_UNIX_S, "to_unix_s": START_UNIX_S + windows * width_s}
    history |= {"span_s": windows * width_s, "engines_known": engines, "hosts": [f"node-{n}" for n in range(13)]}
    history["time_line"] = [
        each | {"start_unix_s": START_UNIX_S + at * width_s, "seconds": width_s, "steps": 1000,
                "step_mean_s": 0.02 + 0.004 * math.sin(at / 20), "slowdown": 1.3 + 0.2 * math.sin(at / 20)}
        for at in range(windows)
    ]  # fmt: skip
    rows = [(engine, at) for engine in range(engines) for at in range(windows)]
    slow = [2.4 if engine == 7 and 150 <= at < 220 else 1.2 + 0.1 * math.sin(engine + at / 30) for engine, at in rows]
    history["engine_windows"] = {
        "engine": [engine for engine, _ in rows], "window": [first + at for _, at in rows],
        "steps": [400 + engine for engine, _ in rows], "observed_s": [8.0] * len(rows), "slowdown": slow,
        "tokens_per_s": [800.0] * len(rows), "wasted_device_s": [8 - 8 / value for value in slow],
        "batch": [20.0] * len(rows), "step_mean_s": [0.015 * value for value in slow],
    }  # fmt: skip
    history["engines"] = [
        history["engines"][0] | {"label": _text_of(n), "engine": str(n), "wasted_device_s": 900.0 - n}
        for n in range(engines)
    ]
    history["cost"] = history["cost"] | {"wasted_device_s": sum(900.0 - n for n in range(engines))}
    at = START_UNIX_S + 1700.0
    history["worst_windows"] = [
        history["worst_windows"][0] | {"engine": _text_of(7), "start_unix_s": at + 10 * n, "seconds": width_s}
        for n in range(10)
    ]
    history["change_points"] = [
        {"engine": _text_of(7), "at_unix_s": at - 200, "from_unix_s": at - 210, "to_unix_s": at - 190,
         "regimes": ["decode batch 16-31 context 256+"], "factor": 1.9, "factor_low": 1.85, "factor_high": 1.95,
         "confidence": 0.9999, "cost_device_s": 310.0, "text": "decode at batch 16 to 31 took 90% longer"}
    ]  # fmt: skip
    history["findings"] = [
        history["findings"][0] | {"engine": _text_of(7), "unix_s": at - 150, "until_unix_s": at + 400}
    ]
    history["events"] = []
    return [found[0] | {"history": history, "places": ["s3://key:secret@bucket/fleet?X-Signature=abc"]}]


def hostile(found: Found) -> Found:
    """The recorded report in which every word that a recording may choose tries to become an element."""
    turn = iter(range(1_000_000))

    def spoil(value: Any, key: str = "") -> Any:
        if isinstance(value, str) and key not in ("format", "waste_basis", "basis", "status"):
            return HOSTILE[next(turn) % len(HOSTILE)]
        if isinstance(value, dict):
            return {name: spoil(each, name) for name, each in value.items()}
        return [spoil(each, key) for each in value] if isinstance(value, list) else value

    spoilt: Found = [spoil(found[0])]
    for number, engine in enumerate(spoilt[0]["history"]["engines"]):
        engine["label"] = HOSTILE[number % len(HOSTILE)]
    return spoilt


class _Text(HTMLParser):
    """The words of a page, a row of a table or a paragraph on a line; scripts and styles left out."""

    BLOCKS = frozenset({"h1", "h2", "h3", "p", "li", "tr", "caption", "dt", "text", "summary"})

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = [""]
        self.silent = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.silent += tag in ("script", "style", "svg")
        if tag in self.BLOCKS:
            self.lines.append("")
        elif tag in ("td", "th", "dd", "span"):
            self.lines[-1] += " | "

    def handle_endtag(self, tag: str) -> None:
        self.silent -= tag in ("script", "style", "svg")

    def handle_data(self, data: str) -> None:
        if not self.silent:
            self.lines[-1] += data


def text_of(page: str) -> str:
    """What a page says."""
    parser = _Text()
    parser.feed(page)
    lines = (" ".join(line.split()).strip("| ") for line in parser.lines)
    return "\n".join(line for line in lines if line) + "\n"


def renew(write: Callable[[Found], str]) -> None:
    """Write the golden text anew; the diff is the review."""
    golden = Path(__file__).parent / "dashboards" / "golden" / "report.txt"
    golden.write_text(text_of(write(recorded())), encoding="utf-8")


if __name__ == "__main__":
    from rooflens.dashboards.report.page import page

    renew(lambda found: page(found, None))
