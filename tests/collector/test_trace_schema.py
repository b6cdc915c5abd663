"""Steps go to Parquet and come back as they were; a footer says what a file holds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from rooflens.analyzer.hardware import find_hardware
from rooflens.analyzer.roofline import analyse_engine
from rooflens.collector.trace.file import read_footer, write_file
from rooflens.collector.trace.schema import keyframes_of, steps_of, to_arrow
from rooflens.live_records import SourceKind
from rooflens.records import EngineInfo, RooflensError, StepKind, StepTable
from rooflens.trace_records import TraceFacts, TraceRows

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
}
CONFIG |= {
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "torch_dtype": "bfloat16",
    "hidden_act": "silu",
}


def rows(count: int = 20) -> TraceRows:
    info = EngineInfo("a", "vllm", "0.32.0", model_config=CONFIG, weight_dtype="bfloat16", kv_dtype="bfloat16")
    hardware = find_hardware("h100-sxm5-80")
    columns = {
        "sequence": np.arange(1, count + 1),
        "kind": np.full(count, StepKind.DECODE),
        "unix_s": 1.8e9 + 0.02 * np.arange(count),
        "observed_s": np.full(count, 0.011),
        **{name: np.full(count, 8) for name in ("requests", "query_tokens", "sampled_rows", "generated_tokens")},
        **{name: np.full(count, 8000) for name in ("context_tokens", "causal_pairs")},
        "context_blocks": np.full(count, 504),
        "prefill_tokens": np.zeros(count, np.int64),
        "context_tokens@w1024": np.full(count, 7000),
    }
    steps = StepTable(columns, {"observed_s": np.arange(count) != 3})
    facts = TraceFacts("0123456789abcdef", "host-1", "llama", "0", SourceKind.RING, info, hardware)
    return TraceRows(facts, steps, analyse_engine(steps, info, hardware), {5: ([1000] * 8, [1] * 8)})


def test_steps_bounds_and_keyframes_come_back_from_a_file(tmp_path: Path) -> None:
    made = rows()
    path = tmp_path / "steps" / "a.parquet"
    size = write_file(path, to_arrow(made), [made.facts])
    assert size == path.stat().st_size
    assert [entry.name for entry in path.parent.iterdir()] == ["a.parquet"]
    table = pq.read_table(path)
    back = steps_of(table)
    for name, column in made.steps.columns.items():
        mask = made.steps.where(name)
        assert np.array_equal(back.where(name), mask)
        assert np.array_equal(back[name][mask], column[mask])
    assert "waiting" not in back.columns
    assert made.analysis is not None
    assert table.column("floor_s").to_pylist() == made.analysis.floor_s.tolist()
    assert keyframes_of(table) == {5: ([1000] * 8, [1] * 8)}


def test_a_footer_tells_facts_runs_and_times(tmp_path: Path) -> None:
    made = rows()
    path = tmp_path / "a.parquet"
    write_file(path, to_arrow(made), [made.facts])
    footer = read_footer(str(path))
    assert footer.facts == {made.facts.digest: made.facts}
    assert (footer.rows, footer.runs[made.facts.run].first, footer.runs[made.facts.run].last) == (20, 1, 20)
    assert (footer.first_unix_s, footer.last_unix_s) == (1.8e9, 1.8e9 + 0.02 * 19)


def test_facts_that_differ_have_another_digest() -> None:
    facts = rows(1).facts
    assert replace(facts, engine="1").digest != facts.digest
    assert replace(facts).digest == facts.digest


def test_what_is_no_whole_trace_is_said_in_one_line(tmp_path: Path) -> None:
    made = rows()
    path = tmp_path / "a.parquet"
    write_file(path, to_arrow(made), [made.facts])
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(RooflensError, match="cut off or damaged"):
        read_footer(str(path))
    pq.write_table(to_arrow(made), path)
    with pytest.raises(RooflensError, match="no trace of rooflens"):
        read_footer(str(path))
