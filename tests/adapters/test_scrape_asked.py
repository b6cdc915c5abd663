"""What a server says of itself beside its page, over real connections: asked once a run, and never in the way."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from scrape_pages import DECODE_1, DECODE_2, page, serving

from rooflens.adapters.scrape import asked
from rooflens.adapters.scrape.address import address_of
from rooflens.adapters.scrape.asked import AGAIN_S, APART_S, Asked, with_facts
from rooflens.adapters.scrape.fetch import Limits
from rooflens.adapters.scrape.page_source import MetricsPage
from rooflens.live_records import State
from rooflens.records import EngineInfo

LLAMACPP = Path(__file__).parents[1] / "data" / "llamacpp"
# vLLM 0.32 (vllm/entrypoints/openai/models/protocol.py and /version).
MODELS = {
    "object": "list",
    "data": [{"id": "m", "object": "model", "owned_by": "vllm", "root": "/models/Qwen3-8B", "max_model_len": 8192}],
}
VLLM = {"/v1/models": json.dumps(MODELS), "/version": '{"version":"0.32.0"}'}
Answer = str | int | Callable[[socket.socket], None]


class Server:
    """Answers each path with a text, a status or what a function does; keeps what was asked."""

    def __init__(self, answers: Mapping[str, Answer]) -> None:
        self.answers: dict[str, Answer] = dict(answers)
        self.heads: list[str] = []

    @property
    def paths(self) -> list[str]:
        return [head.split(" ")[1] for head in self.heads]

    def __call__(self, connection: socket.socket, head: bytes) -> None:
        self.heads.append(head.decode())
        answer = self.answers.get(self.paths[-1].partition("?")[0], 404)
        if callable(answer):
            answer(connection)
            return
        status, body = (200, answer.encode()) if isinstance(answer, str) else (answer, b"{}")
        connection.sendall(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n" % (status, len(body)) + body)


def infos(source: MetricsPage) -> list[EngineInfo]:
    return [batch.info for batch in source.read() if batch.info is not None]


def told(answers: Mapping[str, Answer], path: str = "/metrics", **options: Any) -> tuple[list[EngineInfo], Server]:
    server = Server(answers)
    with serving(server) as url:
        source = MetricsPage(url + path, **options)
        assert source.fetch_once()
        assert (source.state, source.problem, source.failures) == (State.LIVE, None, 0)
        return infos(source), server


def test_vllm_tells_version_model_and_length() -> None:
    (info,), server = told({"/metrics": page(**DECODE_1), **VLLM}, token="secret")
    assert (info.model_name, info.base_model_name) == ("m", "Qwen3-8B")
    assert (info.engine_version, info.max_context_tokens) == ("0.32.0", 8192)
    assert (info.kv_blocks, info.block_tokens) == (1000, 16)
    assert server.paths == ["/metrics", "/v1/models", "/version"]
    assert all("Authorization: Bearer secret\r\n" in head for head in server.heads)


def test_llama_cpp_is_named_by_its_server() -> None:
    """Recorded from one server: the page has no label at all, the props name the model and its slots."""
    answers = {"/metrics": "metrics_busy.txt", "/props": "props.json", "/v1/models": "models.json"}
    (info,), _ = told({path: (LLAMACPP / name).read_text() for path, name in answers.items()})
    assert (info.engine, info.model_name, info.max_sequences) == ("llama.cpp", "tiny-random-llama-f16", 4)
    assert info.engine_version is not None


def test_what_the_caller_says_comes_before_the_server() -> None:
    (info,), _ = told({"/metrics": page(**DECODE_1), **VLLM}, engine_version="0.33.0+mine")
    assert info.engine_version == "0.33.0+mine"


def test_other_paths_stand_beside_the_page() -> None:
    _, server = told({"/a/prometheus/metrics": page()}, "/a/prometheus/metrics?model=x")
    assert server.paths[1:] == ["/a/v1/models?model=x", "/a/version?model=x"]


def hangs(leave: threading.Event) -> Callable[[socket.socket], None]:
    return lambda _: leave.wait(20) and None


def test_a_server_that_hangs_is_not_asked_further(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asked, "LIMITS", Limits(0.2, 0.2))
    monkeypatch.setattr(asked, "LONGEST_S", 0.2)
    leave = threading.Event()
    server = Server({"/metrics": page(**DECODE_1), "/v1/models": hangs(leave)})
    with serving(server) as url:
        source = MetricsPage(url)
        assert source.fetch_once()
        server.answers["/metrics"] = page(**DECODE_2)
        assert source.fetch_once()
        leave.set()
        batches = source.read()
    assert server.paths == ["/metrics", "/v1/models", "/metrics"]
    assert len(batches[0].steps) == 1
    assert (source.state, source.problem, source.failures) == (State.LIVE, None, 0)


def test_new_runs_are_told_of_once_their_server_was_asked() -> None:
    """Else they would be listed under no name, and keep that label."""
    leave, asking = threading.Event(), threading.Event()

    def late(connection: socket.socket) -> None:
        asking.set()
        leave.wait(20)
        connection.sendall(b"HTTP/1.1 200 X\r\nContent-Length: 2\r\n\r\n{}")

    with serving(Server({"/metrics": page(model=None), "/v1/models": late})) as url:
        source = MetricsPage(url)
        thread = threading.Thread(target=source.fetch_once)
        thread.start()
        assert asking.wait(20)
        assert source.read() == []
        leave.set()
        thread.join(20)
        assert len(source.read()) == 1


@pytest.mark.parametrize(
    "answer",
    [401, 403, 500, 302, "garbage", "[[[[", "null", '{"data":7}', "\x00\xff" * 99, "9" * 5000, " " * (2 << 20)],
)
def test_anything_else_tells_nothing_and_hinders_nothing(answer: Answer) -> None:
    (info,), server = told({"/metrics": page(**DECODE_1), "/v1/models": answer, "/version": answer})
    (bare,), _ = told({"/metrics": page(**DECODE_1)})
    assert info == EngineInfo(**{**{f: getattr(bare, f) for f in bare.__slots__}, "instance": info.instance})
    assert len(server.heads) == 3


def test_a_restart_is_asked_anew_and_facts_end_with_their_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asked, "APART_S", 0.0)
    server = Server({"/metrics": page(**DECODE_1), **VLLM})
    with serving(server) as url:
        source = MetricsPage(url)
        for _ in range(3):
            assert source.fetch_once()
        assert len(server.heads) == 5
        server.answers |= {"/metrics": page(started=time.time()), "/version": '{"version":"0.33.0"}'}
        source.read()
        assert source.fetch_once()
    assert [info.engine_version for info in infos(source)] == ["0.32.0", "0.33.0"]


def test_facts_that_come_late_are_a_change_of_the_same_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asked, "AGAIN_S", 0.0)
    server = Server({"/metrics": page(**DECODE_1), "/version": 503})
    with serving(server) as url:
        source = MetricsPage(url)
        assert source.fetch_once()
        (before,) = infos(source)
        server.answers |= VLLM
        assert source.fetch_once()
        (after,) = infos(source)
        assert source.fetch_once()
    assert (before.engine_version, after.engine_version, after.instance) == (None, "0.32.0", before.instance)
    assert server.paths.count("/version") == 2


def test_when_to_ask() -> None:
    one, two = frozenset({"a"}), frozenset({"b"})
    it = Asked(address_of("http://127.0.0.1:9/metrics"))
    assert not it.due(None, one, 0.0)
    assert not it.due("dynamo", one, 0.0)  # a frontend's page: its models are others' engines
    assert not it.due("vllm", frozenset(), 0.0)
    assert it.due("vllm", one, 0.0)
    it._asked_s, it._runs = 0.0, one
    assert not it.due("vllm", one, AGAIN_S - 1)
    assert it.due("vllm", one, AGAIN_S)
    assert not it.due("vllm", two, APART_S - 1)
    assert it.due("vllm", two, APART_S)
    it.facts = {"engine_version": "1"}
    assert not it.due("vllm", one, 1e9)
    assert it.due("vllm", two, APART_S)


FACTS = {
    "model_name": "m", "base_model_name": "Qwen3-8B", "engine_version": "1", "kv_dtype": "fp8", "tensor_parallel": 2,
    "kv_blocks": 7, "block_tokens": 64,
}  # fmt: skip


@pytest.mark.parametrize(
    ("own", "only_model", "expected"),
    [
        ({"model_name": "m"}, True, {"base_model_name": "Qwen3-8B", "kv_dtype": "fp8", "tensor_parallel": 2}),
        ({}, True, {"model_name": "m", "base_model_name": "Qwen3-8B", "kv_dtype": "fp8"}),
        ({"model_name": "undefined"}, True, {"model_name": "m", "kv_dtype": "fp8"}),
        ({"model_name": "Qwen3-8B"}, True, {"base_model_name": None, "kv_dtype": "fp8"}),
        ({"model_name": "m"}, False, {"base_model_name": None, "kv_dtype": None, "tensor_parallel": 1}),
        ({"model_name": "another"}, True, {"base_model_name": None, "kv_dtype": None, "tensor_parallel": 1}),
        ({"model_name": "m", "kv_dtype": "auto"}, True, {"kv_dtype": "auto"}),
        ({"kv_blocks": 9, "tensor_parallel": 4}, True, {"kv_blocks": 9, "block_tokens": None, "tensor_parallel": 4}),
    ],
)
def test_what_is_taken_of_the_servers_facts(own: dict[str, Any], only_model: bool, expected: dict[str, Any]) -> None:
    info = with_facts(EngineInfo("i", "vllm", **own), FACTS, only_model)
    assert {name: getattr(info, name) for name in expected} == expected
    assert info.engine_version == "1"


@pytest.mark.parametrize("name", ["undefined", "Unknown", "None", "empty"])
def test_a_word_for_no_model_is_no_name(name: str) -> None:
    """TensorRT-LLM 1.0 labels its series with model_name="undefined"; where nothing else names it, it is not known."""
    (info,), _ = told({"/metrics": page(model=name)})
    assert info.model_name is None
