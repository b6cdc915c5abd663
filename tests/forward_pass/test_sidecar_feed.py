"""The options of the sidecar that name feeds."""

from __future__ import annotations

import pytest

from rooflens.cli import main
from rooflens.cli.feeds_named import feed_lines, feeds_named
from rooflens.config import sidecar_settings


def test_a_feed_that_listens_is_refused_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sidecar", "--no-rings", "--no-counters", "--listen", "127.0.0.1:0", "--feed", "tcp://*:20380"]) == 2
    error = capsys.readouterr().err
    assert "connects and never listens" in error
    assert error.count("\n") == 1


def test_the_variable_holds_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOFLENS_FEED", "tcp://127.0.0.1:20380 tcp://127.0.0.1:20381 tcp://127.0.0.1:20380")
    feeds = feeds_named(sidecar_settings({}))
    assert list(feed_lines(feeds)) == ["feed      tcp://127.0.0.1:20380", "feed      tcp://127.0.0.1:20381"]
