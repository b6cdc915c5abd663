"""What drafting yields: tokens of a verify step, and the wall-time gain of theory."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from rooflens.records import RooflensError

Acceptance = float | tuple[float, ...]


def expected_tokens(acceptance: Acceptance, depth: int) -> float:
    """Tokens that one verify step of ``depth`` drafted tokens yields a sequence: those accepted and one more.

    A number is the chance a that a draft is accepted after the ones before it: (1 - a^(g+1)) / (1 - a), Leviathan et
    al. 2023, equation 1. A tuple holds for each position the part of verify steps in which it was accepted (and so
    all before it), which is how engines count: 1 + their sum.
    """
    check_acceptance(acceptance)
    if depth < 0:
        raise RooflensError(f"the drafted tokens of a step must be 0 or more, not {depth}")
    if isinstance(acceptance, tuple):
        if depth > len(acceptance):
            raise RooflensError(
                f"the acceptance of {len(acceptance)} positions is given, not of {depth}: give one for each"
            )
        return 1.0 + sum(acceptance[:depth])
    if acceptance == 1.0:
        return depth + 1.0
    return float((1.0 - acceptance ** (depth + 1)) / (1.0 - acceptance))


def walltime_improvement(acceptance: float, depth: int, cost_ratio: float) -> float:
    """Leviathan et al. 2023, Theorem 3.8: (1 - a^(g+1)) / ((1 - a) (g c + 1)).

    ``cost_ratio`` is the time of one draft step as a ratio to one step of the model, and a verify step is taken to
    cost what a plain one does, which holds only where there is arithmetic to spare.
    """
    return expected_tokens(acceptance, depth) / (depth * cost_ratio + 1.0)


def check_acceptance(acceptance: Acceptance) -> None:
    """RooflensError for a rate outside 0 to 1, or positions that are accepted more often than the one before."""
    rates: Sequence[float] = acceptance if isinstance(acceptance, tuple) else (acceptance,)
    for rate in rates:
        if not 0.0 <= rate <= 1.0:
            raise RooflensError(f"--acceptance must be a ratio from 0 to 1, not {rate}")
    for before, after in pairwise(rates):
        if after > before:
            raise RooflensError(
                f"--acceptance rises from {before:g} to {after:g}: a position counts only where all before it were "
                "accepted, so give the part of all verify steps for each"
            )
