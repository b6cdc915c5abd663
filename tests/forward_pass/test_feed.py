"""Real ZMQ publishers with real Structs, as engines run them, and what else may be at an address."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
import zmq
from forward_pass.wire import DECODE, Sent, SentPlaces, frames

from rooflens.adapters.forward_pass.address import address_of
from rooflens.adapters.forward_pass.feed import NO_PUBLISHER, NOBODY, ForwardPassFeed
from rooflens.live_records import State
from rooflens.pipeline.watch import Watch
from rooflens.pipeline.watch_settings import WatchSettings
from rooflens.protocols import Batch
from rooflens.records import RooflensError

PATIENCE_S = 20.0


class Publisher:
    """As all three engines do it: PUB, bound, three frames."""

    def __init__(self, port: int = 0) -> None:
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.PUB)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.port = port or self.socket.bind_to_random_port("tcp://127.0.0.1")
        if port:
            self.socket.bind(f"tcp://127.0.0.1:{port}")

    @property
    def url(self) -> str:
        return f"tcp://127.0.0.1:{self.port}"

    def send(self, *parts: bytes) -> None:
        self.socket.send_multipart(parts)

    def close(self) -> None:
        self.context.destroy(linger=0)


@pytest.fixture
def publisher() -> Iterator[Publisher]:
    with closing(Publisher()) as made:
        yield made


@pytest.fixture
def feed_of() -> Iterator[Callable[[str], ForwardPassFeed]]:
    made: list[ForwardPassFeed] = []

    def start(url: str) -> ForwardPassFeed:
        made.append(ForwardPassFeed(url))
        made[-1].start()
        return made[-1]

    yield start
    for feed in made:
        feed.close()


def until(found: Callable[[], Any]) -> Any:
    """What ``found`` gives, once it gives something."""
    end_s = time.monotonic() + PATIENCE_S
    while not (value := found()):
        assert time.monotonic() < end_s, "nothing came"
        time.sleep(0.01)
    return value


def connected(feed: ForwardPassFeed) -> bool:
    return feed.health().state is State.LIVE


def subscribed(publisher: Publisher, feed: ForwardPassFeed) -> None:
    """A subscription takes a moment to arrive: heartbeats until one is heard."""
    until(lambda: connected(feed))

    def heard() -> bool:
        publisher.send(*frames(Sent(worker_id="first")))
        return bool(feed.read())

    until(heard)


def of(feed: ForwardPassFeed, worker: str, kept: list[Batch]) -> list[Batch]:
    kept += feed.read()
    return [b for b in kept if b.info and b.info.instance.endswith(f"-{worker}-0") and (len(b.steps) or b.complaints)]


def decode(number: int, worker: str = "w", **more: Any) -> Sent:
    return Sent(worker_id=worker, counter_id=number, wall_time=0.01, scheduled_requests=DECODE, **more)


def test_passes_arrive_as_steps(publisher: Publisher, feed_of: Callable[[str], ForwardPassFeed]) -> None:
    feed = feed_of(publisher.url)
    subscribed(publisher, feed)
    for number in (0, 1, 5):
        publisher.send(*frames(decode(number)))
    kept: list[Batch] = []
    until(lambda: sum(len(b.steps) for b in of(feed, "w", kept)) == 3)
    batches = of(feed, "w", kept)
    assert sum(b.lost_steps for b in batches) == 3
    steps = batches[-1].steps
    assert steps["context_tokens"][-1] == 4096
    assert steps["causal_pairs"][-1] == 4100
    assert feed.failures == 0
    assert feed.health().problem is None


def test_garbage_is_counted_and_the_rest_goes_on(
    publisher: Publisher, feed_of: Callable[[str], ForwardPassFeed]
) -> None:
    feed = feed_of(publisher.url)
    subscribed(publisher, feed)
    bad = [
        (b"",),
        (b"", bytes(8), b"\xc1"),
        (b"", bytes(8), b"\x91" * 5000),
        tuple(b"x" for _ in range(40)),
        frames(decode(1, version=9)),
        frames(SentPlaces(version=2)),
    ]
    for parts in bad:
        publisher.send(*parts)
    publisher.send(*frames(decode(2)))
    kept: list[Batch] = []
    until(lambda: of(feed, "w", kept))
    assert feed.failures == len(bad)
    problem = feed.health().problem
    assert problem is not None
    assert "could not be read" in problem
    assert "\n" not in problem
    publisher.send(*frames(decode(3, version=9)))
    until(lambda: feed.failures == len(bad) + 1)
    assert feed.health().problem == problem, "a line that changes with each message is said with each message"


def test_nobody_there_is_one_line_until_somebody_is(feed_of: Callable[[str], ForwardPassFeed]) -> None:
    with closing(Publisher()) as gone:
        port = gone.port
    feed = feed_of(f"tcp://127.0.0.1:{port}")
    until(lambda: feed.health().problem == NOBODY)
    assert feed.health().state is State.UNREACHABLE
    assert feed.read() == []
    with closing(Publisher(port)) as late:
        subscribed(late, feed)
        assert feed.health().problem is None


def test_an_engine_that_begins_again_is_a_new_run(feed_of: Callable[[str], ForwardPassFeed]) -> None:
    with closing(Publisher()) as first:
        feed = feed_of(first.url)
        subscribed(first, feed)
        first.send(*frames(decode(100)))
        kept: list[Batch] = []
        until(lambda: of(feed, "w", kept))
    until(lambda: feed.health().state is State.UNREACHABLE)
    assert "gone" in (feed.health().problem or "")
    with closing(Publisher(first.port)) as second:
        until(lambda: connected(feed))

        def told() -> bool:
            second.send(*frames(decode(0)))
            return any(b.progress and b.progress.state is State.DIED for b in of(feed, "w", kept) + kept)

        until(told)


def test_what_is_no_publisher_is_said(feed_of: Callable[[str], ForwardPassFeed]) -> None:
    """A web server at the address: the engine's API port is easily taken for the other."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(PATIENCE_S)
        feed = feed_of(f"tcp://127.0.0.1:{server.getsockname()[1]}")
        caller, _ = server.accept()
        with caller:
            caller.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n" + b"x" * 200)
        until(lambda: feed.health().problem == NO_PUBLISHER)
    assert feed.health().state is State.UNREACHABLE


