"""The example notebook runs, and its committed outputs are those that it gives."""

from __future__ import annotations

import warnings
from typing import Any

import nbformat
import pytest
from export import notebooks


@pytest.fixture(scope="module")
def again() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the libraries that run notebooks
        return notebooks.executed()


def test_it_runs_and_says_what_is_committed(again: Any) -> None:
    committed = nbformat.read(notebooks.NOTEBOOK, as_version=4)
    assert notebooks.plain(notebooks.said(again)) == notebooks.plain(notebooks.said(committed))
    assert "1,164 steps, problems: []" in notebooks.said(committed)
    outputs = [output for cell in committed.cells for output in cell.get("outputs", ())]
    pictures = [output for output in outputs if "image/png" in output.get("data", {})]
    assert len(pictures) == 1


def test_it_is_small_and_names_no_machine() -> None:
    text = notebooks.NOTEBOOK.read_text()
    assert len(text) < 100_000
    assert "/tmp/" not in text
