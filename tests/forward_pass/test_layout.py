"""One message: read by name or by place, and never shifted."""

from __future__ import annotations

import itertools
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from forward_pass.wire import (
    DECODE,
    QUEUED,
    SCHEDULED,
    LaterPlaces,
    QueuedPlaces,
    ScheduledPlaces,
    Sent,
    SentByVllm,
    SentFirst,
    SentPlaces,
    frames,
    packed,
)
from hypothesis import given
from hypothesis import strategies as st

from rooflens.adapters.forward_pass.layout import ForwardPass, NotReadError, Queued, Scheduled, forward_pass
from rooflens.adapters.forward_pass.message import take, unpacker

EXPECTED = ForwardPass(
    version=1,
    worker="4192",
    dp_rank=0,
    counter=42,
    wall_time_s=0.025,
    scheduled=Scheduled(2, 256, 64, 3, 1024, 100.0, 50.0),
    queued=Queued(1, 0),
)
UNPACK = unpacker()
SENT = Sent(1, "4192", 0, 42, 0.025, SCHEDULED, QUEUED)


def read(message: Any) -> ForwardPass:
    return take(frames(message), UNPACK)[1]


def places(kind: type = SentPlaces, **further: Any) -> Any:
    scheduled = ScheduledPlaces(*msgspec.structs.astuple(SCHEDULED))
    return kind(1, "4192", 0, 42, 0.025, scheduled, QueuedPlaces(*msgspec.structs.astuple(QUEUED)), **further)


def test_a_map_is_read_by_its_names() -> None:
    """Dynamo and SGLang declare plain Structs: a map is on the wire."""
    assert msgspec.msgpack.decode(packed(SENT))["version"] == 1
    assert take(frames(SENT), UNPACK) == (42, EXPECTED)


def test_an_array_is_read_by_its_places() -> None:
    assert isinstance(msgspec.msgpack.decode(packed(places())), list)
    assert read(places()) == EXPECTED


def test_vllm_says_what_its_time_spans() -> None:
    sent = SentByVllm(1, "4192", 0, 42, "model_step_cuda", 0.025, SCHEDULED, QUEUED)
    got = read(sent)
    assert (got.timing_scope, got.wall_time_s, got.scheduled) == ("model_step_cuda", 0.025, EXPECTED.scheduled)
    by_place = forward_pass([1, "4192", 0, 42, "model_step_cuda", 0.025, [2, 256, 100.0, 64, 3, 1024, 50.0], [0] * 6])
    assert (by_place.timing_scope, by_place.scheduled) == ("model_step_cuda", EXPECTED.scheduled)


def test_the_first_form_without_a_version_is_read_by_its_names() -> None:
    got = forward_pass(msgspec.msgpack.decode(packed(SentFirst("4192", 0, 0.025, SCHEDULED, QUEUED))))
    assert (got.version, got.counter, got.scheduled) == (None, None, EXPECTED.scheduled)


def test_a_longer_array_gives_what_is_known_and_names_the_rest() -> None:
    got = read(places(LaterPlaces))
    assert got.scheduled == EXPECTED.scheduled
    assert got.unknown == ("places 8 to 8",)


def test_a_map_with_more_names_tells_them() -> None:
    message = msgspec.msgpack.decode(packed(SENT)) | {"spec": 1}
    message["scheduled_requests"] |= {"num_draft_tokens": 3}
    assert forward_pass(message).unknown == ("spec", "scheduled_requests.num_draft_tokens")


@pytest.mark.parametrize("version", [0, 2, -1, 1.0, True, "1", None, 2**60])
def test_nothing_is_taken_of_another_version(version: Any) -> None:
    message = msgspec.msgpack.decode(packed(SENT)) | {"version": version}
    with pytest.raises(NotReadError, match=r"version"):
        forward_pass(message)
    by_place = msgspec.msgpack.decode(packed(places()))
    with pytest.raises(NotReadError, match=r"version"):
        forward_pass([version, *by_place[1:]])


