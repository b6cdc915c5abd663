"""Pages of metrics, held against the client library's own parsers: an oracle that shares no code with the renderer."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_snapshot import STARTED_UNIX_S, made_samples, made_snapshot
from prometheus_client import Metric as Family
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from rooflens import catalogue
from rooflens.catalogue import CATALOGUE
from rooflens.exporters.prometheus import MOST_LABEL_CHARACTERS, render
from rooflens.live_records import Snapshot
from rooflens.metric_records import HistogramValue, Kind, Sample

Series = tuple[str, frozenset[tuple[str, str]]]
HOSTILE = (
    'a"b', "a\\b", "a\nb", "a\\nb", 'ends in \\"', "\\", '"', '"} 1\nrooflens_steps_total{engine="0"} 9', "",
    "Modell-Größe-模型", "\U0001f600", "a\tb", "a\rb", "\x1b[31mred", "a\u2028b", "\x00", "\ud800", "# HELP x", "=,{}",
)  # fmt: skip


def snapshot_of(samples: Iterable[Sample]) -> Snapshot:
    return dataclasses.replace(made_snapshot(0), samples=tuple(samples))


def parse(page: bytes, openmetrics: bool) -> list[Family]:
    return list((parse_openmetrics if openmetrics else parse_text)(page.decode("utf-8")))


def series(families: Iterable[Family]) -> dict[Series, float]:
    """Every series of a page; fails where one is there twice."""
    found: dict[Series, float] = {}
    for family in families:
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in found, f"twice: {key}"
            found[key] = sample.value
    return found


def expected(samples: Iterable[Sample], openmetrics: bool) -> dict[Series, float]:
    """What the samples amount to, series by series; the first of equal ones counts."""
    found: dict[Series, float] = {}
    for sample in samples:
        labels = dict(zip(sample.metric.labels, sample.labels, strict=True))
        for suffix, more, value in _lines(sample, openmetrics):
            found.setdefault((suffix, frozenset({**labels, **more}.items())), value)
    return found


def _lines(sample: Sample, openmetrics: bool) -> Iterator[tuple[str, dict[str, str], float]]:
    name = sample.metric.name
    if isinstance(sample.value, HistogramValue):
        bounds = [*map(str, sample.metric.buckets), "+Inf"]
        for index, bound in enumerate(bounds):
            yield f"{name}_bucket", {"le": bound}, float(sum(sample.value.counts[: index + 1]))
        yield f"{name}_count", {}, float(sum(sample.value.counts))
        yield f"{name}_sum", {}, sample.value.total
    else:
        yield name, {}, sample.value
    if openmetrics and sample.created_unix_s is not None:
        yield f"{name.removesuffix('_total')}_created", {}, sample.created_unix_s


@pytest.mark.parametrize("openmetrics", [False, True])
def test_a_page_says_what_the_samples_say(openmetrics: bool) -> None:
    snapshot = made_snapshot(2)
    families = parse(render(snapshot, openmetrics), openmetrics)
    assert series(families) == expected(snapshot.samples, openmetrics)
    kinds = {metric.family: metric.kind for metric in CATALOGUE}
    assert [family.name for family in families] == [
        metric.name if metric.kind is Kind.INFO and not openmetrics else metric.family for metric in CATALOGUE
    ]
    for family in families:
        kind = kinds[family.name.removesuffix("_info")]
        assert family.type == (Kind.GAUGE if kind is Kind.INFO and not openmetrics else kind)
        assert family.documentation == next(m.help for m in CATALOGUE if m.family == family.name.removesuffix("_info"))


def test_creation_times_are_said_in_openmetrics_only() -> None:
    snapshot = made_snapshot(1)
    assert b"_created" not in render(snapshot)
    page = render(snapshot, openmetrics=True)
    created = {value for (name, _), value in series(parse(page, True)).items() if name.endswith("_created")}
    assert created == {STARTED_UNIX_S}
    assert page.endswith(b"\n# EOF\n")
    units = {family.name: family.unit for family in parse(page, True)}
    assert units == {metric.family: metric.unit for metric in CATALOGUE}


@pytest.mark.parametrize("openmetrics", [False, True])
@pytest.mark.parametrize("value", HOSTILE)
def test_a_hostile_label_stays_one_value_of_one_series(value: str, openmetrics: bool) -> None:
    samples = [Sample(catalogue.WAITING, (value, "0"), 7.0), Sample(catalogue.WAITING, ("other", "0"), 8.0)]
    found = series(parse(render(snapshot_of(samples), openmetrics), openmetrics))
    assert sorted(found.values()) == [7.0, 8.0]
    (name,) = (dict(labels)["model_name"] for (_, labels), value in found.items() if value == 7.0)
    if value.isprintable() or value == "a\nb":
        assert name == value
    assert not any(ord(character) < 32 for character in name.replace("\n", ""))


@pytest.mark.parametrize("openmetrics", [False, True])
def test_long_labels_are_cut_and_stay_apart(openmetrics: bool) -> None:
    long = "x" * 10_000
    samples = [Sample(catalogue.WAITING, (long + end, "0"), float(end)) for end in "123"]
    page = render(snapshot_of(samples), openmetrics)
    assert len(series(parse(page, openmetrics))) == 3
    assert max(map(len, page.splitlines())) < MOST_LABEL_CHARACTERS + 150
    assert page == render(snapshot_of(samples), openmetrics)


@pytest.mark.parametrize("openmetrics", [False, True])
def test_a_series_given_twice_is_written_once(openmetrics: bool) -> None:
    samples = made_samples([("m", "0")])
    twice = [*samples, *made_samples([("m", "0")], number=2)]
    assert series(parse(render(snapshot_of(twice), openmetrics), openmetrics)) == expected(samples, openmetrics)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_known_is_absent(value: float) -> None:
    samples = [Sample(catalogue.MBU, ("m", "0"), value), Sample(catalogue.MBU, ("m", "1"), 0.5)]
    assert list(series(parse(render(snapshot_of(samples)), False)).values()) == [0.5]


def test_numbers_of_numpy_are_written_as_numbers() -> None:
    histogram = HistogramValue(tuple(np.ones(30, np.int64)), np.float64(1.5))
    samples = [
        Sample(catalogue.STEPS, ("m", "0", "decode"), np.float64(3.0), np.float64(1.0)),
        Sample(catalogue.STEP_SECONDS, ("m", "0", "decode"), histogram, np.float64(1.0)),
    ]
    for openmetrics in (False, True):
        page = render(snapshot_of(samples), openmetrics)
        assert series(parse(page, openmetrics)) == expected(samples, openmetrics)


def test_an_empty_snapshot_is_a_page() -> None:
    assert render(snapshot_of(())) == b""
    assert render(snapshot_of(()), openmetrics=True) == b"# EOF\n"


@pytest.mark.parametrize(
    "sample",
    [
        Sample(catalogue.WAITING, ("m",), 1.0),
        Sample(catalogue.STEP_SECONDS, ("m", "0", "decode"), HistogramValue((1, 2), 0.1)),
    ],
)
def test_a_sample_that_does_not_fit_its_metric_is_refused(sample: Sample) -> None:
    with pytest.raises(ValueError, match=r"argument 2 is shorter|2 counts for 29 bounds"):
        render(snapshot_of([sample]))


def test_counters_do_not_go_down_from_page_to_page() -> None:
    before, after = (series(parse(render(made_snapshot(1, number), True), True)) for number in (3, 4))
    counted = ("_total", "_bucket", "_count", "_sum", "_created")
    assert before.keys() == after.keys()
    assert all(after[key] >= value for key, value in before.items() if key[0].endswith(counted))
    assert any(after[key] > value for key, value in before.items())


names = st.text(st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp")) | st.just("\n"), max_size=60)
numbers = st.floats(allow_nan=False, allow_infinity=False)
counts = st.lists(st.integers(0, 1 << 50), min_size=30, max_size=30).map(tuple)


@st.composite
def any_sample(draw: st.DrawFn) -> Sample:
    metric = draw(st.sampled_from(CATALOGUE))
    labels = tuple(draw(st.sampled_from(metric.values[n]) if n in metric.values else names) for n in metric.labels)
    if metric.kind is Kind.HISTOGRAM:
        return Sample(metric, labels, HistogramValue(draw(counts), draw(st.floats(0, 1e12))), draw(st.floats(1, 1e12)))
    if metric.kind is Kind.COUNTER:
        return Sample(metric, labels, draw(st.floats(0, 1e300)), draw(st.floats(1, 1e12)))
    return Sample(metric, labels, 1.0 if metric.kind is Kind.INFO else draw(numbers))


@settings(max_examples=60, deadline=None)
@given(st.lists(any_sample(), max_size=8), st.booleans())
def test_any_samples_come_back_from_the_page(samples: list[Sample], openmetrics: bool) -> None:
    page = render(snapshot_of(samples), openmetrics)
    assert series(parse(page, openmetrics)) == expected(samples, openmetrics)
