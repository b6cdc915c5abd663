"""A real Prometheus and real sidecars: what it stores is what the engines did, whatever is restarted meanwhile.

The truth is what the engines and the page tell of themselves, in their own logs. No stored value may ever be above it.
A sidecar reads once a second and is scraped once a second, so values are behind it, LAG_S at most but for moments when
the machine is busy with other things; rates are therefore medians.
"""

from __future__ import annotations

import math
import re
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest
from prom_engines import BATCH, DEVICES, Beat
from prom_harness import TEXT, Sidecar, fenced
from prom_page import MODEL
from prom_world import CROWD, CROWD_ENGINES, CROWD_RATE, HARDWARE, PART_S, RATE, REBORN, STEADY, World, done_by

from rooflens.catalogue import CATALOGUE
from rooflens.device_metrics import ENGINE_DEVICE
from rooflens.metric_records import OPEN_LABELS, Kind, Metric

ENGINES = CROWD_ENGINES + 4  # as the sidecars tell of them: two see the steady one
LAG_S = 3.0  # two turns and a scrape, each a second
RATE_ERROR = 0.15  # of rate() over a few seconds: it sees whole turns of a second
PAGE_RATE_ERROR = 0.35  # five seconds hold four to six reads of a page, each a second apart and told a turn later
MOST_RATE = 2.0  # over the real one, in any 10 s: a ring that was counted again would be more
PAGE = Path(__file__).parents[2] / "docs" / "prometheus.md"

Points = list[tuple[float, float]]


def points(world: World, sidecar: Sidecar, selector: str) -> dict[tuple[str, ...], Points]:
    """The stored samples by the labels that are ours (but for the model), in the order of the metric's labels."""
    name, _, labels = selector.partition("{")
    rows = world.prometheus.samples(f'{name}{{instance="{sidecar.address}",{labels or "}"}')
    ours = ("__name__", "job", "instance", "model_name")
    return {tuple(value for key, value in sorted(series.items()) if key not in ours): found for series, found in rows}


def one(world: World, sidecar: Sidecar, selector: str) -> Points:
    """The stored samples of the only series that is selected."""
    (found,) = points(world, sidecar, selector).values()
    return found


def tokens(model: str) -> str:
    return f'rooflens_tokens_total{{kind="generated",model_name="{model}"}}'


def by(world: World, model: str, unix_s: float) -> Beat:
    return done_by(world.logs[model], unix_s)


def check_within(world: World, model: str, found: Points, counted_from: int) -> None:
    """No value is above what the engine had done since ``counted_from`` tokens, and most are at most LAG_S behind."""
    too_high = [(at, value) for at, value in found if value > by(world, model, at).tokens + BATCH - counted_from]
    assert too_high == []
    behind = [value < by(world, model, at - LAG_S).tokens - counted_from for at, value in found]
    assert sum(behind) < len(behind) / 2


def parts(found: Points, border_unix_s: float) -> tuple[Points, Points]:
    return [p for p in found if p[0] < border_unix_s], [p for p in found if p[0] >= border_unix_s]


def median(world: World, rate: str, unix_s: float) -> list[float]:
    """The median of the last seconds of each series of a rate over 5 s."""
    rows = world.prometheus.query(f"quantile_over_time(0.5, ({rate})[{PART_S - 5}s:1s])", unix_s)
    return [value for _, value in rows]


def rises(found: Points) -> bool:
    return all(before[1] <= after[1] for before, after in pairwise(found))


# What Prometheus takes in.


def test_every_scrape_of_a_running_sidecar_is_taken(world: World) -> None:
    for sidecar in (world.keeper, world.second, world.other):
        assert one(world, sidecar, "up")[-1][1] == 1
        read, kept = (one(world, sidecar, f"scrape_samples_{what}") for what in ("scraped", "post_metric_relabeling"))
        assert read == kept
    log = world.prometheus.log.read_text()
    assert "level=debug" in log
    assert re.findall(r".*(?i:append failed|duplicate|out.of.order|error on ingesting).*", log) == []


def test_openmetrics_is_what_it_reads(world: World) -> None:
    """Prometheus 2.42 asks for OpenMetrics: only there are the kind info, units and creation times."""
    known = world.prometheus.metadata(world.other.address)
    _, text = world.pages[world.other.address]
    shown = {metric for metric in CATALOGUE if re.search(rf"^{metric.name}(_bucket)?[{{ ]", text, re.MULTILINE)}
    assert shown == set(CATALOGUE)
    for metric in CATALOGUE:
        told = known.get(metric.family)
        assert told == (str(metric.kind), metric.help, metric.unit) or (told is None and metric.kind is Kind.GAUGE)


