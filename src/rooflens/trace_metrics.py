"""The metrics of a sidecar that keeps a trace; absent without one."""

from __future__ import annotations

from rooflens.metric_records import PREFIX, Kind, Metric

C, G = Kind.COUNTER, Kind.GAUGE

TRACE_ROWS = Metric(
    PREFIX + "trace_rows_total", C, "", "Rows of the trace that are safe in a file.", (),
    "Rows a second: `rate(rooflens_trace_rows_total[5m])`. Steps, events and samples of counters alike.",
)  # fmt: skip
TRACE_DROPPED = Metric(
    PREFIX + "trace_dropped_rows_total", C, "", "Rows that never got into the trace: there was no room for them.", (),
    "`increase(rooflens_trace_dropped_rows_total[1h]) > 0`: the trace has a hole; /healthz says what hinders it.",
)  # fmt: skip
TRACE_BYTES = Metric(
    PREFIX + "trace_written_bytes_total", C, "bytes", "Bytes of the trace's files.", (),
    "Bytes a day: `86400 * rate(rooflens_trace_written_bytes_total[1h])`.",
)  # fmt: skip
TRACE_FILES = Metric(
    PREFIX + "trace_files_total", C, "", "Files of the trace that were written.", (),
    "`increase(rooflens_trace_files_total[10m]) == 0` while engines work: nothing is kept.",
)  # fmt: skip
TRACE_FAILURES = Metric(
    PREFIX + "trace_failures_total", C, "", "Attempts to write a file of the trace that failed.", (),
    "`rate(rooflens_trace_failures_total[5m]) > 0`: /healthz says why. What could not be written is tried again.",
)  # fmt: skip
TRACE_AGE = Metric(
    PREFIX + "trace_oldest_unwritten_seconds", G, "seconds", "Age of the oldest row that is in no file yet.", (),
    "`rooflens_trace_oldest_unwritten_seconds > 180`: files are written once a minute; absent while nothing waits.",
)  # fmt: skip

TRACE_CATALOGUE = (TRACE_ROWS, TRACE_DROPPED, TRACE_BYTES, TRACE_FILES, TRACE_FAILURES, TRACE_AGE)
