"""Weight files that would keep a reader busy for ever: what is read of them is bounded, whatever they claim."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path

import pytest
from counted_calls import calls_of

from rooflens.analyzer import gguf_header as gguf_module
from rooflens.analyzer import tensor_files as files_module
from rooflens.analyzer.gguf_header import gguf_header
from rooflens.analyzer.safetensors_header import safetensors_header
from rooflens.analyzer.tensor_files import read_tensors
from rooflens.analyzer.tensor_table import Tensor
from rooflens.records import RooflensError


def text(words: str) -> bytes:
    return struct.pack("<Q", len(words)) + words.encode()


def lists(*sizes: int, kind: int = 8) -> bytes:
    """A GGUF file whose metadata are lists of empty strings, or of empty lists of bytes."""
    item = bytes(8) if kind == 8 else bytes(12)
    pairs = [text(f"k{n}") + struct.pack("<IIQ", 9, kind, size) + item * size for n, size in enumerate(sizes)]
    return b"GGUF" + struct.pack("<IQQ", 3, 0, len(sizes)) + b"".join(pairs)


def shard(path: Path, header: dict[str, object] | bytes, data: int = 4) -> Path:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(raw)) + raw + bytes(data))
    return path


def tensor(begin: int = 0) -> dict[str, object]:
    return {"dtype": "BF16", "shape": [2], "data_offsets": [begin, begin + 4]}


@pytest.mark.parametrize("kind", [8, 9])
def test_a_list_that_fills_a_sparse_file_is_refused(tmp_path: Path, kind: int) -> None:
    path = tmp_path / "a.gguf"
    path.write_bytes(lists(0, kind=kind)[:-8] + struct.pack("<Q", (1 << 40) // 8 - 100))
    os.truncate(path, 1 << 40)

    def refused() -> None:
        with pytest.raises(RooflensError, match="lists hold more than 2097152 strings"):
            gguf_header(path)

    assert calls_of(refused) < 100_000


@pytest.mark.parametrize("kind", [8, 9])
def test_lists_count_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: int) -> None:
    monkeypatch.setattr(gguf_module, "MOST_LISTED", 10)
    path = tmp_path / "a.gguf"
    path.write_bytes(lists(6, 4, kind=kind))
    assert gguf_header(path).lengths == {"k0": 6, "k1": 4}
    path.write_bytes(lists(6, 5, kind=kind))
    with pytest.raises(RooflensError, match="lists hold more than 10 strings"):
        gguf_header(path)


@pytest.mark.parametrize("piece", [b'"a":{},', b'"a":[],', b"1,"])
def test_a_header_of_too_many_things_is_not_parsed(tmp_path: Path, piece: bytes) -> None:
    count = 60_000_000 // len(piece)
    path = shard(tmp_path / "model.safetensors", b"{" + piece * count + b"}")

    def refused() -> None:
        with pytest.raises(RooflensError, match="lists more than 262144 tensors"):
            safetensors_header(path)

    assert calls_of(refused) < 100_000


def test_many_tensors_are_still_read(tmp_path: Path) -> None:
    header = {f"model.layers.{n}.mlp.experts.0.up_proj.weight": tensor(4 * n) for n in range(50_000)}
    assert len(safetensors_header(shard(tmp_path / "model.safetensors", header, 200_000))) == 50_000


def test_the_same_file_under_many_names_is_refused_at_the_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = shard(tmp_path / "model-00001-of-00050.safetensors", {"a": tensor()})
    for number in range(2, 51):
        (tmp_path / f"model-{number:05d}-of-00050.safetensors").symlink_to(first)
    opened: list[Path] = []

    def watched(path: Path) -> tuple[Tensor, ...]:
        opened.append(path)
        return safetensors_header(path)

    monkeypatch.setattr(files_module, "safetensors_header", watched)
    with pytest.raises(RooflensError, match="same name twice"):
        read_tensors(tmp_path)
    assert len(opened) == 2


def test_headers_are_bounded_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(1, 4):
        shard(tmp_path / f"model-{number:05d}-of-00003.safetensors", {f"t{number}": tensor()})
    length = len(json.dumps({"t1": tensor()}))
    monkeypatch.setattr(files_module, "MOST_HEADERS_BYTES", 3 * length)
    assert len(read_tensors(tmp_path)) == 3
    monkeypatch.setattr(files_module, "MOST_HEADERS_BYTES", 3 * length - 1)
    with pytest.raises(RooflensError, match="say --weights"):
        read_tensors(tmp_path)
    monkeypatch.setattr(files_module, "MOST_HEADERS_BYTES", 3 * length)
    monkeypatch.setattr(files_module, "MOST_TENSORS", 2)
    with pytest.raises(RooflensError, match="more than 2 tensors"):
        read_tensors(tmp_path)


def test_lists_of_gguf_files_are_bounded_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.gguf"
    path.write_bytes(lists(10))
    monkeypatch.setattr(files_module, "MOST_HEADERS_BYTES", 160)
    assert read_tensors(path) == ()
    monkeypatch.setattr(files_module, "MOST_HEADERS_BYTES", 159)
    with pytest.raises(RooflensError, match="say --weights"):
        read_tensors(path)
