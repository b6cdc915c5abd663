"""Profiles by hand: Kineto events, and databases by NVIDIA's "SQLite Export Schema Reference"."""

from __future__ import annotations

import gzip
import json
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

Event = dict[str, Any]
HOST_PID, DEVICE = 4242, 0
NVTX_PUSH_POP, VM = 59, 1 << 56


def on_host(name: str, ts: float, dur: float, category: str = "user_annotation", **args: Any) -> Event:
    """A range, an operator or a launch, microseconds."""
    given = {"args": args} if args else {}
    return {"ph": "X", "cat": category, "name": name, "pid": HOST_PID, "tid": HOST_PID, "ts": ts, "dur": dur, **given}


def kernel(name: str, ts: float, dur: float, correlation: int, device: int = DEVICE, **more: Any) -> Event:
    """A kernel, microseconds."""
    args = {"correlation": correlation, "device": device, "stream": 7}
    return {
        "ph": "X",
        "cat": "kernel",
        "name": name,
        "pid": device,
        "tid": 7,
        "ts": ts,
        "dur": dur,
        "args": args,
        **more,
    }


def launch(ts: float, correlation: int) -> Event:
    """The launch of a kernel."""
    return on_host("cudaLaunchKernel", ts, 2.0, "cuda_runtime", correlation=correlation)


def kineto(path: Path, events: Sequence[Any], packed: bool = False, **head: Any) -> Path:
    """Written as torch writes it."""
    data = {"schemaVersion": 1, **head, "traceEvents": list(events)}
    raw = json.dumps(data, indent=1).encode()
    path.write_bytes(gzip.compress(raw) if packed else raw)
    return path


# Two decode steps whose kernels run after their ranges have ended: the device is behind the host.
LATE: tuple[Event, ...] = (
    on_host("execute_context_0(0)_generation_4(4)", 0, 100),
    launch(10, 1),
    launch(20, 2),
    launch(110, 3),  # the sampler, after the range
    on_host("execute_context_0(0)_generation_4(4)", 200, 100),
    launch(210, 4),
    kernel("flash_fwd_splitkv_kernel", 1000, 30, 1),
    kernel("nvjet_tst_64x64", 1030, 50, 2),
    kernel("argmax_kernel", 1100, 20, 3),
    kernel("nvjet_tst_64x64", 1150, 50, 4),
)

NvtxRow = tuple[int, int, int, str]  # start, end in ns; process; name
KernelRow = tuple[int, int, int, int, int, str]  # start, end in ns; process; device; correlation; name
LaunchRow = tuple[int, int, int]  # start in ns; process; correlation


def nsys(
    path: Path,
    ranges: Iterable[NvtxRow],
    kernels: Iterable[KernelRow],
    launches: Iterable[LaunchRow] = (),
    inline: bool = False,
    copies: Iterable[tuple[int, int, int, int, int]] = (),
) -> Path:
    """A database of nsys; ``inline`` puts the names of ranges into ``text``, else by ``textId`` into StringIds."""
    names: dict[str, int] = {}

    def number(name: str) -> int:
        return names.setdefault(name, len(names) + 1)

    with closing(sqlite3.connect(path)) as database, database:
        database.executescript(
            """
            CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
            CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER,
                category INTEGER, color INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER,
                domainId INTEGER);
            CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL,
                deviceId INTEGER NOT NULL, contextId INTEGER, streamId INTEGER, correlationId INTEGER,
                globalPid INTEGER, demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL);
            CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL,
                eventClass INTEGER, globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL);
            CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER NOT NULL, end INTEGER NOT NULL,
                deviceId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, bytes INTEGER, copyKind INTEGER);
            CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT, localTime TEXT);
            CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT);
            INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1796000000000000000, '', '');
            INSERT INTO TARGET_INFO_GPU VALUES (0, 'NVIDIA H100 80GB HBM3');
            """
        )
        for start, end, process, name in ranges:
            text, text_id = (name, None) if inline else (None, number(name))
            row = (start, end, NVTX_PUSH_POP, text, VM + (process << 24) + 17, text_id)
            database.execute("INSERT INTO NVTX_EVENTS (start, end, eventType, text, globalTid, textId) "
                             "VALUES (?, ?, ?, ?, ?, ?)", row)  # fmt: skip
        for start, end, process, device, correlation, name in kernels:
            database.execute(
                "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?, 1, 7, ?, ?, ?, ?)",
                (start, end, device, correlation, VM + (process << 24), number(f"void {name}<float>()"), number(name)),
            )
        for start, process, correlation in launches:
            row = (start, start + 900, VM + (process << 24) + 17, correlation, number("cudaLaunchKernel"))
            database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, 0, ?, ?, ?)", row)
        for start, end, process, device, correlation in copies:
            database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (?, ?, ?, ?, ?, 8, 1)",
                             (start, end, device, correlation, VM + (process << 24)))  # fmt: skip
        database.executemany("INSERT INTO StringIds VALUES (?, ?)", ((its, name) for name, its in names.items()))
    return path
