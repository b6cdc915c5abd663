"""Arrow arrays from numbers and texts without pyarrow.array, which loads pandas where that is installed.

That would take 50 MB and a second of the sidecar.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def numbers_array(values: NDArray[Any], known: NDArray[np.bool_] | None = None) -> pa.Array:
    """The values, null where they are not known; both of shape (rows,)."""
    data = pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [_bits(known), data])


def floats_array(values: Sequence[float | None]) -> pa.Array:
    """Doubles, null for None."""
    known = np.array([value is not None for value in values], np.bool_)
    return numbers_array(np.array([0.0 if value is None else value for value in values], np.float64), known)


def integers_array(values: Sequence[int | None]) -> pa.Array:
    """64-bit integers, null for None."""
    known = np.array([value is not None for value in values], np.bool_)
    return numbers_array(np.array([0 if value is None else value for value in values], np.int64), known)


def texts_array(values: Sequence[str | None]) -> pa.Array:
    """Strings, null for None; what is no UTF-8 is written with its escapes."""
    words = [b"" if value is None else value.encode("utf-8", "backslashreplace") for value in values]
    known = np.array([value is not None for value in values], np.bool_)
    buffers = [_bits(known), _offsets([len(word) for word in words]), pa.py_buffer(b"".join(words))]
    return pa.Array.from_buffers(pa.string(), len(words), buffers)


def named_array(indices: NDArray[np.int32], names: Sequence[str]) -> pa.Array:
    """A dictionary of texts, and which of them each row has."""
    return pa.DictionaryArray.from_arrays(numbers_array(indices), texts_array(names))


def lists_array(inner: pa.Array, lengths: Sequence[int], known: NDArray[np.bool_]) -> pa.Array:
    """Lists of what is in ``inner``, so many each; null where they are not known."""
    return pa.Array.from_buffers(
        pa.list_(inner.type), len(lengths), [_bits(known), _offsets(lengths)], children=[inner]
    )


def numbers_of(array: pa.Array) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """The numbers of an array without lists or texts, and which of them are known; both of shape (rows,)."""
    bits, data = array.buffers()
    begin, end = array.offset, array.offset + len(array)
    values = np.frombuffer(data, array.type.to_pandas_dtype())[begin:end] if data else np.zeros(len(array), np.int64)
    if bits is None:
        return values, np.ones(len(array), np.bool_)
    known = np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little")[begin:end]
    return values, known.astype(np.bool_)


def _offsets(lengths: Sequence[int]) -> pa.Buffer:
    return pa.py_buffer(np.concatenate(([0], np.cumsum(np.asarray(lengths, np.int64)))).astype(np.int32))


def _bits(known: NDArray[np.bool_] | None) -> pa.Buffer | None:
    return None if known is None or known.all() else pa.py_buffer(np.packbits(known, bitorder="little"))
