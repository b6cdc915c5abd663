"""The report in a real Chromium: it draws, zooms, sorts, and obeys nothing that a recording says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from browser.chromium import Watched
from made_report import HOSTILE, Found, hostile, large, recorded

from rooflens.dashboards.report import write_html
from rooflens.dashboards.vendored import uplot

Open = Callable[..., Watched]
RANGE = (
    "[...document.querySelectorAll('.charts')].map((each) => [Number(each.dataset.from), Number(each.dataset.to)])[0]"
)

# Dots of the first chart that have a colour of the page.
PAINTED = """(name) => {
  const wanted = shade(name).match(/[0-9a-f]{2}/gi).map((digits) => parseInt(digits, 16));
  const canvas = document.querySelector(".chart canvas");
  const dots = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  let found = 0;
  for (let at = 0; at < dots.length; at += 4)
    found += dots[at + 3] > 250 && wanted.every((value, n) => Math.abs(dots[at + n] - value) < 4);
  return found;
}"""


@pytest.fixture(scope="module")
def found() -> Found:
    return recorded()


@pytest.fixture(scope="module")
def plain(found: Found, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plain") / "report.html"
    write_html(path, found)
    return path


@pytest.fixture(scope="module")
def wide(found: Found, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("wide") / "report.html"
    write_html(path, large(found))
    return path


def span(shown: Watched) -> tuple[float, float]:
    low, high = shown.page.evaluate(RANGE)
    return low, high


def test_uplot_came_with_the_build() -> None:
    assert uplot() is not None, "python hatch_build.py fetches it; it needs npm"


def test_it_zooms_and_is_read_with_mouse_and_keys(plain: Path, watched: Open, found: Found) -> None:
    shown = watched(plain)
    page = shown.page
    assert page.locator(".chart canvas").count() >= 5
    assert not page.locator("svg.still").is_visible()
    whole = span(shown)
    page.locator(".chart .u-over").first.scroll_into_view_if_needed()
    box = page.locator(".chart .u-over").first.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.12, box["y"] + 20)
    page.wait_for_function("document.querySelector('.chart .u-value').textContent.startsWith('2026-11-30 10:0')")
    read = [text for text in page.locator(".chart:first-child .u-value").all_inner_texts() if text != "–"]
    assert any(text.endswith(("ms", "s")) for text in read[1:])
    page.mouse.move(box["x"] + box["width"] * 0.25, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 40)
    page.mouse.up()
    low, high = span(shown)
    assert low == pytest.approx(whole[0] + 0.25 * (whole[1] - whole[0]), rel=1e-3, abs=1)
    assert high - low == pytest.approx(0.25 * (whole[1] - whole[0]), rel=0.05)
    page.locator(".panels").focus()
    page.keyboard.press("ArrowRight")
    assert span(shown)[0] == pytest.approx(low + 0.25 * (high - low), abs=0.5)
    page.keyboard.press("0")
    assert span(shown) == pytest.approx(whole)
    page.get_by_role("button", name="zoom in").click()
    assert span(shown)[1] - span(shown)[0] == pytest.approx((whole[1] - whole[0]) / 2)
    assert shown.complaints() == []


def test_a_worst_window_leads_to_its_place(plain: Path, watched: Open, found: Found) -> None:
    shown = watched(plain)
    window = found[0]["history"]["worst_windows"][1]
    shown.page.locator("#worst-0 tbody a").nth(1).click()
    low, high = span(shown)
    assert low <= window["start_unix_s"] < high
    assert high - low < 0.5 * found[0]["history"]["span_s"]
    assert shown.page.locator("select option:checked").inner_text() == window["engine"]
    assert shown.page.locator("tr.marked").count() == 1
    assert shown.complaints() == []


def test_tables_sort_filter_and_are_saved(wide: Path, watched: Open, tmp_path: Path) -> None:
    page = watched(wide).page
    table = page.locator("#engines-0 table")
    lost = table.get_by_role("button", name="lost", exact=True)
    lost.click()
    lost.click()
    assert table.locator("th[aria-sort=ascending]").inner_text().startswith("lost")
    assert table.locator("tbody tr").first.locator("th").inner_text() == "llama-3-70b/99@node-12"
    page.locator("#engines-0 input[type=search]").fill("@node-03")
    assert table.locator("tbody tr:visible").count() == 8
    with page.expect_download() as download:
        page.locator("#engines-0 .tools button").click()
    lines = Path(download.value.path()).read_text(encoding="utf-8").splitlines()
    assert len(lines) == 9
    assert all('"llama-3-70b/' in line for line in lines[1:])
    assert ",869.0," in lines[-1] or ",876.0," in lines[-1]  # seconds as they were, not as they are shown


def test_windows_without_neighbours_are_seen(found: Found, watched: Open, tmp_path: Path) -> None:
    history = found[0]["history"] | {"time_line": found[0]["history"]["time_line"][::3]}
    write_html(tmp_path / "alone.html", [found[0] | {"history": history}])
    painted = watched(tmp_path / "alone.html").page.evaluate(f"({PAINTED})('observed')")
    assert painted > 3 * len(history["time_line"])


@pytest.mark.parametrize("width", [360, 420, 1240])
def test_nothing_runs_over_the_edge(plain: Path, watched: Open, width: int) -> None:
    page = watched(plain, viewport={"width": width, "height": 900}).page
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_hundred_engines_stay_usable(wide: Path, watched: Open) -> None:
    assert wide.stat().st_size < 2_000_000
    shown = watched(wide)
    page = shown.page
    assert page.locator("select option").count() == 101
    page.locator("select").select_option("7")
    columns = page.evaluate("document.querySelectorAll('.chart').length")
    assert 4 <= columns < 7  # what is not recorded of one engine is left out
    box = page.locator(".heat").bounding_box()
    assert box is not None
    page.locator(".heat").click(position={"x": box["width"] * 0.9, "y": box["height"] * 0.5 / 100})
    assert page.locator("select option:checked").inner_text() == "llama-3-70b/0@node-00"
    assert span(shown)[1] - span(shown)[0] < 1000
    assert shown.complaints() == []


def test_words_of_a_recording_stay_words(found: Found, watched: Open, tmp_path: Path) -> None:
    path = tmp_path / "hostile.html"
    write_html(path, hostile(found))
    shown = watched(path)
    page = shown.page
    page.locator("select").select_option("1")
    page.locator("#worst-0 tbody a").first.click()
    page.mouse.move(600, 300)
    assert page.evaluate("document.querySelectorAll('img, svg[onload], iframe, object').length") == 0
    assert page.evaluate("document.scripts.length") == 3
    assert HOSTILE[0] in page.locator("#engines-0 table").inner_text()
    assert page.locator("select option").all_inner_texts()[1] == HOSTILE[0]
    assert page.title().startswith("rooflens")
    assert shown.complaints() == []


def test_without_a_script_everything_can_be_read(plain: Path, watched: Open, found: Found) -> None:
    page = watched(plain, java_script_enabled=False, color_scheme="dark").page
    assert page.locator("svg.still").is_visible()
    assert page.locator("svg.still path").count() >= 8
    assert page.locator("#engines-0 tbody tr").count() == 4
    assert page.locator("#worst-0 tbody tr").count() == len(found[0]["history"]["worst_windows"])
    assert not page.locator(".charts").is_visible()


def test_both_schemes_and_print(plain: Path, watched: Open) -> None:
    """Contrast as WCAG 2 AA asks for, 4.5 to 1, of every element that holds text."""
    shown = watched(plain, color_scheme="dark")
    page = shown.page
    back = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(back)
    assert page.evaluate(CONTRAST) == []
    page.emulate_media(color_scheme="light")
    assert page.evaluate(back) == "rgb(255, 255, 255)" != dark
    assert page.evaluate(CONTRAST) == []
    page.emulate_media(color_scheme="dark", media="print")
    assert page.evaluate(back) == "rgb(255, 255, 255)"
    assert page.locator("svg.still").is_visible()
    assert not page.locator(".charts").is_visible()
    assert shown.complaints() == []


CONTRAST = """() => {
  const numbers = (text) => text.match(/[\\d.]+/g).map(Number);
  const part = (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const light = (c) => [0.2126, 0.7152, 0.0722].reduce((sum, share, at) => sum + share * part(c[at] / 255), 0);
  const ground = (node) => {
    for (; node; node = node.parentElement) {
      const colour = numbers(getComputedStyle(node).backgroundColor);
      if (colour.length < 4 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const poor = [];
  for (const node of document.querySelectorAll("main *")) {
    const own = [...node.childNodes].some((each) => each.nodeType === 3 && each.textContent.trim());
    if (!own || !node.getClientRects().length) continue;
    const style = getComputedStyle(node), colour = node instanceof SVGElement ? style.fill : style.color;
    const [low, high] = [light(numbers(colour)), light(ground(node))].sort((one, other) => one - other);
    const ratio = (high + 0.05) / (low + 0.05);
    if (ratio < 4.5) poor.push([node.tagName, node.textContent.slice(0, 30), ratio]);
  }
  return poor;
}"""
