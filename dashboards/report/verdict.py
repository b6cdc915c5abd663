"""The first lines of the report: what was lost, where, when, what changed, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rooflens.dashboards.report import words
from rooflens.dashboards.report.view import basis_of, bound_words
from rooflens.findings import FINDINGS, Code

Row = Mapping[str, Any]
Line = tuple[str, str]  # (what it is about, the sentence)
STANDS_OUT = 3.0  # times what the window would hold if waste were spread evenly: below it no moment is to blame
MOST_CHANGES = MOST_CODES = 3


def verdict(history: Row) -> list[Line]:
    """Sentences, the most important first."""
    lines = [_lost(history)]
    for each in (_engine(history), _kind(history), _moment(history)):
        if each:
            lines.append(each)
    lines += [*_changes(history), *_knobs(history), *_saved(history), *_missing(history)]
    return lines


def _wasted(history: Row) -> float | None:
    value = (history.get("cost") or {}).get("wasted_device_s")
    return None if value is None else float(value)


def _lost(history: Row) -> Line:
    cost, wasted = history.get("cost") or {}, _wasted(history)
    busy = cost.get("busy_device_s")
    if wasted is None:
        why = next((engine["problem"] for engine in history.get("engines") or () if engine.get("problem")), None)
        invalid = any(engine.get("measurement_invalid") for engine in history.get("engines") or ())
        said = "steps were faster than possible" if invalid else "no step has bounds"
        return "lost", f"How much was lost is not known: {said}{f' ({why})' if why else ''}."
    of = f" of {words.seconds(busy)} in steps ({words.percent(wasted / busy)})" if busy else ""
    text = f"{words.seconds(wasted)} of device time{of} lay above {bound_words(basis_of(history))}"
    if cost.get("wasted_money") is not None and cost.get("money") is not None:
        text += f", {words.money(cost['wasted_money'])} of the {words.money(cost.get('money'))} paid"
    return "lost", f"{text}."


def _engine(history: Row) -> Line | None:
    engines: Sequence[Row] = history.get("engines") or ()
    total = _wasted(history)
    if len(engines) < 2 or not total or engines[0].get("wasted_device_s") is None:
        return None
    first = engines[0]
    share = first["wasted_device_s"] / total
    text = f"{first['label']} lost most: {words.seconds(first['wasted_device_s'])}, {words.percent(share)} of all"
    if share < STANDS_OUT / len(engines):
        text += f", of {len(engines):,} engines; none stands out"
    return "where", f"{text}."


def _kind(history: Row) -> Line | None:
    lost = [(above, phase) for phase in history.get("phases") or () if (above := above_bound(phase)) is not None]
    if not lost:
        return None
    most, phase = max(lost, key=lambda pair: pair[0])
    if most <= 0:
        return None
    name, bound = str(phase["name"]), _bound(phase)
    parts = [(above, each) for each in history.get("decode_by_batch") or () if (above := above_bound(each)) is not None]
    text = f"Most of it, {words.seconds(most)}, in {name} steps{f', which {bound} binds' if bound else ''}"
    if name == "decode" and len(parts) > 1:
        above, part = max(parts, key=lambda pair: pair[0])
        text += f"; the largest part at {part['name']}: {words.seconds(above)}"
    return "where", f"{text}."


def above_bound(phase: Row) -> float | None:
    """Seconds of a kind of step above what is reachable, or expected where that is not known."""
    floor = phase.get("floor")
    if not floor:
        return None
    bound = floor.get("reachable_s") if floor.get("reachable_s") is not None else floor.get("expected_s")
    return None if bound is None or floor.get("observed_s") is None else float(floor["observed_s"] - bound)


def _bound(phase: Row) -> str | None:
    steps: Mapping[str, int] = (phase.get("floor") or {}).get("bound_steps") or {}
    return max(steps, key=steps.__getitem__, default=None)


def _moment(history: Row) -> Line | None:
    """The window that stands out from what is usual for its engine, or that none does."""
    worst, width_s, total = history.get("worst_windows") or (), history.get("window_s"), _wasted(history)
    if not worst or not total:
        return None
    first = worst[0]
    above = first.get("above_usual_device_s")
    windows = len((history.get("engine_windows") or {}).get("window") or history.get("time_line") or ())
    at, lost = words.moment(first["start_unix_s"], width_s), words.seconds(first["wasted_device_s"])
    text = f"{at} UTC on {first['engine']}, {words.seconds(first['seconds'])} long: {lost} lost"
    text += f", {words.seconds(above)} more than is usual there" if above is not None and above > 0 else ""
    part = (first["wasted_device_s"] if above is None else above) / total
    if windows and part < STANDS_OUT / windows:
        return "when", f"No moment stands out. The worst is {text}."
    return "when", f"Worst at {text}; {first['text']}."


def _changes(history: Row) -> Iterator[Line]:
    found = history.get("change_points") or ()
    for change in found[:MOST_CHANGES]:
        cost = change.get("cost_device_s")
        price = f"; it {'cost' if cost >= 0 else 'saved'} {words.seconds(abs(cost))}" if cost is not None else ""
        at = words.moment(change["at_unix_s"], history.get("window_s"))
        yield "change", f"{at} UTC, {change['engine']}: {change['text']}{price}."
    if len(found) > MOST_CHANGES:
        yield "change", f"{len(found) - MOST_CHANGES:,} more changes are listed below."
    if not found and history.get("basis"):
        yield "change", "No change of the step time was found that noise does not explain."


def _knobs(history: Row) -> Iterator[Line]:
    """What stood among the findings and its remedy, with the flags of the engines that ran."""
    by_code: dict[str, list[Row]] = {}
    for one in history.get("findings") or ():
        if one.get("status") == "firing":
            by_code.setdefault(str(one["code"]), []).append(one)
    ran = {engine.get("engine_name") for engine in history.get("engines") or ()}
    for code, stood in list(by_code.items())[:MOST_CODES]:
        times = f", {len(stood):,} times" if len(stood) > 1 else ""
        yield "finding", f"{code} ({stood[0]['severity']}) on {stood[0]['engine']}{times}: {stood[0]['summary']}."
        if code in set(Code):
            known = FINDINGS[Code(code)]
            flags = [f"{engine}: {text}" for engine, text in known.flags.items() if engine in ran]
            yield "knob", " ".join([known.remedy, *flags])


def _saved(history: Row) -> Iterator[Line]:
    for answer in history.get("what_ifs") or ():
        saved = answer.get("saved_device_s")
        if not saved:
            continue
        busy = (answer.get("total") or {}).get("observed_s")
        low, high = (words.seconds(each) for each in saved)
        text = f"{answer['change']} would have saved {low if low == high else f'{low} to {high}'}"
        text += f" of {words.seconds(busy)}" if busy else ""
        text += ", but its caches do not fit" if answer.get("fits") is False else ""
        yield "what if", f"{text}."


def _missing(history: Row) -> Iterator[Line]:
    if history.get("lost_steps"):
        yield "not seen", f"{words.whole(history['lost_steps'])} steps are missing in the recording."
    if history.get("silent_s"):
        yield "silent", f"No engine ended a step for {words.seconds(history['silent_s'])} in all."
