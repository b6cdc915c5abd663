"""Which of this machine's ports answer as an engine's metrics page or as a rooflens sidecar."""

from __future__ import annotations

import errno
import ipaddress
import json
import os
import re
import selectors
import socket
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from rooflens.records import RooflensError

# vLLM's own default and the ports beside it, those of its examples with several servers, llama.cpp's 8080, Dynamo's
# 8081, TGI's 3000 and SGLang's 30000.
USUAL_PORTS = (*range(8000, 8011), 3000, 8080, 8081, 8100, 8200, 9000, 30000)
SIDECAR_VARIABLE = "ROOFLENS_URL"
SIDECAR_URL = "http://127.0.0.1:9980"
DEADLINE_S = 0.8  # a page on loopback takes milliseconds; a server under load tens of them
MOST_BYTES = 512 << 10  # vLLM's own names begin after a few kilobytes, behind those of the interpreter
# A sample of an engine's own. TensorRT-LLM's JSON is no page that says whose it is.
ENGINE_SAMPLE = re.compile(
    rb"^(?:(?:vllm|sglang|llamacpp|trtllm)[:_]|tgi_|dynamo_frontend_)[a-z_]+(?:\{|[ \t])", re.MULTILINE
)
HEALTH_KEY = b'"snapshot_age_s"'  # no other server's health page knows this word
LISTENING = "0A"

Address = tuple[str, int]


@dataclass(slots=True)
class _Talk:
    """One request under way: what is still to be sent, and what has come back."""

    address: Address
    to_send: bytes
    received: bytearray = field(default_factory=bytearray)


def ask(
    paths: Mapping[Address, str], enough: Callable[[bytes], object], deadline_s: float = DEADLINE_S
) -> dict[Address, bytes]:
    """What each address answers to GET, head and body, all at once and within ``deadline_s`` seconds.

    An answer is read up to MOST_BYTES, or until ``enough`` of it has come; who does not answer is left out.
    """
    answers: dict[Address, bytes] = {}
    end_s = time.monotonic() + deadline_s
    with selectors.DefaultSelector() as selector:
        for address, path in paths.items():
            _begin(selector, address, path)
        while selector.get_map() and (left_s := end_s - time.monotonic()) > 0:
            for key, _ in selector.select(left_s):
                if not _go_on(selector, key, enough):
                    answers[key.data.address] = bytes(key.data.received)
        for key in list(selector.get_map().values()):
            answers[key.data.address] = bytes(key.data.received)
            _end(selector, key)
    return {address: answer for address, answer in answers.items() if answer.startswith(b"HTTP/")}


def _begin(selector: selectors.BaseSelector, address: Address, path: str) -> None:
    host = f"[{address[0]}]" if ":" in address[0] else address[0]
    request = f"GET {path} HTTP/1.0\r\nHost: {host}:{address[1]}\r\nAccept: text/plain;version=0.0.4, */*;q=0.1\r\n\r\n"
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    with suppress(OSError):
        peer = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        if peer.connect_ex(address) in (0, errno.EINPROGRESS):
            selector.register(peer, selectors.EVENT_WRITE, _Talk(address, request.encode("ascii")))
        else:
            peer.close()


def _go_on(selector: selectors.BaseSelector, key: selectors.SelectorKey, enough: Callable[[bytes], object]) -> bool:
    """Send or receive what can be; whether there is more to come."""
    peer, talk = key.fileobj, key.data
    assert isinstance(peer, socket.socket)
    try:
        if talk.to_send:
            talk.to_send = talk.to_send[peer.send(talk.to_send) :]
            if not talk.to_send:
                selector.modify(peer, selectors.EVENT_READ, talk)
            return True
        piece = peer.recv(64 << 10)
    except BlockingIOError:
        return True
    except OSError:
        piece = b""
    talk.received += piece
    if piece and len(talk.received) < MOST_BYTES and not enough(bytes(talk.received)):
        return True
    _end(selector, key)
    return False


