"""Watch the engines of this machine: findings as they arise, metrics for Prometheus, an API for everything else.

Reads the rings of engines with the hook as they come and go; without any, the metrics pages of engines on the
usual ports of this machine, or those that --scrape names; and the logs of --log, the forward-pass messages of --feed,
and what engines push. The floor beside each step needs the hardware: --hardware.
Serves /metrics, /healthz and /api/v1/{engines,steps,findings,roofline}; keeps what it sees with --trace; ends in order
on SIGTERM and SIGINT.

examples:
  rooflens sidecar --hardware h100-sxm5-80
  rooflens sidecar --scrape http://127.0.0.1:8000/metrics --hardware h100-sxm5-80 --model meta-llama-3-70b
  rooflens sidecar --log /var/log/llama-server.log --hardware h100-sxm5-80 --model meta-llama-3-8b
  rooflens sidecar --feed tcp://127.0.0.1:20380 --hardware h100-sxm5-80 --model meta-llama-3-8b
  rooflens sidecar /dev/shm/rooflens-1000 --listen 0.0.0.0:9980
  rooflens sidecar --trace /var/lib/rooflens/trace --hardware h100-sxm5-80 --no-serve

Every option can also be given as a variable, see docs/sidecar.md.
"""

from __future__ import annotations

import argparse
import os
import queue
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rooflens.cli.calibrations import Calibrations
from rooflens.cli.sidecar_options import add_arguments, given
from rooflens.records import RooflensError
from rooflens.ring_folder import default_folder

if TYPE_CHECKING:
    from rooflens.calibration_records import Calibration
    from rooflens.cli.devices import NamedDevices
    from rooflens.exporters.http_app import LiveServer
    from rooflens.exporters.http_push import Push
    from rooflens.model_records import HardwareSpec
    from rooflens.pipeline.watch import Watch
    from rooflens.pipeline.watch_settings import WatchSettings
    from rooflens.protocols import Feed

__all__ = ["add_arguments", "run"]

# A turn multiplies matrices of a few thousand rows: threads would cost more than they save, and memory each.
BLAS_THREADS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")

PATIENCE_S = 2.0  # for the first answer of drivers, so that the first lines say which of them there are
OFF = "not read (--no-counters)"
CRASHED = "; NVML is left out, since it crashes"
LONGEST_WINDOWS = 6.0  # a window of too few steps is waited for so many times as long


def run(args: argparse.Namespace) -> int:
    """Watch until a signal ends it."""
    _one_thread()
    stop = threading.Event()
    with _ended_by_signals(stop):
        return _serve(args, stop)


def _one_thread() -> None:
    """Before NumPy is imported: it reads these once."""
    if "numpy" not in sys.modules:
        for name in BLAS_THREADS:
            os.environ.setdefault(name, "1")


def _serve(args: argparse.Namespace, stop: threading.Event) -> int:
    from rooflens.cli.devices import NamedDevices, hardware_here
    from rooflens.cli.named import config_named, hardware_named, is_this_cpu
    from rooflens.cli.push_named import push_named
    from rooflens.cli.this_cpu import read_bytes_here, roof_here
    from rooflens.cli.trace_named import check_written, trace_named
    from rooflens.config import sidecar_settings
    from rooflens.pipeline.watch import Watch

    settings = sidecar_settings(given(args))
    _check(settings, args)
    hardware, model_config = hardware_named(settings.hardware), config_named(settings.model)
    push, pushed = push_named(settings)
    with ExitStack() as ends:
        server = _server(settings, push, ends)  # a port in use is said before anything is measured
        trace = trace_named(settings)
        calibrations = Calibrations(settings.calibration)
        kept: tuple[Calibration, ...] = ()
        if is_this_cpu(settings.hardware):
            folders = _folders(args.folders) if settings.rings else ()
            hardware, calibration = roof_here(calibrations, read_bytes_here(model_config, folders))
            kept = (calibration,) if calibration else ()
        looks = hardware is None and settings.counters
        found, here = hardware_here(settings.scrape_urls, stop.is_set) if looks else (None, NamedDevices())
        if not kept and (settings.counters or settings.calibration is not None):  # else no driver is asked for anything
            kept = calibrations.of_devices(hardware or found)
        if stop.is_set():
            return 0
        sources = _watch_settings(args.folders, settings, (hardware or found, kept), pushed, nvml=not here.crashed)
        watch = Watch(replace(sources, model_config=model_config, trace=trace))
        ends.callback(watch.close)
        _watch(watch, settings, server, (found is not None, here), stop)
    check_written(trace)
    return 0


def _watch(
    watch: Watch, settings: Any, server: LiveServer | None, devices: tuple[bool, NamedDevices], stop: threading.Event
) -> None:
    """Say what is watched, and turn until ``stop`` is set; ``devices`` are whether they name the hardware, and they."""
    from rooflens.cli.announce import Announcer, nothing_yet_of
    from rooflens.cli.state_named import state_named
    from rooflens.cli.trace_named import trace_said
    from rooflens.cli.voice import Voice
    from rooflens.cli.watched import watched
    from rooflens.pipeline.loop import run_loop

    found, here = devices
    trace = watch.settings.trace
    with closing(Voice()) as voice:
        why = here.silent if settings.counters else "--no-counters asks no driver"
        for line in watched(watch.settings, found, why):
            voice.say(line)
        voice.say(f"counters  {_counters(watch, here.crashed) if settings.counters else OFF}")
        voice.say(f"state     {state_named(settings)[1]}")
        if trace is not None:
            voice.say(f"trace     {trace_said(trace.writer, settings, watch.settings.state)}")
        if server is not None:
            voice.say(f"metrics   {server.url}/metrics")
            voice.say(f"API       {server.url}/api/v1/engines")
        announcer = Announcer(voice.say, nothing_yet_of(watch.settings))
        run_loop(watch, (announcer,) if server is None else (server, announcer), stop)
        if trace is not None:
            watch.turn()  # what came since the last one belongs to the trace too


