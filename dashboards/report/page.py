"""The page: recordings one after the other, the data for the script, and what a browser may do with it."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from rooflens import __version__
from rooflens.dashboards.report import happenings, sections, words
from rooflens.dashboards.report.facts import about, lists, place_text, provenance
from rooflens.dashboards.report.markup import Child, Markup, as_data, joined, tag
from rooflens.dashboards.report.pictures import still
from rooflens.dashboards.report.roofline import points_of, scatter
from rooflens.dashboards.report.verdict import verdict
from rooflens.dashboards.report.view import MOST_CELLS, basis_of, data_of, marks, time_line
from rooflens.dashboards.vendored import NOT_THERE, Vendored

Row = Mapping[str, Any]
MOST_RECORDINGS = 40  # on one page; a trace of many engines is one
SCRIPTS = ("tables.js", "time_line.js", "start.js")


@cache
def _own(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")


def page(objects: Sequence[Row], uplot: Vendored | None) -> str:
    """The whole page of the objects of `rooflens analyze --json`."""
    shown = objects[:MOST_RECORDINGS]
    most_cells = MOST_CELLS // max(1, len(shown))
    data = [data_of(found["history"], most_cells) if found.get("history") else None for found in shown]
    articles = [_article(found, at, data[at], uplot) for at, found in enumerate(shown)]
    left_out = None
    if len(objects) > len(shown):
        text = f"{len(objects) - len(shown):,} more recordings are left out: name fewer of them."
        left_out = tag("p", text, class_="warning")
    scripts = [f"{uplot.script}\n/* {uplot.name}\n{uplot.licence}*/\n"] if uplot else []
    scripts.append('"use strict";\n' + "".join(map(_own, SCRIPTS)))
    styles = [uplot.style] if uplot else []
    head = [
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_policy(scripts)),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"rooflens: {_title(shown[0]) if len(shown) == 1 else f'{len(objects):,} recordings'}"),
        [tag("style", Markup(text)) for text in (*styles, _own("report.css"))],
    ]
    body = [
        tag("main", _contents(shown), left_out, articles),
        tag("script", as_data(data), type_="application/json", id_="data"),
        [tag("script", Markup(text)) for text in scripts],
    ]
    return f'<!DOCTYPE html>\n<html lang="en">\n<head>{joined(head)}</head>\n<body>{joined(body)}</body>\n</html>\n'


def _policy(scripts: Sequence[str]) -> str:
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in scripts
    )
    return (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src {hashes}; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )


def _title(found: Row) -> str:
    for key in ("ring", "file", "path", "log"):
        if isinstance(found.get(key), str):
            return place_text(found[key])
    if places := found.get("places"):
        return ", ".join(map(place_text, places))
    return str(found.get("format") or "recording")


def _contents(shown: Sequence[Row]) -> Markup | None:
    if len(shown) < 2:
        return None
    items = [tag("li", tag("a", _title(found), href=f"#recording-{at}")) for at, found in enumerate(shown)]
    return tag("nav", tag("ol", items), aria_label="recordings")


def _article(found: Row, at: int, data: Row | None, uplot: Vendored | None) -> Markup:
    history: Row = found.get("history") or {}
    parts = _over_time(found, history, at, data, uplot) if history else _plain(found)
    line = time_line(history) if history else None
    drawn: Child = None
    if data:
        drawn = f"The time line is drawn by {uplot.name} (MIT)." if uplot else f"{NOT_THERE}."
    source = provenance(found, line.merged if line else 1, data["merged"] if data else 1, __version__, drawn)
    parts.append(_section(at, "provenance", "Where this is from, and how it was computed", source))
    return tag("article", tag("h1", "rooflens ", tag("small", _title(found))), _head(found, history), parts,
               id_=f"recording-{at}", data_recording=at if data else None)  # fmt: skip


def _head(found: Row, history: Row) -> Markup | None:
    if not history:
        return None
    kinds: dict[str, int] = {}
    for engine in history.get("engines") or ():
        name = " ".join(filter(None, (engine.get("engine_name"), engine.get("engine_version"))))
        kinds[name or "facts not recorded"] = kinds.get(name or "facts not recorded", 0) + 1
    told = ", ".join(f"{count:,} × {name}" if count > 1 else name for name, count in kinds.items())
    width_s, hosts = history["window_s"], len(history.get("hosts") or ())
    text = (
        f"{words.moment(history['from_unix_s'], width_s)} to {words.moment(history['to_unix_s'], width_s)} UTC, "
        f"{words.seconds(history['span_s'])} in windows of {words.seconds(width_s)}; {history['engines_known']:,} "
        f"engine{'s' if history['engines_known'] != 1 else ''} on {hosts:,} host{'s' if hosts != 1 else ''}: {told}"
    )
    return tag("p", text, class_="head")


def _section(at: int, name: str, title: str, *children: Child) -> Markup | None:
    if not any(children):
        return None
    place = f"{name}-{at}"
    return tag("section", tag("h2", title, id_=f"{place}-title"), children, id_=place, aria_labelledby=f"{place}-title")


def _plain(found: Row) -> list[Markup | None]:
    """A recording without steps over time: its phases and its facts."""
    basis = "reachable, or the expected floor"
    table = sections.phases(found, basis) if found.get("phases") else None
    return [
        _section(0, "time", "Where the time went", table, table and sections.legend(basis)),
        _section(0, "facts", "What it says", about(found), list(lists(found))),
    ]


def _over_time(found: Row, history: Row, at: int, data: Row | None, uplot: Vendored | None) -> list[Markup | None]:
    basis, place = basis_of(history), f"line-{at}"
    line = time_line(history)
    lines = [tag("li", tag("b", name), tag("span", text)) for name, text in verdict(history)]
    said = about({key: value for key, value in found.items() if key not in ("places", "files", "problems")})
    picture = scatter(*points_of(history, line))
    return [
        _section(at, "verdict", "What happened", tag("ul", lines, class_="verdict"), happenings.tiles(history)),
        _section(at, "line", "Time line", _time_line(line, basis, history, uplot)) if line else None,
        _section(at, "time", "Where the time went", sections.phases(history, basis), sections.legend(basis)),
        _section(at, "engines", "Engines", sections.engines(history)),
        _section(at, "worst", "Worst windows", sections.worst(history, place)),
        _section(at, "changes", "Changes", sections.changes(history, place)),
        _section(at, "findings", "Findings", happenings.findings(history, place)),
        _section(at, "events", "Events", happenings.events(history, place)),
        _section(at, "roofline", "Roofline", picture, picture and tag("p", ROOFLINE, class_="help")),
        _section(at, "what-if", "What if", list(happenings.what_ifs(history))),
        _section(at, "cost", "What it cost", happenings.cost(history)),
        _section(at, "facts", "The recording", said and tag("details", tag("summary", "all that it says"), said)),
    ]  # fmt: skip


ROOFLINE = (
    "Small dots are windows, circles are kinds of steps by the time they took. The solid line is the hardware's peak "
    "bandwidth and peak arithmetic, the dashed one a tenth of them: how far a point lies below the roof is what was "
    "not used."
)


def _time_line(line: Any, basis: str, history: Row, uplot: Vendored | None) -> list[Markup]:
    found = [tag("div", class_="charts", hidden=True)] if uplot else [tag("p", f"{NOT_THERE}.", class_="help")]
    return [*found, tag("figure", still(line, basis, marks(history)), tag("figcaption", _key(history)))]


def _key(history: Row) -> Child:
    names = (("change", "change", "change_points"), ("finding", "finding", "findings"),
             ("worst", "worst window", "worst_windows"), ("event", "event", "events"))  # fmt: skip
    shown = [
        tag("li", tag("span", class_=f"key mark-{kind}"), f" {text}") for kind, text, key in names if history.get(key)
    ]
    return tag("ul", shown, class_="legend") if shown else None
