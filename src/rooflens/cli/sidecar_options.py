"""The options of `rooflens sidecar`, and what they say by field of its settings."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from rooflens.cli.calibrations import add_calibration_option
from rooflens.records import RooflensError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `rooflens sidecar`."""
    add = parser.add_argument
    add("folders", nargs="*", metavar="FOLDER", help="folders of rings (default: this user's folder)")
    add("--scrape", action="append", metavar="URL", help="a metrics page to read, may be given several times")
    add(
        "--feed",
        action="append",
        metavar="URL",
        help="where an engine publishes its forward passes, such as tcp://127.0.0.1:20380; may be given several times",
    )
    add(
        "--log",
        action="append",
        metavar="FILE",
        help="a log of an engine to follow, '-' for standard input; it need not be there yet; may be given several "
        "times",
    )
    add("--scrape-token-file", metavar="FILE", help="holds the bearer token for the pages of --scrape")
    add("--push-token-file", metavar="FILE", help="holds the token with which engines may push their steps")
    add("--no-rings", action="store_true", help="read no rings, only pages, feeds, logs and what is pushed")
    add("--listen", metavar="HOST:PORT", help="where to serve (default: 127.0.0.1:9980, this machine only)")
    add(
        "--allow-host",
        action="append",
        metavar="NAME",
        help="a further name it is reached by, such as that of a Kubernetes service; may be given several times",
    )
    add(
        "--hardware",
        metavar="ID",
        help="what the engines run on: a known device, the name NVML gives it, a TOML file of yours, or this-cpu "
        "(as calibrated, else measured for some seconds first); default: the device of this machine, where it is known",
    )
    add_calibration_option(parser)
    add("--model", metavar="NAME", help="the model, or its config.json, of engines that do not state it")
    add("--window", type=float, metavar="S", help="seconds that findings are judged over, at least (default: 10)")
    add("--scrape-period", type=float, metavar="S", help="seconds between two reads of a page (default: 5)")
    add("--no-counters", action="store_true", help="read no counters of devices and processes")
    add("--counter-period", type=float, metavar="S", help="seconds between two samples, at least 0.25 (default: 1)")
    add(
        "--dcgm",
        action="append",
        metavar="URL",
        help="a dcgm-exporter's page of this machine, such as http://127.0.0.1:9400; may be given several times",
    )
    add("--dcgm-period", type=float, metavar="S", help="seconds between two changes of that page (default: 30)")
    _add_kept(parser)


def _add_kept(parser: argparse.ArgumentParser) -> None:
    """The options of what outlives the sidecar."""
    add = parser.add_argument
    add(
        "--state",
        metavar="DIR",
        help="where what is learned of engines is kept (default: rooflens in XDG_STATE_HOME, else ~/.local/state)",
    )
    _add_trace_options(parser)
    add("--no-state", action="store_true", help="keep nothing: learn anew with each start")


def _add_trace_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--trace",
        metavar="DIR",
        help="keep every step, with its bounds, events, findings and counters, in this folder or object store "
        "(s3://BUCKET/PREFIX), for 'rooflens analyze DIR'",
    )
    add("--trace-max-bytes", metavar="SIZE", help="how large that folder may grow, or none (default: 10GiB)")
    add("--trace-max-age", metavar="AGE", help="what is older is removed: 14d, 36h, or none (default: 14d)")
    add("--trace-period", type=float, metavar="S", help="seconds of one of its files (default: 60)")
    add("--no-serve", action="store_true", help="serve nothing, only keep the trace of --trace")


def given(args: argparse.Namespace) -> dict[str, Any]:
    """What the command line says, by field of the settings; None for what it does not."""
    return {
        "listen": args.listen,
        "allow_host": _several("--allow-host", args.allow_host),
        "scrape": _several("--scrape", args.scrape),
        "feed": _several("--feed", args.feed),
        "log": _several("--log", args.log),
        "scrape_token_file": args.scrape_token_file,
        "push_token_file": args.push_token_file,
        "rings": False if args.no_rings else None,
        "hardware": args.hardware,
        "model": args.model,
        "calibration": args.calibration,
        "window_s": args.window,
        "scrape_period_s": args.scrape_period,
        "counters": False if args.no_counters else None,
        "counter_period_s": args.counter_period,
        "dcgm": _several("--dcgm", args.dcgm),
        "dcgm_period_s": args.dcgm_period,
        "state": args.state,
        "keep_state": False if args.no_state else None,
        "serve": False if args.no_serve else None,
        "trace": args.trace,
        "trace_max_bytes": args.trace_max_bytes,
        "trace_max_age": args.trace_max_age,
        "trace_period_s": args.trace_period,
    }


def _several(flag: str, values: Sequence[str] | None) -> str | None:
    """All values of an option, as its variable holds them: with spaces between, so that none is in any."""
    if values and any(len(value.split()) > 1 for value in values):
        raise RooflensError(f"{flag}: a value has a space in it: give {flag} once for each")
    return " ".join(values) if values else None
