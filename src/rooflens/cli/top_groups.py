"""The groups of the live view: one line each, with the member that stands out below it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rooflens.cli.top_lines import INDENT, Json, Line, word, wrapped
from rooflens.cli.units import seconds_text

NAMES: Mapping[str, str] = {
    "data_parallel": "data-parallel ranks",
    "prefill_decode": "prefill and decode",
    "replicas": "replicas",
}
MOST_GROUPS = 8  # of very many the first; the API has them all


def group_lines(groups: Sequence[Json], width: int) -> list[Line]:
    """Each group together, how far its members lie apart, and who stands out and why."""
    lines: list[Line] = []
    for group in groups[:MOST_GROUPS]:
        lines += [*_one(group, width), *_worst(group, width)]
    left = len(groups) - MOST_GROUPS
    return [*lines, Line(f"{INDENT}and {left} more groups")] if left > 0 else lines


def _one(group: Json, width: int) -> list[Line]:
    all_of, members = group.get("together") or {}, group.get("members") or []
    kind = NAMES.get(str(group.get("kind")), word(group.get("kind")))
    told = len(group.get("figures") or [])
    counted = "" if told == len(members) else f", {told} with figures"
    parts = [f"{word(group.get('model_name'))}: {len(members)} {kind}{_parts(members)}{counted}"]
    parts.append(f"{_number(all_of.get('generated_tokens_per_s'))} tokens/s")
    parts.append(f"running {_number(all_of.get('running'))}, waiting {_number(all_of.get('waiting'))}")
    used = all_of.get("kv_used_ratio")
    parts += [f"KV {used:.0%}"] if used is not None else []
    spreads = {str(spread.get("name")): spread for spread in group.get("spreads") or []}
    if step := spreads.get("step_p50_s"):
        parts.append(f"step {seconds_text(step.get('low'))} to {seconds_text(step.get('high'))}")
    if batch := spreads.get("batch"):
        parts.append(f"batch {_number(batch.get('low'))} to {_number(batch.get('high'))}")
    return wrapped("group ", "   ".join(parts), width, "head")


def _parts(members: Sequence[Json]) -> str:
    """How many prefill and decode, where they do not all do the same."""
    roles = [str(member.get("role")) for member in members]
    return f" ({roles.count('prefill')} + {roles.count('decode')})" if len(set(roles)) > 1 else ""


def _worst(group: Json, width: int) -> list[Line]:
    if group.get("worst") is None:
        return []
    return wrapped(f"{INDENT}engine {word(group.get('worst'))}: ", group.get("why"), width)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.1f}"
