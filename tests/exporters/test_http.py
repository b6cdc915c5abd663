"""The API over a real server: paths, formats, faults in one line, hostile and slow clients."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from pathlib import Path

import pytest
from http_client import Answer, ask, ask_raw, connect
from made_snapshot import made_snapshot
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics

from rooflens.exporters import http_api, http_app, published
from rooflens.exporters.http_api import PATHS, wants_openmetrics
from rooflens.exporters.http_app import LiveServer
from rooflens.exporters.json_view import engines_json, findings_json, roofline_json, steps_json
from rooflens.exporters.prometheus import OPENMETRICS_TYPE, TEXT_TYPE, render
from rooflens.findings import Code, Status
from rooflens.live_records import Snapshot
from rooflens.records import RooflensError

PROMETHEUS_ACCEPT = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)


def test_before_the_first_snapshot_it_says_so(server: LiveServer) -> None:
    health = ask(server.url, "/healthz")
    assert (health.status, health.json["status"]) == (503, "starting")
    for path in PATHS:
        answer = ask(server.url, path)
        assert answer.status == 503
        assert path == "/healthz" or "no snapshot yet" in answer.error


def test_every_path_gives_what_the_snapshot_holds(url: str, snapshot: Snapshot) -> None:
    wanted = {
        "/api/v1/engines": engines_json(snapshot),
        "/api/v1/roofline": roofline_json(snapshot),
        "/api/v1/findings": findings_json(snapshot),
        "/api/v1/findings?status=firing": findings_json(snapshot, status=Status.FIRING),
        "/api/v1/findings?code=kv_pressure&status=cleared": findings_json(snapshot, Status.CLEARED, Code.KV_PRESSURE),
        "/api/v1/steps?engine=1": steps_json(snapshot, None, "1"),
        "/api/v1/steps?model_name=meta/Llama-3.1-8B&engine=0&last=512": steps_json(snapshot, None, "0", 512),
    }
    for path, content in wanted.items():
        answer = ask(url, path)
        assert (answer.status, answer.json) == (200, content), path
    health = ask(url, "/healthz")
    assert (health.status, health.json["status"], health.json["engines"]) == (200, "ok", 3)
    assert health.json["problems"] == engines_json(snapshot)["problems"]
    assert any("/metrics" in line or "http://" in line for line in health.json["problems"]), "the page that is silent"


def test_the_page_of_metrics_comes_in_two_formats(url: str, snapshot: Snapshot) -> None:
    plain, asked = ask(url, "/metrics"), ask(url, "/metrics", accept=PROMETHEUS_ACCEPT)
    assert (plain.headers["content-type"], plain.body) == (TEXT_TYPE, render(snapshot))
    assert (asked.headers["content-type"], asked.body) == (OPENMETRICS_TYPE, render(snapshot, openmetrics=True))
    assert plain.headers["vary"] == asked.headers["vary"] == "accept"


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        ("", False),
        ("*/*", False),
        ("text/html,application/xhtml+xml,*/*;q=0.8", False),
        ("text/plain;version=0.0.4", False),
        ("application/openmetrics-text", True),
        (PROMETHEUS_ACCEPT, True),
        ("application/openmetrics-text;version=1.0.0;q=0.4,text/plain;version=0.0.4;q=0.5", False),
        ("APPLICATION/OPENMETRICS-TEXT; q=1, text/plain; q=0.5", True),
        ("application/openmetrics-text;q=0", False),
        ("application/openmetrics-text;q=much", False),
        (",;,=;q", False),
    ],
)
def test_content_negotiation(accept: str, wanted: bool) -> None:
    assert wants_openmetrics(accept) is wanted


def test_a_page_is_rendered_once_a_snapshot_and_ahead_for_who_asked_lately(monkeypatch: pytest.MonkeyPatch) -> None:
    rendered: list[tuple[int, bool]] = []

    def counting(snapshot: object, openmetrics: bool) -> bytes:
        rendered.append((snapshot.number, openmetrics))  # type: ignore[attr-defined]
        return b"page"

    monkeypatch.setattr(published, "render", counting)
    held = published.Published()
    held.publish(made_snapshot(0, 1))
    assert rendered == []
    assert [held.page(True) for _ in range(3)] == [b"page"] * 3
    assert rendered == [(1, True)]
    held.publish(made_snapshot(0, 2))
    assert rendered == [(1, True), (2, True)]
    held.page(True)
    assert len(rendered) == 2
    monkeypatch.setattr(published, "LATELY_S", -1.0)
    held.publish(made_snapshot(0, 3))
    assert len(rendered) == 2


def test_a_snapshot_that_has_grown_old_is_said(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_api, "STALE_S", -1.0)
    health = ask(url, "/healthz")
    assert (health.status, health.json["status"], health.json["snapshot_number"]) == (503, "stale", 1)
    metrics = ask(url, "/metrics")
    assert metrics.status == 503
    assert "the sidecar hangs" in metrics.error
    assert ask(url, "/api/v1/engines").status == 200


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/", 404, "/api/v1/engines"),
        ("/docs", 404, "/metrics"),
        ("/openapi.json", 404, "/metrics"),
        ("/metrics/", 404, "/metrics"),
        ("/api/v1/steps?engine=7", 404, "no engine fits"),
        ("/api/v1/steps", 404, "several engines fit"),
        ("/api/v1/steps?engine=0&limit=1", 400, "unknown parameter 'limit'; there are: model_name, engine, last"),
        ("/api/v1/findings?Status=firing", 400, "unknown parameter 'Status'; there are: status, code"),
        ("/api/v1/engines?engine=0", 400, "unknown parameter 'engine'; there are none here"),
        ("/api/v1/roofline?%0A", 400, "there are none here"),
        ("/api/v1/steps?engine=0&last=0", 422, "last: "),
        ("/api/v1/steps?engine=0&last=513", 422, "last: "),
        ("/api/v1/steps?engine=0&last=ten", 422, "last: "),
        ("/api/v1/steps?engine=" + "0" * 10_001, 422, "engine: "),
        ("/api/v1/findings?status=bad", 422, "'firing', 'cleared' or 'cannot_tell'"),
        ("/api/v1/findings?code=%0Ahello", 422, "engine_stalled"),
    ],
)
def test_faults_are_one_line(url: str, path: str, status: int, words: str) -> None:
    answer = ask(url, path)
    assert answer.status == status
    assert words in answer.error


@pytest.mark.parametrize("path", PATHS)
def test_it_is_read_only(url: str, path: str) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        answer = ask(url, path, method)
        assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")
        assert "read-only" in answer.error
    query = "?engine=0" if path.endswith("steps") else ""
    head, got = ask(url, path + query, "HEAD"), ask(url, path + query)
    assert (head.status, head.body) == (200, b"")
    # The age in /healthz may gain a digit between the two.
    assert path == "/healthz" or head.headers["content-length"] == str(len(got.body))


def hardened(answer: Answer) -> bool:
    names = ("cache-control", "x-content-type-options", "content-security-policy", "connection")
    values = tuple(answer.headers.get(name) for name in names)
    return values == ("no-store", "nosniff", "default-src 'none'", "close") and "server" not in answer.headers


def test_every_answer_is_hardened(url: str) -> None:
    for path in (*PATHS, "/nowhere", "/api/v1/steps?last=0"):
        assert hardened(ask(url, path)), path
    assert hardened(ask(url, "/metrics", "POST"))
    assert hardened(ask(url, "/metrics", host="evil.example"))


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:9980", "localhost.evil.example", "127.0.0.1.evil.example", "localhost:x", "", "[::1",
     "local host", "127.0.0.1@evil.example", "0x7f000001", "127.1", "localhost,evil.example", "a" * 8000],
)  # fmt: skip
def test_a_foreign_host_is_refused(url: str, host: str) -> None:
    answer = ask(url, "/api/v1/engines", host=host)
    assert answer.status == 400
    assert "Host" in answer.error


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:9980", "localhost.", "127.0.0.1", "10.1.2.3:80", "[::1]:9980"]
)
def test_a_host_of_this_machine_is_served(url: str, host: str) -> None:
    assert ask(url, "/healthz", host=host).status == 200
    assert ask(url, "/healthz", host=socket.gethostname()).status == 200


def test_further_names_are_served_where_given(snapshot: Snapshot) -> None:
    server = LiveServer("localhost", 0, names=("Rooflens.Example",))
    server.start()
    try:
        server.export(snapshot)
        assert ask(server.url, "/healthz", host="rooflens.example:80").status == 200
        assert ask(server.url, "/healthz", host="other.example").status == 400
    finally:
        server.close()


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET /healthz HTTP/1.1\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
        b"\x16\x03\x01 this is not HTTP\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 1_000_000 + b"\r\n\r\n",
        b"GET /" + b"a" * 1_000_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET http://evil.example/healthz HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    ],
)
def test_what_is_not_a_request_is_refused_and_the_next_one_served(url: str, request_bytes: bytes) -> None:
    try:
        answer = ask_raw(url, request_bytes)
    except ConnectionError:  # refused before all of it was sent
        answer = b"HTTP/1.1 400"
    assert answer.startswith(b"HTTP/1.1 400")
    assert ask(url, "/healthz").status == 200


def test_slow_clients_do_not_hold_up_others(server: LiveServer) -> None:
    server.export(made_snapshot(64))
    slow = [connect(server.url) for _ in range(20)]
    for stream in slow[:10]:
        stream.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
    for stream in slow[10:]:
        stream.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")  # and never reads three megabytes
    assert [ask(server.url, "/metrics").status for _ in range(3)] == [200] * 3
    for stream in slow:
        stream.close()


def test_a_connection_ends_whatever_its_client_does(
    server: LiveServer, monkeypatch: pytest.MonkeyPatch, snapshot: Snapshot
) -> None:
    server.export(snapshot)
    monkeypatch.setattr(http_app, "CONNECTION_S", 0.05)
    for start in (b"", b"GET /metrics HTT", b"POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n1"):
        with contextlib.suppress(ConnectionError):  # ended, in order or not; never ending is a TimeoutError
            ask_raw(server.url, start)


def test_more_connections_than_allowed_are_turned_away_for_a_while(
    monkeypatch: pytest.MonkeyPatch, snapshot: Snapshot
) -> None:
    monkeypatch.setattr(http_app, "MOST_CONNECTIONS", 4)
    monkeypatch.setattr(http_app._BoundedConnection, "_make_room", lambda self: None)  # as if all had asked
    server = LiveServer("127.0.0.1", 0)
    server.start()
    try:
        server.export(snapshot)
        idle = [connect(server.url) for _ in range(4)]
        assert ask(server.url, "/healthz").status == 503
        for stream in idle:
            stream.close()
        assert any(ask(server.url, "/healthz").status == 200 for _ in range(100))
    finally:
        server.close()


def test_who_asks_for_nothing_makes_room(url: str) -> None:
    idle = [connect(url) for _ in range(2 * http_app.MOST_CONNECTIONS)]
    with contextlib.suppress(ConnectionError):  # the oldest are gone already
        for stream in idle:
            stream.sendall(b"GET /metrics HTTP/1.1\r\nHost: loc")
    assert [ask(url, "/metrics").status for _ in range(5)] == [200] * 5
    for stream in idle:
        stream.close()


def test_a_head_that_does_not_come_is_waited_for_less_long(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_app, "CONNECTION_S", 3600.0)
    monkeypatch.setattr(http_app, "HEAD_S", 0.05)
    with contextlib.suppress(ConnectionError):  # never ending is a TimeoutError
        ask_raw(url, b"GET /metrics HTTP/1.1\r\nHost: loc")


@pytest.mark.parametrize(
    "head_and_body",
    [b"Transfer-Encoding: chunked\r\n\r\nZZZ\r\n", b"Content-Length: 100000000\r\n\r\n" + b"a" * 1_000_000],
)
def test_a_body_that_is_none_leaves_no_trace_in_the_log(
    url: str, head_and_body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        for _ in range(3):
            with contextlib.suppress(ConnectionError):
                ask_raw(url, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + head_and_body)
        assert ask(url, "/healthz").status == 200
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_readers_get_whole_pages_while_snapshots_change(server: LiveServer) -> None:
    snapshots = [made_snapshot(1, number) for number in range(1, 16)]
    server.export(snapshots[0])
    pages: list[list[bytes]] = [[] for _ in range(4)]
    done = threading.Event()

    def read(into: list[bytes]) -> None:
        while not done.is_set() or not into:
            into.append(ask(server.url, "/metrics", accept=PROMETHEUS_ACCEPT).body)

    readers = [threading.Thread(target=read, args=(into,)) for into in pages]
    for reader in readers:
        reader.start()
    for snapshot in snapshots:
        server.export(snapshot)
        ask(server.url, "/api/v1/engines")
    done.set()
    for reader in readers:
        reader.join()
    whole = {render(snapshot, openmetrics=True): snapshot.number for snapshot in snapshots}
    for seen in pages:
        numbers = [whole[page] for page in seen]
        assert numbers == sorted(numbers)
    assert {page for seen in pages for page in seen} <= set(whole)
    assert list(parse_openmetrics(pages[0][-1].decode()))


def test_a_fault_of_ours_is_one_line_and_logged(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(http_api, "engines_json", lambda snapshot: 1 / 0)
    with caplog.at_level(logging.ERROR):
        answer = ask(url, "/api/v1/engines")
    assert answer.status == 500
    assert hardened(answer)
    assert "rooflens" in answer.error
    assert "ZeroDivisionError" in caplog.text
    assert ask(url, "/healthz").status == 200


def test_a_port_in_use_is_one_line_with_the_next_step(server: LiveServer) -> None:
    port = int(server.url.rsplit(":", 1)[1])
    second = LiveServer("127.0.0.1", port)
    with pytest.raises(RooflensError, match=rf"^port {port} of 127.0.0.1 is in use: give --listen [^\n]+$"):
        second.start()
    second.close()
    assert ask(server.url, "/healthz").status == 503


@pytest.mark.parametrize(
    ("host", "port"), [("127.0.0.1", 70_000), ("127.0.0.1", -1), ("192.0.2.1", 0), ("no.such.host.invalid", 0)]
)
def test_what_cannot_be_listened_on_is_one_line(host: str, port: int) -> None:
    with pytest.raises(RooflensError, match=r"^[^\n]+give --listen [^\n]+$"):
        LiveServer(host, port).start()


def test_it_can_be_closed_and_started_again_on_the_same_port(snapshot: Snapshot) -> None:
    first = LiveServer("127.0.0.1", 0)
    first.close()
    first.start()
    url = first.url
    first.export(snapshot)
    idle = connect(url)
    idle.sendall(b"GET /metr")
    assert ask(url, "/healthz").status == 200
    first.close()
    first.close()
    with pytest.raises(ConnectionError):
        ask(url, "/healthz")
    second = LiveServer("127.0.0.1", int(url.rsplit(":", 1)[1]))
    second.start()
    try:
        assert second.url == url
        assert ask(url, "/healthz").status == 503
    finally:
        second.close()
        idle.close()


def test_it_listens_where_told_and_nowhere_else(url: str) -> None:
    port = int(url.rsplit(":", 1)[1])
    rows = [line.split() for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
    assert [row[1] for row in rows if row[1].endswith(f":{port:04X}") and row[3] == "0A"] == [f"0100007F:{port:04X}"]


@pytest.mark.skipif(not Path("/proc/net/if_inet6").exists(), reason="no IPv6 here")
def test_urls_of_ipv6_and_of_every_address(snapshot: Snapshot) -> None:
    for host, start in (("::1", "http://[::1]:"), ("0.0.0.0", "http://127.0.0.1:")):
        server = LiveServer(host, 0)
        server.start()
        try:
            server.export(snapshot)
            assert server.url.startswith(start)
            assert ask(server.url, "/healthz").status == 200
        finally:
            server.close()
