from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from made_snapshot import made_snapshot

from rooflens.exporters.http_app import LiveServer
from rooflens.live_records import Snapshot

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def server() -> Iterator[LiveServer]:
    """A real server on a free port, with nothing exported yet."""
    live = LiveServer("127.0.0.1", 0)
    live.start()
    yield live
    live.close()


@pytest.fixture(scope="session")
def shared_server() -> Iterator[LiveServer]:
    live = LiveServer("127.0.0.1", 0)
    live.start()
    yield live
    live.close()


@pytest.fixture(scope="session")
def snapshot() -> Snapshot:
    """Two live engines, and one of which nothing is known."""
    return made_snapshot(2)


@pytest.fixture
def url(shared_server: LiveServer, snapshot: Snapshot) -> str:
    """Where a server that the tests share serves ``snapshot``."""
    shared_server.export(snapshot)
    return shared_server.url
