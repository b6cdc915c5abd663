"""Whose metrics a page has: the engine is recognised by the names on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rooflens.adapters.scrape.lines import Lines
from rooflens.adapters.scrape.names import ENGINES, names_of, wanted_names
from rooflens.adapters.scrape.readings import PageReading, page_reading
from rooflens.adapters.scrape.text import ANY_PROCESS, Samples, read_samples

SPOKEN: Mapping[str, str] = {
    "vllm": "vLLM",
    "sglang": "SGLang",
    "tensorrt-llm": "TensorRT-LLM",
    "llama.cpp": "llama.cpp",
    "tgi": "TGI",
    "dynamo": "Dynamo",
}


@dataclass(frozen=True, slots=True)
class Recognised:
    """What a page says, and whose it is; ``engine`` is None for a page without metrics of any that is known."""

    engine: str | None
    reading: PageReading


def read_page(text: str, unix_s: float, monotonic_s: float, lines: Lines | None = None) -> Recognised:
    """The readings of the first engine of ENGINES that the page tells of; of none, what is wrong with the page.

    ``lines`` are those of the same page as it was read before.

    So of a page on which a frontend passes on the metrics of an engine, the engine's are read, which are nearer to it.
    """
    wanted = wanted_names()
    found = read_samples(text, wanted) if lines is None else lines.read(text, wanted)
    seen = {engine for sample in found.samples if _tells(sample.name) for engine in wanted[sample.name]}
    named = seen | {engine for name in found.announced for engine in wanted[name]}
    complained = {engine for line in found.complaints for engine in wanted.get(line.split(": ", 1)[0], ())}
    first: Recognised | None = None
    for engine in (engine for engine in ENGINES if engine in named | complained):
        meanings = names_of(engine).meanings
        own = Samples(
            tuple(sample for sample in found.samples if sample.name in meanings),
            found.complaints,
            frozenset(name for name in found.announced if name in meanings),
        )
        told = Recognised(engine, page_reading(own, names_of(engine), unix_s, monotonic_s))
        if told.reading.engines:
            return told
        first = first or told
    return first or Recognised(None, PageReading({}, found.complaints))


def _tells(name: str) -> bool:
    return not name.startswith(ANY_PROCESS)
