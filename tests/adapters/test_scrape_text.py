"""The text of a page: what it must read, with the Prometheus client's own parser as the judge."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from scrape_pages import PAGES, recorded

from rooflens.adapters.scrape.names import names_of
from rooflens.adapters.scrape.text import LONGEST_LABELS, MOST_COMPLAINTS, Samples, read_samples

NAMES = ("vllm:a", "vllm_a", "b", "vllm:a_total")
Reading = list[tuple[str, dict[str, str], float | str]]

label_values = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r"), max_size=8) | st.text(
    '\\"n{}, =#', max_size=8
)
labels = st.dictionaries(st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]{0,5}", fullmatch=True), label_values, max_size=3)
values = st.one_of(
    st.floats().map(repr),
    st.sampled_from(["NaN", "-nan", "nan", "+Inf", "-Inf", "Inf", "1e3", "-1.5E-7", "00", ".5", "5.", "+4"]),
    st.integers().map(str),
)
blanks = st.sampled_from([" ", "\t", "  "])
stamps = st.sampled_from(["", " 1395066363000", " -3982045"])


def escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


@st.composite
def lines(draw: st.DrawFn) -> str:
    kind = draw(st.integers(0, 9))
    name = draw(st.sampled_from((*NAMES, "other", "vllm:a_bucket")))
    if kind == 0:
        comments = ("", "# ", '# any comment: {"x"} 1', f"# HELP {name} some: text", f"# TYPE {name} gauge")
        return draw(st.sampled_from(comments))
    chosen = draw(labels)
    inner = ",".join(f'{key}="{escaped(value)}"' for key, value in chosen.items())
    inner += "," if inner and draw(st.booleans()) else ""
    braces = f"{{{inner}}}" if chosen or draw(st.booleans()) else ""
    return name + braces + draw(blanks) + draw(values) + draw(stamps) + draw(st.sampled_from(["", " "]))


def comparable(value: float) -> float | str:
    return "nan" if math.isnan(value) else float(value)  # the client keeps whole numbers that no float holds


def ours(found: Samples) -> Reading:
    assert found.complaints == ()
    return [(sample.name, dict(sample.labels), comparable(sample.value)) for sample in found.samples]


def theirs(text: str) -> Reading:
    families = text_string_to_metric_families(text)
    samples = [sample for family in families for sample in family.samples if sample.name in NAMES]
    return [(sample.name, sample.labels, comparable(sample.value)) for sample in samples]


def ordered(reading: Reading) -> Reading:
    return sorted(reading, key=lambda entry: (entry[0], sorted(entry[1].items()), str(entry[2])))


@settings(max_examples=100, deadline=None)
@given(st.lists(lines(), max_size=6))
def test_reads_as_the_client_of_prometheus_does(page: list[str]) -> None:
    text = "\n".join([*page, ""])
    assert ordered(ours(read_samples(text, NAMES))) == ordered(theirs(text))


@settings(max_examples=100, deadline=None)
@given(st.text(st.sampled_from('vllm:a{}="\\, \t1.e#\n\r'), max_size=60))
def test_no_text_breaks_it(text: str) -> None:
    read_samples(text, NAMES)


@pytest.mark.parametrize("name", sorted(file.stem for file in PAGES.glob("*.txt")))
def test_recorded_pages_read_as_by_the_client_of_prometheus(name: str) -> None:
    text, _ = recorded(name)
    wanted = names_of("vllm").meanings
    expected = [s for family in text_string_to_metric_families(text) for s in family.samples if s.name in wanted]
    assert len(expected) > 20
    assert ordered(ours(read_samples(text, wanted))) == ordered([(s.name, s.labels, s.value) for s in expected])


def test_a_page_that_the_client_writes() -> None:
    registry = CollectorRegistry()
    Gauge("vllm:num_requests_running", "Running: now", ["model_name"], registry=registry).labels('a"\\\n').set(3)
    Counter("vllm:prompt_tokens", "tokens", registry=registry).inc(7)
    Histogram("vllm:iteration_tokens_total", "tokens", registry=registry).observe(2)
    found = read_samples(generate_latest(registry).decode(), names_of("vllm").meanings)
    assert {(s.name, s.labels, s.value) for s in found.samples} == {
        ("vllm:num_requests_running", (("model_name", 'a"\\\n'),), 3),
        ("vllm:prompt_tokens_total", (), 7),
        ("vllm:iteration_tokens_total_count", (), 1),
        ("vllm:iteration_tokens_total_sum", (), 2),
    }
    assert found.announced


def test_line_ends_of_dos() -> None:
    found = read_samples('vllm:a{x="1"} 2\r\nb 3\r\n', NAMES)
    assert [sample[1:] for sample in found.samples] == [((("x", "1"),), 2), ((), 3)]


def test_comments_with_colons_over_samples_with_underscores() -> None:
    page = '# HELP vllm:a text\n# TYPE vllm:a gauge\nvllm_a{model_name="m"} 4.0\n'
    found = read_samples(page, NAMES)
    assert [(s.name, s.value) for s in found.samples] == [("vllm_a", 4)]
    assert found.announced


@pytest.mark.parametrize(
    "line",
    ["vllm:a", "vllm:a x", "vllm:a 1_000", "vllm:a 0x10", 'vllm:a{x="1" 2', 'vllm:a{x="1} 2', "vllm:a{x=1} 2",
     'vllm:a{x="1"y="2"} 2', 'vllm:a{x="1",x="2"} 2', "vllm:a 1 2 3", "vllm:a 1 1.5", 'vllm:a{=""} 1', "vllm:a{,} 1"],
)  # fmt: skip
def test_garbage_is_complained_about_and_left_out(line: str) -> None:
    found = read_samples(f"b 1\n{line}\nb 2\n", NAMES)
    assert [sample.value for sample in found.samples] == [1, 2]
    assert found.complaints == ("vllm:a: 1 lines that cannot be read",)


def test_labels_that_are_too_long_are_called_so() -> None:
    found = read_samples('vllm:a{x="' + "y" * LONGEST_LABELS + '"} 1\nvllm:a ?\n', NAMES)
    long, broken = found.complaints
    assert long.startswith("vllm:a: 1 lines with labels of more than 8,192 characters")
    assert "--served-model-name" in long
    assert broken == "vllm:a: 1 lines that cannot be read"


def test_what_every_process_tells_announces_no_engine() -> None:
    wanted = names_of("vllm").meanings
    assert not read_samples("# TYPE process_start_time_seconds gauge\n", wanted).announced
    assert read_samples("# TYPE vllm:num_requests_running gauge\n", wanted).announced


def test_complaints_are_few_and_repeat_nothing_of_the_page() -> None:
    many = [f"vllm:n{i}" for i in range(50)]
    found = read_samples("\n".join(f'{name}{{secret="s3cret"}} ?' for name in many), many)
    assert len(found.complaints) == MOST_COMPLAINTS
    assert "s3cret" not in "".join(found.complaints)
