"""What an engine says of a step besides its lengths, as fields of a slot."""

from __future__ import annotations

from collections.abc import Mapping
from operator import index
from typing import Any

from rooflens.adapters.recorder.encode import Rows
from rooflens.records import StepKind
from rooflens.ring import COLD_FIELDS, EXTRA_FIELDS, RECOMPUTE, UNKNOWN
from rooflens.ring_writer import pack_cold

# Counts, and times in seconds; the names are those of records.STEP_COLUMNS.
COUNTS = (
    "running", "waiting", "deferred", "preempted", "kv_blocks_used", "kv_blocks_cached", "padded_tokens", "graph_mode",
)  # fmt: skip
DURATIONS = ("schedule_s", "executor_s", "wait_s")
AGES: Mapping[str, str] = {"oldest_wait_us": "oldest_wait_s", "summed_wait_us": "summed_wait_s"}
EXTRAS = tuple(name for name in EXTRA_FIELDS if name not in AGES)
_IN_EXTRAS = frozenset((*EXTRAS, *AGES.values()))
_COLD_NAMES = tuple(name for name, _ in COLD_FIELDS)
MOST_GENERATED = 1 << 24  # tokens in one step; more is an engine's mistake
FACTS = frozenset((*COUNTS, *DURATIONS, *AGES.values(), *EXTRAS))
# Facts that are states, not happenings: without a word they are not known, rather than zero.
STATES: Mapping[str, int] = {
    "running": UNKNOWN, "waiting": UNKNOWN, "kv_blocks_cached": UNKNOWN, "padded_tokens": UNKNOWN, "deferred": 0xFFFF,
}  # fmt: skip


def check_facts(facts: Mapping[str, Any]) -> None:
    """ValueError for a fact that is not in FACTS, is negative or no number."""
    for name, value in facts.items():
        if name not in FACTS:
            raise ValueError(f"a step has no fact {name!r}; it may have {', '.join(sorted(FACTS))}")
        if isinstance(value, bool) or not value >= 0:
            raise ValueError(f"{name} is {value!r}, not a count or a time")


def nanoseconds(facts: Mapping[str, Any], name: str, missing: int) -> int:
    """A duration in nanoseconds; ``missing`` where the engine does not say it."""
    value = facts.get(name)
    return missing if value is None else round(value * 1e9)


def extras_of(facts: Mapping[str, Any]) -> list[int] | None:
    """EXTRA_FIELDS in their order; None where the engine says none of them."""
    if _IN_EXTRAS.isdisjoint(facts):
        return None
    values = []
    for name in EXTRA_FIELDS:
        if name in AGES:
            age_s = facts.get(AGES[name])
            values.append(UNKNOWN if age_s is None else min(int(age_s * 1e6), UNKNOWN - 1))
        else:
            values.append(min(int(facts.get(name, 0)), UNKNOWN - 1))
    return values


def kind_of(rows: Rows) -> StepKind:
    """What the step did, by its rows."""
    if not rows.contexts:
        return StepKind.DUMMY
    if rows.prefill:
        return StepKind.PREFILL if len(rows.prefill) == len(rows.contexts) else StepKind.MIXED
    return StepKind.VERIFY if rows.drafts else StepKind.DECODE


def _check_drafts(drafted: int, rejected: int, facts: Mapping[str, Any]) -> None:
    """ValueError where more drafts are accounted for than there are; a grammar's are among the rejected."""
    invalid, unjudged = facts.get("invalid_draft_tokens", 0), facts.get("unjudged_draft_tokens", 0)
    if invalid > rejected or unjudged > drafted - rejected:
        raise ValueError(
            f"of {drafted} drafts {rejected} are rejected, of those {invalid} ruled out by a grammar, and {unjudged} "
            "of the others not judged: more than there are"
        )


def cold_of(rows: Rows, facts: Mapping[str, Any], generated_tokens: int | None, frame: tuple[int, int, int]) -> bytes:
    """The packed cold half of the slot; ``frame`` is (frame, base, sections)."""
    drafted, rejected = sum(rows.drafts), sum(rows.rejected)
    _check_drafts(drafted, rejected, facts)
    if generated_tokens is None:
        generated_tokens = len(rows.contexts) - len(rows.prefill) + drafted - rejected
    if not 0 <= index(generated_tokens) <= MOST_GENERATED:
        raise ValueError(f"generated_tokens is {generated_tokens!r}, not a count of tokens")
    given = {
        **STATES,
        **{name: int(facts[name]) for name in COUNTS if name in facts and name != "kv_blocks_used"},
        "query_tokens": rows.query_tokens,
        "generated_tokens": generated_tokens,
        "drafted_tokens": drafted,
        "rejected_tokens": rejected,
        "requests": len(rows.contexts),
        "prefill_tokens": rows.prefill_tokens,
        "prefill_requests": len(rows.prefill),
        "frame": frame[0],
        "kind": int(kind_of(rows)),
        "base": frame[1],
        "flags": RECOMPUTE if facts.get("recomputed_tokens") else 0,
        "sections": frame[2],
    }
    return pack_cold(*[given.get(name, 0) for name in _COLD_NAMES])
