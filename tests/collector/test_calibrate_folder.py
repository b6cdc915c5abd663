"""What a state folder may do to a calibration: not be written, not be looked into, or be written by others."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from made_calibrations import UNIX_S, h100_calibration

from rooflens.collector.calibrate.store import check_folder, find, load, path_of, save
from rooflens.records import RooflensError

CALIBRATION = h100_calibration()
IDENTITY = CALIBRATION.identity
NOW_S, VERSIONS = UNIX_S, {"torch": "2.11.0"}


def test_what_cannot_be_kept_is_known_before_it_is_measured(tmp_path: Path) -> None:
    check_folder(tmp_path / "state")
    assert os.listdir(tmp_path) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(RooflensError, match=r"could not be written to .*Not a directory; set ROOFLENS_STATE_DIR"):
        check_folder(tmp_path / "file")


def test_a_folder_in_its_place_is_named(tmp_path: Path) -> None:
    path_of(IDENTITY, tmp_path).mkdir(parents=True)
    with pytest.raises(RooflensError, match=r"json is a folder, where the calibration belongs: remove it"):
        save(CALIBRATION, tmp_path)
    assert "is no file" in (find(IDENTITY, tmp_path, NOW_S, VERSIONS).problem or "")


def test_what_could_not_be_read_again_is_not_written(tmp_path: Path) -> None:
    for changes, expected in (({"flags": ("a\tb",)}, "flags is no line"), ({"took_s": float("nan")}, "JSON compliant")):
        with pytest.raises(RooflensError, match=f"what was measured cannot be: .*{expected}.*rooflens calibrate"):
            save(replace(CALIBRATION, **changes), tmp_path)
    assert os.listdir(tmp_path) == []


def test_a_file_that_others_may_have_written_is_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(CALIBRATION, tmp_path)
    path.chmod(0o666)
    assert "others may have written it" in (find(IDENTITY, tmp_path, NOW_S, VERSIONS).problem or "")
    assert load(path) == CALIBRATION  # whoever names it knows it
    path.chmod(0o600)
    assert find(IDENTITY, tmp_path, NOW_S, VERSIONS).calibration == CALIBRATION
    fstat = os.fstat
    monkeypatch.setattr(os, "fstat", lambda number: os.stat_result((*fstat(number)[:4], 4711, *fstat(number)[5:])))
    assert "others may have written it" in (find(IDENTITY, tmp_path, NOW_S, VERSIONS).problem or "")


def test_a_folder_that_may_not_be_looked_into_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lstat(path: Path) -> os.stat_result:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "lstat", lstat)
    found = find(IDENTITY, tmp_path, NOW_S, VERSIONS)
    assert found.problem == f"{tmp_path / 'calibrations'}: permission denied; check its owner and mode"
