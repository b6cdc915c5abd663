"""Any bytes and any values: an answer in one line, never an exception, and what was taken can be read."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from pushing import FACTS, body, raw, step

from rooflens.adapters.push.body import MOST_STEPS
from rooflens.adapters.push.receiver import Receiver
from rooflens.adapters.push.steps import LENGTHS
from rooflens.adapters.recorder.slot import FACTS as STEP_FACTS
from rooflens.pipeline.pushed import PushFeed

STATUSES = {200, 415, 422, 503}
NAMES = [*LENGTHS, *sorted(STEP_FACTS), "submit_s", "output_s", "generated_tokens", "update_s", "odd"]
edges = st.sampled_from([0, 1, -1, 2**16, 2**32 - 1, 2**32, 2**53, 2**63, 2**64, -(2**63), 10**30, 0.5, 1e300, -0.0])
scalars = st.none() | st.booleans() | edges | st.integers(-5, 300) | st.floats() | st.text(max_size=5)
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner))
lengths = st.lists(st.integers(0, 300) | edges, max_size=4)
odd_steps = st.dictionaries(st.sampled_from(NAMES), lengths | values, max_size=8)
odd_bodies = st.dictionaries(
    st.sampled_from(["facts", "steps", "events", "in_flight", "lost_steps", "first_sequence", "ended", "sent_s",
                     "version", "instance", "engine"]), values, max_size=3,
)  # fmt: skip


def take(receiver: Receiver, data: bytes, kind: str = "application/json") -> dict[str, Any]:
    answer = receiver.take(data, kind, 100.0, False)
    assert answer.status in STATUSES
    text = json.dumps(answer.content, allow_nan=False)
    assert "please report" not in text + (receiver.problem or ""), text
    assert len(text) < 10_000
    if answer.status != 200:
        assert len(answer.content["error"]) < 400
        assert answer.content["error"].isprintable()
    return dict(answer.content)


def read(receiver: Receiver) -> int:
    """What a feed makes of it; every column has its length and is what it says it is."""
    rows = 0
    for batch in PushFeed(receiver).read():
        rows += len(batch.steps)
        for column in batch.steps.columns.values():
            assert len(column) == len(batch.steps)
            assert column.dtype.kind in "if"
    return rows


@settings(max_examples=300)
@given(st.binary(max_size=200), st.sampled_from(["application/json", "application/msgpack", "text/plain", ""]))
def test_any_bytes_get_an_answer(data: bytes, kind: str) -> None:
    receiver = Receiver()
    take(receiver, data, kind)
    read(receiver)


@settings(max_examples=300)
@given(odd_bodies, st.booleans())
def test_any_fields_get_an_answer(odd: dict[str, Any], packed: bool) -> None:
    receiver = Receiver()
    content = {**body(steps=[step(99.0)], first_sequence=1), **odd}
    if packed:
        try:
            data = msgspec.msgpack.encode(content)
        except (OverflowError, UnicodeEncodeError):
            return
        take(receiver, data, "application/msgpack")
    else:
        take(receiver, json.dumps(content).encode())
    read(receiver)


@settings(max_examples=400)
@given(st.lists(odd_steps, min_size=1, max_size=4), st.booleans())
def test_any_steps_get_an_answer_and_good_ones_are_read(odd: list[dict[str, Any]], timed: bool) -> None:
    receiver = Receiver()
    found = [{**each, "submit_s": 99.0, "output_s": 99.0} if timed else each for each in odd]
    steps = [step(98.0), *found, step(99.5)]
    content = take(receiver, json.dumps(body(steps=steps, first_sequence=1)).encode())
    if "error" in content:  # NaN is no JSON, wherever it stands
        return
    assert content["steps"] + content["lost_steps"] == len(steps)
    assert content["steps"] >= 2 or not timed
    assert read(receiver) == content["steps"]


@settings(max_examples=150)
@given(st.data())
def test_a_good_body_that_is_cut_or_changed_anywhere_gets_an_answer(data: st.DataObject) -> None:
    packed = data.draw(st.booleans())
    given_body = body(steps=[step(98.0), step(99.0, drafts=[1, 2], rejected=[0, 1])], first_sequence=1)
    whole = bytearray(msgspec.msgpack.encode(given_body) if packed else raw(given_body))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(whole)))
    receiver = Receiver()
    take(receiver, bytes(whole[: cut or None]), "application/msgpack" if packed else "application/json")
    read(receiver)


def test_msgpack_that_promises_more_than_it_holds_takes_no_memory() -> None:
    receiver = Receiver()
    tracemalloc.start()
    try:
        for data in (b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff",
                     b"\xdd\x7f\xff\xff\xff" * 100, b"\x91" * 100_000, b"\x81\xa1a" * 100_000):  # fmt: skip
            assert "msgpack" in take(receiver, data, "application/msgpack")["error"]
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


def test_msgpack_of_other_kinds_is_refused_or_left_out() -> None:
    receiver = Receiver()
    for wrong in ({1: 2}, {"version": 1, 2: 3}, b"raw", msgspec.msgpack.Ext(5, b"x"), [1]):
        assert "error" in take(receiver, msgspec.msgpack.encode(wrong), "application/msgpack")
    content = body(steps=[step(99.0)])
    content |= {5: 6, "facts": {7: 8, **FACTS, "model_config": {9: 10, "hidden_size": 64}}}  # type: ignore[dict-item]
    answer = take(receiver, msgspec.msgpack.encode(content), "application/msgpack")
    assert (answer["steps"], len(answer["refused"])) == (1, 1)


def test_numbers_that_use_up_the_sequence_do_no_harm() -> None:
    receiver = Receiver()
    first = 1
    for _ in range(64):
        answer = take(receiver, raw(body(steps=[step(99.0)] * 2, first_sequence=first)))
        assert "error" not in answer
        first = min(2**53, first * 16)
    assert read(receiver) > 0


def test_a_deep_model_config_is_a_line_or_less_and_no_fault() -> None:
    deep: Any = 1
    for _ in range(400):
        deep = {"text_config": deep}
    answer = take(Receiver(), raw(body(facts={"model_config": deep}, steps=[step(99.0)])))
    assert answer["steps"] == 1


def test_the_largest_body_of_steps_is_taken() -> None:
    receiver = Receiver()
    steps = [step(1.0 + number / 100, contexts=[number] * 8) for number in range(MOST_STEPS)]
    assert take(receiver, raw(body(steps=steps, first_sequence=1)))["steps"] == MOST_STEPS
    assert read(receiver) == MOST_STEPS
