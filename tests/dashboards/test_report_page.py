"""The report without a browser: its text, its policy, its size, and the files that it is written to."""

from __future__ import annotations

import base64
import hashlib
import json
import random
import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from made_report import Found, hostile, large, recorded, text_of
from recorded_rings import HARDWARE, unpacked

from rooflens.cli import main
from rooflens.dashboards.report import write_html
from rooflens.dashboards.report.markup import as_data, tag
from rooflens.dashboards.report.page import page
from rooflens.dashboards.report.verdict import verdict
from rooflens.dashboards.report.view import MOST_CELLS, MOST_WINDOWS, data_of, time_line
from rooflens.dashboards.vendored import Vendored, uplot
from rooflens.records import RooflensError

GOLDEN = Path(__file__).parent / "golden" / "report.txt"
MADE = Vendored("made 1", "var uPlot = 1;", ".u {}", "licence")


@pytest.fixture(scope="module")
def found() -> Found:
    return recorded()


@pytest.fixture(scope="module")
def wide(found: Found) -> str:
    return page(large(found), uplot())


def scripts(text: str) -> list[str]:
    return re.findall(r"<script>(.*?)</script>", text, re.DOTALL)


def data(text: str) -> Any:
    (held,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    return json.loads(held)


def test_the_text_is_the_golden_one(found: Found) -> None:
    """Renew with `PYTHONPATH=tests python tests/made_report.py` and read the diff."""
    assert text_of(page(found, None)) == GOLDEN.read_text(encoding="utf-8")


def test_the_policy_allows_its_own_scripts_and_nothing_else(found: Found) -> None:
    text = page(found, MADE)
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    hashes = [f"'sha256-{base64.b64encode(hashlib.sha256(each.encode()).digest()).decode()}'" for each in scripts(text)]
    assert len(hashes) == 2
    rules = dict(rule.strip().split(" ", 1) for rule in unescape(policy).split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["script-src"].split() == hashes
    assert not re.search(r"\b(?:src|href|action)=\"(?!#)", text)
    assert not re.search(r"\bon[a-z]+=\"", text)


def test_a_usual_report_is_small_and_a_large_one_bounded(found: Found, wide: str) -> None:
    assert len(page(found, uplot()).encode()) < 1_000_000
    assert len(wide.encode()) < 2_000_000
    (held,) = data(wide)
    assert sum(each["count"] for each in held["engines"]) <= MOST_CELLS
    assert held["merged"] == 2
    assert "one point for 2 windows" in wide


def test_windows_that_are_put_together_keep_their_sums(found: Found) -> None:
    history = found[0]["history"]
    line = time_line(history, most=40)
    assert line is not None
    assert line.count <= 40 < len(history["time_line"])
    total = sum(window["wasted_device_s"] for window in history["time_line"])
    assert sum(value or 0.0 for value in line.columns["wasted_device_s"]) == pytest.approx(total, rel=1e-3)
    longest = max(window["step_max_s"] for window in history["time_line"])
    assert max(value or 0.0 for value in line.columns["step_max_s"]) == pytest.approx(longest, rel=1e-3)
    begins = [line.start_unix_s + at * line.width_s for at in range(line.count)]
    ends = [min(begin + line.width_s, history["to_unix_s"]) for begin in begins]
    begins[0] = history["from_unix_s"]
    rates = line.columns["steps_per_s"]
    steps = [(rate or 0.0) * (end - begin) for rate, begin, end in zip(rates, begins, ends, strict=True)]
    assert sum(steps) == pytest.approx(history["totals"]["steps"], rel=5e-3)


def test_the_bound_of_a_window_is_below_its_time_and_the_floor_below_the_bound(found: Found) -> None:
    line = time_line(found[0]["history"])
    assert line is not None
    assert line.count <= MOST_WINDOWS
    columns = zip(*(line.columns[name] for name in ("step_mean_s", "bound_s", "floor_s")), strict=True)
    known = [each for each in columns if None not in each]
    assert known
    assert all(mean > bound > floor > 0 for mean, bound, floor in known)  # type: ignore[operator]


def test_a_slow_engine_among_a_hundred_is_named(found: Found, wide: str) -> None:
    told = dict(verdict(large(found)[0]["history"]))
    assert "llama-3-70b/7@node-00" in told["change"]
    assert "--kv-cache-dtype" in told["knob"]
    assert "of 100 engines; none stands out" in text_of(wide)


def test_without_bounds_it_says_so(found: Found) -> None:
    history = json.loads(json.dumps(found[0]["history"]))
    history["basis"] = None
    for window in history["time_line"]:
        window |= dict.fromkeys(("slowdown", "mbu", "mfu", "wasted_device_s"))
    for phase in (*history["phases"], *history["decode_by_batch"]):
        phase["floor"] = None
    for engine in history["engines"]:
        engine |= {"wasted_device_s": None, "hardware": None, "problem": "the hardware is not known"}
        engine["amounts"] |= dict.fromkeys(("floor_s", "wasted_s", "wasted_of_s", "compared_s"))
    history["cost"] |= dict.fromkeys(("wasted_device_s", "wasted_money"))
    history |= {"worst_windows": [], "what_ifs": []}
    text = text_of(page([found[0] | {"history": history}], MADE))
    assert "How much was lost is not known: no step has bounds (the hardware is not known)." in text
    assert "Roofline" not in text


def test_what_a_recording_says_never_becomes_an_element(found: Found) -> None:
    text = page(hostile(found), None)
    body = re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)
    assert not re.search(r"<(?:img|script|iframe|object|embed)\b|<svg onload", body)
    assert "&lt;img src=x" in body
    assert len(re.findall("</script", text)) == 2
    assert "\u202e" not in text
    assert not re.search("[\u2028\u2029]", text)


def test_data_comes_back_as_it_was() -> None:
    held = {"</script>": ["<!--", "&amp;", "\u2028", 1.5, None]}
    text = as_data(held)
    assert json.loads(text) == held
    assert not set("<>&\u2028") & set(text)


def test_attributes_are_escaped() -> None:
    assert tag("a", "<b>", title='"x" & <y>', hidden=True, id_=None) == (
        '<a title="&quot;x&quot; &amp; &lt;y&gt;" hidden>&lt;b&gt;</a>'
    )


def test_places_are_named_without_their_secrets(wide: str) -> None:
    assert "s3://bucket/fleet" in wide
    assert not re.search("key:secret|X-Signature", wide)


def test_without_uplot_it_is_whole_and_says_so(found: Found) -> None:
    text = page(found, None)
    assert "uPlot was not there when rooflens was built" in text
    assert text.count("<svg") == 2
    assert "uPlot was not there" not in page(found, MADE)


def test_other_recordings_are_facts_and_tables() -> None:
    bench = {"format": "vllm", "file": "/somewhere/private/r.json", "ratio": None, "nested": {"deep_s": 0.25}}
    bench["runs"] = [{"batch": 4, "tokens_per_s": 9.5}]
    text = text_of(page([bench, bench], MADE))
    assert "rooflens r.json" in text
    assert "private" not in text
    assert "nested, deep s | 250 ms" in text
    assert "4 | 9.5" in text


def test_analyze_writes_it_beside_its_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "report.html"
    ring = str(unpacked("vllm-a", tmp_path))
    assert main(["analyze", ring, "--hardware", str(HARDWARE), "--html", str(path)]) == 0
    told = capsys.readouterr()
    assert "where the time went" in told.out
    assert told.err == f"rooflens: the report is {path}\n"
    written = path.read_text(encoding="utf-8")
    assert "vllm-a.ring" in written
    assert str(tmp_path) not in written
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith(".")] == []