@pytest.mark.parametrize("which", ["second", "other"])
def test_promtool_has_nothing_to_say(world: World, which: str) -> None:
    text, _ = world.pages[getattr(world, which).address]
    checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")
    lines = [line.split("{")[0].split()[0] for line in text.splitlines() if not line.startswith("#")]
    for name in {re.sub(r"(_bucket|_count|_sum)$", "", line) for line in lines}:
        assert f"\n# HELP {name} " in f"\n{text}"
        assert f"\n# TYPE {name} " in f"\n{text}"


def test_labels_are_closed(world: World) -> None:
    """No pid, no ring, no path, no id: nothing that would make a new series of an old engine."""
    metrics = {metric.name: metric for metric in CATALOGUE}
    of_family = {f"{metric.family}_created": metric for metric in CATALOGUE}
    of_family |= {
        f"{m.name}{part}": m for m in CATALOGUE if m.kind is Kind.HISTOGRAM for part in ("_bucket", "_sum", "_count")
    }
    rows = world.prometheus.series('{__name__=~"rooflens_.*"}')
    assert len(rows) > 500
    for row in rows:
        metric = (metrics | of_family)[row.pop("__name__")]
        del row["instance"], row["job"]
        bucket = row.pop("le", None)
        assert set(row) == set(metric.labels), metric.name
        assert bucket is None or float(bucket) in (*metric.buckets, float("inf"))
        for label, value in row.items():
            assert value in metric.values.get(label, (value,)), (metric.name, label, value)
            assert "/" not in value
            assert ".ring" not in value
    values = {label: {row[label] for row in rows if label in row} for label in OPEN_LABELS}
    assert values["model_name"] == {STEADY, CROWD, REBORN, MODEL}
    assert values["engine"] == {"0", *(f"0.{number}" for number in range(1, CROWD_ENGINES))}
    assert values["hardware"] == {HARDWARE}
    assert values["engine_kind"] <= {"beat-engine", "vllm"}
    assert values["device_uuid"] == set(DEVICES[REBORN])


def test_creation_times_are_those_of_the_sums(world: World) -> None:
    created = one(world, world.keeper, f'rooflens_tokens_created{{kind="generated",model_name="{STEADY}"}}')
    first, then = ({value for _, value in part} for part in parts(created, world.keeper.started_unix_s))
    assert len(first) == len(then) == 1
    assert min(first) < world.restarts_unix_s < world.keeper.started_unix_s <= min(then) <= world.watched_again_unix_s


# Rates and sums.


@pytest.mark.parametrize(
    ("model", "expression", "expected"),
    [
        (STEADY, 'rate(rooflens_tokens_total{kind="generated",%s}[5s])', RATE * BATCH),
        (STEADY, "sum without (kind) (rate(rooflens_steps_total{%s}[5s]))", RATE),
        (STEADY, "rate(rooflens_step_requests_total{%s}[5s])", RATE * BATCH),
        (REBORN, 'rate(rooflens_tokens_total{kind="generated",%s}[5s])', RATE * BATCH),
        (MODEL, 'rate(rooflens_tokens_total{kind="generated",%s}[5s])', RATE * BATCH),
        (MODEL, "sum without (kind) (rate(rooflens_steps_total{%s}[5s]))", RATE),
    ],
)
def test_rates_are_right(world: World, model: str, expression: str, expected: float) -> None:
    selected = expression % f'model_name="{model}",instance!="{world.keeper.address}"'
    for at in (world.restarts_unix_s, world.ending_unix_s):
        error = PAGE_RATE_ERROR if model == MODEL else RATE_ERROR
        assert median(world, selected, at) == [pytest.approx(expected, rel=error)]


def test_what_a_device_moves_and_spends_is_right(world: World) -> None:
    """The device that is played moves a tenth of 1 TB/s and draws 430 W at its power limit, all the time."""
    held = 'throttled_seconds_total{reason="power_cap"}'
    for metric, each_s in (("dram_bytes_total", 1e11), ("energy_joules_total", 430.0), (held, 1.0)):
        rates = median(world, f"rate(rooflens_device_{metric}[5s])", world.ending_unix_s)
        assert rates == [pytest.approx(each_s, rel=RATE_ERROR)], metric
    engines = asked(world, expressions(ENGINE_DEVICE.reading)[0])
    assert engines == [pytest.approx(1e11, rel=RATE_ERROR)]


