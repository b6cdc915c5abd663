"""What stands before the HTTP API: which Host it answers to, and what every response says."""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

# A connection is for one request: nobody holds one, so a limit on their number and life harms no honest client.
HEADERS = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'"),
    (b"connection", b"close"),
)
REFUSED = "this Host is not served here: use localhost or an IP address, or name it: rooflens sidecar --allow-host NAME"
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:[0-9]{1,5})?")


class Guard:
    """An ASGI application that hands on what names a served Host.

    A page that a browser loaded from elsewhere can point its own name at this machine (DNS rebinding), but it
    cannot choose the Host header: names other than ``hosts`` are refused, addresses are not names.
    """

    def __init__(self, app: App, hosts: frozenset[str]) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """One request."""

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *HEADERS]
            await send(message)

        if scope["type"] != "http":
            return
        if not serves(scope["headers"], self._hosts):
            await _refuse(guarded, REFUSED)
            return
        await self._app(scope, receive, guarded)


def serves(headers: Iterable[tuple[bytes, bytes]], hosts: frozenset[str]) -> bool:
    """Whether every Host header is an address or one of ``hosts``; one without any comes from no browser."""
    return all(_is_served(value.decode("latin-1"), hosts) for name, value in headers if name == b"host")


def _is_served(value: str, hosts: frozenset[str]) -> bool:
    found = _HOST.fullmatch(value.strip().lower())
    if found is None:
        return False
    name = found[1].strip("[]").removesuffix(".")
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name in hosts
    return True


async def _refuse(send: Send, error: str) -> None:
    """400 in one line of JSON."""
    body = json.dumps({"error": error}, separators=(",", ":")).encode() + b"\n"
    length = (b"content-length", str(len(body)).encode())
    headers = [(b"content-type", b"application/json"), length]
    await send({"type": "http.response.start", "status": 400, "headers": headers})
    await send({"type": "http.response.body", "body": body})
