from __future__ import annotations

from rooflens.analyzer.rules.answers import cannot_tell
from rooflens.analyzer.rules.case import Case
from rooflens.findings import Code, Finding


def memory_bound_waste(case: Case) -> Finding:
    """To be written."""
    return cannot_tell(case, Code.MEMORY_BOUND_WASTE, "the rule itself")
