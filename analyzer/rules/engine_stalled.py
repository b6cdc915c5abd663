"""The engine has stopped making steps."""

from __future__ import annotations

import numpy as np

from rooflens.analyzer.rules.answers import LEAST_STEPS, cannot_tell, cleared, firing
from rooflens.analyzer.rules.answers import price as priced
from rooflens.analyzer.rules.by_engine import where_it_hangs
from rooflens.analyzer.rules.case import Case
from rooflens.analyzer.rules.longest_step import longest_step_s
from rooflens.analyzer.sums import filled, steps_of
from rooflens.findings import Code, Evidence, Finding, Price, Severity
from rooflens.live_records import Progress, State

CODE = Code.ENGINE_STALLED
LEAST_OPEN_S = 3.0  # below it nobody's hand is faster, and a garbage collection or a swapped page passes by itself
LEAST_STILL_S = 10.0  # a metrics page is read every few seconds: two reads without a token may be one slow prompt
# No step was seen, only that it made some before: how long its longest take, as for a long prompt, is not known.
LEAST_STILL_UNSEEN_S = 30.0
# By a page a step of one long prompt looks like a hang: so long does a prompt of 100,000 tokens take at 1,700 a second.
SURE_BY_PAGE_S = 60.0
TIMES_EXPECTED = 4.0  # the longest recent step varies by less than this from one to the next
NOT_WHAT_FOR = "what the waiting requests wait for: steps one by one (hook, recorder, push), or vLLM 0.24's page"
UNSURE = 0.6  # of the confidence is left where it may be a long prompt
CANNOT_SEE = "whether the engine moves: a hook, a metrics page that answers, or a log that goes on"


def engine_stalled(case: Case) -> Finding:
    """A step came to nothing: it was handed to the executor and its output has not come back.

    Fires when the open step is older than 3 s and older than 4 times what it should take: the longest recent step,
    longer in proportion where it has more tokens than any of them (a large prefill is no stall), and at least its
    floor behind the longest context that a request may have (nor is one behind a long prefix that was cached).
    Without the hook, when requests run or wait and nothing has been counted for 10 s, and for 4 times the longest
    recent step; for 30 s where it stood already at the first look, so that only its counters tell that it made steps
    before, which is less sure. A page shows a long prompt in one step no otherwise than a hang: it is a warning
    without a price until 60 s.
    Requests that are deferred wait for something else than a step and do not count. An engine that sleeps or has ended
    is not stalled, and of one that has made fewer than 20 steps in all it cannot be told: the first steps compile. The
    price is the engine's time since then, as far as it was watched: all of it is lost; there is none where it is not
    known how long a step takes, and a page that tells of no step at all stays a warning. Judged every second.
    """
    progress = case.progress
    if progress is None or progress.state in (State.UNREACHABLE, State.STANDBY):
        return cannot_tell(case, CODE, CANNOT_SEE)
    if progress.state is not State.LIVE:
        return cleared(case, CODE, f"the engine has {progress.state}: it makes no steps")
    if progress.asleep:
        return cleared(case, CODE, "the engine sleeps")
    if (progress.open_age_s or 0.0) <= LEAST_OPEN_S and (progress.still_s or 0.0) <= LEAST_STILL_S:
        return _moves(case, progress)  # whatever its steps take; nearly every turn ends here
    known_s, most_tokens, steps = _recent(case)
    longest_s = known_s or 0.0
    expected_s = longest_s * max(1.0, (progress.open_tokens or 0) / most_tokens) if most_tokens else longest_s
    if (progress.open_age_s or 0.0) > max(LEAST_OPEN_S, TIMES_EXPECTED * expected_s):
        expected_s = max(expected_s, longest_step_s(case) or 0.0)
    limit_s = max(LEAST_OPEN_S, TIMES_EXPECTED * expected_s)
    still_limit_s = max(LEAST_STILL_S, TIMES_EXPECTED * longest_s)
    stood_s, what = _stood(progress, limit_s, still_limit_s)
    if stood_s is None:
        return _moves(case, progress)
    if steps < LEAST_STEPS:
        return _unseen(case, progress, steps)
    evidence = (
        Evidence("stands_still", stood_s, "s"),
        *((Evidence("expected", expected_s, "s"),) if expected_s else ()),
        *((Evidence("longest_recent_step", known_s, "s"),) if known_s is not None else ()),
        *((Evidence("open_tokens", progress.open_tokens),) if progress.open_tokens is not None else ()),
        *((Evidence("open_requests", progress.open_requests),) if progress.open_requests is not None else ()),
    )
    ever = known_s is not None or (progress.steps_made or 0) >= LEAST_STEPS  # rows of a page need not hold a step
    sure = not _by_page(case) or (ever and stood_s > max(SURE_BY_PAGE_S, still_limit_s))
    summary = f"{what} for {stood_s:.0f} s; "
    summary += f"the longest recent step took {known_s:.2g} s" if known_s else "how long its steps take is not known"
    confidence = 0.95 if progress.open_age_s is not None else 0.8
    return _stalled(case, summary, evidence, confidence, _price(stood_s, expected_s or None), sure)


