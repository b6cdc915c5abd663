"""The catalogue is what Prometheus accepts: names, units, families, labels, and PromQL that parses."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from made_snapshot import made_snapshot

from rooflens import catalogue, device_metrics, trace_metrics
from rooflens.catalogue import CATALOGUE
from rooflens.exporters.prometheus import render
from rooflens.metric_records import OPEN_LABELS, Kind, Metric

UNITS = (
    "seconds", "bytes", "ratio", "bytes_per_second", "flops_per_second", "hertz", "watts", "joules", "celsius", "",
)  # fmt: skip
SAMPLE_SUFFIXES = ("_bucket", "_count", "_sum", "_created", "_total", "_info")


def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("promtool is not here: apt install prometheus")
    return found


def test_promtool_finds_nothing_wrong_with_a_page() -> None:
    page = render(made_snapshot(2))
    run = subprocess.run([promtool(), "check", "metrics"], input=page, capture_output=True, check=False)
    assert (run.returncode, run.stdout + run.stderr) == (0, b"")


def test_promtool_would_find_something() -> None:
    page = render(made_snapshot(1)).replace(b"rooflens_loop_seconds_total", b"rooflens_loop_milliseconds_count")
    assert (
        subprocess.run([promtool(), "check", "metrics"], input=page, capture_output=True, check=False).returncode != 0
    )


def expressions() -> list[str]:
    """Every piece of PromQL in the catalogue: what is in backticks there."""
    return [text for metric in CATALOGUE for text in re.findall(r"`([^`]+)`", metric.reading)]


def test_the_promql_parses_and_names_only_metrics_of_the_catalogue(tmp_path: Path) -> None:
    rules = "groups:\n- name: readings\n  rules:\n"
    for number, text in enumerate(expressions()):
        rules += f"  - record: reading:number{number}\n    expr: |\n      {text}\n"
    (tmp_path / "rules.yml").write_text(rules)
    run = subprocess.run([promtool(), "check", "rules", tmp_path / "rules.yml"], capture_output=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    buckets = {f"{metric.name}_bucket" for metric in CATALOGUE if metric.kind is Kind.HISTOGRAM}
    named = {name for metric in CATALOGUE for name in re.findall(r"rooflens_\w+", metric.reading)}
    assert named <= {metric.name for metric in CATALOGUE} | buckets
    assert len(expressions()) > 20


def test_every_constant_is_in_the_catalogue_once() -> None:
    declared = [value for module in (catalogue, device_metrics, trace_metrics) for value in vars(module).values()]
    constants = [value for value in declared if isinstance(value, Metric)]
    assert sorted(metric.name for metric in CATALOGUE) == sorted(metric.name for metric in constants)
    families = [metric.family for metric in CATALOGUE]
    assert len(set(families)) == len(families)
    # No sample of one metric may read as a sample of another.
    written = [f"{metric.family}{suffix}" for metric in CATALOGUE for suffix in SAMPLE_SUFFIXES]
    assert set(written).isdisjoint(metric.name for metric in CATALOGUE if metric.kind is Kind.GAUGE)


@pytest.mark.parametrize("metric", CATALOGUE, ids=lambda metric: metric.name)
def test_names_units_and_labels(metric: Metric) -> None:
    assert re.fullmatch(r"rooflens_[a-z][a-z0-9_]*[a-z]", metric.name)
    assert metric.unit in UNITS
    assert metric.family.endswith(metric.unit)
    assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER)
    assert metric.name.endswith("_info") == (metric.kind is Kind.INFO)
    assert bool(metric.buckets) == (metric.kind is Kind.HISTOGRAM)
    assert list(metric.buckets) == sorted(set(metric.buckets))
    assert metric.help.endswith(".")
    assert metric.reading.endswith(".")
    assert set(metric.labels) <= set(metric.values) | set(OPEN_LABELS)
    assert set(metric.values) <= set(metric.labels)
    assert {"le", "instance", "job", "pid"}.isdisjoint(metric.labels)
    assert all(len(set(values)) == len(values) > 0 for values in metric.values.values())
