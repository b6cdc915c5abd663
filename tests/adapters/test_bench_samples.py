"""Results as the tools wrote them, each with where it was published, to the observations expected of it."""

from __future__ import annotations

import tomllib
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from rooflens.adapters.bench.reading import looks_like, parse

FILE = Path(__file__).resolve().parents[1] / "data" / "benchmarks" / "samples.toml"
SAMPLES: list[dict[str, Any]] = tomllib.loads(FILE.read_text(encoding="utf-8"))["sample"]


@pytest.mark.parametrize("sample", SAMPLES, ids=[one["id"] for one in SAMPLES])
def test_a_sample_is_read_as_expected(sample: dict[str, Any]) -> None:
    found = parse(sample["text"]).observations
    assert len(found) == len(sample["expect"])
    for seen, expected in zip(found, sample["expect"], strict=True):
        told = asdict(seen)
        for field, value in expected.items():
            if field in ("withheld", "complaints"):
                assert len(told[field]) == value, told[field]
            elif field == "unknown":
                assert list(told[field]) == value
            elif isinstance(value, float | dict):
                assert told[field] == pytest.approx(value, rel=1e-6), field
            else:
                assert told[field] == value, field


@pytest.mark.parametrize("sample", SAMPLES, ids=[one["id"] for one in SAMPLES])
def test_a_sample_is_known_by_how_it_begins(sample: dict[str, Any]) -> None:
    assert looks_like(sample["text"])


def test_every_sample_says_where_it_is_from() -> None:
    assert all(sample["provenance"] for sample in SAMPLES)