def _end(selector: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
    selector.unregister(key.fileobj)
    assert isinstance(key.fileobj, socket.socket)
    key.fileobj.close()


def body_of(answer: bytes) -> bytes:
    """The body of an answer with the status 200; empty for any other."""
    head, _, body = answer.partition(b"\r\n\r\n")
    return body if re.match(rb"HTTP/1\.[01] 200\b", head) else b""


def listening(root: Path, ports: Iterable[int]) -> list[Address]:
    """Those of ``ports`` that something on this machine listens on, each with an address that reaches it.

    Where ``root``/proc does not tell, every port on loopback.
    """
    wanted, found, told = list(ports), dict[int, str](), False
    for name in ("tcp", "tcp6"):
        with suppress(OSError):
            text = (root / "proc" / "net" / name).read_text(encoding="ascii", errors="replace")
            told = True
            for words in (line.split() for line in text.splitlines()[1:]):
                if len(words) > 3 and words[3] == LISTENING and (at := _address(words[1])) and at[1] in wanted:
                    found.setdefault(at[1], at[0])
    return [(found[port], port) for port in wanted if port in found] if told else [("127.0.0.1", p) for p in wanted]


def _address(text: str) -> Address | None:
    """A local address as /proc/net writes it (words in the machine's byte order); loopback where it is any."""
    with suppress(ValueError):
        packed, _, port = text.partition(":")
        raw = bytes.fromhex(packed)
        if sys.byteorder == "little":
            raw = b"".join(raw[at : at + 4][::-1] for at in range(0, len(raw), 4))
        host = ipaddress.ip_address(raw)
        if isinstance(host, ipaddress.IPv6Address) and host.ipv4_mapped is not None:
            host = host.ipv4_mapped
        return ("127.0.0.1" if host.is_unspecified else str(host)), int(port, 16)
    return None


def metrics_pages(root: Path = Path("/"), ports: Iterable[int] = USUAL_PORTS) -> dict[str, bytes]:
    """The metrics pages of engines on this machine by base URL, each as far as it was read."""
    answers = ask(dict.fromkeys(listening(root, ports), "/metrics"), lambda _: False)
    pages = {_url(address): body_of(answer) for address, answer in answers.items()}
    return {url: page for url, page in sorted(pages.items()) if ENGINE_SAMPLE.search(page)}


def find_servers(root: Path = Path("/"), ports: Collection[int] = USUAL_PORTS) -> list[str]:
    """The base URLs of the engines that listen on ``ports`` of this machine; ``root`` is where /proc is."""
    answers = ask(dict.fromkeys(listening(root, ports), "/metrics"), ENGINE_SAMPLE.search)
    return sorted(_url(address) for address, answer in answers.items() if ENGINE_SAMPLE.search(body_of(answer)))


def versions(urls: Iterable[str]) -> dict[str, str]:
    """What each of these servers says of its own version, where it does."""
    hosts = {_host(url): url for url in urls}
    answers = ask(dict.fromkeys(hosts, "/version"), lambda _: False)
    found = {hosts[at]: re.search(rb'"version"\s*:\s*"([\w.+-]{1,64})"', body_of(a)) for at, a in answers.items()}
    return {url: match[1].decode("ascii") for url, match in found.items() if match}


def find_sidecar(url: str | None = None) -> str | None:
    """The base URL of a sidecar that answers at ``url`` (default: ROOFLENS_URL, else 127.0.0.1:9980), else None.

    RooflensError for an address that is none.
    """
    base = url or os.environ.get(SIDECAR_VARIABLE) or SIDECAR_URL
    host = _host(base)
    answers = ask({host: "/healthz"}, lambda _: False)
    return _url(host) if any(_is_rooflens(answer) for answer in answers.values()) else None


def live_engines(url: str) -> int:
    """How many engines the sidecar at the base URL ``url`` sees at work; 0 where it does not say."""
    host = _host(url)
    answers = ask({host: "/api/v1/engines"}, lambda _: False)
    with suppress(ValueError, KeyError, TypeError):
        engines = json.loads(body_of(answers[host]))["engines"]
        return sum(engine["state"] == "live" for engine in engines)
    return 0


def _is_rooflens(answer: bytes) -> bool:
    """Whether this is the health page of a sidecar, which may be well or not."""
    head, _, body = answer.partition(b"\r\n\r\n")
    return bool(re.match(rb"HTTP/1\.[01] (?:200|503)\b", head)) and HEALTH_KEY in body


def _host(url: str) -> Address:
    """Host address and port of a base URL; the scheme may be left out."""
    try:
        parts = urlsplit(url if "//" in url else f"http://{url}")
        if parts.scheme != "http" or not parts.hostname:
            raise ValueError
        port = parts.port or 80
        address = socket.getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM)[0][4]
    except (ValueError, OSError):
        raise RooflensError(f"{url[:80]!r} is no address of a server: give it as http://HOST:PORT") from None
    return str(address[0]), int(address[1])


def _url(address: Address) -> str:
    host = f"[{address[0]}]" if ":" in address[0] else address[0]
    return f"http://{host}:{address[1]}"
