"""The address of a metrics page: what to connect to, and what may be said about it."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from urllib.parse import SplitResult, unquote, urlsplit

from rooflens.records import RooflensError

HOW = "write it as http://HOST:PORT/metrics"
LONGEST_SHOWN = 200


@dataclass(frozen=True, slots=True)
class Address:
    """Where a page is. ``name`` is fit to be shown: no credentials, no query; ``authorization`` is not."""

    name: str
    secure: bool
    host: str
    port: int
    target: str = field(repr=False)
    authorization: str | None = field(default=None, repr=False)


def address_of(url: str, token: str | None = None) -> Address:
    """The address that ``url`` means: http without a scheme, /metrics without a path.

    A user and password before the host become basic authorization; without any, ``token`` is sent as a bearer token.
    Raises RooflensError, without any part of the url that could be a secret.
    """
    try:
        split = urlsplit(url if "://" in url else f"http://{url}")
        port = split.port
    except ValueError:
        raise RooflensError(f"this is not an address of a page: {HOW}") from None
    if split.scheme not in ("http", "https"):
        raise RooflensError(f"only http and https pages are read, not {printable(split.scheme)}: {HOW}")
    host = split.hostname
    if not host or not host.isprintable() or " " in url or not url.isprintable() or not url.isascii():
        raise RooflensError(f"this is not an address of a page: {HOW}")
    path = split.path if split.path not in ("", "/") else "/metrics"
    return Address(
        name=shown(split, path),
        secure=split.scheme == "https",
        host=host,
        port=port or (443 if split.scheme == "https" else 80),
        target=path + (f"?{split.query}" if split.query else ""),
        authorization=_authorization(split, token),
    )


def shown(split: SplitResult, path: str | None = None) -> str:
    """A url as it may be shown: scheme, host, port and path, without the parameters of either."""
    try:
        host, port = split.hostname or "", split.port
    except ValueError:
        return "an address that cannot be read"
    place = (f"[{host}]" if ":" in host else host) + (f":{port}" if port else "")
    scheme = f"{split.scheme}://" if place else ""
    return printable(scheme + place + (split.path if path is None else path).partition(";")[0])


def printable(text: str) -> str:
    """Text of a stranger, cut and without anything that a terminal would obey."""
    return "".join(c if c.isprintable() else "?" for c in text[:LONGEST_SHOWN])


def _authorization(split: SplitResult, token: str | None) -> str | None:
    if split.username is not None:
        pair = f"{unquote(split.username)}:{unquote(split.password or '')}"
        return "Basic " + base64.b64encode(pair.encode()).decode()
    if token is not None:
        if not token or not token.isascii() or not token.isprintable() or " " in token:
            raise RooflensError("the bearer token has a space, a line break or no character at all: give it anew")
        return f"Bearer {token}"
    return None
