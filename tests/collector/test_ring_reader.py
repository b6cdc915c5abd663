from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rooflens.collector.lengths import LengthDecoder
from rooflens.collector.payload import Sections, parse
from rooflens.collector.raw_slots import read_raw
from rooflens.collector.ring_file import RingFile
from rooflens.collector.ring_source import RingSource
from rooflens.collector.slot_columns import SlotColumns
from rooflens.collector.tables import concatenated
from rooflens.records import RooflensError
from rooflens.ring import (
    COLD_FIELDS,
    EXTRA_FIELDS,
    HEADER,
    INFO_OFFSET,
    KEY,
    LENGTHS,
    REPEAT,
    SLOT_BYTES,
    SLOTS_OFFSET,
    STATE_OFFSET,
    UNKNOWN,
    pack_header,
    parse_header,
)
from rooflens.ring_folder import create_ring
from rooflens.ring_writer import RingWriter, pack_cold

SLOTS, ARENA = 16, 4096
LAYOUT_AT = HEADER.size - 12  # of the header: where the slot layout is (u64), its bytes (u32)


@pytest.fixture
def ring(tmp_path: Path) -> Iterator[tuple[RingWriter, Path]]:
    tmp_path.chmod(0o700)
    writer, path = create_ring(tmp_path, 0, ((SLOTS, ARENA),))
    yield writer, path
    writer.close()


def cold(**given: int) -> bytes:
    unknown = {"kv_blocks_cached": UNKNOWN, "padded_tokens": UNKNOWN}
    return pack_cold(*({**unknown, **given}.get(name, 0) for name, _ in COLD_FIELDS))


def lengths_payload(*contexts: int) -> bytes:
    return struct.pack(f"<I{len(contexts)}I", len(contexts), *contexts)


def step(writer: RingWriter, number: int, contexts: list[int] | None = None, total: int = 0) -> None:
    """One decode step of three rows, a keyframe where contexts are given; a millisecond, one apart."""
    begin = 1_000_000_000 + number * 2_000_000
    sections, payload = (LENGTHS, lengths_payload(*contexts)) if contexts else (0, b"")
    fields = {"query_tokens": 3, "generated_tokens": 3, "requests": 3, "running": 3, "kind": 1}
    fields |= {"frame": KEY if contexts else REPEAT, "base": 0 if contexts else 1, "sections": sections}
    context = sum(contexts) if contexts else total
    writer.commit(begin, begin + 1_000_000, context, 0, 0, UNKNOWN, UNKNOWN, 0, 9, cold(**fields), payload)


def test_one_slot_to_the_last_byte(ring: tuple[RingWriter, Path]) -> None:
    """A keyframe of two rows, worked out by hand from the layout in ring.py.

    Slot, little-endian: sequence 1, arena offset 0, submit 10^9 ns, output 10^9 + 5 * 10^6 ns, context 7 + 9 = 16
    (five u64); payload of 4 + 2 * 4 bytes and its check sum = 16 bytes, schedule 100, update 200, executor not
    known, wait 300, hook 400 ns, 5 KV blocks (seven u32); query 2, generated 2, drafted 0, rejected 0, cached not
    known, waiting 6, requests 2, running 8, prefill 0, padded not known, preempted 0 (eleven u32); prefilling 0,
    deferred 1 (u16); frame KEY = 1, kind DECODE = 1, base 0, graph 0 (u8); flags 0, sections LENGTHS = 1 (u16);
    check sum. 40 + 28 + 44 + 4 + 4 + 4 + 4 = 128 bytes.
    """
    writer, path = ring
    given = {"query_tokens": 2, "generated_tokens": 2, "waiting": 6, "requests": 2, "running": 8, "deferred": 1}
    packed = cold(**given, frame=1, kind=1, sections=1)
    payload = lengths_payload(7, 9)
    writer.commit(10**9, 10**9 + 5 * 10**6, 16, 100, 200, UNKNOWN, 300, 400, 5, packed, payload)
    body = bytes.fromhex(
        "0100000000000000" "0000000000000000" "00ca9a3b00000000" "4015e73b00000000" "1000000000000000"
        "10000000" "64000000" "c8000000" "ffffffff" "2c010000" "90010000" "05000000"
        "02000000" "02000000" "00000000" "00000000" "ffffffff" "06000000" "02000000" "08000000"
        "00000000" "ffffffff" "00000000" "0000" "0100" "01" "01" "00" "00" "0000" "0100"
    )  # fmt: skip
    raw = path.read_bytes()
    assert raw[SLOTS_OFFSET : SLOTS_OFFSET + SLOT_BYTES] == body + crc32(body).to_bytes(4, "little")
    arena = SLOTS_OFFSET + SLOTS * SLOT_BYTES
    told = bytes.fromhex("020000000700000009000000")
    assert raw[arena : arena + 16] == told + crc32(told).to_bytes(4, "little")
    assert struct.unpack_from("<QQ", raw, STATE_OFFSET) == (1, 16)

    table = RingSource(path).read().steps
    row = {name: table[name][0] for name in table.columns if table.where(name)[0]}
    assert row["observed_s"] == pytest.approx(5e-3)
    assert (row["schedule_s"], row["update_s"], row["wait_s"], row["hook_s"]) == (1e-7, 2e-7, 3e-7, 4e-7)
    assert (row["causal_pairs"], row["context_blocks"], row["max_context_tokens"]) == (18, 2, 9)
    assert (row["waiting"], row["deferred"], row["running"], row["kv_blocks_used"]) == (6, 1, 8, 5)
    assert not {"executor_s", "kv_blocks_cached", "padded_tokens"} & set(row)


