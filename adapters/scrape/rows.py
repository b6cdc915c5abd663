"""What happened between two readings, as one row of a step table: sums over its steps, means for gauges."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rooflens.adapters.scrape.change import Busy, Change, Steps, busy_of, steps_of
from rooflens.adapters.scrape.pool import Held
from rooflens.live_records import Derived
from rooflens.records import COLUMN_KINDS, StepTable

if TYPE_CHECKING:
    from numpy.typing import NDArray


# Beyond it a float is no count any more, and further up no whole number of a table: such a value is not known.
MOST_WHOLE = 2.0**53


@dataclass(frozen=True, slots=True)
class Row:
    """One interval: ``columns`` by the names of STEP_COLUMNS, without those that are not known."""

    columns: Mapping[str, float]
    derived: tuple[Derived, ...] = ()


def row_of(change: Change, sequence: int) -> Row | None:
    """The row of an interval; None where no step is known to have been made in it."""
    steps = steps_of(change)
    rows = change.rows
    if steps is None or not rows:
        return None
    kind, busy, held = change.kind(steps.count), busy_of(change, steps.count), change.held()
    columns: dict[str, float | None] = {
        "sequence": sequence,
        "kind": kind,
        "unix_s": change.after.unix_s,
        "submit_monotonic_s": change.before.monotonic_s,
        "output_monotonic_s": change.after.monotonic_s,
        "observed_s": busy.total_s if busy else None,
        "resolution_steps": steps.count,
        **_counts(change, rows),
        **_gauges(change, held),
        **_contexts(change, steps.count, rows, held),
    }
    known = {name: value for name, value in columns.items() if value is not None and abs(value) < MOST_WHOLE}
    return Row(known, _derived(change, steps, rows, busy, held))


def _counts(change: Change, rows: float) -> dict[str, float | None]:
    generated, prompt = change.generated, change.prompt_tokens
    drafted, accepted = change.of("drafted"), change.of("accepted")
    return {
        "requests": rows,
        "prefill_requests": change.of("first_token_count"),
        "query_tokens": None if generated is None or prompt is None else generated + prompt + change.rejected,
        "prefill_tokens": prompt,
        "sampled_rows": rows + (drafted or 0),
        "generated_tokens": generated,
        "drafted_tokens": drafted,
        "accepted_tokens": accepted,
        "rejected_tokens": None if drafted is None or accepted is None else change.rejected,
        "finished_requests": change.of("finished"),
        "preempted": change.of("preempted"),
        "prefix_hit_local_tokens": change.hit_tokens,
        "prefix_hit_external_tokens": change.of("external_hit_tokens"),
    }


def _gauges(change: Change, held: Held | None) -> dict[str, float | None]:
    waiting = change.mean("waiting_capacity")
    swapped = change.mean("swapped") or 0
    if waiting is None and (every := change.mean("waiting")) is not None:
        waiting = every + swapped
    return {
        "running": change.mean("running"),
        "waiting": waiting,
        "deferred": change.mean("waiting_deferred"),
        "kv_blocks_used": held.blocks if held else None,
    }


def _contexts(change: Change, steps: int, rows: float, held: Held | None) -> dict[str, float | None]:
    """Context sums over the steps, and query-key pairs: of prompts the fewest, as if all were equally long."""
    each_step = change.context_tokens
    if each_step is None:
        return {}
    read_steps = steps if change.context_steps is None else change.context_steps
    context, prompts, prompt = each_step * read_steps, change.of("first_token_count"), change.prompt_tokens
    prefill_pairs = None
    if prompt is not None and not (prompt and prompts is None):
        each = prompt / prompts if prompts else 0.0
        prefill_pairs = prompt * (each + 1) / 2
    return {
        "context_tokens": context,
        "context_blocks": held.blocks * read_steps if held is not None else None,
        "prefill_pairs": prefill_pairs,
        "causal_pairs": None if prefill_pairs is None else context + rows + prefill_pairs,
    }


def _derived(change: Change, steps: Steps, rows: float, busy: Busy | None, held: Held | None) -> tuple[Derived, ...]:
    n = steps.count
    exact = change.of("iteration_tokens_count") is not None and change.exact_steps
    # A page is not written at one moment: one step may be in one of its counters and not yet in another.
    around = (rows / (n + 1), rows / max(n - 1, 1)) if exact else (None, None)
    found = [
        Derived("resolution_steps", n, "", steps.derivation, steps.low, steps.high),
        Derived("batch", rows / n, "", "sequences that put out a token / steps", *around),
    ]
    if busy:
        found.append(Derived("observed_s", busy.total_s, "s", busy.derivation, None, busy.high_s))
        found.append(Derived("step_s", busy.total_s / n, "s", busy.derivation + "; over the steps", None, None))
    if change.mean("decode_context_tokens") is not None and change.context_tokens is not None:
        context = (change.context_tokens or 0.0) / (rows / n)
        found.append(Derived("context", context, "", "the engine's own sum of contexts at both ends, over its batch"))
    elif held and held.context_tokens is not None:
        running = max(change.mean("running") or 0, rows / n)
        low, high = (None if end is None else end / running for end in (held.context_low, held.context_high))
        context = held.context_tokens / running
        found.append(Derived("context", context, "", held.derivation + "; over running sequences", low, high))
    prompts, prompt = change.of("first_token_count"), change.prompt_tokens
    if prompts and prompt and held:
        words = "prompts of equal length, which is the fewest pairs that they can have; cached parts left out"
        fewest = prompt * (prompt / prompts + 1) / 2
        found.append(Derived("prefill_pairs", fewest, "", words, fewest, prompt * (prompt + 1) / 2))
    return tuple(found)


def table_of(rows: Sequence[Row]) -> StepTable:
    """Rows as columns; a column that some rows do not know has a mask. Means of whole numbers are rounded half up."""
    import numpy as np

    columns: dict[str, NDArray[Any]] = {}
    known: dict[str, NDArray[np.bool_]] = {}
    told = rows[0].columns.keys() if len(rows) == 1 else {name for row in rows for name in row.columns}
    names = [name for name in COLUMN_KINDS if name in told]
    for name in names:
        values = [row.columns.get(name) for row in rows]
        if None in values:
            known[name] = np.array([value is not None for value in values], dtype=bool)
            values = [value or 0.0 for value in values]
        if COLUMN_KINDS[name] == "i":
            columns[name] = np.array([math.floor((value or 0.0) + 0.5) for value in values], dtype=np.int64)
        else:
            columns[name] = np.array(values, dtype=np.float64)
    return StepTable(columns, known)
