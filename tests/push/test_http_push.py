"""The path itself: who may push, how much, how packed; what is wrong is one line with the next step."""

from __future__ import annotations

import gzip
import logging
import socket
import threading
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from http_client import ask, ask_raw
from pushing import TOKEN, body, post, raw, step

from rooflens.adapters.push.receiver import MOST_WAITING_STEPS, Receiver
from rooflens.exporters import http_push
from rooflens.exporters.http_app import LiveServer
from rooflens.exporters.http_push import MOST_BODY_BYTES, MOST_TRIES, Push
from rooflens.pipeline.pushed import PushFeed


@pytest.fixture
def receiver() -> Receiver:
    return Receiver()


@pytest.fixture
def url(receiver: Receiver) -> Iterator[str]:
    server = LiveServer("127.0.0.1", 0, push=Push(TOKEN, receiver.take))
    server.start()
    yield server.url
    server.close()


GOOD = raw(body(steps=[step(99.0)], first_sequence=1))


def test_a_body_is_taken_and_the_answer_says_what_of_it(url: str, receiver: Receiver) -> None:
    status, answer, headers = post(url, GOOD)
    assert (status, headers["content-type"], headers["cache-control"]) == (200, "application/json", "no-store")
    assert answer == {
        "version": 1, "steps": 1, "events": 0, "already_taken": 0, "lost_steps": 0, "refused": [],
        "next_sequence": 2, "facts_wanted": False,
    }  # fmt: skip
    (batch,) = PushFeed(receiver).read()
    assert len(batch.steps) == 1
    assert batch.here is True


def test_json_msgpack_and_gzip_say_the_same(url: str, receiver: Receiver) -> None:
    packed = msgspec.msgpack.encode(body("run-2", steps=[step(99.0)], first_sequence=1))
    assert post(url, gzip.compress(GOOD), Content_Encoding="gzip")[0] == 200
    assert post(url, packed, Content_Type="application/msgpack")[0] == 200
    assert post(url, gzip.compress(packed), Content_Type="application/msgpack", Content_Encoding="gzip")[0] == 200
    first, second = PushFeed(receiver).read()
    assert (len(first.steps), len(second.steps)) == (1, 1)


def test_without_a_token_there_is_no_such_path(url: str) -> None:
    closed = LiveServer("127.0.0.1", 0)
    closed.start()
    try:
        status, answer, _ = post(closed.url, GOOD)
        assert (status, "push" in answer["error"]) == (404, False)
    finally:
        closed.close()
    assert "/api/v1/push" in ask(url, "/nothing").error
    answer = ask(url, "/api/v1/push")
    assert (answer.status, answer.headers["allow"]) == (405, "POST")
    assert "POST" in answer.error
    assert ask(url, "/metrics", "POST").headers["allow"] == "GET, HEAD"


@pytest.mark.parametrize(
    ("token", "headers", "status", "why"),
    [
        (None, {}, 401, "give the token: Authorization: Bearer"),
        (None, {"Authorization": f"Basic {TOKEN}"}, 401, "Bearer"),
        (None, {"Authorization": "Bearer"}, 401, "give the token"),
        ("wrong", {}, 403, "not the token of --push-token-file"),
        (TOKEN + "x", {}, 403, "not the token"),
        (TOKEN[:-1], {}, 403, "not the token"),
        (TOKEN, {"Origin": "http://elsewhere.example"}, 403, "browser"),
        (TOKEN, {"Content_Type": "text/plain"}, 415, "application/json nor application/msgpack"),
        (TOKEN, {"Content_Encoding": "br"}, 415, "send gzip or none"),
        (TOKEN, {"Content_Encoding": "gzip"}, 422, "no gzip"),
        (TOKEN, {"Content_Type": "application/msgpack"}, 422, "send one map"),
        (TOKEN, {"Host": "elsewhere.example"}, 400, "this Host is not served here"),
    ],
)
def test_what_is_refused_says_why(url: str, token: str | None, headers: Any, status: int, why: str) -> None:
    found, answer, _ = post(url, GOOD, token, **headers)
    assert (found, list(answer)) == (status, ["error"])
    assert why in answer["error"]
    assert TOKEN not in str(answer)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "no JSON"),
        (b"[1]", "no object"),
        (b'{"version":2}', "version is not 1"),
        (b'{"version":true}', "version is not 1"),
        (b'{"version":1,"instance":"a/b"}', "instance is no word"),
        (b'{"version":1,"instance":"a"}', "sent_s is no time"),
        (b'{"version":1,"instance":"a","sent_s":NaN}', "NaN is no number"),
        (b'{"version":1,"instance":"a","sent_s":1e999}', "sent_s is no time"),
        (b'{"version":1,"instance":"a","sent_s":-1}', "sent_s is no time"),
        (b'{"version":1,"instance":"a","sent_s":1,"steps":{}}', "steps is no list"),
        (b'{"version":1,"instance":"a","sent_s":1,"steps":[' + b"0," * 4096 + b"0]}", "more than 4096"),
        (b'{"version":1,"instance":"a","sent_s":1,"facts":[]}', "facts is no object"),
        (b'{"version":1,"instance":"a","sent_s":1,"first_sequence":0}', "first_sequence is no whole number"),
        (b'{"version":1,"instance":"a","sent_s":1,"in_flight":{"submit_s":2}}', "lies after sent_s"),
        (b'{"version":1,"instance":"a","sent_s":1,"in_flight":{"submit_s":1,"tokens":0.5}}', "no whole number"),
        (b"[" * 100_000, "nested too deep"),
        (b"9" * 10_000, "no JSON"),
        (b"\xff\xfe", "no JSON"),
    ],
)
def test_a_body_that_cannot_be_is_one_line(url: str, content: bytes, why: str) -> None:
    status, answer, _ = post(url, content)
    assert status == 422
    assert why in answer["error"]
    assert len(answer["error"]) < 300