def test_overwritten_steps_are_lost_and_counted(ring: tuple[RingWriter, Path]) -> None:
    writer, path = ring
    step(writer, 0, [10, 20, 30])
    for number in range(1, 40):
        step(writer, number, total=60 + 3 * number)
    batch = RingSource(path).read()
    assert batch.steps["sequence"].tolist() == list(range(25, 41))
    assert batch.lost_steps == 24
    assert not batch.steps.where("causal_pairs").any()  # the keyframe is lost: not known, never guessed
    assert batch.steps.where("observed_s").tolist() == [False] + [True] * 15


def test_a_reader_follows_a_live_ring_across_its_end(ring: tuple[RingWriter, Path]) -> None:
    writer, path = ring
    source, got, blocks = RingSource(path), [], []
    for number in range(200):
        step(writer, number, [10, 20, 30] if number % 50 == 0 else None, 60 + 3 * (number % 50))
        if number % 7 == 0:
            batch = source.read()
            assert (batch.lost_steps, batch.torn_steps) == (0, 0)
            assert batch.steps.has("causal_pairs")
            got += batch.steps["sequence"].tolist()
            blocks += batch.steps["context_blocks"].tolist()
    got += source.read().steps["sequence"].tolist()
    assert got == list(range(1, 201))
    contexts = [[10 + n % 50, 20 + n % 50, 30 + n % 50] for n in range(len(blocks))]
    assert blocks == [sum(-(-c // 16) for c in row) for row in contexts]


def test_a_slow_reader_loses_and_goes_on(ring: tuple[RingWriter, Path]) -> None:
    writer, path = ring
    source = RingSource(path)
    step(writer, 0, [10, 20, 30])
    source.read()
    for number in range(1, 60):
        step(writer, number, [10, 20, 30] if number == 55 else None, 60 + 3 * max(0, number - 55))
    batch = source.read()
    assert batch.lost_steps == 59 - SLOTS
    assert batch.steps.where("causal_pairs").tolist() == [False] * 11 + [True] * 5


@pytest.mark.parametrize("torn", [1, 3, 6])
def test_a_torn_slot_is_counted_once_and_breaks_the_chain(ring: tuple[RingWriter, Path], torn: int) -> None:
    writer, path = ring
    step(writer, 0, [10, 20, 30])
    for number in range(1, 6):
        step(writer, number, total=60 + 3 * number)
    with path.open("r+b") as file:
        file.seek(SLOTS_OFFSET + (torn - 1) * SLOT_BYTES + 20)
        file.write(b"\xa5")
    source = RingSource(path)
    batch = source.read()
    assert (batch.torn_steps, batch.lost_steps) == (1, 0)
    assert batch.steps["sequence"].tolist() == [n for n in range(1, 7) if n != torn]
    assert batch.steps.where("causal_pairs").tolist() == [n < torn for n in range(1, 7) if n != torn]
    assert source.read().torn_steps == 0
    step(writer, 6, total=60 + 3 * 6)
    later = source.read()
    assert (later.torn_steps, len(later.steps)) == (0, 1)
    assert later.steps.where("observed_s")[0] == (torn != 6)
    assert not later.steps.where("causal_pairs")[0]
    assert read_raw(path).torn_steps == 1


def test_lengths_that_do_not_add_up_are_doubted(ring: tuple[RingWriter, Path]) -> None:
    writer, path = ring
    step(writer, 0, [10, 20, 30])
    step(writer, 1, total=64)
    source = RingSource(path)
    assert source.read().steps.where("causal_pairs").tolist() == [True, False]
    assert source.doubted_frames == 1


def test_a_wall_clock_that_jumps_is_said_and_no_time_becomes_negative(
    ring: tuple[RingWriter, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    import time

    writer, path = ring
    step(writer, 0, [10, 20, 30])
    real = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real() - 3600 * 10**9)
    writer.event("sleep")
    step(writer, 1, [10, 20, 30])
    batch = RingSource(path).read()
    (jump,) = [event for event in batch.events if event.name == "clock_jump"]
    assert jump.detail["jump_s"] == pytest.approx(-3600, abs=1)
    assert (batch.steps["observed_s"] >= 0).all()


def test_info_changes_are_followed(ring: tuple[RingWriter, Path]) -> None:
    writer, path = ring
    writer.set_info({"instance": "a", "engine": "first"})
    step(writer, 0, [1, 2, 3])
    source = RingSource(path)
    assert source.info is not None
    assert source.info.engine == "first"
    writer.set_info({"instance": "a", "engine": "second", "field_of_a_newer_writer": 1})
    batch = source.read()
    assert batch.info is not None
    assert batch.info.engine == "second"
    assert [event.name for event in batch.events] == ["info_changed"]


def test_spans_follow_what_the_engine_states(ring: tuple[RingWriter, Path]) -> None:
    writer, path = ring
    step(writer, 0, [10, 20, 30])
    source = RingSource(path, spans_of=lambda info: (f"w{info.max_context_tokens}",))
    before = source.read().steps  # no facts yet
    writer.set_info({"instance": "a", "engine": "e", "max_context_tokens": 15})
    step(writer, 1, [10, 20, 30])
    step(writer, 2, total=63)
    steps = source.read().steps
    assert not [name for name in before.columns if "@" in name]
    assert steps["context_tokens@w15"].tolist() == [40, 41]
    both = concatenated([before, steps])
    assert both.where("causal_pairs@w15").tolist() == [False, True, True]
    assert both["causal_pairs@w15"].dtype == np.int64


def test_a_newer_minor_version_with_more_fields_is_read(ring: tuple[RingWriter, Path], tmp_path: Path) -> None:
    writer, path = ring
    writer.set_info({"instance": "a", "engine": "e"})
    step(writer, 0, [1, 2, 3])
    raw = bytearray(path.read_bytes())
    layout_at, layout_bytes = struct.unpack_from("<QI", raw, LAYOUT_AT)
    layout = raw[layout_at : layout_at + layout_bytes].replace(b'{"slot":', b'{"more":[1],"slot":')
    struct.pack_into("<H", raw, 10, 7)
    struct.pack_into("<I", raw, LAYOUT_AT + 8, len(layout))
    raw[layout_at : layout_at + len(layout)] = layout
    struct.pack_into("<I", raw, HEADER.size, crc32(bytes(raw[: HEADER.size]) + bytes(layout)))
    other = tmp_path / "other.ring"
    other.write_bytes(raw)
    assert len(RingSource(other).read().steps) == 1


def damaged(raw: bytes, kind: str) -> bytes:
    if kind == "empty":
        return b""
    if kind == "truncated header":
        return raw[:100]
    if kind == "truncated":
        return raw[: len(raw) // 2]
    if kind == "foreign":
        return b"\x7fELF" + raw[4:]
    if kind == "newer":
        return raw[:8] + b"\x02\0" + raw[10:]
    return raw[:600] + b"\0" * 3496 + raw[4096:]  # half-written: the layout is not there yet


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("empty", "bad.ring is empty: "),
        ("truncated header", "not a rooflens ring: it is truncated"),
        ("truncated", "truncated"),
        ("foreign", "not a rooflens ring"),
        ("newer", "upgrade rooflens"),
        ("half-written", "half-written header"),
    ],
)
def test_a_bad_ring_is_one_clear_line(ring: tuple[RingWriter, Path], tmp_path: Path, kind: str, words: str) -> None:
    file = tmp_path / "bad.ring"
    file.write_bytes(damaged(ring[1].read_bytes(), kind))
    for read in (RingSource, read_raw):
        with pytest.raises(RooflensError, match=words) as caught:
            read(file)
        assert str(file) in str(caught.value)
        assert "\n" not in str(caught.value)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_any_header_is_read_or_refused(data: st.DataObject) -> None:
    page = bytearray(pack_header(SLOTS, ARENA, 1, 0))
    for _ in range(data.draw(st.integers(0, 4))):
        at = data.draw(st.integers(0, 95))
        page[at] = data.draw(st.integers(0, 255))
    layout_at, layout_bytes = struct.unpack_from("<QI", page, LAYOUT_AT)
    if data.draw(st.booleans()):  # someone who knows the check sum
        with_layout = bytes(page[: HEADER.size]) + bytes(page[layout_at : layout_at + layout_bytes])
        struct.pack_into("<I", page, HEADER.size, crc32(with_layout))
    try:
        header = parse_header(bytes(page), "x")
    except RooflensError:
        return
    assert header.slot_count > 0
    assert header.arena_bytes > 0


@pytest.mark.parametrize(
    "layout", [b"{}", b"[]", b"3", b'{"slot":3,"extras":[]}', b'{"slot":[[1]],"extras":[]}', b"[" * 99999]
)
def test_a_header_with_another_layout_is_refused(ring: tuple[RingWriter, Path], tmp_path: Path, layout: bytes) -> None:
    raw = bytearray(ring[1].read_bytes())
    layout = layout[:3000]
    raw[1024 : 1024 + len(layout)] = layout
    struct.pack_into("<I", raw, LAYOUT_AT + 8, len(layout))
    struct.pack_into("<I", raw, HEADER.size, crc32(bytes(raw[: HEADER.size]) + layout))
    file = tmp_path / "bad.ring"
    file.write_bytes(raw)
    with pytest.raises(RooflensError, match="damaged"):
        RingFile(file)


@settings(max_examples=500, deadline=None)
@given(st.binary(max_size=200), st.integers(0, 511), st.integers(0, 40))
def test_any_payload_is_parsed_or_refused(raw: bytes, sections: int, rows: int) -> None:
    found = parse(raw, sections, rows, EXTRA_FIELDS)
    assert found is None or isinstance(found, Sections)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_any_frames_are_decoded_or_doubted(data: st.DataObject) -> None:
    dtype = np.dtype([(n, t) for n, t in (("frame", "u1"), ("base", "u1"), ("sections", "<u2"), ("requests", "<u4"),
                                          ("context_tokens", "<u8"))])  # fmt: skip
    count = data.draw(st.integers(1, 8))
    slots = np.zeros(count, dtype)
    for name, most in (("frame", 3), ("base", 4), ("sections", 511), ("requests", 4), ("context_tokens", 12)):
        slots[name] = data.draw(st.lists(st.integers(0, most), min_size=count, max_size=count))
    raws = data.draw(st.lists(st.lists(st.integers(0, 4), max_size=12), min_size=count, max_size=count))
    payloads = [struct.pack(f"<{len(raw)}I", *raw) for raw in raws]

    def sections_of(at: int) -> Sections | None:
        return parse(payloads[at], int(slots["sections"][at]), int(slots["requests"][at]), EXTRA_FIELDS)

    sums, known = LengthDecoder(16).decode(SlotColumns.of(slots), np.zeros(count, bool), sections_of)
    assert sums.shape == (4, count)
    assert known.shape == (count,)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_ring_with_any_bytes_after_its_header_is_read_or_counted(ring: tuple[RingWriter, Path], data: Any) -> None:
    writer, path = ring
    if not writer.sequence:
        writer.set_info({"instance": "a", "engine": "e"})
        for number in range(SLOTS):
            step(writer, number, [1, 2, 3])
    raw = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 6))):
        place = data.draw(st.sampled_from([STATE_OFFSET, INFO_OFFSET, SLOTS_OFFSET, len(raw) - ARENA]))
        at = place + data.draw(st.integers(0, 250))
        noise = data.draw(st.binary(min_size=1, max_size=40))[: len(raw) - at]
        raw[at : at + len(noise)] = noise
    other = path.with_name("other.ring")
    other.write_bytes(raw)
    try:
        source = RingSource(other)
        batch = source.read()
        source.file.in_flight()
        summary = read_raw(other)
    except RooflensError:
        return
    finally:
        os.unlink(other)
    assert len(batch.steps) <= SLOTS
    assert batch.torn_steps == summary.torn_steps
