"""A trace of the recorded rings, as a sidecar would have kept it, and the golden reports of it.

python tests/recorded_trace.py    writes tests/cli/golden/*.txt anew; the diff is the review
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import tempfile
from pathlib import Path

from recorded_rings import HARDWARE, NAMES, unpacked

from rooflens.analyzer.hardware import find_hardware
from rooflens.cli import main
from rooflens.collector.trace.beside import events_table
from rooflens.collector.trace.file import write_file
from rooflens.collector.trace.schema import to_arrow
from rooflens.findings import Code, Finding, Severity, Status
from rooflens.live_records import SourceKind
from rooflens.pipeline import lay_beside, read_ring
from rooflens.records import RingEvent
from rooflens.trace_records import TraceEvents, TraceFacts, TraceRows

GOLDEN = Path(__file__).parent / "cli" / "golden"
HOUR = "host=host-a/date=2026-11-30/hour=10"
OPTIONS: dict[str, tuple[str, ...]] = {
    "trace": ("trace", "--top", "4", "--price", "2.50", "--set", "kv=fp8,batch=16"),
    "trace-vllm": ("trace", "--engine", "*vllm-a*", "--window", "2s", "--top", "3"),
}


def made_trace(folder: Path, bounds: bool = True) -> Path:
    """A trace of all recorded rings in ``folder``, each an engine with its name, and a finding; with their bounds."""
    hardware = find_hardware(str(HARDWARE))
    folder.mkdir(exist_ok=True)
    for number, name in enumerate(NAMES):
        recording = read_ring(unpacked(name, folder))
        _, analysis, _ = lay_beside(recording, hardware if bounds else None)
        facts = TraceFacts(
            run=f"{number:016x}", host="host-a", model_name="m", engine=name, source=SourceKind.RING,
            info=recording.info, hardware=hardware if bounds else None,
            problem=None if bounds else "the hardware is not known: give --hardware ID",
        )  # fmt: skip
        table = to_arrow(TraceRows(facts, recording.steps, analysis))
        write_file(folder / "trace" / "steps" / HOUR / f"{number:02}-test.parquet", table, [facts])
        if number == 0:
            _write_events(folder, facts, float(recording.steps["unix_s"][100]))
    return folder / "trace"


def _write_events(folder: Path, facts: TraceFacts, unix_s: float) -> None:
    fired = Finding(Code.KV_PRESSURE, Severity.WARNING, Status.FIRING, "the pool is full")
    cleared = Finding(Code.KV_PRESSURE, Severity.WARNING, Status.CLEARED, "the pool has room")
    gap = RingEvent(5, 0.0, "trace_gap", {"steps": 12})
    events = TraceEvents(facts, ((unix_s, gap),), ((unix_s + 1, fired), (unix_s + 6, cleared)))
    write_file(folder / "trace" / "events" / HOUR / "00-test.parquet", events_table([events]), [facts])


def told(*words: str) -> str:
    """What `rooflens analyze` prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert main(["analyze", *words]) == 0
    return out.getvalue()


def golden() -> dict[str, str]:
    """The reports of OPTIONS, run where the trace is a folder of the working directory."""
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        made_trace(Path(folder))
        os.chdir(folder)
        try:
            return {name: told(*words) for name, words in OPTIONS.items()}
        finally:
            os.chdir(before)


if __name__ == "__main__":
    for name, text in golden().items():
        (GOLDEN / f"{name}.txt").write_text(text, encoding="utf-8")
    sys.exit(0)
