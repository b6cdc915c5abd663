"""Which ports are asked, and who is believed to be an engine or a sidecar."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli.pages import served

from rooflens.cli.find_servers import DEADLINE_S, ask, find_servers, find_sidecar, listening, metrics_pages, versions
from rooflens.records import RooflensError

INTERPRETER = b'# TYPE python_info gauge\npython_info{version="3.12"} 1.0\n'
COLONS = INTERPRETER + b'vllm:num_requests_running{engine="0",model_name="m"} 1.0\n'
UNDERSCORES = b'vllm_num_requests_running{engine="0"} 1.0\n'
HEALTH = b'{"status":"ok","snapshot_number":1,"snapshot_age_s":0.1}\n'


@pytest.fixture
def silent() -> Iterator[int]:
    """Somebody who takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


@pytest.mark.parametrize("page", [COLONS, UNDERSCORES])
def test_a_page_of_vllm_is_found_by_its_names(page: bytes) -> None:
    with served({"/metrics": page, "/version": b'{"version":"0.33.0"}'}) as port:
        url = f"http://127.0.0.1:{port}"
        assert find_servers(ports=[port]) == [url]
        assert metrics_pages(ports=[port]) == {url: page}
        assert versions([url]) == {url: "0.33.0"}


@pytest.mark.parametrize("pages", [{"/metrics": INTERPRETER}, {"/metrics": b"# vllm: a word\n"}, {"/": COLONS}])
def test_other_pages_are_not(pages: dict[str, bytes]) -> None:
    with served(pages) as port:
        assert find_servers(ports=[port]) == []


def test_a_page_that_is_refused_is_none() -> None:
    with served({"/metrics": COLONS}, status=503) as port:
        assert find_servers(ports=[port]) == []


def test_who_is_silent_does_not_hold_up_the_others(silent: int) -> None:
    with served({"/metrics": COLONS}) as port:
        assert find_servers(ports=[silent, closed_port(), port]) == [f"http://127.0.0.1:{port}"]


def test_a_page_without_end_is_read_in_part() -> None:
    endless = COLONS + b"x" * (4 << 20)
    with served({"/metrics": endless}) as port:
        (page,) = metrics_pages(ports=[port]).values()
        assert len(COLONS) < len(page) < len(endless)


def test_without_proc_every_port_is_asked(tmp_path: Path) -> None:
    assert listening(tmp_path, [8000, 8001]) == [("127.0.0.1", 8000), ("127.0.0.1", 8001)]


def row(address: str, port: int, state: str = "0A") -> str:
    return f"   0: {address}:{port:04X} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000 0 0 1\n"


@pytest.mark.skipif(sys.byteorder != "little", reason="/proc writes addresses in the machine's own order")
def test_addresses_are_those_that_reach_the_listener(tmp_path: Path) -> None:
    net = tmp_path / "proc" / "net"
    net.mkdir(parents=True)
    four = row("00000000", 8000) + row("0100007F", 8001) + row("0200000A", 8002) + row("00000000", 8003, "01")
    six = row("0" * 32, 8004) + row("0000000000000000FFFF00000100007F", 8005) + row("0" * 24 + "01000000", 8006)
    (net / "tcp").write_text("head\n" + four + "short\n" + row("zz", 8007))
    (net / "tcp6").write_text("head\n" + six)
    assert listening(tmp_path, range(8000, 8010)) == [
        ("127.0.0.1", 8000), ("127.0.0.1", 8001), ("10.0.0.2", 8002), ("127.0.0.1", 8004), ("127.0.0.1", 8005),
        ("::1", 8006),
    ]  # fmt: skip
    assert listening(tmp_path, [8003, 8004]) == [("127.0.0.1", 8004)]


def test_this_machines_own_listener_is_seen(silent: int) -> None:
    assert listening(Path("/"), [silent, closed_port()]) == [("127.0.0.1", silent)]


def test_a_sidecar_says_that_it_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with served({"/healthz": HEALTH}) as port, served({"/healthz": b"ok"}) as other:
        url = f"http://127.0.0.1:{port}"
        assert find_sidecar(url) == find_sidecar(f"127.0.0.1:{port}") == find_sidecar(f"{url}/metrics") == url
        assert find_sidecar(f"http://127.0.0.1:{other}") is None
        monkeypatch.setenv("ROOFLENS_URL", url)
        assert find_sidecar() == url
        monkeypatch.setenv("ROOFLENS_URL", f"http://127.0.0.1:{closed_port()}")
        assert find_sidecar() is None


@pytest.mark.parametrize("url", ["http://", "ftp://127.0.0.1:1", "http://127.0.0.1:99999", "http://[::1", "\x1b[31m"])
def test_an_address_that_is_none_is_one_line(url: str) -> None:
    with pytest.raises(RooflensError, match="is no address of a server"):
        find_sidecar(url)


def test_what_does_not_speak_http_is_left_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = ("127.0.0.1", server.getsockname()[1])
        with socket.create_connection(address):
            peer, _ = server.accept()
            peer.close()
        assert ask({address: "/"}, lambda _: False, DEADLINE_S / 8) == {}