def _check(settings: Any, args: argparse.Namespace) -> None:
    """RooflensError for options of which one makes the other pointless."""
    if not settings.rings and args.folders:
        raise RooflensError("--no-rings and a FOLDER contradict each other: leave one of them out")
    if not settings.keep_state and args.state:
        raise RooflensError("--no-state and --state contradict each other: leave one of them out")
    if not settings.serve and settings.trace is None:
        raise RooflensError("--no-serve alone does nothing: say with --trace DIR where to keep what is seen")
    if not settings.serve and (args.listen or args.allow_host):
        raise RooflensError("--no-serve and --listen or --allow-host contradict each other: leave one of them out")
    if not settings.serve and (settings.push_token or settings.push_token_file):
        raise RooflensError("--no-serve leaves no door to push through: leave it out, or the token for pushing")
    if not settings.counters and settings.dcgm_urls:
        raise RooflensError("--no-counters and --dcgm contradict each other: leave one of them out")


def _counters(watch: Watch, nvml_crashes: bool) -> str:
    return watch.counters.said(PATIENCE_S) + (CRASHED if nvml_crashes else "")


def _server(settings: Any, push: Push | None, ends: ExitStack) -> LiveServer | None:
    """The server, which serves already and ends with ``ends``; None where nothing is to be served."""
    if not settings.serve:
        return None
    from rooflens.config import host_and_port
    from rooflens.exporters.http_app import LiveServer

    server = LiveServer(*host_and_port(settings.listen), settings.allowed_hosts, push)
    ends.callback(server.close)
    _start(server, host_and_port(settings.listen))
    return server


def _start(server: LiveServer, address: tuple[str, int]) -> None:
    """Begin to serve; RooflensError that says where a rooflens serves there already."""
    from rooflens.cli.find_rings import running_demo
    from rooflens.cli.find_servers import SIDECAR_URL, find_sidecar

    try:
        server.start()
    except RooflensError:
        there = None
        with suppress(RooflensError):  # of an address that is none
            there = find_sidecar(server.url) if address[1] else None
        if there is None:
            raise
        look = "rooflens top" if there == SIDECAR_URL else f"rooflens top --url {there}"
        place = running_demo()
        demo = f" (a demo runs, its rings are in {place})" if place else ""
        raise RooflensError(
            f"a rooflens serves at {there} already{demo}: look at it with '{look}', or give --listen another port"
        ) from None


def _folders(named: Sequence[str]) -> tuple[Path, ...]:
    return tuple(Path(folder) for folder in named) or (default_folder(),)


def _watch_settings(
    folders: Sequence[str],
    settings: Any,
    roof: tuple[HardwareSpec | None, tuple[Calibration, ...]],
    pushed: Sequence[Feed],
    *,
    nvml: bool,
) -> WatchSettings:
    from rooflens.cli.feeds_named import feeds_named
    from rooflens.cli.find_servers import find_servers
    from rooflens.cli.state_named import state_named
    from rooflens.collector.windows import WindowSettings
    from rooflens.config import bearer_token
    from rooflens.pipeline.probes_here import probes_here
    from rooflens.pipeline.watch_settings import WatchSettings

    probes = probes_here(settings.counter_period_s, settings.dcgm_urls, settings.dcgm_period_s, nvml=nvml)
    usual, window_s = WindowSettings(), settings.window_s
    return WatchSettings(
        folders=_folders(folders),
        scrape_urls=settings.scrape_urls,
        hardware=roof[0],
        calibrations=roof[1],
        windows=WindowSettings(window_s=window_s, most_window_s=max(usual.most_window_s, LONGEST_WINDOWS * window_s)),
        scrape_s=settings.scrape_period_s,
        scrape_token=bearer_token(settings),
        use_rings=settings.rings,
        discover=None if settings.scrape_urls or settings.feed_urls or settings.log_paths else find_servers,
        probes=probes if settings.counters else (),
        feeds=(*feeds_named(settings), *pushed),
        state=state_named(settings)[0],
    )


@contextmanager
def _ended_by_signals(stop: threading.Event) -> Iterator[None]:
    """SIGTERM and SIGINT set ``stop``; a second one ends the process at once.

    A thread sets it: a handler runs in the midst of whatever its thread does, and may not take a lock that may be held.
    """
    asked: queue.SimpleQueue[int] = queue.SimpleQueue()
    had: list[int] = []

    def end(number: int, _frame: object) -> None:
        if had:
            raise KeyboardInterrupt
        had.append(number)
        asked.put(number)

    def told() -> None:
        if asked.get():
            stop.set()

    threading.Thread(target=told, name="rooflens-signals", daemon=True).start()
    kept = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)
        asked.put(0)  # no signal has this number: the thread ends
