"""What the floors of a trace stand on is told; and a part of it that holds no steps is no trace."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from made_traces import facts_of, made_table
from recorded_rings import HARDWARE
from recorded_trace import made_trace

from rooflens.analyzer.hardware import find_hardware
from rooflens.cli import main
from rooflens.cli.analysis.roofs import SHOWN, roof_texts, roofs_of
from rooflens.collector.trace.file import write_file

LOADED = "others used the machine (load 4.0 on 2 cores)"


def test_each_roof_is_told_with_what_lowers_its_worth() -> None:
    hardware = find_hardware(str(HARDWARE))
    measured = replace(hardware, id="this-cpu", origin="measured", flags=(LOADED,))
    curated = replace(hardware, flags=("a curator wrote this",))
    facts = [
        replace(facts_of("a"), run="1", hardware=measured),
        replace(facts_of("b"), run="2", hardware=measured),
        replace(facts_of("b"), run="3", hardware=curated),
        replace(facts_of("c"), run="4", hardware=None),
    ]
    first, second = roofs_of(facts)
    assert (first["origin"], first["flags"], first["runs"], len(first["engines"])) == ("measured", [LOADED], 2, 2)
    assert (second["flags"], second["engines"]) == ([], [facts[2].label])
    texts = roof_texts([first, second])
    assert texts[0].startswith("this-cpu (measured): 25.0 GB/s, ")
    assert texts[0].endswith(f"; {LOADED} [2 runs of 2 engines]")
    assert texts[1].endswith(f" [1 run of {facts[2].label}]")
    assert roof_texts([first])[0].endswith(LOADED)
    assert roof_texts([first] * (SHOWN + 3))[-1] == "3 more roofs: --json"
    assert roofs_of(facts[3:]) == []


def test_a_trace_says_how_its_roof_was_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hardware = replace(find_hardware(str(HARDWARE)), id="this-cpu", origin="measured", flags=(LOADED,))
    facts = replace(facts_of(), hardware=hardware)
    write_file(tmp_path / "trace" / "steps" / "00-test.parquet", made_table(facts, 20), [facts])
    assert main(["analyze", str(tmp_path / "trace")]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "floor this-cpu (measured): 25.0 GB/s" in told
    assert LOADED in told
    assert main(["analyze", str(tmp_path / "trace"), "--hardware", str(HARDWARE), "--json"]) == 0
    ((roof,),) = (found["roofs"] for found in json.loads(capsys.readouterr().out))
    assert (roof["hardware"], roof["origin"]) == (find_hardware(str(HARDWARE)).id, "datasheet")


@pytest.mark.parametrize("part", ["events", "events/host=host-a"])
def test_events_are_no_steps(part: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", str(made_trace(tmp_path) / part)]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "events of a trace, no steps: name the trace's own folder" in told


def test_a_what_if_that_loses_says_what_it_costs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", str(made_trace(tmp_path)), "--set", "model=meta-llama-3-8b"]) == 0
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith(("saves ", "costs ")))
    assert line.startswith("costs ")
    assert "of device time beside now" in line
    assert "-" not in line
