from __future__ import annotations

from rooflens.analyzer.rules.answers import cannot_tell
from rooflens.analyzer.rules.case import Case
from rooflens.findings import Code, Finding


def engine_stalled(case: Case) -> Finding:
    """To be written."""
    return cannot_tell(case, Code.ENGINE_STALLED, "the rule itself")
