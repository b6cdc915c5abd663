"""A worker's ring of device times: its life, and that nothing takes it for an engine's."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from fake_device import output, ring, step, timer, worker

from rooflens.cli.find_rings import rings_at
from rooflens.collector.device_spans import read_device_ring
from rooflens.collector.ring_source import RingSource
from rooflens.records import RooflensError
from rooflens.ring_folder import DEVICE_SUFFIX, create_ring, list_rings


def test_a_forked_child_does_not_write_into_its_parents_ring(gpu: Any, tmp_path: Path) -> None:
    made = worker()
    step(made, gpu, 1, 1.0)
    its = timer(made)
    pid = os.fork()
    if not pid:
        made.model_runner.execute_model(output(1))
        os._exit(0 if its.off else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    step(made, gpu, 1, 1.0)
    assert [s.ordinal for s in ring(tmp_path).spans] == [1]


def test_ordinals_beyond_32_bits(gpu: Any, tmp_path: Path) -> None:
    made = worker()
    timer(made).ordinal = 2**32 + 5
    for _ in range(2):
        step(made, gpu, 1, 1.0)
    assert [s.ordinal for s in ring(tmp_path).spans] == [2**32 + 6]


def test_no_verb_takes_a_device_ring_for_an_engine(gpu: Any, tmp_path: Path) -> None:
    made = worker()
    for _ in range(3):
        step(made, gpu, 1, 1.0)
    (path,) = list_rings(tmp_path, DEVICE_SUFFIX)
    assert list_rings(tmp_path) == []
    with pytest.raises(RooflensError, match="device times, no steps"):
        rings_at([str(path)])
    source = RingSource(path)
    batch = source.read()
    source.close()
    assert (len(batch.steps), batch.events, batch.torn_steps) == (0, (), 0)


def test_an_engines_ring_is_no_device_ring(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    writer, path = create_ring(tmp_path, 0, ((16, 4096),))
    writer.set_info({"instance": "i", "engine": "e"})
    writer.close()
    with pytest.raises(RooflensError, match="no ring of device times"):
        read_device_ring(path)


def test_dead_device_rings_are_removed_rank_by_rank_and_no_others(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    for number in range(5):
        for rank in range(3):
            create_ring(tmp_path, rank, ((16, 4096),), DEVICE_SUFFIX)[0].close()
        if number < 2:
            create_ring(tmp_path, 0, ((16, 4096),))[0].close()
    assert len(list_rings(tmp_path)) == 2
    kept = [path.stem.rsplit("-", 1)[1] for path in list_rings(tmp_path, DEVICE_SUFFIX)]
    assert sorted(kept) == ["0"] * 3 + ["1"] * 3 + ["2"] * 3
