"""A uvicorn server in a thread that serves the last Snapshot; bounded in what strangers can make it hold."""

from __future__ import annotations

import asyncio
import errno
import socket
import threading
from contextlib import suppress
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from rooflens.exporters.http_api import create_app
from rooflens.exporters.http_push import Push
from rooflens.exporters.published import Published
from rooflens.live_records import Snapshot
from rooflens.records import RooflensError

LOOPBACK_NAMES = ("localhost",)
MOST_CONNECTIONS = 64  # each holds at most one page, 3 MB where there are 64 engines; a reader needs one at a time
MOST_HEAD_BYTES = 16_384
# From connecting to the last byte; a page of 64 engines takes milliseconds, a slow link seconds.
CONNECTION_S = 20.0
HEAD_S = 5.0  # from connecting to the end of the request's head, which fits into one packet or a few
DATE_S = 1.0  # what a Date header resolves
CLOSE_S = 2  # for responses that are under way when the server stops


class LiveServer:
    """Serves what was exported last at ``url``; port 0 takes a free one.

    It answers to addresses, `localhost`, the machine's own name, ``host``, and the further ``names`` given here.
    ``push`` takes in what engines push; without it nobody can.
    """

    def __init__(
        self, host: str = "127.0.0.1", port: int = 9980, names: tuple[str, ...] = (), push: Push | None = None
    ) -> None:
        self._host = host
        self._port = port
        self._names = names
        self._push = push
        self._published = Published()
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None
        self._socket: socket.socket | None = None

    def export(self, snapshot: Snapshot) -> None:
        """Publish; may be called before start."""
        self._published.publish(snapshot)

    @property
    def url(self) -> str:
        """Where it is served, with the real port once started; the machine's loopback where it listens everywhere."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self._host, self._host)
        return f"http://[{host}]:{self._port}" if ":" in host else f"http://{host}:{self._port}"

    def start(self) -> None:
        """Listen, and serve from a thread of its own; RooflensError in one line if it cannot listen there."""
        self._socket = _listen(self._host, self._port)
        self._port = self._socket.getsockname()[1]
        hosts = (*LOOPBACK_NAMES, socket.gethostname(), self._host, *self._names)
        config = uvicorn.Config(
            create_app(self._published, frozenset(name.lower().removesuffix(".") for name in hosts), self._push),
            http=_BoundedConnection,
            ws="none",
            loop="asyncio",
            lifespan="off",
            log_config=None,
            log_level="critical",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=MOST_CONNECTIONS,
            backlog=MOST_CONNECTIONS,
            h11_max_incomplete_event_size=MOST_HEAD_BYTES,
            timeout_graceful_shutdown=CLOSE_S,
        )
        self._server = _Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving and free the port; harmless if it was not started."""
        server, thread, self._server, self._thread = self._server, self._thread, None, None
        if server is not None and thread is not None:
            server.end()
            thread.join(CLOSE_S + 3.0)
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class _Server(uvicorn.Server):
    """Is told when to end; uvicorn's own looks ten times a second, which alone takes half a percent of a core."""

    _loop: asyncio.AbstractEventLoop | None = None
    _told: asyncio.Event

    async def main_loop(self) -> None:
        self._told, self._loop = asyncio.Event(), asyncio.get_running_loop()
        while not await self.on_tick(0):  # which writes the Date header anew
            with suppress(TimeoutError):
                await asyncio.wait_for(self._told.wait(), DATE_S)

    def end(self) -> None:
        """Stop serving; from any thread."""
        self.should_exit = True
        if self._loop is not None:
            with suppress(RuntimeError):  # it has ended by itself
                self._loop.call_soon_threadsafe(self._told.set)


class _BoundedConnection(H11Protocol):
    """A connection that ends after CONNECTION_S, whatever its client does or leaves undone, and sooner without a head.

    Where there is room for one more only, the oldest one makes it that has asked for nothing yet.
    """

    _ends: tuple[asyncio.TimerHandle, ...] = ()
    _began_s = 0.0
    _ended = False

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._began_s = self.loop.time()
        self._ends = (
            self.loop.call_later(CONNECTION_S, transport.abort),
            self.loop.call_later(HEAD_S, self._give_up_if_silent),
        )
        self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        for end in self._ends:
            end.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        try:
            super().data_received(data)
        except h11.ProtocolError:  # uvicorn would answer one that has its answer already
            self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        if not self._silent:
            self.cycle.disconnected = True  # what is under way for it has nobody to go to
        super().send_400_response(msg)

    @property
    def _silent(self) -> bool:
        cycle: object = self.cycle
        return cycle is None

    def _give_up_if_silent(self) -> None:
        if self._silent:
            self._ended = True
            self.transport.abort()

    def _make_room(self) -> None:
        open_now = [each for each in self.connections if isinstance(each, _BoundedConnection) and not each._ended]
        if self.limit_concurrency is not None and len(open_now) >= self.limit_concurrency:
            silent = [each for each in open_now if each._silent and each is not self]
            if silent:
                min(silent, key=lambda each: each._began_s)._give_up_if_silent()


_WHY = {
    errno.EADDRINUSE: "port {port} of {host} is in use: give --listen another one, or port 0 for a free one",
    errno.EACCES: "not allowed to listen on port {port}: give --listen one above 1023, or port 0 for a free one",
    errno.EADDRNOTAVAIL: "this machine has no address {host}: give --listen one of its own, such as 127.0.0.1",
}


def _listen(host: str, port: int) -> socket.socket:
    """A listening socket; RooflensError in one line that names the next step."""
    if not 0 <= port <= 65_535:
        raise RooflensError(f"there is no port {port}: give --listen one from 1 to 65535, or 0 for a free one")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        listener = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:
        raise RooflensError(f"cannot listen on {host!r}: {error}; give --listen an address of this machine") from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(MOST_CONNECTIONS)
    except OSError as error:
        listener.close()
        why = _WHY.get(error.errno or 0, "cannot listen on port {port} of {host}: {error}; give --listen another one")
        raise RooflensError(why.format(host=host, port=port, error=error.strerror)) from None
    return listener
