"""One ring under several names or in several folders is one engine, and is counted once."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from made_engine import made_engine
from pipeline.made_pages import value

from rooflens import catalogue as metrics
from rooflens.live_records import Snapshot, State
from rooflens.pipeline.watch import Watch


def labels(snapshot: Snapshot) -> list[tuple[str, State]]:
    return [(view.engine, view.state) for view in snapshot.engines]


def decoded(snapshot: Snapshot) -> float:
    return float(value(snapshot, metrics.STEPS, "llama", "0", "decode"))


@pytest.mark.parametrize("how", ["spelling", "symlink", "hard link"])
def test_a_ring_that_is_found_twice_is_one_engine(
    watch: Callable[..., Watch], folder: Path, tmp_path_factory: pytest.TempPathFactory, how: str
) -> None:
    second = {"spelling": folder / ".." / folder.name, "symlink": tmp_path_factory.mktemp("x") / "link"}.get(
        how, folder
    )
    if how == "symlink":
        second.symlink_to(folder)
    it = watch(folders=(folder, second))
    it.turn()
    with made_engine(folder) as engine:
        if how == "hard link":
            os.link(engine.path, folder / "backup.ring")
        engine.steps(10)
        assert labels(it.turn()) == [("0", State.LIVE)]
        engine.steps(5)
        engine.end()
    for _ in range(2):
        snapshot = it.turn()
        assert labels(snapshot) == [("0", State.ENDED)]
        assert decoded(snapshot) == 15


def test_a_ring_that_is_renamed_goes_on(watch: Callable[..., Watch], folder: Path) -> None:
    it = watch()
    with made_engine(folder) as engine:
        engine.steps(10)
        it.turn()
        engine.path.rename(folder / "renamed.ring")
        engine.steps(10)
        assert labels(it.turn()) == [("0", State.LIVE)]
        engine.end()
        it.turn()
        (folder / "renamed.ring").rename(folder / "again.ring")
        snapshot = it.turn()
    assert labels(snapshot) == [("0", State.ENDED)]
    assert decoded(snapshot) == 20


def test_what_was_read_in_a_folder_that_is_unfit_for_a_while_is_not_counted_again(
    watch: Callable[..., Watch], folder: Path
) -> None:
    it = watch()
    it.turn()
    with made_engine(folder) as engine:
        engine.steps(10)
        engine.end()
    it.turn()
    for mode in (0o777, 0o700):
        folder.chmod(mode)
        snapshot = it.turn()
    assert (decoded(snapshot), value(snapshot, metrics.RESTARTS, "llama", "0")) == (10, 0)
