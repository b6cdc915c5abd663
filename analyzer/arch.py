"""ModelArch from a Hugging Face config.json or from the shipped table, by what the fields say and never by a name."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from rooflens.analyzer.architecture.model import language_fields, model
from rooflens.analyzer.config_fields import shown
from rooflens.analyzer.module_rules import RuleBook
from rooflens.analyzer.precision import stated_weights
from rooflens.analyzer.quantization import quantization_of
from rooflens.analyzer.small_file import plain_reason, small_text
from rooflens.analyzer.suggest import did_you_mean
from rooflens.arch_records import ModelArch
from rooflens.records import RooflensError

WEIGHT_FILES = (".gguf", ".safetensors")
QUANTIZATION_FILE = "hf_quant_config.json"  # how ModelOpt says what it did, beside the config
GIVE_CONFIG = "give the path of a model's config.json, or one of 'rooflens predict --list'"


def find_model(name: str, read_quantization: bool = True) -> ModelArch:
    """The model ``name``: an id of the shipped table, its Hugging Face id, or the path of a config.json or its folder.

    Raises RooflensError in one line. ``read_quantization=False`` ignores what the files say about formats.
    """
    wanted = name.strip().casefold()
    if not wanted:
        raise RooflensError(f"the model's name is empty: {GIVE_CONFIG}")
    for row in known_models():
        if wanted in (row["id"].casefold(), row["hf_id"].casefold()):
            return arch_from_config(row["config"], row["id"], read_quantization)
    path = Path(name)
    if name.endswith((".json", *WEIGHT_FILES)) or _exists(path):
        if path.is_dir() and not _exists(path / "config.json"):
            raise RooflensError(f"{path}: this folder holds no config.json: {GIVE_CONFIG}")
        return arch_from_file(path / "config.json" if path.is_dir() else path, read_quantization)
    names = {n: str(row["id"]) for row in known_models() for n in (row["id"], row["hf_id"])}
    raise RooflensError(
        f"unknown model {name[:80]!r}{did_you_mean(name, names)}; give the path of its config.json, or one of "
        "'rooflens predict --list'"
    )


@cache
def known_models() -> tuple[Mapping[str, Any], ...]:
    """The shipped rows: id, hf_id, source, source_kind and config each."""
    file = files("rooflens.analyzer") / "data" / "models.json"
    return tuple(json.loads(file.read_text(encoding="utf-8"))["models"])


def arch_from_file(path: Path, read_quantization: bool = True) -> ModelArch:
    """The model of a config.json; a hf_quant_config.json beside it is read for its formats."""
    config = read_json(path)
    beside = path.with_name(QUANTIZATION_FILE)
    if path.name == QUANTIZATION_FILE or (isinstance(config, dict) and set(config) == {"producer", "quantization"}):
        raise RooflensError(
            f"{path}: says only how weights are quantised: give the config.json beside it, or its folder"
        )
    if isinstance(config, dict) and "quantization_config" not in config and _exists(beside):
        quantization = read_json(beside)
        stated = quantization.get("quantization") if isinstance(quantization, dict) else None
        config = {**config, "quantization_config": stated}
    try:
        name = path.parent.name if path.name == "config.json" else ""
        return arch_from_config(config, name or path.stem, read_quantization)
    except RooflensError as error:
        raise RooflensError(f"{path}: {error}") from error


def arch_from_config(config: Any, name: str = "model", read_quantization: bool = True) -> ModelArch:
    """The model that the dict of a config.json describes.

    Raises RooflensError, one line naming the field, for anything missing, absurd or contradictory; nothing
    else is raised, whatever ``config`` is.
    """
    if not isinstance(config, dict):
        raise RooflensError(f"config is {shown(config)}, not an object of fields")
    fields, _ = language_fields(config)
    arch = model(config, name)
    if not read_quantization or fields.get("quantization_config") is None:
        return arch
    quantization = quantization_of(fields["quantization_config"], fields)
    RuleBook(quantization.rules)  # what names modules in a way that is not understood is refused here
    return replace(
        arch, weight_format=stated_weights(quantization), kv_format=quantization.kv, quantization=quantization
    )


def read_json(path: Path) -> Any:
    """What the file at ``path`` says; RooflensError in one line if it cannot be read."""
    try:
        return json.loads(small_text(path), object_pairs_hook=_once)
    except FileNotFoundError as error:
        raise RooflensError(f"{path}: no such file: {GIVE_CONFIG}") from error
    except (OSError, ValueError, RecursionError) as error:
        raise RooflensError(f"{path}: cannot be read as JSON: {plain_reason(error)}") from error


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON whose every field is stated once: of two a reader could believe either."""
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"the field {twice[:40]!r} is stated twice, leave one of them")
    return found


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):
        return False
