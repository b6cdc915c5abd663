"""Every parser of what others send: some wrong input of each, as `make prove` feeds it an hour of."""

from __future__ import annotations

import importlib.util
import random
import sys
from contextlib import suppress
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
INPUTS = 150
NAMES = (
    "engine_page", "other_pages", "llama_cpp_page", "dcgm_page", "server_facts", "benchmark", "forward_pass",
    "forward_pass_trace",
    "log", "lines", "sensors", "push",
)  # fmt: skip


def module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    found = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


@pytest.fixture(scope="module")
def parsers() -> ModuleType:
    return module("parsers")


@pytest.fixture(scope="module")
def mangled() -> ModuleType:
    return module("mangled")


def test_all_of_them_are_named_here(parsers: ModuleType) -> None:
    assert tuple(each.name for each in parsers.PARSERS) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_wrong_input_ends_no_parser(name: str, parsers: ModuleType, mangled: ModuleType) -> None:
    parser = next(each for each in parsers.PARSERS if each.name == name)
    samples, rng = parser.samples(), random.Random(name)
    assert samples
    assert all(samples)
    for sample in samples:
        parser.parse(sample)
    for _ in range(INPUTS):
        data = mangled.mangled(rng.choice(samples), samples, rng)
        with suppress(parser.allowed):
            parser.parse(data)


def test_what_is_mangled_differs(mangled: ModuleType) -> None:
    rng = random.Random(1)
    sample = b"Running: 12 reqs, GPU KV cache usage: 3.5%\n" * 3
    found = {mangled.mangled(sample, [sample], rng) for _ in range(100)}
    assert len(found) > 80
    assert all(len(each) <= mangled.LONGEST for each in found)
