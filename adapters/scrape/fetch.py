"""One bounded GET of a metrics page: it ends in time, it is whole, and it fits, or it is refused in one line."""

from __future__ import annotations

import http.client
import socket
import ssl
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from ipaddress import ip_address
from urllib.parse import urlsplit

from rooflens.adapters.scrape.address import Address, printable, shown
from rooflens.adapters.scrape.deadlines import DEADLINES
from rooflens.records import RooflensError

CHUNK_BYTES = 1 << 16
# zlib with either a gzip or a zlib header.
ANY_HEADER = zlib.MAX_WBITS | 32
HEADERS = {
    # Plain text of the old version: with OpenMetrics, clients 0.23 to 0.26 spell one name in two ways on one page.
    "Accept": "text/plain; version=0.0.4; charset=utf-8",
    "Accept-Encoding": "identity",
    "Connection": "close",
    "User-Agent": "rooflens",
}
STATUSES = {
    400: "takes no such request: llama.cpp with several models wants one named, add ?model=NAME to the address",
    401: "asks for credentials: {credentials}",
    403: "refuses to be read: these credentials, or none, are not enough",
    404: "does not exist: {place}, look at the path and the port",
    501: "has its metrics off: start llama.cpp with --metrics",
    503: "is not ready: the server starts or stops; it is tried again",
}


class StatusError(RooflensError):
    """The server answered, with this status."""

    def __init__(self, line: str, status: int) -> None:
        super().__init__(line)
        self.status = status


@dataclass(frozen=True, slots=True)
class Kind:
    """Whose pages these are, for the next steps in their lines: how ``credentials`` are given, at which ``place``."""

    name: str
    credentials: str
    place: str


ENGINE = Kind(
    "an engine",
    "give a bearer token (ROOFLENS_SCRAPE_TOKEN, or --scrape-token-file of the sidecar), or write user:password@ "
    "before the host",
    "vLLM and SGLang serve /metrics at their API's port, TensorRT-LLM also /prometheus/metrics",
)
EXPORTER = Kind(
    "a dcgm-exporter",
    "write user:password@ before the host; a bearer token is not sent to it",
    "dcgm-exporter serves /metrics, at port 9400 unless it is told another",
)


@dataclass(frozen=True, slots=True)
class Limits:
    """How long and how much: ``silence_s`` between two pieces, ``total_s`` for all of it, ``most_bytes`` unpacked.

    A page of 64 engines is about 6 MB; a server that needs 10 s for its page is not fit to be watched by it.
    """

    silence_s: float = 5.0
    total_s: float = 10.0
    most_bytes: int = 32 << 20


@dataclass(frozen=True, slots=True)
class Page:
    """The text of a page; ``clock_unix_s`` is the server's own clock, None where it does not say.

    ``place`` is the same for one page of this machine whatever its address is spelled like; it is not to be shown.
    """

    text: str
    clock_unix_s: float | None = None
    place: str | None = field(default=None, repr=False)


def fetch(address: Address, limits: Limits = Limits(), kind: Kind = ENGINE) -> Page:
    """The page at ``address``. Raises RooflensError with one line that names the address and the next step."""
    began_s = time.monotonic()
    try:
        page = _fetch(address, limits, kind)
        reason = None
    except StatusError as error:
        raise StatusError(f"{address.name} {error}", error.status) from None
    except RooflensError as error:
        reason = str(error)
    except (OSError, http.client.HTTPException, ValueError, zlib.error) as error:
        reason = _reason(error, limits)
    if time.monotonic() - began_s >= limits.total_s:  # what was cut off by the guard may look like anything, even whole
        reason = f"did not finish within {limits.total_s:g} s: the server is overloaded or sends without end"
    if reason is not None:
        raise RooflensError(f"{address.name} {reason}")
    return page


def _fetch(address: Address, limits: Limits, kind: Kind) -> Page:
    with _connected(address, limits) as connection:
        place = _place(address, connection.sock)
        headers = dict(HEADERS)
        if address.authorization:
            headers["Authorization"] = address.authorization
        connection.request("GET", address.target, headers=headers)
        answer = connection.getresponse()
        _check_status(answer, kind)
        body = _unpacked(answer, limits.most_bytes, kind)
        framed = answer.chunked or answer.getheader("Content-Length") is not None
        if answer.length or (not framed and not body.endswith(b"\n")):
            raise RooflensError("sent a page that is cut off: a proxy or a dying server; it is tried again")
        return Page(body.decode("utf-8", "replace"), _clock(answer), place)


