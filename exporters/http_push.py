"""The one path that takes something in: POST /api/v1/push, for who has the token; docs/push.md.

It checks who asks, how much comes and how it is packed; what a body says is for the callable that it is handed to.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import json
import time
import zlib
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from typing import Any, Protocol

from fastapi import FastAPI, Request, Response
from starlette.concurrency import run_in_threadpool

PATH = "/api/v1/push"
MOST_BODY_BYTES = 4 << 20  # as it comes, and unpacked
MOST_AT_ONCE = 8  # bodies that are read or checked
RETRY_S = 1
PASSED_OVER_S, MOST_PASSED_OVER_BYTES = 2.0, 16 << 20  # of what is refused
# Wrong tokens of one address within a minute, after which it is not listened to until the minute is over.
MOST_TRIES, TRIES_S = 10, 60.0
MOST_ADDRESSES = 256
NO_TOKEN = "give the token: Authorization: Bearer TOKEN, that of --push-token-file of the sidecar"
WRONG_TOKEN = "this is not the token of --push-token-file of the sidecar"
FROM_A_PAGE = "a page in a browser may not push: send no Origin"
TOO_OFTEN = "too many wrong tokens came from this address: wait a minute, then send the right one"
TOO_LARGE = f"the body is larger than {MOST_BODY_BYTES >> 20} MiB, packed or unpacked: send it in parts"
TOO_MANY = "other bodies are being taken: send it again later"


class Answered(Protocol):
    """What came of a body: an HTTP status, its object, and after how many seconds to try again."""

    @property
    def status(self) -> int: ...

    @property
    def content(self) -> Mapping[str, Any]: ...

    @property
    def retry_after_s(self) -> int | None: ...


class Take(Protocol):
    """Takes a body of this media type, which began to come at ``received_s`` (monotonic), from this machine or not."""

    def __call__(self, raw: bytes, media_type: str, received_s: float, here: bool) -> Answered: ...


class RefusedPushError(Exception):
    """A request that is not handed on: an HTTP status and one line."""

    def __init__(self, status: int, line: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(line)
        self.status, self.headers = status, dict(headers or {})


class Push:
    """What may be pushed, by whom: ``token`` is shown nowhere."""

    def __init__(self, token: str, take: Take) -> None:
        self._digest = sha256(token.encode()).digest()
        self._take = take
        self._at_once = 0
        self._tries: OrderedDict[str, list[float]] = OrderedDict()

    def add_to(self, app: FastAPI) -> None:
        """Add the path to an application."""

        @app.post(PATH)
        async def push(request: Request) -> Response:
            incoming = _Incoming(request)
            try:
                return await self._answer(request, incoming)
            except RefusedPushError as error:
                await incoming.passed_over()
                return _line({"error": str(error)}, error.status, error.headers)

    async def _answer(self, request: Request, incoming: _Incoming) -> Response:
        received_s = time.monotonic()
        address = request.client.host if request.client else ""
        self._authorise(request, address, received_s)
        if "origin" in request.headers:
            raise RefusedPushError(403, FROM_A_PAGE)
        if self._at_once >= MOST_AT_ONCE:
            raise RefusedPushError(503, TOO_MANY, {"retry-after": str(RETRY_S)})
        self._at_once += 1
        try:
            media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
            packing = request.headers.get("content-encoding", "identity").strip().lower()
            if packing not in ("gzip", "identity"):
                raise RefusedPushError(415, "this Content-Encoding is not read: send gzip or none")
            raw = await incoming.whole()
            if packing == "gzip":
                raw = await run_in_threadpool(unpacked, raw)
            answered = await run_in_threadpool(self._take, raw, media_type, received_s, is_here(address))
        finally:
            self._at_once -= 1
        wait_s = answered.retry_after_s
        return _line(answered.content, answered.status, {} if wait_s is None else {"retry-after": str(wait_s)})

    def _authorise(self, request: Request, address: str, now_s: float) -> None:
        """RefusedPushError for who has not the token; whoever tried too often is not compared at all."""
        tries = [tried_s for tried_s in self._tries.get(address, ()) if now_s - tried_s < TRIES_S]
        if len(tries) >= MOST_TRIES:
            raise RefusedPushError(429, TOO_OFTEN, {"retry-after": str(int(tries[0] + TRIES_S - now_s) + 1)})
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        given = sha256(token.strip().encode("latin-1", "replace")).digest()
        right = hmac.compare_digest(given, self._digest)
        if right and scheme.lower() == "bearer":
            return
        self._tries[address] = [*tries, now_s]
        self._tries.move_to_end(address)
        while len(self._tries) > MOST_ADDRESSES:
            self._tries.popitem(last=False)
        if scheme.lower() != "bearer" or not token.strip():
            raise RefusedPushError(401, NO_TOKEN, {"www-authenticate": "Bearer"})
        raise RefusedPushError(403, WRONG_TOKEN)


class _Incoming:
    """The body of a request as it comes; ``more`` is whether some of it may be still to come."""

    def __init__(self, request: Request) -> None:
        self._receive = request.receive
        self._stated = request.headers.get("content-length", "")
        self.more = True

    async def whole(self) -> bytes:
        """All of it; RefusedPushError where it is too large or cut off."""
        if self._stated.isdigit() and (len(self._stated) > 18 or int(self._stated) > MOST_BODY_BYTES):
            raise RefusedPushError(413, TOO_LARGE)
        parts, size = [], 0
        while self.more:
            parts.append(await self._next())
            size += len(parts[-1])
            if size > MOST_BODY_BYTES:
                raise RefusedPushError(413, TOO_LARGE)
        return b"".join(parts)

    async def passed_over(self) -> None:
        """Read on without keeping it, for a moment: who is still sending would see a reset and not the answer."""
        size = 0
        with suppress(TimeoutError, RefusedPushError):
            async with asyncio.timeout(PASSED_OVER_S):
                while self.more and size < MOST_PASSED_OVER_BYTES:
                    size += len(await self._next())

    async def _next(self) -> bytes:
        message = await self._receive()
        if message["type"] != "http.request":
            self.more = False
            raise RefusedPushError(422, "the body was cut off: send it again")
        self.more = bool(message.get("more_body", False))
        part: bytes = message.get("body", b"")
        return part


def unpacked(raw: bytes) -> bytes:
    """The content of a gzip of one member; RefusedPushError where it is none or holds too much."""
    inflater = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    try:
        content = inflater.decompress(raw, MOST_BODY_BYTES + 1)
    except zlib.error:
        raise RefusedPushError(422, "the body is no gzip, as its Content-Encoding says: send it as it is") from None
    if len(content) > MOST_BODY_BYTES:
        raise RefusedPushError(413, TOO_LARGE)
    if not inflater.eof or inflater.unused_data:
        raise RefusedPushError(422, "the body is no whole gzip of one part: send it again")
    return content


def is_here(address: str) -> bool:
    """Whether a peer's address is this machine's own loopback."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return bool((mapped or found).is_loopback)


def _line(content: Mapping[str, Any], status: int, headers: Mapping[str, str]) -> Response:
    text = json.dumps(content, allow_nan=False, separators=(",", ":")) + "\n"
    return Response(text, status, dict(headers), media_type="application/json")
