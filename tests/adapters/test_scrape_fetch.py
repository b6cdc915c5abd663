"""The fetch of a metrics page: bounded whatever the server does, and one line for whatever is wrong."""

from __future__ import annotations

import gzip
import socket
import threading
from collections.abc import Callable
from itertools import repeat

import pytest
from scrape_pages import serving

from rooflens.adapters.scrape.address import address_of
from rooflens.adapters.scrape.fetch import EXPORTER, Limits, fetch
from rooflens.pipeline.probes_here import _page
from rooflens.records import RooflensError

QUICK = Limits(silence_s=1.0, total_s=0.5, most_bytes=1 << 20)
PAGE = b"vllm:num_requests_running 1.0\n"
SECRET = "geheim-3141"


def sending(*parts: bytes) -> Callable[[socket.socket, bytes], None]:
    def answer(connection: socket.socket, _: bytes) -> None:
        for part in parts:
            connection.sendall(part)

    return answer


def ok(body: bytes, *headers: bytes) -> bytes:
    return b"\r\n".join([b"HTTP/1.1 200 OK", *headers, b"", body])


def refusal(answer: Callable[[socket.socket, bytes], None], limits: Limits = QUICK) -> str:
    with serving(answer) as url:
        address = address_of(url.replace("//", f"//someone:{SECRET}@"), None)
        with pytest.raises(RooflensError) as caught:
            fetch(address, limits)
    said = str(caught.value)
    assert SECRET not in said
    assert "someone" not in said
    assert "\n" not in said
    assert said.startswith(address.name)
    return said


def test_page_is_fetched_with_what_was_promised() -> None:
    heads = []

    def answer(connection: socket.socket, head: bytes) -> None:
        heads.append(head)
        connection.sendall(ok(PAGE, b"Content-Length: %d" % len(PAGE), b"Date: Tue, 14 Nov 2023 22:13:20 GMT"))

    with serving(answer) as url:
        page = fetch(address_of(url, token=SECRET))
    assert page.text == PAGE.decode()
    assert page.clock_unix_s == 1_700_000_000
    head = heads[0].decode()
    assert head.startswith("GET /metrics HTTP/1.1\r\n")
    assert "Accept-Encoding: identity\r\n" in head
    assert "Accept: text/plain; version=0.0.4" in head
    assert f"Authorization: Bearer {SECRET}\r\n" in head


def test_user_and_password_of_the_url_become_basic_authorization() -> None:
    address = address_of("http://some%40one:pass%3Aword@h:8000/x?token=1", token=SECRET)
    assert address.authorization == "Basic c29tZUBvbmU6cGFzczp3b3Jk"
    assert (address.name, address.target) == ("http://h:8000/x", "/x?token=1")
    assert "c29tZ" not in repr(address)
    assert "token" not in repr(address)


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("http://h:8000", "http://h:8000/metrics"),
        ("h:8000", "http://h:8000/metrics"),
        ("https://h/", "https://h/metrics"),
        ("http://h/page;token=secret?token=secret", "http://h/page"),
        ("http://[::1]:8000/metrics", "http://[::1]:8000/metrics"),
    ],
)
def test_addresses(url: str, name: str) -> None:
    assert address_of(url).name == name


@pytest.mark.parametrize(
    "url",
    ["file:///etc/passwd", "ftp://h/x", "http://", "http://h:99999/", "http://h:x/", "http://[::1/", "http://a b/",
     "http://h/\r\nX: 1", "", "unix://socket", "http://h\x00/"],
)  # fmt: skip
def test_what_is_no_address_is_refused_in_one_line(url: str) -> None:
    with pytest.raises(RooflensError) as caught:
        address_of(url)
    assert "\n" not in str(caught.value)
    assert "write it as http://HOST:PORT/metrics" in str(caught.value)


@pytest.mark.parametrize("token", ["", "two words", "line\r\nX-Evil: 1", "ünicode"])
def test_token_that_cannot_be_sent_is_refused_unseen(token: str) -> None:
    with pytest.raises(RooflensError) as caught:
        address_of("http://h", token)
    assert token == "" or token not in str(caught.value)


@pytest.mark.parametrize(
    ("status", "words"),
    [(401, "ROOFLENS_SCRAPE_TOKEN, or --scrape-token-file"), (403, "not enough"), (404, "look at the path"),
     (503, "tried again"), (500, "server's log")],
)  # fmt: skip
def test_each_refusal_names_the_next_step(status: int, words: str) -> None:
    said = refusal(sending(b"HTTP/1.1 %d Nope\r\nContent-Length: 0\r\n\r\n" % status))
    assert words in said
    assert f"({status})" in said