def test_the_parts_of_the_time_add_up_to_it(world: World) -> None:
    rings = f'model_name!="{MODEL}"'
    shares = median(
        world, f"sum without (part) (rate(rooflens_time_seconds_total{{{rings}}}[5s]))", world.ending_unix_s
    )
    assert shares == [pytest.approx(1, rel=RATE_ERROR)] * (3 + CROWD_ENGINES)
    for sidecar, model in ((world.second, STEADY), (world.other, CROWD)):
        selector = f'rooflens_time_seconds_total{{model_name="{model}",engine="0"}}'
        watched = sum(found[-1][1] - found[0][1] for found in points(world, sidecar, selector).values())
        at = one(world, sidecar, f'rooflens_engine_up{{model_name="{model}",engine="0"}}')
        lived = max(t for t, value in at if value == 1) - at[0][0]
        assert watched == pytest.approx(lived, abs=LAG_S)


# Restarts.


def busiest(world: World, sidecar: Sidecar, model: str, kept_s: float) -> float:
    """The highest rate of generated tokens that 10 s of the last ``kept_s`` seconds before the end ever show."""
    selector = tokens(model).replace("}", f',instance="{sidecar.address}"}}')
    return world.prometheus.value(f"max_over_time(rate({selector}[10s])[{kept_s:.0f}s:1s])", world.ending_unix_s)


def test_a_sidecar_that_was_killed_counts_no_step_twice(world: World) -> None:
    """What is missing is what was done while it was away; nothing that was in the ring already is counted."""
    found = one(world, world.keeper, tokens(STEADY))
    for part in parts(found, world.keeper.started_unix_s):
        assert rises(part)
        created = one(world, world.keeper, f'rooflens_tokens_created{{kind="generated",model_name="{STEADY}"}}')
        began = next(value for at, value in created if at == part[0][0])
        check_within(world, STEADY, part, by(world, STEADY, began - 1).tokens)
    span = world.ending_unix_s - world.watched_unix_s
    selector = tokens(STEADY).replace("}", f',instance="{world.keeper.address}"}}')
    increase = world.prometheus.value(f"increase({selector}[{span:.0f}s])", world.ending_unix_s)
    truth = by(world, STEADY, world.ending_unix_s).tokens - by(world, STEADY, world.watched_unix_s).tokens
    away = by(world, STEADY, world.watched_again_unix_s).tokens - by(world, STEADY, world.restarts_unix_s).tokens
    assert truth - away - LAG_S * RATE * BATCH <= increase <= truth
    assert busiest(world, world.keeper, STEADY, span) <= RATE * BATCH * MOST_RATE


def test_two_sidecars_read_the_same_rings(world: World) -> None:
    found = one(world, world.second, tokens(STEADY))
    created = one(world, world.second, f'rooflens_tokens_created{{kind="generated",model_name="{STEADY}"}}')
    assert rises(found)
    check_within(world, STEADY, found, by(world, STEADY, created[0][1] - 1).tokens)
    for at in (world.restarts_unix_s, world.ending_unix_s):
        assert median(world, f"rate({tokens(STEADY)}[5s])", at) == [pytest.approx(RATE * BATCH, rel=RATE_ERROR)] * 2


def test_an_engine_that_was_restarted_goes_on_under_its_label(world: World) -> None:
    span = world.ending_unix_s - world.watched_unix_s
    series = points(world, world.other, tokens(REBORN))
    assert list(series) == [("0", "generated")]
    (found,) = series.values()
    assert rises(found)
    check_within(world, REBORN, found, 0)
    # One step may have been recorded when the engine was killed and not have got into its log.
    assert found[-1][1] - world.logs[REBORN][-1].tokens in (0, BATCH)
    restarts = one(world, world.other, f'rooflens_engine_restarts_total{{model_name="{REBORN}"}}')
    assert (restarts[0][1], restarts[-1][1]) == (0, 1)
    assert busiest(world, world.other, REBORN, span) <= RATE * BATCH * MOST_RATE