def test_no_array_is_read_with_its_places_shifted() -> None:
    """One place too few or an exchange of any two neighbours of different type is refused, at every level."""
    whole = msgspec.msgpack.decode(packed(places()))
    for drop in range(7):
        with pytest.raises(NotReadError):
            forward_pass(whole[:drop] + whole[drop + 1 :])
    for inner in (5, 6):
        for drop in range(len(whole[inner])):
            short = [*whole]
            short[inner] = whole[inner][:drop] + whole[inner][drop + 1 :]
            with pytest.raises(NotReadError):
                forward_pass(short)


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("wall_time", float("nan"), "wall_time is nan"),
        ("wall_time", -0.1, "wall_time is -0.1"),
        ("wall_time", True, "wall_time is True"),
        ("wall_time", "secret", "wall_time is text"),
        ("dp_rank", -1, "dp_rank is -1"),
        ("worker_id", b"\xff", "worker_id is bytes"),
        ("scheduled_requests", None, "scheduled_requests is nothing"),
        ("scheduled_requests", {}, "no scheduled_requests.num_prefill_requests"),
    ],
)
def test_a_field_of_another_kind_is_refused_in_few_words(name: str, value: Any, why: str) -> None:
    with pytest.raises(NotReadError) as error:
        forward_pass(msgspec.msgpack.decode(packed(SENT)) | {name: value})
    assert str(error.value) == why


def test_tokens_of_nobody_are_refused() -> None:
    for wrong in ({"num_prefill_requests": 0}, {"num_decode_requests": 0}):
        message = msgspec.msgpack.decode(packed(SENT))
        message["scheduled_requests"] |= wrong
        with pytest.raises(NotReadError, match="without a request"):
            forward_pass(message)


def test_a_heartbeat_is_idle_and_a_pass_is_not() -> None:
    assert read(Sent(worker_id="w", counter_id=3)).idle
    assert not read(Sent(counter_id=3, wall_time=0.01, scheduled_requests=DECODE)).idle


FIELD = st.one_of(st.integers(), st.floats(), st.none(), st.booleans(), st.text(max_size=9), st.binary(max_size=9))
VALUE = st.recursive(
    FIELD,
    lambda inner: st.one_of(
        st.lists(inner, max_size=9),
        st.dictionaries(st.one_of(st.text(max_size=9), st.sampled_from(["version", "wall_time"])), inner, max_size=9),
    ),
    max_leaves=40,
)


@given(VALUE)
def test_no_value_makes_another_error(value: Any) -> None:
    with suppress(NotReadError):
        forward_pass(value)


@given(st.lists(st.binary(max_size=200), max_size=10))
def test_no_frames_make_another_error(parts: list[bytes]) -> None:
    with suppress(NotReadError):
        take(parts, UNPACK)


@given(st.data())
def test_no_broken_message_makes_another_error(data: st.DataObject) -> None:
    whole = bytearray(packed(data.draw(st.sampled_from([SENT, places()]))))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(whole)))
    with suppress(NotReadError):
        take([b"", bytes(8), bytes(whole[:cut])], UNPACK)


@pytest.mark.parametrize(
    "payload",
    [b"\xdd\xff\xff\xff\xf0", b"\xdf\xff\xff\xff\xff", b"\x91" * 60_000, b"\xc0" * 70_000, b""],
    ids=["endless array", "endless map", "deep", "large", "empty"],
)
def test_hostile_payloads_cost_nothing(payload: bytes) -> None:
    with pytest.raises(NotReadError):
        take([b"", bytes(8), payload], UNPACK)


def test_frames_may_have_no_topic_or_a_longer_one() -> None:
    payload = packed(SENT)
    for before, number in itertools.product(((), (b"topic",), (b"a", b"b")), (7, 2**63)):
        assert take((*before, number.to_bytes(8, "big"), payload), UNPACK)[0] == number
    assert take((payload,), UNPACK)[0] == 42  # the payload's own
