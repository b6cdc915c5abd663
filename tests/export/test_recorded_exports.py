"""The recorded runs through every export: what a reader of each format finds, beside the ring itself."""

from __future__ import annotations

import gzip
import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from export import read_back
from recorded_rings import HARDWARE, unpacked

import rooflens
from rooflens.pipeline import Recording, read_ring
from rooflens.records import StepKind

# Of the whole file, byte for byte: a change of these is a change of what users get, and is looked at before.
GOLDEN = json.loads((Path(__file__).parent / "golden.json").read_text())
NAMES = {"chrome": "t.json", "perfetto": "t.pftrace", "otlp": "t.otlp.jsonl", "csv": "t.csv"}
ENGINES = {"vllm-a": "m/0@host-a (vllm, 0.32.0, two-core-cpu)"}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], bytes]:
    folder = tmp_path_factory.mktemp("exports")
    found = {}
    for run in ("vllm-a", "embedded"):
        ring = str(unpacked(run, folder))
        for kind, name in list(NAMES.items())[: 4 if run == "vllm-a" else 2]:
            place = folder / f"{run}-{name}"
            found[run, kind] = read_back.exported([ring, "--hardware", str(HARDWARE)], place)
    return found


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    return read_ring(unpacked("vllm-a", tmp_path_factory.mktemp("ring")))


@pytest.mark.parametrize("kind", NAMES)
def test_the_file_is_the_one_that_was_looked_at(kind: str, tmp_path: Path) -> None:
    """Without bounds, whose last digits are those of a machine; without the version, which rises."""
    data = read_back.exported([str(unpacked("embedded", tmp_path))], tmp_path / NAMES[kind])
    data = data.replace(f'"version":"{rooflens.__version__}"'.encode(), b"")
    assert hashlib.sha256(data).hexdigest()[:16] == GOLDEN[kind]


@pytest.mark.parametrize("run", ["vllm-a", "embedded"])
def test_slices_are_well_formed(files: dict[tuple[str, str], bytes], run: str) -> None:
    read_back.well_formed(read_back.chrome(files[run, "chrome"])[1])
    read_back.well_formed(read_back.perfetto(files[run, "perfetto"]).slices)


def test_chrome_and_perfetto_show_the_busy_time_of_every_step(
    files: dict[tuple[str, str], bytes], ring: Recording
) -> None:
    track = (ENGINES["vllm-a"], "steps")
    kinds = [StepKind(kind).name.lower() for kind in ring.steps["kind"].tolist()]
    observed_s, unix_s = ring.steps["observed_s"], ring.steps["unix_s"]
    _, slices = read_back.chrome(files["vllm-a", "chrome"])
    steps = [each for each in slices if each.track == track and not each.args]
    assert [each.name for each in steps] == kinds
    assert np.allclose([(each.end - each.begin) / read_back.US for each in steps], observed_s, atol=3e-6)
    begin_unix_s = json.loads(files["vllm-a", "chrome"])["otherData"]["begin_unix_s"]
    assert np.allclose([begin_unix_s + each.end / read_back.US for each in steps], unix_s, atol=1e-6, rtol=0)
    packed = [each for each in read_back.perfetto(files["vllm-a", "perfetto"]).slices if each.track == track]
    assert [each.name for each in packed] == kinds
    assert np.allclose([each.end / read_back.NS for each in packed], unix_s, atol=1e-6, rtol=0)
    assert [each.args["step"] for each in packed] == ring.steps["sequence"].tolist()


def test_the_floor_is_the_slice_below_a_step_with_its_figures(files: dict[tuple[str, str], bytes]) -> None:
    _, slices = read_back.chrome(files["vllm-a", "chrome"])
    floors = [each for each in slices if each.name in ("memory floor", "compute floor")]
    assert len(floors) == 371
    for each in floors:
        assert each.end - each.begin == round(each.args["floor_ms"] * 1000)
        assert each.name.startswith(each.args["bound"])
    first = next(each for each in floors if each.args["step"] == 2)
    assert first.args["mbu"] == round(0.0181170176 / 0.06378035299712792, 4)  # as analyze has them of this step


def test_counters_change_with_the_steps(files: dict[tuple[str, str], bytes], ring: Recording) -> None:
    found = read_back.perfetto(files["vllm-a", "perfetto"])
    title = ENGINES["vllm-a"]
    assert found.units == {"batch": "", "waiting": "", "KV cache used": "%", "MBU": "%", "x reachable": "x"}
    batch = ring.steps["requests"]
    changes = 1 + int((np.diff(batch) != 0).sum())
    assert [value for _, value in found.counters[title, "batch"]] == batch[
        np.concatenate([[0], 1 + np.flatnonzero(np.diff(batch))])
    ].tolist()
    events, _ = read_back.chrome(files["vllm-a", "chrome"])
    assert sum(e["ph"] == "C" and e["name"] == "batch" for e in events) == changes
    assert ring.info is not None
    assert ring.info.kv_blocks == 159
    used = 100 * float(ring.steps["kv_blocks_used"].max()) / 159
    assert max(value for _, value in found.counters[title, "KV cache used"]) == pytest.approx(used, abs=0.01)
    assert max(value for _, value in found.counters[title, "waiting"]) == ring.steps["waiting"].max() == 7


