"""Rings whose steps contradict themselves: counters go on rising, and the sidecar says what it left out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pipeline.made_pages import value

from rooflens import catalogue as metrics
from rooflens.adapters.recorder import Recorder, slot
from rooflens.pipeline.watch import Watch


def test_fewer_drafts_than_none_are_said_and_never_counted(
    watch: Callable[..., Watch], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slot, "_check_drafts", lambda *_: None)  # a writer that looks less closely
    it = watch()
    with Recorder("test", folder=folder, model_name="llama", strict=True) as recorder:
        it.turn()
        for invalid in (0, 50, 0):
            with recorder.step(contexts=[1], drafts=[4], invalid_draft_tokens=invalid):
                pass
        snapshot = it.turn()
        assert value(snapshot, metrics.TOKENS, "llama", "0", "drafted") == 8
        (line,) = snapshot.problems
        assert line.startswith("llama/0: values that no counter can rise by were left out of rooflens_tokens_total (1 ")
