"""Findings, events, what-ifs and what the period cost, as tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rooflens.dashboards.report import words
from rooflens.dashboards.report.markup import Child, Markup, tag
from rooflens.dashboards.report.sections import factor, jump, label, number, seconds, whole
from rooflens.dashboards.report.tables import Cell, Column, table
from rooflens.dashboards.report.view import basis_of, bound_words

Row = Mapping[str, Any]


def findings(history: Row, place: str) -> Markup | None:
    """What the sidecar found in the period."""
    columns = (
        Column("from (UTC)", False), Column("stood"), Column("engine", False), Column("finding", False),
        Column("severity", False), Column("in words", False),
    )  # fmt: skip
    rows = []
    for one in history.get("findings") or ():
        until = one["until_unix_s"]
        stood = seconds(until - one["unix_s"]) if until is not None else Cell("to the end")
        link = jump(one["unix_s"], history.get("window_s"), stood.value or 0.0, one["engine"], place)
        mark = tag("span", one["severity"], class_=f"severity-{one['severity']}")
        rows.append([Cell(link, one["unix_s"]), stood, label(one["engine"]), one["code"], mark, one["summary"]])
    return table("Findings as they stood in the period.", columns, rows, "findings") if rows else None


def events(history: Row, place: str) -> Markup | None:
    """Restarts, sleeps, clocks that were set, steps that were lost."""
    columns = (Column("at (UTC)", False), Column("engine", False), Column("event", False), Column("details", False))
    rows = [
        [
            Cell(jump(one["unix_s"], history.get("window_s"), 0.0, one["engine"], place), one["unix_s"]),
            label(one["engine"]), one["name"], one["text"],
        ]
        for one in history.get("events") or ()
    ]  # fmt: skip
    return table("Events of the engines.", columns, rows, "events") if rows else None


def what_ifs(history: Row) -> Iterator[Markup]:
    """Every what-if: a table by kind of step, and what would make it wrong."""
    for at, answer in enumerate(history.get("what_ifs") or ()):
        columns = (
            Column("kind of step", False), Column("steps"), Column("observed"),
            Column("reachable now"), Column("reachable then"), Column("new time, from"), Column("to"),
            Column("tokens/s now"), Column("then, from"), Column("to"),
        )  # fmt: skip
        parts = [*(answer.get("kinds") or ()), *filter(None, [answer.get("total")])]
        rows = [
            [
                part["name"], whole(part["steps"]), seconds(part["observed_s"]), seconds(part["reachable_now_s"]),
                seconds(part["reachable_then_s"]), seconds(part["new_low_s"]), seconds(part["new_high_s"]),
                number(part["tokens_per_s_now"]), number(part["tokens_per_s_low"]), number(part["tokens_per_s_high"]),
            ]
            for part in parts
        ]  # fmt: skip
        name = f"what if {answer['change']}"
        yield tag("h3", f"What if {answer['change']}")
        yield tag("p", _saving(answer))
        if rows:
            yield table(
                "The captured steps put through the roofline under the change.", columns, rows, name, sortable=False
            )
        notes = [*(answer.get("problems") or ()), *(answer.get("notes") or ())]
        if notes:
            yield tag("ul", [tag("li", note) for note in notes], class_="notes", id_=f"notes-{at}")


def _saving(answer: Row) -> str:
    saved, text = answer.get("saved_device_s"), "No captured step can be put through it."
    if saved:
        low, high = (words.seconds(each) for each in saved)
        text = f"It saves {low if low == high else f'{low} to {high}'} of device time"
        if cash := answer.get("saved_money"):
            text += f", {words.money(cash[0])} to {words.money(cash[1])} in money"
        if answer.get("devices_now") != answer.get("devices_then"):
            text += f", with {answer['devices_then']:,} devices instead of {answer['devices_now']:,}"
        text += "."
    if answer.get("needed_bytes") is not None and answer.get("pool_bytes") is not None:
        fits = "fits" if answer.get("fits") else "does not fit"
        text += (
            f" The KV cache {fits}: at its fullest {words.size(answer['needed_bytes'])} of "
            f"{words.size(max(0.0, answer['pool_bytes']))} on the tightest device."
        )
    if answer.get("skipped_steps"):
        text += f" {words.whole(answer['skipped_steps'])} steps without bounds are left out."
    return text


def cost(history: Row) -> Markup:
    """Device time, money and energy."""
    found: Row = history.get("cost") or {}
    amounts: list[tuple[str, Child]] = [
        ("devices held", words.seconds(found.get("held_device_s"))),
        ("in steps", words.seconds(found.get("busy_device_s"))),
        (f"above {bound_words(basis_of(history))}", words.seconds(found.get("wasted_device_s"))),
        ("device time for a million generated tokens", words.seconds(found.get("device_s_per_million_tokens"))),
    ]
    if found.get("price_per_device_hour") is not None:
        price = words.money(found["price_per_device_hour"])
        amounts += [
            (f"money, at {price} a device and hour", words.money(found.get("money"))),
            ("of it lost", words.money(found.get("wasted_money"))),
            ("money for a million generated tokens", words.money(found.get("money_per_million_tokens"))),
        ]
    if found.get("energy_j") is not None:
        amounts.append(("energy", f"{words.number(found['energy_j'])} J"))
        each = found.get("energy_j_per_million_tokens")
        amounts.append(("energy for a million generated tokens", f"{words.number(each)} J" if each else words.DASH))
    return facts(amounts)


def facts(amounts: list[tuple[str, Child]]) -> Markup:
    """Names and what they are."""
    return tag("dl", [tag("div", tag("dt", name), tag("dd", value)) for name, value in amounts], class_="facts")


def tiles(history: Row) -> Markup:
    """The figures that one asks for first."""
    totals: Row = history.get("totals") or {}
    found: Row = history.get("cost") or {}
    tokens, span = totals.get("generated_tokens"), totals.get("span_s")
    wasted, busy = found.get("wasted_device_s"), found.get("busy_device_s")
    ratio = totals.get("x_reachable") if history.get("basis") == "reachable" else totals.get("x_expected")
    shown: list[tuple[str, Cell]] = [
        ("steps", whole(totals.get("steps"))),
        ("device time in steps", seconds(busy)),
        ("lost", seconds(wasted)),
        (f"× {basis_of(history)}", factor(ratio)),
        ("step, p50", seconds(totals.get("step_p50_s"))),
        ("step, p90", seconds(totals.get("step_p90_s"))),
        ("tokens/s", number(tokens / span if tokens is not None and span else None)),
        ("waiting, mean", number(totals.get("waiting_mean"))),
        ("KV used, most", Cell(words.percent(totals.get("kv_used_max_ratio")))),
    ]
    parts = [tag("div", tag("dt", name), tag("dd", cell.shown)) for name, cell in shown if cell.shown != words.DASH]
    return tag("dl", parts, class_="tiles")
