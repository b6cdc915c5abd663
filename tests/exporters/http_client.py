"""One request to a server of the test, and what came back."""

from __future__ import annotations

import http.client
import json
import socket
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

TIMEOUT_S = 20.0


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        """The one line that says what is wrong."""
        assert self.headers["content-type"] == "application/json"
        assert self.body.count(b"\n") == 1
        assert list(self.json) == ["error"]
        return str(self.json["error"])


def ask(url: str, path: str, method: str = "GET", **headers: str) -> Answer:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=TIMEOUT_S)
    try:
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        names = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, names, response.read())
    finally:
        connection.close()


def connect(url: str) -> socket.socket:
    parts = urlsplit(url)
    return socket.create_connection((parts.hostname or "", parts.port or 0), timeout=TIMEOUT_S)


def ask_raw(url: str, request: bytes) -> bytes:
    """All that comes back for these bytes until the server closes."""
    with connect(url) as stream:
        stream.sendall(request)
        parts = []
        while part := stream.recv(65_536):
            parts.append(part)
    return b"".join(parts)