def _place(address: Address, peer: socket.socket) -> str:
    """Where the page is: on this machine by its port alone, unless a name tells several servers behind it apart."""
    try:
        by_number = address.host == "localhost" or bool(ip_address(address.host))
        here = by_number and peer.getsockname()[0] == peer.getpeername()[0]
    except (ValueError, OSError):
        here = False
    return f"{'here' if here else address.host}:{address.port}{address.target}"


@contextmanager
def _connected(address: Address, limits: Limits) -> Iterator[http.client.HTTPConnection]:
    """A connection that is shut down when its time is over, whoever waits for it and for what."""
    kind = http.client.HTTPSConnection if address.secure else http.client.HTTPConnection
    connection = kind(address.host, address.port, timeout=limits.silence_s)
    began_s = time.monotonic()
    plain = socket.create_connection((address.host, address.port), limits.silence_s)
    handle = plain.dup() if address.secure else plain  # what is wrapped is no longer to be had
    guard = DEADLINES.watch(handle, began_s + limits.total_s)
    try:
        connection.sock = plain
        if address.secure:
            connection.sock = ssl.create_default_context().wrap_socket(plain, server_hostname=address.host)
        yield connection
    finally:
        DEADLINES.let_go(guard)
        connection.close()
        plain.close()
        handle.close()


def _check_status(answer: http.client.HTTPResponse, kind: Kind) -> None:
    status = answer.status
    if status == 200:
        return
    if 300 <= status < 400:
        target = answer.getheader("Location", "")
        try:
            place = shown(urlsplit(target)) or "nowhere"
        except ValueError:
            place = "an address that cannot be read"
        raise RooflensError(f"points elsewhere ({status}), to {place}: give that address if you trust it")
    if status in STATUSES:
        known = STATUSES[status].format(credentials=kind.credentials, place=kind.place)
    else:
        known = f"answers {printable(answer.reason) or 'an error'}: look at the server's log"
    raise StatusError(f"{known} ({status})", status)


def _unpacked(answer: http.client.HTTPResponse, most_bytes: int, kind: Kind) -> bytes:
    """The body without its content encoding; RooflensError beyond ``most_bytes``."""
    encoding = answer.getheader("Content-Encoding", "identity").strip().lower()
    if encoding not in ("identity", "", "gzip", "x-gzip", "deflate"):
        raise RooflensError(f"is packed as {printable(encoding)}, which was not asked for: look at the proxy before it")
    unpack = None if encoding in ("identity", "") else zlib.decompressobj(ANY_HEADER)
    parts, size = [], 0
    while piece := answer.read1(CHUNK_BYTES):
        if unpack is not None:
            piece = unpack.decompress(piece, most_bytes + 1 - size)
        size += len(piece)
        parts.append(piece)
        if size > most_bytes or (unpack is not None and unpack.unconsumed_tail):
            raise RooflensError(f"is larger than {most_bytes >> 20} MiB: this is no metrics page of {kind.name}")
    if unpack is not None and not unpack.eof:
        raise RooflensError("sent a page that is cut off: a proxy or a dying server; it is tried again")
    return b"".join(parts)


def _clock(answer: http.client.HTTPResponse) -> float | None:
    try:
        return parsedate_to_datetime(answer.getheader("Date", "")).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def _reason(error: Exception, limits: Limits) -> str:
    """Why nothing came, in words that do not depend on the library's."""
    if isinstance(error, ssl.SSLError):
        return "has no certificate that this machine trusts, or does not speak TLS: look at the scheme and the CA"
    if isinstance(error, socket.gaierror):
        return "has a host name that cannot be resolved: look at its spelling"
    if isinstance(error, TimeoutError):
        return f"is silent for {limits.silence_s:g} s: the server hangs, or a firewall drops the packets"
    if isinstance(error, ConnectionRefusedError):
        return "is refused: nobody listens there; is the server up, and is this its port?"
    if isinstance(error, http.client.IncompleteRead):
        return "sent a page that is cut off: a proxy or a dying server; it is tried again"
    if isinstance(error, http.client.HTTPException | ValueError | zlib.error) and not isinstance(error, OSError):
        return "does not answer in proper HTTP: is this the port of an HTTP server?"
    return "broke the connection: a proxy or a dying server; it is tried again"