def test_two_addresses_are_watched_side_by_side() -> None:
    with closing(Publisher()) as one, closing(Publisher()) as two:
        feeds = [ForwardPassFeed(one.url), ForwardPassFeed(two.url)]
        watch = Watch(WatchSettings(use_rings=False, feeds=feeds))
        try:

            def seen() -> bool:
                for number, publisher in enumerate((one, two)):
                    publisher.send(*frames(decode(int(time.monotonic() * 1e3), "same")))
                    assert number < 2
                return len(watch.turn().engines) == 2

            until(seen)
            snapshot = watch.turn()
        finally:
            watch.close()
    assert {(str(s.kind), s.engines) for s in snapshot.sources} == {("feed", 1)}
    assert snapshot.problems == ()


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("127.0.0.1:20380", "not an address"),
        ("http://127.0.0.1:8000", "not an address"),
        ("tcp://127.0.0.1", "HOST:PORT"),
        ("tcp://127.0.0.1:0", "HOST:PORT"),
        ("tcp://127.0.0.1:99999", "HOST:PORT"),
        ("tcp://me@host:20380", "HOST:PORT"),
        ("tcp://*:20380", "connects and never listens"),
        ("tcp://0.0.0.0:20380", "connects and never listens"),
        ("tcp://a b:1", "no address"),
    ],
)
def test_an_address_that_is_none_is_one_line(url: str, why: str) -> None:
    with pytest.raises(RooflensError, match=why):
        ForwardPassFeed(url)


def test_an_ipc_path_is_shown_by_its_last_part() -> None:
    assert address_of("ipc:///tmp/ann/tmpx.0").name == "ipc://tmpx.0"


@pytest.mark.parametrize("missing", ["zmq", "msgspec"])
def test_without_the_packages_one_line_says_what_to_install(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(RooflensError, match=r"pip install 'rooflens\[feeds\]'"):
        ForwardPassFeed("tcp://127.0.0.1:20380").start()
