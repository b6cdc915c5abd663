"""How a rule says its answer, and what every rule asks first."""

from __future__ import annotations

from rooflens.analyzer.rules.case import Case
from rooflens.findings import FINDINGS, Code, Evidence, Finding, Price, Severity, Status
from rooflens.live_records import WindowFigures
from rooflens.records import EngineInfo

LEAST_STEPS = 20  # fewer are noise: one hiccup of the host would be 5 % of all steps
NO_MODEL = "the model's configuration: --model NAME or config.json"
NO_HARDWARE = "the hardware: --hardware ID"
NO_QUEUE = "the engine's queue (waiting requests)"
NO_POOL = "the size of the KV pool and how much of it is used"


def cleared(case: Case, code: Code, summary: str, *evidence: Evidence) -> Finding:
    """Nothing is wrong; ``summary`` says why in one line."""
    return Finding(code, FINDINGS[code].severity, Status.CLEARED, summary, _instance(case), evidence)


def cannot_tell(case: Case, code: Code, *missing: str) -> Finding:
    """What is ``missing`` for an answer, each with where it would come from."""
    summary = f"cannot tell: {'; '.join(missing)}"
    return Finding(code, Severity.INFO, Status.CANNOT_TELL, summary, _instance(case), missing=missing)


def firing(
    case: Case,
    code: Code,
    summary: str,
    evidence: tuple[Evidence, ...],
    remedy: str,
    confidence: float,
    price: Price | None = None,
    severity: Severity | None = None,
) -> Finding:
    """Something is wrong; ``severity`` is the code's own unless given."""
    return Finding(
        code=code,
        severity=severity or FINDINGS[code].severity,
        status=Status.FIRING,
        summary=summary,
        instance=_instance(case),
        evidence=evidence,
        price=price,
        confidence=confidence,
        remedy=remedy,
    )


def too_few(case: Case, code: Code) -> Finding | None:
    """The cannot_tell of a window with too few steps; None where there are enough."""
    steps = case.figures[-1].steps if case.figures else 0
    if steps >= LEAST_STEPS:
        return None
    return cannot_tell(case, code, f"at least {LEAST_STEPS} steps in a window (it has {steps})")


# What transformers' ContinuousBatchingConfig calls that which these flags of vLLM set.
TRANSFORMERS = {"--max-num-seqs": "max_requests_per_batch =", "--async-scheduling": "use_async_batching = True"}


def setting(info: EngineInfo | None, value: str, plain: str, vllm: str, sglang: str) -> str:
    """The change in the engine's own words: its flag with ``value``, or ``plain`` words for an engine without flags.

    ``plain`` holds ``{}`` where the value goes.
    """
    flags = {"vllm": vllm, "sglang": sglang, "transformers": TRANSFORMERS.get(vllm)}
    flag = flags.get(info.engine if info else "")
    return f"{flag} {value}".strip() if flag else plain.format(value)


def active_s(figures: WindowFigures) -> float:
    """Engine time that a window judges: its steps and what lay between them while requests were there, in seconds.

    Of a page the steps alone: it does not tell what lies between them.
    """
    return figures.busy_s + (figures.between_s or 0.0)


def bounded(price_s: float, judged_s: float) -> float:
    """A saving is neither negative nor more than there was."""
    return min(max(price_s, 0.0), judged_s)


def price(saved_s: float, low_s: float, high_s: float, judged_s: float, derivation: str) -> Price:
    """A price whose interval is in order, within what was judged, all in seconds."""
    saved, low, high = (bounded(value, judged_s) for value in (saved_s, low_s, high_s))
    return Price(saved, judged_s, min(low, saved), max(high, saved), derivation)


def _instance(case: Case) -> str | None:
    return case.info.instance if case.info else None