def test_otlp_is_what_opentelemetry_reads_and_its_ids_hang_together(
    files: dict[tuple[str, str], bytes], ring: Recording
) -> None:
    spans = read_back.otlp(files["vllm-a", "otlp"])
    assert {resource["service.instance.id"] for resource, _ in spans} == {"m/0@host-a"}
    assert {resource["service.name"] for resource, _ in spans} == {"vllm"}
    roots = {span.span_id: span for _, span in spans if not span.parent_span_id}
    steps = [span for _, span in spans if span.name in ("prefill", "decode", "mixed")]
    assert [read_back.attributes(span)["rooflens.step.sequence"] for span in steps] == ring.steps["sequence"].tolist()
    assert len({span.span_id for _, span in spans}) == len(spans)
    for span in steps:
        root = roots[span.parent_span_id]
        assert root.trace_id == span.trace_id
        assert root.start_time_unix_nano <= span.start_time_unix_nano
        assert span.end_time_unix_nano <= root.end_time_unix_nano
    for root in roots.values():
        mine = [span for _, span in spans if span.parent_span_id == root.span_id]
        assert root.start_time_unix_nano == min(span.start_time_unix_nano for span in mine)
        assert root.end_time_unix_nano == max(span.end_time_unix_nano for span in mine), "no time in which nothing ran"
    seconds = [(span.end_time_unix_nano - span.start_time_unix_nano) / read_back.NS for span in steps]
    assert np.allclose(seconds, ring.steps["observed_s"], atol=3e-6)
    assert max(len(line.encode()) for line in files["vllm-a", "otlp"].decode().splitlines()) < 4 << 20  # gRPC's limit


def test_csv_has_every_column_of_every_step(files: dict[tuple[str, str], bytes], ring: Recording) -> None:
    rows = read_back.table(files["vllm-a", "csv"])
    assert len(rows) == 371
    assert files["vllm-a", "csv"].count(b"\r\n") == 372
    for name in ring.steps.columns:
        told = [row[name] for row in rows]
        known = ring.steps.where(name).tolist()
        if name in ("kind", "graph_mode"):
            continue
        values = [float(text) if text else None for text in told]
        assert values == [value if at else None for value, at in zip(ring.steps[name].tolist(), known, strict=True)]
    assert rows[0]["time"] == "2026-11-30T10:06:41.115999Z"
    assert (rows[0]["kind"], rows[0]["bound"], rows[0]["graph_mode"]) == ("prefill", "memory", "unknown")
    assert rows[0]["distinct_experts"] == ""


def test_events_stand_where_they_happened(files: dict[tuple[str, str], bytes]) -> None:
    events, _ = read_back.chrome(files["embedded", "chrome"])
    assert [e["name"] for e in events if e["ph"] == "i"] == ["load_single", "load_batch", "load_ended"]
    instants = read_back.perfetto(files["embedded", "perfetto"]).instants
    assert [name for name, _ in instants] == ["load_single", "load_batch", "load_ended"]


def test_a_packed_file_is_the_same_each_time(tmp_path: Path, files: dict[tuple[str, str], bytes]) -> None:
    arguments = [str(unpacked("vllm-a", tmp_path)), "--hardware", str(HARDWARE)]
    first = read_back.exported(arguments, tmp_path / "a.json.gz")
    assert first == read_back.exported(arguments, tmp_path / "b.JSON.GZ")
    assert gzip.decompress(first) == files["vllm-a", "chrome"]


def test_two_engines_have_tracks_of_their_own(tmp_path: Path) -> None:
    rings = [str(unpacked(name, tmp_path)) for name in ("vllm-a", "vllm-b")]
    _, slices = read_back.chrome(read_back.exported(rings, tmp_path / "t.json"))
    assert {process for (process, _), *_ in slices} == {"m/0@host-a (vllm, 0.32.0)", "m/0.1@host-a (vllm, 0.32.0)"}
    found = read_back.perfetto(read_back.exported(rings, tmp_path / "t.pftrace"))
    assert len({each.track[0] for each in found.slices}) == 2
    read_back.well_formed(slices)
    read_back.well_formed(found.slices)
