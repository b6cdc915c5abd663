"""Who may read what: the bearer token for pages, and the names under which the sidecar itself is reached."""

from __future__ import annotations

import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli.pages import served
from cli.test_sidecar import PATIENCE_S, Running, sidecar

from rooflens.adapters.scrape.page_source import MetricsPage
from rooflens.cli import main
from rooflens.config import bearer_token, push_token, sidecar_settings
from rooflens.pipeline.pages import Pages
from rooflens.pipeline.watch_settings import WatchSettings
from rooflens.records import RooflensError

SECRET = "sesame-1234"
PAGE = b'vllm:num_requests_running{engine="0",model_name="m"} 1.0\nvllm:generation_tokens_total{model_name="m"} 1.0\n'


@pytest.fixture
def url() -> Iterator[str]:
    with served({"/metrics": PAGE}, authorization=f"Bearer {SECRET}") as port:
        yield f"http://127.0.0.1:{port}/metrics"


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text(f"{SECRET}\n")
    return file


def test_the_token_of_a_file_opens_a_page_and_is_shown_nowhere(url: str, token_file: Path) -> None:
    with sidecar("--no-rings", "--scrape", url, "--scrape-token-file", str(token_file)) as run:
        assert run.line("live").endswith("m/0  live: vllm, read from its metrics page (no floor: the hardware is not "
                                         "known: give --hardware ID)")  # fmt: skip
        for path in ("/metrics", "/healthz", "/api/v1/engines"):
            assert SECRET not in run.get(path)
        arguments = Path(f"/proc/{run.process.pid}/cmdline").read_text()
        assert SECRET not in arguments


def test_without_it_the_line_says_how_to_give_it(url: str) -> None:
    with sidecar("--no-rings", "--scrape", url) as run:
        line = run.line(f"problem +{url}")
    assert "give a bearer token (ROOFLENS_SCRAPE_TOKEN, or --scrape-token-file of the sidecar)" in line


def status(run: Running, host: str) -> tuple[int, str]:
    request = urllib.request.Request(f"{run.address}/healthz", headers={"Host": host})
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_it_answers_to_the_names_that_are_allowed(tmp_path: Path) -> None:
    names = ("--allow-host", "rooflens.monitoring.svc", "--allow-host", "Rooflens")
    with sidecar("--no-rings", "--scrape", "http://127.0.0.1:1", *names) as run:
        run.line("problem")
        for host in ("rooflens.monitoring.svc:9980", "ROOFLENS", "localhost"):
            assert status(run, host)[0] == 200, host
        code, line = status(run, "monitoring.svc")
    assert code == 400
    assert "rooflens sidecar --allow-host NAME" in line


@pytest.mark.parametrize("name", ["http://a", "a:9980", "*", "ä"])
def test_what_is_no_name_of_a_host_is_one_line(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sidecar", "--allow-host", "good", "--allow-host", name]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"rooflens: --allow-host good {name}: not the name of a host")
    assert error.count("\n") == 1


def test_the_file_comes_before_the_variable_and_neither_is_in_a_repr(
    token_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROOFLENS_SCRAPE_TOKEN", " other-5678 ")
    settings = sidecar_settings({})
    assert bearer_token(settings) == "other-5678"
    assert "other-5678" not in repr(settings) + str(settings.model_dump())
    assert bearer_token(sidecar_settings({"scrape_token_file": str(token_file)})) == SECRET
    monkeypatch.setenv("ROOFLENS_SCRAPE_TOKEN", "")
    assert bearer_token(sidecar_settings({})) is None
    assert SECRET not in repr(WatchSettings(scrape_token=SECRET))


@pytest.mark.parametrize(
    ("content", "why"),
    [(None, "no such file or directory"), (b" \n", "it is empty"), (b"\xff\xfe", "it is not plain text"),
     (b"x" * 20_000, "it is too long")],
)  # fmt: skip
def test_a_file_without_a_token_is_one_line(
    content: bytes | None, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)
    assert main(["sidecar", "--no-rings", "--listen", "127.0.0.1:0", "--scrape-token-file", str(file)]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"rooflens: --scrape-token-file {file}: ")
    assert error.endswith(f"{why}\n")


def test_a_token_that_cannot_be_sent_is_refused_unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOFLENS_SCRAPE_TOKEN", f"{SECRET} {SECRET}")
    with pytest.raises(RooflensError, match="has a space") as caught:
        Pages(("http://127.0.0.1:1",), 5.0, None, bearer_token(sidecar_settings({})))
    assert SECRET not in str(caught.value)


def test_a_page_that_was_only_found_gets_no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens: dict[str, Any] = {}

    class Noted(MetricsPage):
        def __init__(self, url: str, period_s: float, **given: Any) -> None:
            super().__init__(url, period_s, **given)
            tokens[url] = given.get("token")

        def start(self) -> None:
            """It is not read."""

    monkeypatch.setattr("rooflens.adapters.scrape.page_source.MetricsPage", Noted)
    pages = Pages(("http://127.0.0.1:1",), 5.0, lambda: ["http://127.0.0.1:2"], SECRET)
    pages.look(True)
    assert pages._looking is not None
    pages._looking.join(30.0)
    pages.look(False)
    assert tokens == {"http://127.0.0.1:1": SECRET, "http://127.0.0.1:2": None}


def test_top_takes_the_variable(url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("ROOFLENS_SCRAPE_TOKEN", raising=False)
    monkeypatch.setattr("rooflens.cli.top_feeds.ONCE_SCRAPES", 0.0)
    words = ["top", "--once", "--model", "qwen3-8b", "--url", url]
    assert main(words) == 2
    assert "ROOFLENS_SCRAPE_TOKEN" in capsys.readouterr().err
    monkeypatch.setenv("ROOFLENS_SCRAPE_TOKEN", SECRET)
    assert main(words) == 0
    shown = capsys.readouterr()
    assert SECRET not in shown.out + shown.err
    assert os.environ["ROOFLENS_SCRAPE_TOKEN"] == SECRET


def test_a_token_for_pushing_that_is_soon_guessed_or_cannot_be_sent_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "token"
    for content, why in (("sesame", "shorter than 16 characters"), ("a token with spaces in it", "has a space")):
        file.write_text(content)
        assert main(["sidecar", "--listen", "127.0.0.1:0", "--push-token-file", str(file)]) == 2
        error = capsys.readouterr().err
        assert error.startswith("rooflens: --push-token-file")
        assert why in error
        assert "openssl rand" in error
        assert content not in error
    monkeypatch.setenv("ROOFLENS_PUSH_TOKEN", "short")
    assert main(["sidecar", "--listen", "127.0.0.1:0"]) == 2
    assert capsys.readouterr().err.startswith("rooflens: ROOFLENS_PUSH_TOKEN: ")
    monkeypatch.setenv("ROOFLENS_PUSH_TOKEN", f"{SECRET}-{SECRET}")
    assert push_token(sidecar_settings({})) == f"{SECRET}-{SECRET}"
    assert SECRET not in repr(sidecar_settings({}))
    with pytest.raises(RooflensError, match="no such file"):
        push_token(sidecar_settings({"push_token_file": str(tmp_path / "none")}))