def test_a_server_whose_counters_begin_anew_goes_on(world: World) -> None:
    """A page is a reading now and then: what a server did between the last reading and its end nobody saw."""
    series = points(world, world.other, tokens(MODEL))
    assert list(series) == [("0", "generated")]
    (found,) = series.values()
    assert rises(found)
    served = list(world.page.served)
    lives = [[said for said in served if said.run == run] for run in (0, 1)]
    for at, value in found:
        seen = [[said for said in life if said.unix_s <= at] for life in lives]
        most = sum(life[-1].tokens for life in seen if life) - lives[0][0].tokens
        assert value <= most, (at, value, most)
    last = [said for said in lives[1] if said.unix_s <= found[-1][0] - LAG_S][-1]
    least = lives[0][-1].tokens - lives[0][0].tokens + last.tokens - lives[1][0].tokens
    assert found[-1][1] >= least


# Many engines of one name.


def test_engines_that_share_a_name_are_told_apart_and_counted_whole(world: World) -> None:
    series = points(world, world.other, tokens(CROWD))
    assert set(series) == {(label, "generated") for label in ("0", *(f"0.{n}" for n in range(1, CROWD_ENGINES)))}
    end = world.logs[CROWD][-1]
    for found in series.values():
        check_within(world, CROWD, found, 0)
        assert found[-1][1] == end.tokens
    contexts = points(world, world.other, f'rooflens_step_context_tokens_total{{model_name="{CROWD}"}}')
    assert [found[-1][1] for found in contexts.values()] == [end.context_tokens] * CROWD_ENGINES
    rates = median(world, f'sum(rate(rooflens_steps_total{{model_name="{CROWD}"}}[5s]))', world.ending_unix_s)
    assert rates == [pytest.approx(CROWD_ENGINES * CROWD_RATE, rel=RATE_ERROR)]


# What is to be asked.

# An alert's condition: mostly nothing fulfils it.
CONDITION = re.compile(r"\s*(?:[<>]=?|[!=]=)\s*[0-9.]+\s*$")
RANGE = re.compile(r"\[5m\]")


def expressions(text: str) -> list[str]:
    """What stands in backticks and is PromQL, not only a name."""
    return [quoted for quoted in re.findall(r"`([^`]+)`", text) if "rooflens_" in quoted and re.search(r"\W", quoted)]


def asked(world: World, expression: str) -> list[float]:
    """The values of an expression without its condition; with it, it has only to be understood."""
    world.prometheus.query(expression, world.ending_unix_s)
    recent = RANGE.sub(f"[{PART_S}s]", CONDITION.sub("", expression))
    return [value for _, value in world.prometheus.query(recent, world.ending_unix_s)]


@pytest.mark.parametrize("metric", [m for m in CATALOGUE if expressions(m.reading)], ids=lambda metric: metric.name)
def test_what_the_catalogue_says_to_ask_has_an_answer(world: World, metric: Metric) -> None:
    for expression in expressions(metric.reading):
        assert asked(world, expression), expression


QUERIES = fenced(PAGE, "promql")


@pytest.mark.parametrize("number", range(len(QUERIES)))
def test_what_the_page_says_to_ask_has_an_answer(world: World, number: int) -> None:
    values = asked(world, QUERIES[number])
    assert values
    assert [value for value in values if not math.isfinite(value)] == []


def test_the_answers_of_the_page_are_right(world: World) -> None:
    """Some of what the page puts in words, held against the words."""
    found = re.findall(r"\n([^\n]+):\n\n```promql\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(found) == len(QUERIES)

    def answers(words: str) -> list[float]:
        (query,) = (query for sentence, query in found if words in sentence)
        return asked(world, query)

    assert answers("Mean batch") == [pytest.approx(BATCH)] * ENGINES
    assert sum(answers("shares that add up to 1")) == pytest.approx(4)  # models
    assert answers("1 is the floor")
    assert min(answers("1 is the floor")) > 1
    assert answers("part of the memory bandwidth")
    assert all(0 < value < 1 for value in answers("part of the memory bandwidth"))
    assert sorted(answers("Which engines were restarted"))[-2:] == [pytest.approx(1, rel=0.2)] * 2


def test_the_scrape_config_of_the_page_is_one(tmp_path: Path) -> None:
    (config,) = fenced(PAGE, "yaml")
    file = tmp_path / "prometheus.yml"
    file.write_text(config)
    checked = subprocess.run(["promtool", "check", "config", str(file)], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr


# Bad surroundings.


def test_a_port_in_use_is_one_line(world: World, tmp_path: Path) -> None:
    other = Sidecar(tmp_path, str(tmp_path), port=world.second.port)
    assert other.process.wait(30) == 2
    (line,) = other.said().splitlines()
    assert str(world.second.port) in line
    assert "a rooflens serves at" in line
    assert world.second.page(TEXT)
