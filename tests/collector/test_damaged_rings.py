"""Gaps, full fields and damage: what is not known is said, and what is whole is still read."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from rooflens.collector.raw_slots import read_raw
from rooflens.collector.ring_file import RingFile
from rooflens.collector.ring_source import RingSource
from rooflens.records import RooflensError
from rooflens.ring import COLD_FIELDS, REPEAT, SLOT_BYTES, SLOTS_OFFSET, STATE_OFFSET, pack_header
from rooflens.ring_folder import create_ring
from rooflens.ring_writer import RingWriter, pack_cold

SLOTS, ARENA = 8, 4096
MS = 1_000_000


@pytest.fixture
def ring(tmp_path: Path) -> Iterator[tuple[RingWriter, Path]]:
    tmp_path.chmod(0o700)
    writer, path = create_ring(tmp_path, 0, ((SLOTS, ARENA),))
    yield writer, path
    writer.close()


def step(writer: RingWriter, number: int, duration_ns: int = 0, **given: int) -> None:
    """A step that was handed over long before the one before it ended, as an asynchronous engine does."""
    fields = {"query_tokens": 1, "generated_tokens": 1, "requests": 1, "kind": 1, "frame": REPEAT, "base": 1, **given}
    cold = pack_cold(*(fields.get(name, 0) for name, _ in COLD_FIELDS))
    output = 10**9 + number * 10 * MS
    d = duration_ns
    writer.commit(output - 19 * MS, output, 5, d, d, d, d, d, 9, cold)


def known(path: Path) -> list[bool]:
    return RingSource(path).read().steps.where("observed_s").tolist()


def damaged(path: Path, at: int, value: bytes) -> Path:
    """A copy of the ring with other bytes at ``at``; not live, as the writer holds the original only."""
    raw = bytearray(path.read_bytes())
    raw[at : at + len(value)] = value
    copy = path.with_name("copy.ring")
    copy.write_bytes(raw)
    return copy


@pytest.mark.parametrize(("slots", "arena_bytes"), [(1 << 22, 4096), (8, 1 << 30), ((1 << 32) - 1, 4096)])
def test_a_ring_far_larger_than_any_is_not_read(tmp_path: Path, slots: int, arena_bytes: int) -> None:
    path = tmp_path / "huge.ring"
    path.write_bytes(pack_header(slots, arena_bytes, 1, 0))
    os.truncate(path, SLOTS_OFFSET + slots * SLOT_BYTES + arena_bytes)
    with pytest.raises(RooflensError, match=r"^[^\n]+ MB, and no ring takes more than 128: it is damaged$"):
        RingSource(path)


def test_an_event_does_not_close_a_gap(ring: tuple[RingWriter, Path]) -> None:
    """Slots 1 to 4 were overwritten; of 5 to 12 the first is an event, so no step before number 6 is known."""
    writer, path = ring
    for number in range(1, 5):
        step(writer, number)
    writer.event("sleep")
    for number in range(6, 13):
        step(writer, number)
    assert known(path) == [False] + [True] * 6
    raw = read_raw(path)
    assert (raw.steps, raw.step_max_s) == (7, pytest.approx(0.01))


def test_an_event_after_a_torn_step_does_not_close_the_gap(ring: tuple[RingWriter, Path]) -> None:
    writer, path = ring
    for number in (1, 2):
        step(writer, number)
    writer.event("sleep")
    for number in (4, 5):
        step(writer, number)
    header = RingFile(path).header
    copy = damaged(path, header.slots_offset + header.slot_bytes, b"\xff")
    assert known(copy) == [True, False, True]
    raw = read_raw(copy)
    assert (raw.steps, raw.torn_steps, raw.step_max_s) == (3, 1, pytest.approx(0.019))


def test_a_gap_is_remembered_from_one_read_to_the_next(ring: tuple[RingWriter, Path]) -> None:
    writer, path = ring
    step(writer, 1)
    source = RingSource(path)
    assert source.read().steps.where("observed_s").tolist() == [True]
    for number in range(2, 12):
        step(writer, number)
    for _ in range(SLOTS):
        writer.event("sleep")
    assert len(source.read().steps) == 0
    assert len(source.read().steps) == 0
    step(writer, 20)
    step(writer, 21)
    assert source.read().steps.where("observed_s").tolist() == [False, True]


def test_a_reader_that_begins_later_does_not_know_the_step_before(ring: tuple[RingWriter, Path]) -> None:
    writer, path = ring
    for number in range(1, 5):
        step(writer, number)
    assert RingSource(path, after=2).read().steps.where("observed_s").tolist() == [False, True]


def test_a_full_field_is_not_known(ring: tuple[RingWriter, Path]) -> None:
    writer, path = ring
    step(writer, 1, prefill_requests=3, preempted=2)
    step(writer, 2, duration_ns=10**11, prefill_requests=70_000, preempted=1 << 40, generated_tokens=1 << 40)
    table = RingSource(path).read().steps
    names = ("schedule_s", "update_s", "executor_s", "wait_s", "hook_s", "prefill_requests", "preempted")
    for name in (*names, "generated_tokens"):
        assert table.where(name).tolist() == [True, False], name


def test_an_event_whose_words_were_overwritten_is_counted(ring: tuple[RingWriter, Path]) -> None:
    writer, path = ring
    writer.event("sleep")
    step(writer, 2)
    header = RingFile(path).header
    events = RingSource(damaged(path, header.arena_offset + 20, b"\xff")).read().events
    assert [(event.sequence, event.name) for event in events] == [(1, "unreadable")]


@pytest.mark.parametrize("flipped", [1 << 32, 1 << 12, 1 << 61])
def test_a_damaged_count_of_steps_hides_no_step(ring: tuple[RingWriter, Path], flipped: int) -> None:
    writer, path = ring
    for number in range(1, 12):
        step(writer, number)
    writer.event("sleep")
    copy = damaged(path, STATE_OFFSET, struct.pack("<Q", 12 + flipped))
    source = RingSource(copy)
    batch = source.read()
    assert batch.steps["sequence"].tolist() == [5, 6, 7, 8, 9, 10, 11]
    assert (batch.lost_steps, batch.torn_steps) == (4, 0)
    assert [event.name for event in batch.events] == ["sleep", "state_damaged"]
    again = source.read()
    assert (len(again.steps), again.events) == (0, ())
    raw = read_raw(copy)
    assert (raw.steps, raw.events, raw.lost_steps, raw.torn_steps, raw.state_damaged) == (7, 1, 4, 0, True)


def test_a_count_that_is_too_low_hides_no_step(ring: tuple[RingWriter, Path]) -> None:
    writer, path = ring
    for number in range(1, 21):
        step(writer, number)
    copy = damaged(path, STATE_OFFSET, struct.pack("<Q", 20 - 16))
    assert RingSource(copy).read().steps["sequence"].tolist() == list(range(13, 21))
    assert read_raw(copy).steps == 8


def test_a_sound_ring_is_not_called_damaged(ring: tuple[RingWriter, Path]) -> None:
    writer, path = ring
    assert RingSource(path).read().events == ()
    for number in range(1, 12):
        step(writer, number)
    assert RingSource(path).read().events == ()
    assert not read_raw(path).state_damaged


@pytest.mark.parametrize("size", [0, 100, 520, 3000, 4096, 5000])
def test_a_ring_that_is_cut_while_open_is_one_line(ring: tuple[RingWriter, Path], size: int) -> None:
    writer, path = ring
    for number in range(1, 5):
        step(writer, number)
    writer.set_info({"instance": "i", "engine": "e"})
    copy = damaged(path, STATE_OFFSET, b"")
    source = RingSource(copy)
    os.truncate(copy, size)
    calls = {"facts": source.file.facts, "info": source.file.info, "read": source.read, "scan": source.file.scan}
    if size < 3000:
        calls["in_flight"] = source.file.in_flight
    if size < 520:
        calls["state"] = source.file.state
    for name, call in calls.items():
        with pytest.raises(RooflensError, match="was cut short while it was read"):
            call()  # type: ignore[operator]
        assert name


def test_a_file_that_cannot_be_read_is_one_line() -> None:
    with pytest.raises(RooflensError, match="input/output error"):
        RingFile(Path("/proc/self/mem"))
