"""A run's books closed: the witness's, the ring's, and that they are the same."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

from compare import differences
from scheduler_harness import make_request
from witness import Witness, identity_gap

from rooflens.adapters.vllm import patch


def ring_of(witness: Witness, rings: Path) -> Path:
    """The ring of a finished run, whose hook never failed."""
    capture = getattr(witness.scheduler, patch.CAPTURE)
    assert capture is not None
    assert capture.failures == 0
    assert not capture.off
    patch.detach(witness.scheduler)
    (path,) = rings.glob("*.ring")
    return path


def check(witness: Witness, rings: Path) -> Counter[str]:
    """No difference anywhere, and nothing left over in the identity."""
    terms = witness.close()
    assert identity_gap(terms) == 0
    assert differences(witness, ring_of(witness, rings)) == []
    return terms


def some(rng: random.Random, count: int, first: int = 0, longest: int = 60, **options: Any) -> list[Any]:
    """Requests with prompts of 5 to 300 tokens."""
    prompts = [[rng.randrange(10, 30000) for _ in range(rng.randrange(5, 300))] for _ in range(count)]
    return [make_request(first + i, prompt, rng.randrange(2, longest), **options) for i, prompt in enumerate(prompts)]
