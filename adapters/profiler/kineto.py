"""Kineto's JSON, as torch.profiler, vLLM and SGLang write it: plain or gzip, of any size, read as a stream.

Chrome's trace format with ``traceEvents``; complete events ("ph" X) have "ts" and "dur" in microseconds and a category:
``user_annotation`` (ranges on the host), ``kernel``, ``gpu_memcpy``, ``gpu_memset`` (on a device, whose number is
args.device, else pid), ``cuda_runtime`` and ``cuda_driver`` (launches, joined by args.correlation), ``cpu_op``.
``baseTimeNanoseconds`` is the wall time of ts 0; before torch 2.3 ts was wall time itself. A file holds one process;
SGLang's merged files put a rank in brackets before each pid. Source: libkineto's output_json.cpp.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, cast

from rooflens.adapters.profiler.boundaries import boundary
from rooflens.adapters.profiler.capture import HOST, Capture
from rooflens.adapters.profiler.kernels import class_of
from rooflens.records import RooflensError

FORMAT = "Kineto JSON"
GZIP = b"\x1f\x8b"
BUFFER_BYTES = 1 << 20
HEAD_BYTES = 1 << 20  # of what stands before the events
MOST_EVENT_BYTES = 64 << 20  # an event is some hundred bytes, one with a stack some thousand
TELL_EVERY = 1 << 16  # events
DEVICE_WORK = ("kernel", "gpu_memcpy", "gpu_memset")
LAUNCHING = ("_runtime", "_driver")  # cuda_, xpu_, mtia_: ends of the categories of launches
BASE_TIME = re.compile(rb'"baseTimeNanoseconds"\s*:\s*(\d{1,20})')
DEVICE = re.compile(rb'"id"\s*:\s*(\d{1,4}),\s*"name"\s*:\s*"([\w (),./+-]{1,96})"')
RANK = re.compile(r"\[([A-Za-z0-9-]{1,64})\]")
WALL_TIME_US = 1e15  # a ts beyond it is wall time: 2001 and later
LARGEST_US = 1e17
NEEDS = "a torch profile is read with ijson: pip install 'rooflens[trace]'"

Tell = Callable[[float], None]


def read_kineto(path: Path, tell: Tell = lambda _ratio: None) -> Capture:
    """The ranges, the work and the launches of a file; ``tell`` gets the part of the file that is read.

    A file that is cut off or damaged is read up to there. RooflensError for one that holds too much, or without ijson.
    """
    try:
        import ijson
    except ImportError:
        raise RooflensError(NEEDS) from None
    whole = max(1, path.stat().st_size)
    found = Capture(FORMAT)
    with path.open("rb") as raw:
        packed = raw.read(2) == GZIP
        raw.seek(0)
        opened = cast(IO[bytes], gzip.GzipFile(fileobj=raw) if packed else raw)
        head = _read(opened, HEAD_BYTES)
        before = head.partition(b'"traceEvents"')[0]
        found.device_names = {int(number): name.decode() for number, name in DEVICE.findall(before)}
        stream, events = _Again(head, opened), _Events(found)
        try:
            for event in ijson.items(stream, "traceEvents.item", use_float=True, buf_size=BUFFER_BYTES):
                stream.since = 0
                events.take(event)
                if not found.events % TELL_EVERY:
                    tell(raw.tell() / whole)
        except (ijson.JSONError, EOFError, zlib.error, gzip.BadGzipFile, UnicodeDecodeError):
            found.cut_off = True
        events.end(BASE_TIME.search(before) or BASE_TIME.search(stream.tail))
    return found


def _read(opened: IO[bytes], size: int) -> bytes:
    """So many bytes, or what there is: a packed file may end in the middle."""
    parts, left = [], size
    try:
        while left and (part := opened.read(min(left, 1 << 16))):
            parts.append(part)
            left -= len(part)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        pass
    return b"".join(parts)


class _Again:
    """What was read already, and then the rest; ``since`` counts bytes since the last event, ``tail`` is the end."""

    def __init__(self, head: bytes, rest: IO[bytes]) -> None:
        self._head, self._rest = head, rest
        self.since, self.tail = 0, b""

    def read(self, size: int = -1) -> bytes:
        """As a file does; RooflensError where one event, or what stands beside them, has no end."""
        if self.since > MOST_EVENT_BYTES:
            raise RooflensError(f"more than {MOST_EVENT_BYTES >> 20} MiB without an event: no profile of torch")
        if self._head:
            size = len(self._head) if size < 0 else size
            part, self._head = self._head[:size], self._head[size:]
        else:
            part = self._rest.read(size)
        self.since += len(part)
        self.tail = part or self.tail
        return part


class _Events:
    """Takes events into a capture."""

    def __init__(self, found: Capture) -> None:
        self._found = found
        self._first_us: float | None = None

    def take(self, event: Any) -> None:
        found = self._found
        found.events += 1
        if not isinstance(event, dict) or event.get("ph") != "X":
            return
        kind, name = event.get("cat"), event.get("name")
        if not isinstance(kind, str) or not isinstance(name, str):
            return
        start, length = _number(event.get("ts")), _number(event.get("dur", 0))
        if start is None or length is None:
            found.odd += 1
            return
        start_s = self._seconds(start)
        self._sort(kind.lower(), name, event, start_s, start_s + length / 1e6)

    def _sort(self, kind: str, name: str, event: Mapping[str, Any], start_s: float, end_s: float) -> None:
        found = self._found
        if kind in DEVICE_WORK:
            correlation, device = _arguments(event)
            found.kernels.add(self._process(event), device, start_s, end_s, correlation, class_of(name))
        elif kind.endswith(LAUNCHING):
            if correlation := _arguments(event)[0]:
                found.add_launch(self._process(event), correlation, start_s)
        elif kind == "user_annotation":
            if told := boundary(name):
                found.add_range(self._process(event), start_s, end_s, told)
        elif kind == "cpu_op" and not found.operators_dropped:
            try:
                found.operators.add(self._process(event), HOST, start_s, end_s, 0, class_of(name))
            except RooflensError:
                found.operators_dropped = True  # which are looked at only where no device worked

    def _seconds(self, us: float) -> float:
        """After the first event: of a wall time in microseconds a double keeps no more than a quarter of one."""
        if self._first_us is None:
            self._first_us = us
        return (us - self._first_us) / 1e6

    def end(self, base: re.Match[bytes] | None) -> None:
        """The wall time of the first event, by that of ts 0 where the file tells it."""
        first_us = self._first_us
        if first_us is not None and (base is not None or first_us > WALL_TIME_US):
            self._found.unix_s = (0 if base is None else int(base[1]) / 1e9) + first_us / 1e6

    def _process(self, event: Mapping[str, Any]) -> int:
        rank = RANK.match(pid) if isinstance(pid := event.get("pid"), str) else None
        name = rank[1] if rank else ""
        return self._found.process(name, name)


def _number(value: Any) -> float | None:
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < LARGEST_US:
        return None
    return float(value)


def _arguments(event: Mapping[str, Any]) -> tuple[int, int]:
    """Correlation, 0 where there is none, and the device."""
    args = event.get("args")
    given = args if isinstance(args, dict) else {}
    correlation, device = given.get("correlation"), given.get("device", event.get("pid"))
    if isinstance(device, str) and (tail := device.rpartition(" ")[2]).isdecimal():
        device = int(tail[:9])
    return _small(correlation, 1 << 62), _small(device, 1 << 20)


def _small(value: Any, most: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < most else 0
