"""One file of a trace: written aside, synced, renamed; and its footer, read without its rows."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rooflens import __version__
from rooflens.collector.trace.arrays import numbers_of
from rooflens.collector.trace.facts import FactsBook, device_from_json, facts_from_json, with_shared
from rooflens.collector.trace.place import ASIDE, FOLDER_MODE, put
from rooflens.collector.trace.whole import sealed, with_room
from rooflens.device_records import DeviceFacts
from rooflens.records import RooflensError
from rooflens.trace_records import METADATA_KEY, TRACE_SCHEMA, TraceFacts

__all__ = ["ASIDE", "SUFFIX", "Footer", "RunRange", "encoded", "metadata_of", "read_footer", "write_file"]

SUFFIX = ".parquet"
COMPRESSION, LEVEL = "zstd", 3
ROW_GROUP = 122_880
SPLIT, DIFFERENCES = "BYTE_STREAM_SPLIT", "DELTA_BINARY_PACKED"


@dataclass(frozen=True, slots=True)
class RunRange:
    """The steps of one run in one file: the sequences from ``first`` to ``last``, both included, ``rows`` of them."""

    first: int
    last: int
    rows: int


@dataclass(frozen=True, slots=True)
class Footer:
    """What a file says of itself: ``facts`` by digest, ``runs`` by run, ``devices`` by uuid.

    The times are those of its rows, None of none. ``schema`` is the version that it was written in.
    """

    path: str
    rows: int
    schema: int
    facts: Mapping[str, TraceFacts] = field(default_factory=dict)
    runs: Mapping[str, RunRange] = field(default_factory=dict)
    first_unix_s: float | None = None
    last_unix_s: float | None = None
    devices: Mapping[str, DeviceFacts] = field(default_factory=dict)


def metadata_of(
    facts: Sequence[TraceFacts], table: pa.Table, devices: Sequence[DeviceFacts] = (), book: FactsBook | None = None
) -> dict[bytes, bytes]:
    """The footer's own entry for a table of steps, events or counters."""
    entries = [(book or FactsBook()).entry(each) for each in facts]
    data: dict[str, Any] = {
        "schema": TRACE_SCHEMA,
        "rooflens": __version__,
        "facts": {entry.digest: entry.data for entry in entries},
        "shared": {key: part for entry in entries for key, part in entry.shared.items()},
        "runs": _ranges(table),
    }
    if devices:
        data["devices"] = {device.uuid: asdict(device) for device in devices}
    name = "unix_s" if "unix_s" in table.column_names else "end_unix_s"
    if name in table.column_names and len(times := table.column(name).drop_null()):
        ends = pc.min_max(times).as_py()
        data["first_unix_s"], data["last_unix_s"] = ends["min"], ends["max"]
    return {METADATA_KEY: json.dumps(data, separators=(",", ":"), default=str).encode()}


def _ranges(table: pa.Table) -> dict[str, list[int]]:
    if not {"run", "sequence"} <= set(table.column_names):
        return {}
    runs = table.column("run").dictionary_encode().unify_dictionaries().combine_chunks()
    indices, _ = numbers_of(runs.indices)
    sequences, known = numbers_of(table.column("sequence").combine_chunks())
    indices, sequences = indices[known], sequences[known]
    order = np.argsort(indices, kind="stable")
    indices, sequences = indices[order], sequences[order]
    begins = np.flatnonzero(np.diff(indices, prepend=-1))
    if not len(begins):
        return {}
    first, last = np.minimum.reduceat(sequences, begins), np.maximum.reduceat(sequences, begins)
    rows = np.diff(np.append(begins, len(indices)))
    names = runs.dictionary.to_pylist()
    kept = zip(indices[begins].tolist(), first.tolist(), last.tolist(), rows.tolist(), strict=True)
    return {names[run]: [low, high, count] for run, low, high, count in kept}


