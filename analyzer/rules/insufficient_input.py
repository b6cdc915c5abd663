"""Not enough is known to judge."""

from __future__ import annotations

from collections.abc import Iterator

from rooflens.analyzer.rules.answers import cannot_tell, cleared, firing
from rooflens.analyzer.rules.by_engine import kv_pool, single_steps
from rooflens.analyzer.rules.case import Case
from rooflens.findings import Code, Evidence, Finding

CODE = Code.INSUFFICIENT_INPUT


def insufficient_input(case: Case) -> Finding:
    """Something that verdicts need is missing; one finding lists all of it, each with the option that gives it.

    Looked for: the hardware, the model's configuration, whatever else keeps the roofline from being computed, the
    size of the KV pool, and the steps one by one, which a hook, the recorder, push or a feed gives. Too few steps are
    no finding of this kind: every rule says so itself.
    """
    if case.window is None:
        return cannot_tell(case, CODE, "a window with steps")
    missing = list(_missing(case))
    if not missing:
        return cleared(case, CODE, "all inputs are there")
    evidence = tuple(Evidence(what, remedy) for what, remedy in missing)
    text = f"not known: {', '.join(what.replace('_', ' ') for what, _ in missing)}"
    return firing(case, CODE, text, evidence, "; ".join(remedy for _, remedy in missing), confidence=1.0)


def _missing(case: Case) -> Iterator[tuple[str, str]]:
    """(what is missing, the option that gives it)."""
    window, info = case.windows[-1], case.info
    if case.hardware is None:
        yield "hardware", "--hardware ID"
    if info is None or info.model_config is None:
        yield "model_configuration", "--model NAME or config.json"
    if case.hardware is not None and info is not None and info.model_config is not None and window.analysis is None:
        yield "roofline", window.problem or "the roofline of this engine cannot be computed"
    if info is None or not info.kv_blocks:
        yield "kv_pool", kv_pool(info)
    if not window.source.single_steps:
        yield "single_steps", single_steps(info)
