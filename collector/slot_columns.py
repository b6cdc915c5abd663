"""Slots side by side turned into columns, a cache-sized block at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

BLOCK_SLOTS = 4096  # half a megabyte: read from memory once, then from the second-level cache for each field


class SlotColumns:
    """The fields of many slots, one contiguous array of equal length each."""

    def __init__(self, arrays: dict[str, NDArray[Any]], length: int) -> None:
        self._arrays = arrays
        self._length = length

    @classmethod
    def of(cls, slots: NDArray[Any]) -> SlotColumns:
        """Split a structured array; reading thirty fields one after the other would fetch every slot thirty times."""
        names = slots.dtype.names or ()
        arrays = {name: np.empty(len(slots), slots.dtype[name]) for name in names}
        for start in range(0, len(slots), BLOCK_SLOTS):
            block = slots[start : start + BLOCK_SLOTS]
            for name, array in arrays.items():
                array[start : start + BLOCK_SLOTS] = block[name]
        return cls(arrays, len(slots))

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self._arrays[name]

    def take(self, rows: NDArray[np.int64]) -> SlotColumns:
        """The slots at these positions, in order; itself if that is all of them."""
        if len(rows) == self._length:
            return self
        return SlotColumns({name: array[rows] for name, array in self._arrays.items()}, len(rows))
