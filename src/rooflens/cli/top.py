"""A live view of every engine: how fast, how near to the roof, where the time goes, what is wrong and what to do.

Attaches to a running sidecar; else watches the rings of this machine; else the metrics pages of the engines that
listen on the usual ports. With folders, --hardware or --model it watches by itself. Keys: q quits.

examples:
  rooflens top
  rooflens top --hardware h100-sxm5-80
  rooflens top --url http://127.0.0.1:8000/metrics --model meta-llama-3-8b
  rooflens top --once --json
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rooflens.adapters.scrape.address import address_of
from rooflens.adapters.scrape.fetch import fetch
from rooflens.cli.find_rings import any_live, next_step, rings_at
from rooflens.cli.find_servers import ENGINE_SAMPLE, find_servers, find_sidecar
from rooflens.cli.output import json_text
from rooflens.cli.terminal import Terminated, screen
from rooflens.cli.top_feeds import Feed, SidecarFeed
from rooflens.cli.top_lines import Line
from rooflens.cli.top_text import frame_lines, plain
from rooflens.records import RooflensError
from rooflens.ring_folder import default_folder, list_rings

LEAST_PERIOD_S, MOST_PERIOD_S = 0.2, 3600.0
ONCE_WIDTH, LEAST_WIDTH = 120, 40  # columns where nobody says how wide the paper is, and the fewest to wrap at
ONCE_SCRAPE_S, SCRAPE_S = 2.0, 5.0  # one interval between two scrapes is all that a single frame waits for
TURN_S = 0.25
EXIT_NO_FIGURES = 1
COUNTER_PERIOD_S = 1.0
TOKEN_VARIABLE = "ROOFLENS_SCRAPE_TOKEN"
QUIT_KEYS = ("q", "Q", "\x04")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `rooflens top`."""
    add = parser.add_argument
    add("folders", nargs="*", metavar="FOLDER", help="folders of rings (default: this user's folder)")
    add("--url", metavar="URL", help="a sidecar, or a metrics page (default: ROOFLENS_URL, else what is found)")
    add(
        "--hardware",
        metavar="ID",
        help="what the engines run on: a known device, the name NVML gives it, a TOML file of yours, or this-cpu "
        "(as calibrated, else measured for some seconds); default: the device of this machine, where it is known",
    )
    add("--model", metavar="NAME|config.json", help="what the engines serve, where they do not say it themselves")
    add("--period", type=float, default=1.0, metavar="S", help="seconds between two frames (default: 1)")
    add(
        "--once",
        action="store_true",
        help="one frame, as soon as there are figures; exit code 1 where a sidecar has none within 30 seconds",
    )
    add("--json", action="store_true", help="one JSON object a frame, as the sidecar's API gives it")


def run(args: argparse.Namespace) -> int:
    """Show frames until somebody ends it; the exit code of a signal is the shell's."""
    if not LEAST_PERIOD_S <= args.period <= MOST_PERIOD_S:
        raise RooflensError(f"--period {args.period:g} is not from {LEAST_PERIOD_S:g} to {MOST_PERIOD_S:,g} seconds")
    feed = choose(args)
    try:
        if args.once:
            frame = _ready(feed)
            _print(frame, feed.origin, args.json)
            return EXIT_NO_FIGURES if isinstance(feed, SidecarFeed) and not any(_figures(frame)) else 0
        if args.json or not sys.stdout.isatty():
            while True:
                _print(feed.read(), feed.origin, args.json)
                sys.stdout.flush()
                time.sleep(args.period)
        return _live(feed, args.period)
    finally:
        feed.close()


def choose(args: argparse.Namespace) -> Feed:
    """The first way that leads to an engine; RooflensError with the next step where none does."""
    own_settings = bool(args.folders or args.hardware or args.model)
    if args.url:
        return _at(args, own_settings)
    if not own_settings and (url := find_sidecar()) is not None:
        return SidecarFeed(url)
    if args.folders:
        return _watch(args, _checked(args.folders, args.once), [])
    folder = default_folder()
    rings = list_rings(folder) if folder.exists() or folder.is_symlink() else []
    if any_live(rings):
        return _watch(args, [folder], [])
    if pages := [f"{url}/metrics" for url in find_servers()]:
        return _watch(args, [], pages)
    if rings:
        return _watch(args, [folder], [])
    raise RooflensError(f"no sidecar, no ring in {folder}, and no engine on the usual ports: {next_step()}")


def _checked(places: list[str], once: bool) -> list[Path]:
    """The folders that were named. One without a ring may get one while somebody looks on, not for a single frame."""
    for place in places:
        if not os.path.isdir(place):
            hint = "for a single ring: rooflens analyze" if os.path.exists(place) else next_step()
            raise RooflensError(f"{place} is no folder: {hint}")
    if once:
        rings_at(places)
    return [Path(place) for place in places]


