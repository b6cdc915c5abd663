"""Real HTTP servers of the tests, on ports of their own."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@contextmanager
def served(pages: Mapping[str, bytes], status: int = 200, authorization: str | None = None) -> Iterator[int]:
    """Serves ``pages`` by path on loopback, anything else with 404, who lacks the authorization with 401; the port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = pages.get(self.path)
            refused = authorization is not None and self.headers.get("Authorization") != authorization
            body = b"" if refused else body
            self.send_response(404 if body is None else 401 if refused else status)
            self.send_header("Content-Length", str(len(body or b"")))
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, *words: object) -> None:
            del words

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
