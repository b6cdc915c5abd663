"""The config.json of a model that Hugging Face's cache on this host holds: read, never fetched, never written.

The layout is that of huggingface_hub: models--OWNER--NAME/refs/main names a commit, snapshots/COMMIT/config.json is a
link to a file below blobs/ of the same folder.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

MOST_BYTES = 4 << 20  # the longest config.json of a known model has some hundred thousand
MOST_FOLDERS = 10_000
NAME = re.compile(r"(?!\.)[\w.-]{1,96}(?:/(?!\.)[\w.-]{1,96})?")
COMMIT = re.compile(r"[0-9a-f]{40}")
CONFIG, QUANTIZATION = "config.json", "hf_quant_config.json"  # how ModelOpt says what it did, beside the config
PATHS = ("_name_or_path", "name_or_path")  # fields that hold where a model was made from


def hub_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Where the cache lies, by the variables that huggingface_hub obeys, else below the home folder."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if environment.get(name):
            return Path(environment[name])
    if environment.get("HF_HOME"):
        return Path(environment["HF_HOME"]) / "hub"
    caches = environment.get("XDG_CACHE_HOME") or os.path.join(environment.get("HOME") or "/nonexistent", ".cache")
    return Path(caches) / "huggingface" / "hub"


def cached_file(name: str | None, hub: Path | None = None) -> Path | None:
    """The config.json of exactly the model called ``name``; None where the cache holds none, or several without owner.

    With an owner ("Qwen/Qwen3-8B") it is that one; without, the only one of this name. What a link leads to must lie
    in the cache. Raises nothing.
    """
    wanted = (name or "").strip().rstrip("/")
    if NAME.fullmatch(wanted) is None or "--" in wanted:
        return None
    try:
        folder = os.path.realpath(hub or hub_folder())
        model = _folder_of(folder, wanted)
        commit = None if model is None else _text(folder, os.path.join(model, "refs", "main"), 64)
        if model is None or commit is None or COMMIT.fullmatch(commit.strip()) is None:
            return None
        config = os.path.join(model, "snapshots", commit.strip(), CONFIG)
        return Path(config) if _text(folder, config, MOST_BYTES) is not None else None
    except (OSError, ValueError):
        return None


def cached_config(name: str | None, hub: Path | None = None) -> dict[str, Any] | None:
    """The fields of that config.json without those that hold paths; None where there is none, or it is no object."""
    file = cached_file(name, hub)
    if file is None:
        return None
    folder = os.path.realpath(hub or hub_folder())
    config = _fields(folder, str(file))
    if config is not None and "quantization_config" not in config:
        beside = _fields(folder, str(file.with_name(QUANTIZATION)))
        if beside is not None and isinstance(beside.get("quantization"), dict):
            config["quantization_config"] = beside["quantization"]
    return config


def _folder_of(hub: str, name: str) -> str | None:
    owner, slash, bare = name.rpartition("/")
    if slash:
        exact = os.path.join(hub, f"models--{owner}--{bare}")
        return exact if os.path.isdir(exact) else None
    found = []
    with os.scandir(hub) as entries:
        for number, entry in enumerate(entries):
            parts = entry.name.split("--")
            if number >= MOST_FOLDERS:
                return None
            if parts[0] == "models" and len(parts) in (2, 3) and parts[-1] == bare:
                found.append(entry.path)
    return found[0] if len(found) == 1 else None


def _fields(hub: str, path: str) -> dict[str, Any] | None:
    try:
        text = _text(hub, path, MOST_BYTES)
        found = None if text is None else json.loads(text)
    except (OSError, ValueError, RecursionError):
        return None
    return {key: value for key, value in found.items() if key not in PATHS} if isinstance(found, dict) else None


def _text(hub: str, path: str, most: int) -> str | None:
    """The text of a regular file in the cache, links followed within it; None for another or a longer one."""
    real = os.path.realpath(path)
    if os.path.commonpath((hub, real)) != hub:
        return None
    descriptor = os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        raw = file.read(most + 1)
    return raw.decode("utf-8-sig") if len(raw) <= most else None
