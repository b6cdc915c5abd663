"""What an engine does not say, or says wrongly, of itself and its steps."""

from __future__ import annotations

from pathlib import Path

import pytest

from rooflens.adapters.recorder import Recorder
from rooflens.pipeline import read_ring
from rooflens.records import RooflensError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "rings"


def test_an_unknown_fact_is_one_warning_and_the_rest_is_recorded(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = Recorder("test", folder=folder, bogus=1, kv_blocks=7)
    with recorder.step(contexts=[1]):
        pass
    recorder.close()
    (warning,) = caplog.messages
    assert "no fact 'bogus'" in warning
    assert recorder.path is not None
    recording = read_ring(recorder.path)
    assert recording.info is not None
    assert recording.info.kv_blocks == 7
    assert len(recording.steps) == 1
    with pytest.raises(RooflensError, match="no fact 'bogus'"):
        Recorder("test", folder=folder, strict=True, bogus=1)
    assert len(list(folder.iterdir())) == 1


def test_durations_that_are_not_told_are_not_known(folder: Path) -> None:
    recorder = Recorder("test", folder=folder, strict=True)
    with recorder.step(contexts=[1]):
        pass
    with recorder.step(contexts=[2], schedule_s=0.5) as step:
        step.done()
    recorder.close()
    assert recorder.path is not None
    table = read_ring(recorder.path).steps
    for name in ("schedule_s", "update_s"):
        assert table.where(name).tolist() == [False, True]
    assert table["schedule_s"][1] == 0.5


@pytest.mark.parametrize(
    ("facts", "kept"),
    [
        ({"invalid_draft_tokens": 2}, 1),
        ({"invalid_draft_tokens": 3}, 0),
        ({"unjudged_draft_tokens": 4}, 1),
        ({"unjudged_draft_tokens": 5}, 0),
    ],
)
def test_more_drafts_than_there_are_is_no_step(folder: Path, facts: dict[str, int], kept: int) -> None:
    """Six drafts, two of them rejected: of these two a grammar may have ruled out, the other four may be unjudged."""
    recorder = Recorder("test", folder=folder, strict=True)
    with recorder.step(contexts=[1, 1], drafts=[3, 3], **facts) as step:
        step.rejected = [1, 1]
    recorder.close()
    assert recorder.path is not None
    assert (len(read_ring(recorder.path).steps), recorder.failures) == (kept, 1 - kept)