@pytest.mark.parametrize(
    ("name", "why"), [("r.txt", "must end in .html"), ("no/r.html", "is not there"), ("-", "must end")]
)
def test_a_name_that_cannot_be_written_is_one_line(
    name: str, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ring = str(unpacked("vllm-a", tmp_path))
    assert main(["analyze", ring, "--html", name if name == "-" else str(tmp_path / name)]) == 2
    told = capsys.readouterr()
    assert why in told.err
    assert told.err.count("\n") == 1
    assert told.out == ""


def test_a_full_disk_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "report.html"
    path.write_text("before", encoding="utf-8")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(RooflensError, match="cannot be written: No space left on device"):
        write_html(path, [{"format": "made"}])
    assert [each.name for each in tmp_path.iterdir()] == ["report.html"]
    assert path.read_text(encoding="utf-8") == "before"


def test_what_is_drawn_is_finite_and_in_order(found: Found) -> None:
    held = data_of(found[0]["history"])
    assert held is not None
    times = [mark["at"] for mark in held["marks"]]
    assert times == sorted(times)
    assert {mark["kind"] for mark in held["marks"]} >= {"finding", "worst", "event"}
    json.dumps(held, allow_nan=False)


KNOWN = frozenset({
    "start_unix_s", "seconds", "steps", "window_s", "from_unix_s", "to_unix_s", "at_unix_s", "unix_s", "span_s",
    "held_device_s", "engines_known", "confidence", "factor", "factor_low", "factor_high", "devices_now",
    "devices_then", "memory", "compute", "link", "engine", "window",
})  # fmt: skip


def forgotten(value: Any, key: str, forget: Any) -> Any:
    """``value`` with None for some of the figures that may be not known."""
    if isinstance(value, dict):
        return {name: forgotten(each, name, forget) for name, each in value.items()}
    if isinstance(value, list):
        return [forgotten(each, key, forget) for each in value]
    return None if isinstance(value, float) and key not in KNOWN and forget() else value


@pytest.mark.parametrize("part", [0.1, 0.5, 1.0])
def test_whatever_is_not_known_it_is_written(found: Found, part: float) -> None:
    chance = random.Random(str(part))
    poor = [forgotten(found[0], "", lambda: chance.random() < part)]
    assert "NaN" not in page(poor, None)
    json.loads(re.findall(r'id="data">(.*?)</script>', page(poor, None), re.DOTALL)[0])


def test_idle_time_leaves_the_bars_of_steps_their_length(found: Found) -> None:
    history = found[0]["history"]
    idle = {"name": "not in a step", "steps": 0, "seconds": 5e4, "share_ratio": 0.0, "step_s": None, "floor": None}
    phases = [*(each for each in history["phases"] if each["steps"]), idle]
    text = page([found[0] | {"history": history | {"phases": phases}}], None)
    bars = re.findall(r'class="stack( longer)?".*?</div>', text.partition('id="time-0"')[2].partition("</table>")[0])
    assert [bool(each) for each in bars].count(True) == 1
    widths = [float(each) for each in re.findall(r"width:([0-9.]+)%", text.partition('id="time-0"')[2])]
    assert max(widths) == 100.0
    assert sum(widths[:3]) == pytest.approx(
        100, abs=0.1
    )  # decode, the longest kind: as if the idle time were not there


def test_the_floors_of_a_page_say_what_they_stand_on(found: Found) -> None:
    roofs = [{"text": "this-cpu (measured): 12.5 GB/s; others used the machine"}]
    assert "Floors stand on this-cpu (measured): 12.5 GB/s; others used" in page([found[0] | {"roofs": roofs}], None)


def test_an_expected_floor_has_an_article(found: Found) -> None:
    text = text_of(page([found[0] | {"history": found[0]["history"] | {"basis": "expected"}}], None))
    assert "above the expected floor" in text
    assert "what is expected" not in text
