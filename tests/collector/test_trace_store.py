"""A trace in an object store: whole files, retries, and no word of its credentials."""

from __future__ import annotations

import io
from typing import Any
from uuid import uuid4

import fsspec
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from written_traces import Clock, facts_of, trace_rows

from rooflens.collector.trace.store import place_of, shown
from rooflens.collector.trace.writer import TraceWriter
from rooflens.records import RooflensError


class Bucket(MemoryFileSystem):  # type: ignore[misc]
    """Objects in memory, each folder first refusing with what ``refusal`` holds, its address told to no one."""

    protocol = "bucket"
    store: dict[str, Any] = {}  # noqa: RUF012 - as its base has it
    pseudo_dirs = [""]  # noqa: RUF012
    refusal: Exception | None = None
    puts: list[str] = []  # noqa: RUF012

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        if Bucket.refusal is not None:
            raise Bucket.refusal
        Bucket.puts.append(path)
        super().pipe_file(path, value, mode, **kwargs)


@pytest.fixture(autouse=True)
def bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    fsspec.register_implementation("bucket", Bucket, clobber=True)
    monkeypatch.setattr(Bucket, "refusal", None)
    monkeypatch.setattr(Bucket, "puts", [])
    monkeypatch.setattr(Bucket, "store", {})


def written(place: str) -> tuple[TraceWriter, Clock]:
    """A writer that has ten steps and had its first try."""
    clock, monotonic = Clock(), Clock(1000.0)
    writer = TraceWriter(place, None, clock, monotonic, threaded=False)
    writer.put(trace_rows(facts_of(), range(1, 11)))
    monotonic.now_s += 61
    writer.turn()
    return writer, monotonic


def test_a_file_is_put_whole_under_the_prefix() -> None:
    prefix = uuid4().hex
    writer, _ = written(f"memory://{prefix}/traces/")
    filesystem = MemoryFileSystem()
    (path,) = filesystem.find(f"/{prefix}")
    assert path.startswith(f"/{prefix}/traces/steps/host=host-1/date=2027-01-15/hour=08/")
    table = pq.ParquetFile(io.BytesIO(filesystem.cat_file(path))).read()
    assert table.column("sequence").to_pylist() == list(range(1, 11))
    assert writer.state().files_written == 1
    filesystem.rm(f"/{prefix}", recursive=True)


def test_a_store_that_has_files_gets_them_aside_and_renamed() -> None:
    written("bucket://somewhere/traces")
    ((aside,), names) = Bucket.puts, list(Bucket.store)
    assert aside.rpartition("/")[2].startswith(".")
    assert [name.rpartition("/")[2].startswith(".") for name in names] == [False]


@pytest.mark.parametrize(
    ("refusal", "said"),
    [
        (PermissionError("Access Denied for key SECRET"), "permission denied"),
        (FileNotFoundError("the bucket SECRET"), "the bucket or folder is not there"),
        (TimeoutError("SECRET"), "timeouterror"),
        (RuntimeError("SECRET"), "RuntimeError"),
    ],
)
def test_a_refusal_is_one_line_without_credentials_and_tried_again(refusal: Exception, said: str) -> None:
    Bucket.refusal = refusal
    writer, monotonic = written("bucket://user:SECRET@somewhere/traces?token=SECRET")
    problem = writer.state().problem
    assert problem is not None
    assert problem.startswith("trace bucket://somewhere/traces: ")
    assert said in problem
    assert "SECRET" not in problem + writer.shown
    assert "\n" not in problem
    Bucket.refusal = None
    monotonic.now_s += 2
    writer.turn()
    assert (writer.state().problem, writer.state().rows_written) == (None, 10)


def test_an_address_that_nobody_knows_is_said_at_once() -> None:
    with pytest.raises(RooflensError, match="nowhere:// cannot be opened") as caught:
        place_of("nowhere://user:SECRET@there")
    assert "SECRET" not in str(caught.value)


def test_a_library_that_is_missing_is_named() -> None:
    with pytest.raises(RooflensError, match="a library is missing: install the fsspec library for gs://"):
        place_of("gs://there/traces")


def test_an_address_of_a_local_file_is_a_folder(tmp_path: Any) -> None:
    assert place_of(f"file://{tmp_path}/trace").shown == f"{tmp_path}/trace"
    assert (tmp_path / "trace").is_dir()


def test_what_is_shown_of_an_address() -> None:
    assert shown("s3://key:secret@bucket/a/b?x=1#f") == "s3://bucket/a/b"
    assert shown("s3://[half") == "s3://..."