def test_too_much_is_refused_packed_or_not(url: str) -> None:
    assert post(url, b" " * (MOST_BODY_BYTES + 1))[0] == 413
    bomb = gzip.compress(b" " * (64 << 20))
    assert len(bomb) < MOST_BODY_BYTES
    status, answer, _ = post(url, bomb, Content_Encoding="gzip")
    assert (status, "in parts" in answer["error"]) == (413, True)
    head = f"POST /api/v1/push HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
    endless = (head + "Transfer-Encoding: chunked\r\n\r\n").encode() + b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    assert b" 413 " in ask_raw(url, endless + (b"10000\r\n" + b" " * 0x10000 + b"\r\n") * 64).split(b"\r\n")[0]


def test_a_gzip_with_more_behind_it_or_cut_off_is_refused(url: str) -> None:
    for content in (gzip.compress(GOOD) + b"x", gzip.compress(GOOD)[:-4], gzip.compress(GOOD) * 2):
        status, answer, _ = post(url, content, Content_Encoding="gzip")
        assert (status, "no whole gzip" in answer["error"]) == (422, True)


def test_guessing_is_bounded_by_address_and_the_token_is_not_compared_then(url: str) -> None:
    tries = [post(url, GOOD, f"guess-{number}")[0] for number in range(MOST_TRIES)]
    assert set(tries) == {403}
    status, answer, headers = post(url, GOOD, TOKEN)
    assert (status, "too many wrong tokens" in answer["error"]) == (429, True)
    assert 0 < int(headers["retry-after"]) <= 61
    assert ask(url, "/healthz").status == 503  # the rest answers as before: nothing is published yet


def test_only_so_many_addresses_are_remembered(receiver: Receiver) -> None:
    push = Push(TOKEN, receiver.take)
    for number in range(2000):
        request: Any = type("Request", (), {"headers": {"authorization": "Bearer guess"}})()
        with pytest.raises(http_push.RefusedPushError):
            push._authorise(request, f"10.0.{number >> 8}.{number & 255}", 100.0)
    assert len(push._tries) == http_push.MOST_ADDRESSES


def test_the_token_is_in_no_log(url: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        post(url, GOOD)
        post(url, GOOD, "wrong-one")
        post(url, b"{")
    assert TOKEN not in caplog.text
    assert "wrong-one" not in caplog.text


def test_a_full_queue_says_to_come_back_and_has_taken_nothing(url: str, receiver: Receiver) -> None:
    feed = PushFeed(receiver)
    bodies = -(-MOST_WAITING_STEPS // 4001)
    many = [{"submit_s": 1.0, "output_s": 1.0, "contexts": []}] * 4000
    for number in range(bodies):
        given = body(steps=many, first_sequence=1 + 4000 * number)
        assert receiver.take(raw(given), "application/json", 100.0, True).status == 200
    late = body(steps=many[:1], first_sequence=1 + 4000 * bodies)
    status, answer, headers = post(url, raw(late))
    assert (status, headers["retry-after"]) == (503, "2")
    assert "keep the body" in answer["error"]
    (batch,) = feed.read()
    assert len(batch.steps) == 4000 * bodies
    status, answer, _ = post(url, raw(late))
    assert (status, answer["steps"], answer["lost_steps"]) == (200, 1, 0)


def test_while_a_body_is_checked_the_reader_is_not_held_up_and_few_are_taken_at_once() -> None:
    entered, leave = threading.Semaphore(0), threading.Event()
    inner = Receiver()

    def slow(raw: bytes, media_type: str, received_s: float, here: bool) -> Any:
        entered.release()
        assert leave.wait(20)
        return inner.take(raw, media_type, received_s, here)

    server = LiveServer("127.0.0.1", 0, push=Push(TOKEN, slow))
    server.start()
    found: list[int] = []
    try:
        many = [threading.Thread(target=lambda: found.append(post(server.url, GOOD)[0])) for _ in range(8)]
        for thread in many:
            thread.start()
        for _ in many:
            assert entered.acquire(timeout=20)
        assert PushFeed(inner).read() == []
        status, _, headers = post(server.url, GOOD)
        assert (status, headers["retry-after"]) == (503, "1")
        assert ask(server.url, "/healthz").status == 503
        leave.set()
        for thread in many:
            thread.join(20)
        assert found == [200] * 8
    finally:
        leave.set()
        server.close()


def test_who_goes_away_in_the_midst_of_a_body_leaves_nothing_behind(url: str, receiver: Receiver) -> None:
    host, port = url.removeprefix("http://").split(":")
    for _ in range(12):
        with socket.create_connection((host, int(port)), timeout=20) as stream:
            head = f"POST /api/v1/push HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
            stream.sendall(f"{head}Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{{".encode())
    status, answer, _ = post(url, GOOD)
    while status == 503:  # until the last of them was seen to be gone
        status, answer, _ = post(url, GOOD)
    assert (status, answer["steps"]) == (200, 1)
    assert len(PushFeed(receiver).read()) == 1


@pytest.mark.parametrize(
    ("address", "here"),
    [("127.0.0.1", True), ("::1", True), ("::ffff:127.0.0.1", True), ("10.0.0.1", False), ("", False), ("x", False)],
)
def test_who_is_on_this_machine(address: str, here: bool) -> None:
    assert http_push.is_here(address) is here


def test_msgpack_without_its_package_says_what_to_install(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "msgspec", None)
    status, answer, _ = post(url, b"\x80", Content_Type="application/msgpack")
    assert (status, "rooflens[feeds]" in answer["error"]) == (415, True)
    assert post(url, GOOD)[0] == 200