def _moves(case: Case, progress: Progress) -> Finding:
    """The finding where nothing has stood for too long."""
    return cannot_tell(case, CODE, NOT_WHAT_FOR) if _queue_alone(progress) else cleared(case, CODE, "the engine moves")


def _stalled(
    case: Case, summary: str, evidence: tuple[Evidence, ...], confidence: float, price: Price | None, sure: bool
) -> Finding:
    """The finding; where it is not ``sure`` it may be a long prompt, and then nothing is lost."""
    if sure:
        return firing(case, CODE, summary, evidence, where_it_hangs(case.info), confidence, price)
    summary, confidence = f"{summary}: a hang, or a long prompt in one step", confidence * UNSURE
    return firing(case, CODE, summary, evidence, where_it_hangs(case.info), confidence, severity=Severity.WARNING)


def _by_page(case: Case) -> bool:
    """Whether a page or a log tells of this engine, and not single steps."""
    made = case.progress.steps_made if case.progress is not None else None
    return made is not None or (case.window is not None and not case.window.source.single_steps)


def _unseen(case: Case, progress: Progress, steps: int) -> Finding:
    """Of an engine that stands still, and of which too few steps were seen: whether it made any before."""
    made, stood_s = max(progress.steps_made or 0, steps), progress.still_s or 0.0
    if made < LEAST_STEPS:
        return cannot_tell(case, CODE, f"at least {LEAST_STEPS} steps of this engine (it made {made})")
    mean_s = progress.mean_step_s or 0.0
    limit_s = max(LEAST_STILL_UNSEEN_S, TIMES_EXPECTED * mean_s)
    if stood_s <= limit_s:
        text = f"whether it moves: it has stood still for {stood_s:.0f} s since the first look, {limit_s:.0f} s decide"
        return cannot_tell(case, CODE, text)
    evidence = (
        Evidence("stands_still", stood_s, "s"),
        *((Evidence("expected", mean_s, "s"),) if mean_s else ()),
        Evidence("steps_made_before", made),
    )
    text = f"requests are there and nothing has been counted for {stood_s:.0f} s, since the first look"
    text += f"; {made:,} steps were made before it"
    sure = stood_s > max(SURE_BY_PAGE_S, limit_s)
    return _stalled(case, text, evidence, 0.6, _price(stood_s, mean_s or None), sure)


def _price(stood_s: float, expected_s: float | None) -> Price | None:
    """What was lost; None where it is not known how long a step takes."""
    if expected_s is None:
        return None
    words = "time since the last step should have ended; it grows until the engine moves again"
    return priced(stood_s - expected_s, stood_s - TIMES_EXPECTED * expected_s, stood_s, stood_s, words)


def _queue_alone(progress: Progress) -> bool:
    """Whether a page tells of waiting requests alone, and not of what they wait for: a step, or something else."""
    load = progress.load
    return progress.still_s is None and load is not None and bool(load.waiting) and not load.running


def _stood(progress: Progress, limit_s: float, still_limit_s: float) -> tuple[float | None, str]:
    """(seconds that the engine has stood still, what stands) where that is too long, else (None, '')."""
    if progress.open_age_s is not None and progress.open_age_s > limit_s:
        return progress.open_age_s, "a step has been open"
    if progress.still_s is not None and progress.still_s > still_limit_s:
        return progress.still_s, "requests are there and nothing has been counted"
    return None, ""


def _recent(case: Case) -> tuple[float | None, float, int]:
    """(longest step in seconds, None where none is known, most tokens of a step, steps), zeros without any."""
    tables = [window.steps for window in case.windows] if case.recent is None else [case.recent]
    longest_s: float | None = None
    most_tokens, steps = 0.0, 0
    for table in tables:
        each = steps_of(table)
        steps += round(float(each.sum()))
        timed = table.where("observed_s")
        if timed.any():
            longest_s = max(longest_s or 0.0, float((filled(table, "observed_s") / each)[timed].max()))
        known = table.where("query_tokens")
        if known.any():
            most_tokens = max(most_tokens, float(np.max((filled(table, "query_tokens") / each)[known])))
    return longest_s or None, most_tokens, steps
