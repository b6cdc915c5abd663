"""Models found in a cache of huggingface_hub's layout: exactly the one that was named, and nothing outside it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rooflens.collector.hf_cache import MOST_BYTES, cached_config, cached_file, hub_folder

COMMIT = "0123456789abcdef0123456789abcdef01234567"
CONFIG = {"model_type": "llama", "hidden_size": 64, "_name_or_path": "/srv/checkpoint"}


def put(hub: Path, folder: str, text: str | None = None) -> Path:
    """A model as huggingface_hub keeps it: the snapshot links to a blob."""
    model = hub / folder
    for name in ("refs", "blobs", f"snapshots/{COMMIT}"):
        (model / name).mkdir(parents=True)
    (model / "refs" / "main").write_text(COMMIT)
    (model / "blobs" / "a1").write_text(json.dumps(CONFIG) if text is None else text)
    (model / "snapshots" / COMMIT / "config.json").symlink_to("../../blobs/a1")
    return model


def test_the_named_model_is_found_with_its_owner_or_alone(tmp_path: Path) -> None:
    put(tmp_path, "models--Qwen--Qwen3-8B")
    expected = {"model_type": "llama", "hidden_size": 64}
    assert cached_config("Qwen/Qwen3-8B", tmp_path) == expected
    assert cached_config("Qwen3-8B", tmp_path) == expected
    for other in ("Qwen3", "Qwen3-8B-FP8", "qwen3-8b", "other/Qwen3-8B", "", None, ".", "../x", "a/b/c", "a--b"):
        assert cached_config(other, tmp_path) is None


def test_of_two_with_one_name_neither_is_taken(tmp_path: Path) -> None:
    put(tmp_path, "models--Qwen--Qwen3-8B")
    put(tmp_path, "models--me--Qwen3-8B")
    assert cached_config("Qwen3-8B", tmp_path) is None
    assert cached_config("me/Qwen3-8B", tmp_path) is not None


def test_what_modelopt_says_beside_it_is_kept(tmp_path: Path) -> None:
    model = put(tmp_path, "models--nvidia--X")
    (model / "snapshots" / COMMIT / "hf_quant_config.json").write_text('{"quantization": {"quant_algo": "FP8"}}')
    found = cached_config("nvidia/X", tmp_path)
    assert found is not None
    assert found["quantization_config"] == {"quant_algo": "FP8"}


def test_nothing_outside_the_cache_is_read(tmp_path: Path) -> None:
    hub, outside = tmp_path / "hub", tmp_path / "secret.json"
    outside.write_text('{"hidden_size": 1}')
    model = put(hub, "models--a--b")
    link = model / "snapshots" / COMMIT / "config.json"
    link.unlink()
    link.symlink_to(outside)
    assert cached_file("a/b", hub) is None
    (hub / "models--c--d").symlink_to(tmp_path)
    assert cached_file("c/d", hub) is None


@pytest.mark.parametrize("text", ["", "[1]", "{", "[" * 100_000, '{"a": "' + "x" * MOST_BYTES + '"}', "\x00"])
def test_a_damaged_or_endless_config_is_none(text: str, tmp_path: Path) -> None:
    put(tmp_path, "models--a--b", text)
    assert cached_config("a/b", tmp_path) is None


def test_a_reference_that_names_no_commit_is_none(tmp_path: Path) -> None:
    model = put(tmp_path, "models--a--b")
    for wrong in ("", "../../..", COMMIT[:-1], COMMIT + "\n" * 100):
        (model / "refs" / "main").write_text(wrong)
        assert cached_config("a/b", tmp_path) is None
    assert cached_config("a/b", tmp_path / "no such folder") is None


@given(st.text(max_size=80))
def test_no_name_makes_it_fail(name: str) -> None:
    cached_config(name, Path("/proc/self/no-such-folder"))


def test_the_cache_lies_where_the_hub_puts_it() -> None:
    assert hub_folder({"HF_HUB_CACHE": "/a", "HF_HOME": "/b"}) == Path("/a")
    assert hub_folder({"HF_HOME": "/b"}) == Path("/b/hub")
    assert hub_folder({"XDG_CACHE_HOME": "/c", "HOME": "/d"}) == Path("/c/huggingface/hub")
    assert hub_folder({"HOME": "/d"}) == Path("/d/.cache/huggingface/hub")
