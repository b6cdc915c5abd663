"""What an adapter may write down of an engine: no path, no name of a person; and whether it may at all."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

DISABLE_VARIABLE = "ROOFLENS_DISABLE"
# A config.json field is kept if its value is plain; these would name a place or a person.
LEFT_OUT = ("path", "dir", "file", "url", "token_id", "_name_or_path", "auto_map", "id2label", "label2id", "user")
MOST_LIST = 1024  # a list per layer, or the modules that are not quantised (712 of GLM-5-FP8), not a table
MOST_DEPTH = 7  # text_config, quantization_config, config_groups, group_0, weights, block_structure
LONGEST_WORD = 64
LONGEST_NAME = 256  # of what names modules of a model, layers.59.block_sparse_moe.shared_experts.gate_proj
LARGEST = 1 << 63  # of a number
# Dotted names of modules, with globs: no letter of a path or an address.
MODULES = re.compile(r"[A-Za-z_*][\w*]*(?:\.[\w*]+)+")
# Regular expressions that name modules, as quantisation methods mark them; no slash, no drive, no share of a network.
EXPRESSION = re.compile(r"(?:re:|[-+]:)(?!\\\\)(?:[^\\/:]|\\[^/:]|\(\?:)+")


def disabled(environment: Mapping[str, str]) -> bool:
    """Whether ROOFLENS_DISABLE says that nothing may be recorded."""
    return environment.get(DISABLE_VARIABLE, "").strip().lower() not in ("", "0", "false", "no")


def _may_keep(name: str) -> bool:
    return word(name) is not None and not any(part in name for part in LEFT_OUT)


def word(value: str, longest: int = LONGEST_WORD) -> str | None:
    """A word as it is; None for a path, for anything long, and for what a terminal would obey.

    What names modules of a model, as the lists that a quantisation leaves alone do, may be longer and have backslashes.
    """
    if len(value) <= LONGEST_NAME and value.isprintable() and (MODULES.fullmatch(value) or EXPRESSION.fullmatch(value)):
        return value
    return None if "/" in value or "\\" in value or len(value) > longest or not value.isprintable() else value


def plain(value: Any, depth: int = 0) -> Any:
    """The architecture part of a config: finite numbers, flags, short words and lists of them; None for the rest."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int | float):
        return value if abs(value) < LARGEST else None  # neither infinity nor NaN is
    if isinstance(value, str):
        return word(value)
    if isinstance(value, list | tuple) and len(value) <= MOST_LIST and depth < MOST_DEPTH:
        return [plain(item, depth + 1) for item in value]
    if isinstance(value, dict) and depth < MOST_DEPTH:
        kept = {str(k): plain(v, depth + 1) for k, v in value.items() if _may_keep(str(k))}
        return {k: v for k, v in kept.items() if v is not None}
    return None