def _at(args: argparse.Namespace, own_settings: bool) -> Feed:
    """What --url names: a sidecar if it answers as one, else a metrics page of an engine."""
    if not own_settings:
        try:
            return SidecarFeed(args.url)
        except RooflensError as error:
            no_sidecar = str(error)
    token = (os.environ.get(TOKEN_VARIABLE) or "").strip() or None
    address = address_of(args.url, token)
    try:
        page = fetch(address).text.encode()
    except RooflensError:
        if own_settings:
            raise
        raise RooflensError(no_sidecar) from None
    if not ENGINE_SAMPLE.search(page):
        if own_settings and find_sidecar(args.url) is not None:
            given = [flag for flag, value in (("--hardware", args.hardware), ("--model", args.model)) if value]
            what = " and ".join(given) or "the FOLDER"
            raise RooflensError(f"{address.name} is a sidecar: give {what} to it, not to top")
        raise RooflensError(f"{address.name} is neither a sidecar nor a metrics page of an engine")
    return _watch(args, [], [args.url], token)


def _watch(args: argparse.Namespace, folders: list[Path], pages: list[str], token: str | None = None) -> Feed:
    """A feed that watches by itself, with the hardware found or measured and the model's config read."""
    if find_spec("numpy") is None:
        raise RooflensError("'top' needs numpy to watch by itself: pip install 'rooflens[sidecar]'")
    from rooflens.cli.calibrations import Calibrations
    from rooflens.cli.devices import NamedDevices, hardware_here
    from rooflens.cli.named import config_named, hardware_named, is_this_cpu
    from rooflens.cli.this_cpu import read_bytes_here, roof_here
    from rooflens.cli.top_feeds import WatchFeed
    from rooflens.collector.windows import WindowSettings
    from rooflens.pipeline.probes_here import probes_here
    from rooflens.pipeline.watch_settings import WatchSettings

    hardware, model_config = hardware_named(args.hardware), config_named(args.model)
    calibrations, calibration, here = Calibrations(None), None, NamedDevices()
    if is_this_cpu(args.hardware):
        hardware, calibration = roof_here(calibrations, read_bytes_here(model_config, folders))
    elif hardware is None:
        hardware, here = hardware_here(pages)
        if hardware is not None:
            print(f"hardware  {hardware.id}, the device of this machine; else give --hardware ID", file=sys.stderr)
        elif here.silent is not None:
            print(f"hardware  not known: {here.silent}; give --hardware ID", file=sys.stderr)
    kept = (calibration,) if calibration else calibrations.of_devices(hardware)
    short = args.once and bool(pages)
    return WatchFeed(
        WatchSettings(
            folders=folders,
            scrape_urls=pages,
            hardware=hardware,
            calibrations=kept,
            model_config=model_config,
            windows=WindowSettings(window_s=0.0, least_steps=1) if short else WindowSettings(),
            scrape_s=ONCE_SCRAPE_S if short else SCRAPE_S,
            scrape_token=token,
            use_rings=bool(folders),
            from_start=True,
            # A single frame comes before any sample.
            probes=() if args.once else probes_here(COUNTER_PERIOD_S, nvml=not here.crashed),
        )
    )


def _ready(feed: Feed) -> Mapping[str, Any]:
    """The first frame with figures, or the last one before patience ends.

    Of engines that this process watches, each has figures by then; those of a sidecar may rest for ever.
    """
    end_s = time.monotonic() + feed.patience_s
    enough = any if isinstance(feed, SidecarFeed) else all
    while True:
        frame = feed.read()
        if ((figures := _figures(frame)) and enough(figures)) or time.monotonic() >= end_s:
            return frame
        time.sleep(TURN_S)


def _figures(frame: Mapping[str, Any]) -> list[bool]:
    """Of each engine, whether it has a window."""
    return [bool(engine.get("windows")) for engine in frame.get("engines") or []]


def _print(frame: Mapping[str, Any], origin: str, as_json: bool) -> None:
    if as_json:
        print(json_text(frame))
        return
    columns = shutil.get_terminal_size((ONCE_WIDTH, 0)).columns
    print(plain(_lines(frame, origin, max(columns, LEAST_WIDTH))))


def _lines(frame: Mapping[str, Any], origin: str, width: int, height: int | None = None) -> list[Line]:
    """The frame as text; what another server or version may have put into it is one line if it does not fit."""
    try:
        return frame_lines(frame, origin, width, height)
    except (TypeError, ValueError, AttributeError, LookupError, OverflowError) as error:
        raise RooflensError(
            f"{origin} does not answer as this version of rooflens does ({type(error).__name__}): use the same one"
        ) from error


def _live(feed: Feed, period_s: float) -> int:
    """Draw until q, Ctrl-C or a signal; the terminal is given back before anything else is said."""
    coloured = not os.environ.get("NO_COLOR")
    try:
        with screen(coloured) as shown:
            while True:
                began_s = time.monotonic()
                frame = feed.read()
                while True:
                    columns, lines = shown.size
                    shown.draw(_lines(frame, feed.origin, max(1, columns - 1), lines))
                    key = shown.wait(max(0.0, began_s + period_s - time.monotonic()))
                    if key in QUIT_KEYS:
                        return 0
                    if not key:
                        break
    except Terminated as ended:
        return 128 + ended.number