@pytest.mark.parametrize(
    ("status", "words"),
    [(401, "a bearer token is not sent to it"), (404, "dcgm-exporter serves /metrics, at port 9400")],
)
def test_of_an_exporter_they_are_its_own(status: int, words: str) -> None:
    answer = sending(b"HTTP/1.1 %d Nope\r\nContent-Length: 0\r\n\r\n" % status)
    with serving(answer) as url, pytest.raises(RooflensError) as caught:
        _page(address_of(url))
    assert words in str(caught.value)
    assert "ROOFLENS" not in str(caught.value)
    assert "vLLM" not in str(caught.value)


def test_a_page_that_is_too_large_is_none_of_what_was_named() -> None:
    with serving(never_ending) as url, pytest.raises(RooflensError, match="this is no metrics page of a dcgm-exporter"):
        fetch(address_of(url), Limits(1.0, 20.0, 1 << 20), EXPORTER)


def test_redirect_is_said_and_not_followed() -> None:
    target = f"https://user:{SECRET}@elsewhere:1/x?key={SECRET}".encode()
    said = refusal(sending(b"HTTP/1.1 302 Found\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n" % target))
    assert "https://elsewhere:1/x" in said
    assert "(302)" in said


def never_ending(connection: socket.socket, _: bytes) -> None:
    connection.sendall(ok(b""))
    for line in repeat(PAGE):
        connection.sendall(line)


def dripping(where: bytes) -> Callable[[socket.socket, bytes], None]:
    def answer(connection: socket.socket, _: bytes) -> None:
        connection.sendall(where)
        wait = threading.Event()
        for _ in range(100):
            connection.sendall(b"x" if b"\r\n\r\n" not in where else PAGE)
            wait.wait(0.05)

    return answer


def test_response_without_end_stops_at_the_size() -> None:
    assert "larger than 1 MiB" in refusal(never_ending, Limits(1.0, 20.0, 1 << 20))


@pytest.mark.parametrize(
    "where",
    [b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n", b"H"],
)
def test_drips_end_at_the_deadline(where: bytes) -> None:
    assert "did not finish within 0.5 s" in refusal(dripping(where))


def test_silent_server_is_left() -> None:
    def silent(connection: socket.socket, _: bytes) -> None:
        connection.recv(1)

    assert "is silent for 0.2 s" in refusal(silent, Limits(silence_s=0.2, total_s=20.0))


@pytest.mark.parametrize(
    "answer",
    [
        ok(PAGE, b"Content-Length: 1000"),
        ok(b"5\r\nvllm:\r\n", b"Transfer-Encoding: chunked"),
        ok(b"50\r\nvllm:", b"Transfer-Encoding: chunked"),
        ok(PAGE + b"vllm:num_requests_wai"),
        ok(gzip.compress(PAGE * 100)[:-12], b"Content-Encoding: gzip"),
    ],
)
def test_page_that_was_cut_off_is_refused(answer: bytes) -> None:
    assert "cut off" in refusal(sending(answer))


def test_gzip_is_read_though_not_asked_for() -> None:
    with serving(sending(ok(gzip.compress(PAGE), b"Content-Encoding: gzip"))) as url:
        assert fetch(address_of(url)).text == PAGE.decode()


def test_gzip_bomb_ends_at_the_limit() -> None:
    bomb = gzip.compress(bytes(64 << 20), 9)
    assert len(bomb) < 100_000
    said = refusal(sending(ok(bomb, b"Content-Encoding: gzip")), Limits(1.0, 20.0, 1 << 20))
    assert "larger than 1 MiB" in said


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", "proper HTTP"),
        (b"", "broke the connection"),
        (ok(b"x", b"Content-Encoding: br"), "packed as br"),
        (ok(b"not gzip", b"Content-Encoding: gzip"), "proper HTTP"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200 + b"\r\n", "proper HTTP"),
    ],
)
def test_what_is_not_http(answer: bytes, words: str) -> None:
    assert words in refusal(sending(answer), Limits(1.0, 20.0))


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(RooflensError, match="nobody listens there"):
        fetch(address_of(f"http://127.0.0.1:{port}"), QUICK)


def test_tls_with_a_plain_server_is_said() -> None:
    with serving(sending(ok(PAGE))) as url, pytest.raises(RooflensError, match="does not speak TLS"):
        fetch(address_of(url.replace("http:", "https:")), Limits(1.0, 5.0))
