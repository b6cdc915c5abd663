"""In CI a test that does not run has not passed: skips are failures there, but for those that need a GPU."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))
# What somebody calibrated on this machine is no part of a test; a path below a file is there for nobody.
os.environ["ROOFLENS_STATE_DIR"] = str(Path(__file__) / "state")
os.environ["ROOFLENS_KEEP_STATE"] = "false"  # the tests of what a sidecar keeps give it a folder


def _in_ci() -> bool:
    return os.environ.get("CI", "").lower() in ("1", "true")


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    return report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)


if not _in_ci():  # where hypothesis has a profile of its own, without deadlines and always the same
    settings.register_profile("shared machine", deadline=None)
    settings.load_profile("shared machine")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    expected_failure = hasattr(report, "wasxfail")
    if report.skipped and not expected_failure and _in_ci() and not item.get_closest_marker("gpu"):
        report.outcome = "failed"
        report.longrepr = f"skipped in CI, where only gpu tests may be: {_reason(report)}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if report.outcome == "skipped" and _in_ci():
        report.outcome = "failed"
        report.longrepr = f"whole module skipped in CI, import what it needs in a fixture: {_reason(report)}"
    return report