def encoded(
    table: pa.Table, facts: Sequence[TraceFacts], devices: Sequence[DeviceFacts] = (), book: FactsBook | None = None
) -> pa.Buffer:
    """The whole file as bytes; ``book`` knows the JSON of facts that were written before.

    Numbers of a step are near those of the step before: integers are stored as differences, and of floats first all
    first bytes, then all second ones, which zstd makes small where the high ones hardly change.
    """
    bare = table.replace_schema_metadata(None)
    names = {field.name: field.type for field in bare.schema}
    encodings = {name: SPLIT for name, kind in names.items() if pa.types.is_floating(kind)}
    encodings |= {name: DIFFERENCES for name, kind in names.items() if pa.types.is_integer(kind)}
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        bare.schema,
        compression=COMPRESSION,
        compression_level=LEVEL,
        use_dictionary=[name for name in names if name not in encodings],
        column_encoding=encodings,
        store_schema="host" in names,  # five kilobytes, only for the dictionary of beside.HOST
    ) as writer:
        writer.write_table(bare, row_group_size=ROW_GROUP)
        said = with_room(metadata_of(facts, table, devices, book)[METADATA_KEY])
        writer.add_key_value_metadata({METADATA_KEY: said})
    return pa.py_buffer(sealed(bytearray(sink.getvalue()), said))


def write_file(path: Path, table: pa.Table, facts: Sequence[TraceFacts], devices: Sequence[DeviceFacts] = ()) -> int:
    """Write ``table`` to ``path``: aside, synced, renamed, the folder synced; its size in bytes.

    What a crash leaves is a file that ends in ASIDE, which nobody reads. OSError where it cannot be written; then
    nothing is left.
    """
    data = encoded(table, facts, devices)
    path.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        put(folder, path.name, data)
    finally:
        os.close(folder)
    return int(data.size)


def read_footer(path: str, opened: Any = None) -> Footer:
    """What the file at ``path`` says of itself; ``opened`` is a file object where it is not a local path.

    RooflensError in one line for a file that is cut off or damaged, or no trace of rooflens.
    """
    try:
        metadata = pq.read_metadata(path if opened is None else opened)
    except (pa.ArrowException, OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno:
            raise RooflensError(f"{path}: {os.strerror(error.errno).lower()}") from None
        raise RooflensError(f"{path}: cut off or damaged: no Parquet footer can be read") from None
    return footer_of(path, metadata)


def footer_of(path: str, metadata: pq.FileMetaData, known: dict[str, TraceFacts] | None = None) -> Footer:
    """As read_footer, from what Parquet knows of it; ``known`` keeps facts by digest, so that each is made once."""
    known = {} if known is None else known
    said = (metadata.metadata or {}).get(METADATA_KEY)
    if said is None:
        raise RooflensError(f"{path}: a Parquet file, but no trace of rooflens: its metadata has no 'rooflens'")
    try:
        data = json.loads(said)
        version = int(data["schema"])
        if version > TRACE_SCHEMA:
            raise RooflensError(
                f"{path}: written in schema {version} by rooflens {data.get('rooflens')}, which is newer than this one "
                f"({TRACE_SCHEMA}): upgrade rooflens to read it"
            )
        return Footer(
            path=path,
            rows=metadata.num_rows,
            schema=version,
            facts={
                str(digest): known.get(digest) or known.setdefault(digest, facts_from_json(each))
                for digest, each in with_shared(data).items()
            },
            runs={str(run): RunRange(*map(int, each)) for run, each in data.get("runs", {}).items()},
            first_unix_s=_time(data.get("first_unix_s")),
            last_unix_s=_time(data.get("last_unix_s")),
            devices={str(uuid): device_from_json(each) for uuid, each in data.get("devices", {}).items()},
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RooflensError(f"{path}: its metadata is damaged ({type(error).__name__})") from None


def _time(value: Any) -> float | None:
    """Seconds, None for what is no number."""
    return float(value) if isinstance(value, int | float) and isfinite(value) else None
