"""Lists with a value for each layer, and places within a period, out of the fields of a config.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rooflens.analyzer.architecture.numbers import stated
from rooflens.analyzer.config_fields import shown
from rooflens.records import RooflensError


def per_layer_list(fields: Mapping[str, Any], name: str, count: int) -> Sequence[Any]:
    """The first ``count`` values of a list with one value a layer.

    What stands behind them belongs to the layers of multi-token prediction. Raises RooflensError for a list that is
    too short, or longer than those layers explain.
    """
    values = fields.get(name)
    if not isinstance(values, list):
        raise RooflensError(f"config field {name} is {shown(values)}, not a list with one value a layer")
    behind = len(values) - count
    if behind and not 0 < behind <= (stated(fields, "num_nextn_predict_layers", least=0) or 0):
        raise RooflensError(f"config field {name} has {len(values)} values for {count} layers")
    return values[:count]


def listed_places(fields: Mapping[str, Any], name: str, count: int) -> frozenset[int]:
    """The layers, from 0, that a list names; RooflensError for what is no layer of ``count``."""
    values = fields.get(name)
    if values is None:
        return frozenset()
    if not isinstance(values, list):
        raise RooflensError(f"config field {name} is {shown(values)}, not a list of layers")
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < count:
            raise RooflensError(f"config field {name} names layer {shown(value)} of {count}")
    return frozenset(values)


def place_in_period(fields: Mapping[str, Any], name: str, period: int) -> int:
    """An offset within ``period``; RooflensError for one outside it, which no layer would have."""
    offset = stated(fields, name, least=0) or 0
    if offset >= period:
        raise RooflensError(f"config field {name} is {offset}, outside its period of {period} layers")
    return offset
