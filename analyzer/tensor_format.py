"""A part of a group of tensors that has one format."""

from __future__ import annotations

from dataclasses import dataclass

from rooflens.analyzer.number_formats import WEIGHT_FORMATS


@dataclass(frozen=True, slots=True)
class TensorFormat:
    """``share`` (a ratio) of a group's elements in one format; ``bytes_per_element`` has the scales in it."""

    share: float
    name: str
    bytes_per_element: float

    @property
    def compute(self) -> tuple[str, ...]:
        """The formats that its products may run in."""
        return WEIGHT_FORMATS[self.name].compute
