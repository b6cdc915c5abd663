"""The live view's text on made snapshots: golden at 80 by 24, and what no name or size may do to it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from cli.frames import DECODE, FIGURES, NOON_S, PRESSURE, STALLED, engine, frame

from rooflens.cli.output import printable
from rooflens.cli.top_block import time_bar, time_parts
from rooflens.cli.top_lines import cut, word
from rooflens.cli.top_text import frame_lines, plain, price_text
from rooflens.device_records import CounterSource, Throttle, WindowCounters
from rooflens.findings import Status
from rooflens.live_records import Derived, State

ONE = """\
rooflens 0.1.0   http://127.0.0.1:9980   12:00:00 UTC   1 engine
llama-3-8b  engine 0  live  by ring  vllm 0.33.0  h100-sxm5-80
  100 steps/s   1,530 tokens/s   decode step p50 9.81 ms, p99 14.2 ms
  batch 15.6   context 1,204   running 16   waiting 3.2 (41% of steps)
  KV [##########              ] 41%, at most 55%   3 preemptions
  MBU 61%   MFU 5%   1.60 x floor   bound by memory 96%, compute 4%
  mean decode step: floor 6.02 ms, reachable 7.04 ms, observed 9.8 ms
  time [MMMMMMMMMMMMMMMMMMMC++++++++++++??----..]
        M memory 48%  C compute 2%  + beyond floor 30%  ? not modelled 5%
        - between 10%  . idle 5%
  WARNING kv_pressure: 3 preemptions in ten seconds, and requests wait after
          41% of the steps while the pool is full
    price: 12% of the engine's time (1.2 s of 10 s; 9% to 15%)
    remedy: --gpu-memory-utilization 0.95, or --kv-cache-dtype fp8
  cannot tell: host_overhead (device time)"""
MANY = """\
model, engine    state  tok/s      p50  batch  queue   KV   MBU  x floor  finds
a, 0              live  1,530  9.81 ms   15.6    3.2  41%   61%     1.60      1
a, 1              died      -        -      -      -    -     -        -      0
a-long-name-, 0   live  1,530  9.81 ms   15.6    3.2  41%   61%     1.60      1
  CRITICAL a-long-name-of-a-model, 0: engine_stalled: no output for 42 s
    remedy: py-spy dump
  WARNING a, 0: kv_pressure: 3 preemptions in ten seconds, and requests wait
          after 41% of the steps while the pool is full
    price: 12% of the engine's time (1.2 s of 10 s; 9% to 15%)
    remedy: --gpu-memory-utilization 0.95, or --kv-cache-dtype fp8
problem: the ring is odd"""
HOSTILE = "m\x1b[2J\x07\r\n\u202e" + "x" * 300


def test_one_engine_at_80_by_24() -> None:
    assert plain(frame_lines(frame([engine()]), "http://127.0.0.1:9980", 79, 24)) == ONE


def test_many_engines_are_one_line_each_with_the_findings_below() -> None:
    dead = engine("a", "1", windows=(), findings=(), state=State.DIED)
    long = engine("a-long-name-of-a-model", findings=(STALLED,))
    lines = frame_lines(frame([engine("a"), dead, long], ["the ring is odd"]), "x", 79, 24)
    assert plain(lines[1:]) == MANY
    assert [line.style for line in lines if line.style] == [
        "head",
        "head",
        *["critical"],
        "warning",
        "warning",
        "warning",
    ]


def test_two_engines_that_fit_have_a_block_each() -> None:
    text = plain(frame_lines(frame([engine("a", findings=()), engine("b", findings=())]), "x", 79, 24))
    assert text.count("steps/s") == 2
    assert "steps/s" not in plain(frame_lines(frame([engine("a", findings=()), engine("b", findings=())]), "x", 79, 12))


@pytest.mark.parametrize(("width", "height"), [(79, 24), (79, 5), (40, 10), (10, 3), (1, 1), (200, 60)])
def test_nothing_is_wider_or_longer_than_the_terminal(width: int, height: int) -> None:
    engines = [engine(name, "0", findings=(STALLED,)) for name in (HOSTILE, "\u6a21\u578b" * 30, "e\u0301" * 50)]
    for shown in (frame(engines, [HOSTILE]), frame(engines[:1]), frame([])):
        lines = frame_lines(shown, HOSTILE, width, height)
        assert 0 < len(lines) <= height
        assert all(cut(line.text, width) == line.text for line in lines)
        assert all(printable(line.text) == line.text and "\n" not in line.text for line in lines)


def test_what_does_not_fit_is_counted() -> None:
    lines = frame_lines(frame([engine()]), "x", 79, 6)
    assert lines[-1].text == "... 10 more lines: rooflens top --once"


def test_without_a_window_or_a_floor_it_says_why() -> None:
    text = plain(frame_lines(frame([engine(windows=(), hardware=None, problem="give --hardware ID")]), "x", 79))
    assert "hardware not known" in text
    assert "no window yet" in text
    assert "no floor: give --hardware ID" in text
    bare = replace(FIGURES, floor_s=None, compared_s=None, mbu=None, mfu=None, bound_s={}, idle_s=None, preempted=None)
    text = plain(frame_lines(frame([engine(windows=(bare,))]), "x", 79))
    assert "MBU -   MFU -   - x floor   bound by -" in text
    assert "preemptions not known" in text
    assert "no engine yet" in plain(frame_lines(frame([]), "x", 79))


def test_the_mean_step_of_the_kind_that_took_most_time() -> None:
    def told(width: int = 79, **changes: Any) -> list[str]:
        kinds = {"mixed": replace(DECODE, compared_steps=10, compared_s=0.5), "decode": replace(DECODE, **changes)}
        lines = plain(frame_lines(frame([engine(windows=(replace(FIGURES, kinds=kinds),))]), "x", width)).splitlines()
        at = next((at for at, line in enumerate(lines) if "  mean " in line), None)
        return [] if at is None else lines[at : at + 2]

    assert told(reachable_s=None)[0] == "  mean decode step: floor 6.02 ms, observed 9.8 ms"
    long = "  mean decode step: floor 6.02 ms, expected 6.53 ms, reachable 7.04 ms, observed 9.8 ms"
    assert told(width=100, expected_s=6.4)[0] == long, "where experts are expected to add to it"
    assert told(expected_s=6.4) == [long.removesuffix(" observed 9.8 ms"), "    observed 9.8 ms"]
    assert told(compared_s=0.4)[0].startswith("  mean mixed step: floor 590 ms")
    assert told(compared_steps=None)[0].startswith("  mean mixed step"), "a sidecar of an earlier version"
    bare = replace(DECODE, compared_steps=None)
    figures = replace(FIGURES, kinds={"decode": bare})
    assert "mean decode" not in plain(frame_lines(frame([engine(windows=(figures,))]), "x", 79))


def test_derived_values_are_marked_and_an_old_step_is_said() -> None:
    values = (Derived("batch_mean", 15.6, "", "from KV use", 15.0, 16.0), Derived("context", 1200.0, "", "x"))
    text = plain(frame_lines(frame([engine(derived=values, last_step_unix_s=1_700_049_600.0 - 42)]), "x", 119))
    assert "estimated: batch mean 15.6 (15 to 16), context 1,200" in text
    assert "last step 42 s ago" in text


def test_estimates_have_words_units_and_whole_items_at_any_width() -> None:
    values = (
        Derived("resolution_steps", 68.6, "", "x", 60.0, 80.0),
        Derived("step_s", 0.0123, "s", "x"),
        Derived("prefill_pairs", 8320.0, "", "x", 8320.0, 532_480.0),
    )
    for width in (60, 79, 200):
        lines = [line.text for line in frame_lines(frame([engine(derived=values)]), "x", width)]
        told = " ".join(" ".join(lines).split())
        assert "steps an interval 68.6 (60 to 80), step 12.3 ms, pairs of attention in prompts 8,320 (8,320 to" in told
        assert "532,480)" in told
        assert "cannot tell: host_overhead (device time)" in told


def test_a_title_is_not_cut() -> None:
    text = plain(frame_lines(frame([engine("a-model-with-quite-a-long-name", last_step_unix_s=NOON_S - 42)]), "x", 79))
    assert "last step 42 s ago" in text


def test_what_cleared_and_why_there_is_no_mfu() -> None:
    gone = replace(PRESSURE, status=Status.CLEARED, until_unix_s=NOON_S - 30)
    shown = dict(frame([engine(findings=(gone,))]))
    assert "cleared: kv_pressure (30 s ago)" in plain(frame_lines(shown, "x", 79))
    shown["engines"][0]["notes"] = ["this-cpu states no rate for bf16"]
    assert "note:" not in plain(frame_lines(shown, "x", 79))
    shown["engines"][0]["windows"][-1]["mfu"] = None
    assert "  note: this-cpu states no rate for bf16" in plain(frame_lines(shown, "x", 79))


def test_the_time_bar_adds_up() -> None:
    parts = time_parts(frame([engine()])["engines"][0]["windows"][0])
    assert sum(parts.values()) == pytest.approx(1.0)
    assert time_bar(parts, 20) == "MMMMMMMMMM++++++?--."
    assert time_parts({}) == {}
    assert time_bar({}, 5) == "     "


def test_words_and_prices() -> None:
    assert (word(None), word("a\nb\x1b")) == ("-", "a?b?")
    assert price_text({"saved_s": 1.0}) == "1 s"
    assert [cut(text, 3) for text in ("abcd", "\u6a21\u578b", "e\u0301" * 4)] == ["abc", "\u6a21", "e\u0301" * 3]


COUNTED = WindowCounters(
    CounterSource.NVML, 2, 2, 0.93, counter_bytes=3.1e13, model_bytes=3.0e13, ratio=1.03, ratio_low=0.99,
    ratio_high=1.07, dram_ratio=0.71, sm_clock_hz=1.5e9, sm_clock_ratio=0.75, power_w=699.0, power_ratio=0.9986,
    throttled_ratio={Throttle.POWER_CAP: 0.62, Throttle.THERMAL: 0.0}, engine_core_busiest_cores=0.99,
    complaints=("the wall clock was set by +2 s; counters are joined by the monotonic clock",),
)  # fmt: skip


def counted(*windows: WindowCounters | None) -> list[str]:
    view = engine(windows=tuple(replace(FIGURES, counters=each) for each in windows))
    lines = plain(frame_lines(frame([view]), "x", 100)).splitlines()
    return [line.strip() for line in lines if "counters:" in line or line.startswith("    the monotonic")]


def test_counters_are_a_line_where_they_are_known() -> None:
    first, second, *_ = counted(COUNTED)
    assert first.startswith(
        "counters: DRAM 71%, counted 1.03 x model bytes (0.99 to 1.07), SM clock 1,500 of 2,000 MHz"
    )
    assert second.startswith("counters: the wall clock was set by +2 s")
    text = plain(frame_lines(frame([engine(windows=(replace(FIGURES, counters=COUNTED),))]), "x", 200))
    assert "699 W, 100% of the limit, throttled 62% (power cap), engine core's busiest thread 99%" in text
    assert "thermal" not in text


def test_counters_that_are_not_known_are_hidden() -> None:
    assert counted(None) == []
    assert counted(WindowCounters(None, 0, 1, 0.0)) == ["counters: 0 of 1 devices"]
    assert counted(replace(COUNTED, devices=1, complaints=()), None)[0].startswith("counters: 1 of 2 devices, DRAM 71%")


def test_an_older_sidecar_tells_no_counters() -> None:
    old = frame([engine()])
    for each in old["engines"]:
        del each["ceilings"], each["device_uuids"]
        for window in each["windows"]:
            del window["counters"]
    del old["devices"]
    assert plain(frame_lines(old, "http://127.0.0.1:9980", 79, 24)) == ONE
