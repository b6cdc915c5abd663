"""Damaged profiles: read, or refused in one line; never another error."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from made_profiles import LATE, kineto, nsys

from rooflens.adapters.profiler.capture import Capture
from rooflens.adapters.profiler.kineto import read_kineto
from rooflens.adapters.profiler.nsys import read_nsys
from rooflens.adapters.profiler.steps import tracks_of
from rooflens.adapters.profiler.table import table_of
from rooflens.records import RooflensError

PROFILES = Path(__file__).parents[1] / "data" / "profiles"
DECODE = "execute_context_0(0)_generation_1(1)"

damage = st.lists(
    st.tuples(st.floats(0, 1, exclude_max=True), st.binary(min_size=1, max_size=6)), min_size=1, max_size=8
)
given_folder = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])


def mangled(raw: bytes, changes: list[tuple[float, bytes]]) -> bytes:
    found = bytearray(raw)
    for where, new in changes:
        at = int(where * len(found))
        found[at : at + len(new)] = new
    return bytes(found)


def survives(read: Callable[[Path], Capture], path: Path) -> None:
    with suppress(RooflensError):
        found = read(path)
        for track in tracks_of(found):
            assert len(table_of(track, found.unix_s)) == len(track)


@given_folder
@given(damage)
def test_kineto(tmp_path: Path, changes: list[tuple[float, bytes]]) -> None:
    raw = kineto(tmp_path / "whole.json", LATE).read_bytes()
    path = tmp_path / "p.json"
    path.write_bytes(mangled(raw, changes))
    survives(read_kineto, path)


@given_folder
@given(damage)
def test_packed_kineto(tmp_path: Path, changes: list[tuple[float, bytes]]) -> None:
    path = tmp_path / "p.json.gz"
    path.write_bytes(b"\x1f\x8b" + mangled((PROFILES / "cuda-events.json.gz").read_bytes(), changes)[2:])
    survives(read_kineto, path)
    path.write_bytes(gzip.compress(mangled(gzip.decompress((PROFILES / "rocm.json.gz").read_bytes()), changes)))
    survives(read_kineto, path)


@given_folder
@given(damage)
@example([(0.078125, b"\x80")])  # in the schema, which SQLite then quotes
def test_nsys(tmp_path: Path, changes: list[tuple[float, bytes]]) -> None:
    whole = tmp_path / "whole.sqlite"
    if not whole.exists():
        nsys(whole, [(0, 90_000, 7, DECODE)], [(100_000, 900_000, 7, 0, 1, "nvjet_tst")] * 30, [(5_000, 7, 1)])
    path = tmp_path / "p.sqlite"
    path.write_bytes(mangled(whole.read_bytes(), changes))
    survives(read_nsys, path)
