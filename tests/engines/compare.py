"""The ring of a finished run against the witness's books: every step, every request, every term."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from witness import Witness

from rooflens.collector.lengths import Lengths
from rooflens.collector.ring_source import RingSource
from rooflens.protocols import Batch
from rooflens.records import StepKind

TERMS = {
    "query": "query_tokens",
    "prompt": "prompt_tokens",
    "hits_local": "prefix_hit_local_tokens",
    "hits_external": "prefix_hit_external_tokens",
    "generated": "generated_tokens",
    "recomputed": "recomputed_tokens",
    "discarded": "discarded_tokens",
    "unprefilled": "unprefilled_tokens",
    "preempted": "preempted",
}


def read_ring(path: Path) -> tuple[Batch, dict[int, Lengths], int]:
    """The batch, every step's own lengths, and the count of doubted frames."""
    source = RingSource(path)
    lengths: dict[int, Lengths] = {}
    batch = source.read(visit=lambda at, found: lengths.__setitem__(at, found))
    source.close()
    return batch, lengths, source.doubted_frames


def ring_terms(batch: Batch) -> dict[str, int]:
    """The ring's own terms of the identity, in tokens."""
    steps = batch.steps
    terms = {}
    for term, column in TERMS.items():
        if not steps.has(column):
            raise AssertionError(f"{column} is not known for every step")
        terms[term] = int(steps[column].sum())
    terms["unprefilled"] += sum(int(event.detail.get("unprefilled_tokens", 0)) for event in batch.events)
    terms["rejected"] = int(steps["rejected_tokens"].sum() + steps["invalid_draft_tokens"].sum())
    terms["drafted"] = int(steps["drafted_tokens"].sum() + steps["invalid_draft_tokens"].sum())
    return terms


def differences(witness: Witness, path: Path, count_preempted: bool = True) -> list[str]:
    """Every disagreement, in words; empty if ring and engine agree."""
    batch, all_lengths, doubted = read_ring(path)
    real = np.flatnonzero(batch.steps["kind"] != StepKind.DUMMY)
    lengths = {row: all_lengths[at] for row, at in enumerate(real.tolist()) if at in all_lengths}
    batch = replace(batch, steps=batch.steps.take(real))
    found: list[str] = []
    if batch.lost_steps or batch.torn_steps or doubted:
        found.append(f"lost {batch.lost_steps}, torn {batch.torn_steps}, doubted {doubted}")
    if len(batch.steps) != len(witness.steps):
        return [*found, f"{len(batch.steps)} steps in the ring, {len(witness.steps)} in the engine"]
    for at, rows in enumerate(witness.steps):
        mine = lengths.get(at)
        if mine is None:
            found.append(f"step {at}: lengths unknown")
            continue
        before, query = [row.before for row in rows], [row.query for row in rows]
        if mine.contexts.tolist() != before or mine.queries.tolist() != query:
            found.append(f"step {at}: contexts or queries differ")
        after = [(row.after, int(got)) for row, got in zip(rows, mine.after, strict=False) if row.after is not None]
        if any(engine != ring for engine, ring in after):
            found.append(
                f"step {at}: context after the step differs: {[pair for pair in after if pair[0] != pair[1]][:3]}"
            )
    terms = ring_terms(batch)
    for term, value in terms.items():
        if value != witness.terms[term] and (term != "preempted" or count_preempted):
            found.append(f"{term}: {value} in the ring, {witness.terms[term]} in the engine")
    found += _columns(batch, witness)
    return found


def _columns(batch: Batch, witness: Witness) -> list[str]:
    steps: Any = batch.steps
    found = []
    if steps["kv_blocks_used"].tolist() != witness.kv_used:
        found.append("KV blocks differ")
    if [running for running, _ in witness.queues] != steps["running"].tolist():
        found.append("running differs")
    if [waiting for _, waiting in witness.queues] not in (
        (steps["waiting"] + steps["deferred"]).tolist(),
        steps["waiting"].tolist(),
    ):
        found.append("waiting differs")
    if np.any(np.diff(steps["sequence"]) < 1) or np.any(steps["observed_s"] < 0):
        found.append("order of steps or times")
    pairs = [sum(r.query * r.before + r.query * (r.query + 1) // 2 for r in rows) for rows in witness.steps]
    if steps["causal_pairs"].tolist() != pairs:
        found.append("causal pairs differ")
    blocks = [sum(-(-r.before // 16) for r in rows) for rows in witness.steps]
    if steps["context_blocks"].tolist() != blocks:
        found.append("context blocks differ")
    return found
