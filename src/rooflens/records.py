"""The vocabulary: what was seen of an engine and what is known of it, frozen, in SI units, None for not known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from rooflens.info_fields import fits

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SCHEMA = 1


class RooflensError(Exception):
    """A fault of the user's input or surroundings, said in one line that names the cause and the next step."""


class StepKind(IntEnum):
    """What one iteration of the engine did."""

    PREFILL = 0
    DECODE = 1
    MIXED = 2
    VERIFY = 3
    ENCODE = 4
    POOL = 5
    DUMMY = 6


class GraphMode(IntEnum):
    """How the forward pass was launched; UNKNOWN where the engine does not say."""

    UNKNOWN = 0
    EAGER = 1
    PIECEWISE = 2
    FULL = 3


@dataclass(frozen=True, slots=True)
class KVGroup:
    """One KV-cache group: layers that share a block table.

    ``kind`` is the engine's own word (full_attention, sliding_window, mamba, ...);
    ``window_tokens`` is None where the whole context is kept.
    """

    kind: str
    layers: int
    block_tokens: int
    window_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What an engine is, as far as it says; a field is None while it is not known.

    ``model_config`` holds the architecture fields of the model's own config.json with every path removed;
    ``base_model_name`` is the name that the model has where it comes from, without an organisation or a folder, told
    where the served name is another; dtypes are written as the engine writes them (bfloat16, fp8_e4m3, ...),
    ``state_dtype`` that of the states of linear attention or Mamba; sizes are counts or tokens. ``role`` is prefill or
    decode of one that does only that part.
    """

    instance: str
    engine: str
    engine_version: str | None = None
    rank: int = 0
    host: str | None = None
    pod: str | None = None
    start_unix_s: float | None = None
    runner: str | None = None
    model_name: str | None = None
    base_model_name: str | None = None
    model_config: Mapping[str, Any] | None = None
    weight_dtype: str | None = None
    quantization: str | None = None
    kv_dtype: str | None = None
    state_dtype: str | None = None
    kv_groups: tuple[KVGroup, ...] = ()
    kv_blocks: int | None = None
    block_tokens: int | None = None
    max_sequences: int | None = None
    max_batched_tokens: int | None = None
    max_context_tokens: int | None = None
    graph_mode: str | None = None
    graph_sizes: tuple[int, ...] = ()
    attention_backend: str | None = None
    moe_backend: str | None = None
    async_scheduling: bool | None = None
    concurrent_batches: int | None = None
    prefix_caching: bool | None = None
    chunked_prefill: bool | None = None
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    data_parallel: int = 1
    expert_parallel: bool = False
    context_parallel: int = 1
    speculative_method: str | None = None
    speculative_tokens: int | None = None
    device: str | None = None
    device_uuids: tuple[str, ...] = ()
    schema: int = SCHEMA
    role: str | None = None
    unread: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready dict; unknown fields are left out."""
        return {k: v for k, v in asdict(self).items() if v is not None and (v or k != "unread")}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> EngineInfo:
        """The inverse of to_json; what a newer writer added, or gave another type, is not known."""
        stated = [f for f in fields(cls) if data.get(f.name) is not None and f.name != "unread"]
        kwargs = {f.name: data[f.name] for f in stated if fits(f.name, str(f.type), data[f.name])}
        kwargs["unread"] = tuple(f.name for f in stated if f.name not in kwargs)
        for required in ("instance", "engine"):
            if not isinstance(kwargs.get(required), str):
                raise RooflensError(f"engine info without '{required}': not written by rooflens?")
        names = [f.name for f in fields(KVGroup)]
        groups = [{name: group[name] for name in names if name in group} for group in kwargs.get("kv_groups", ())]
        kwargs["kv_groups"] = tuple(KVGroup(**group) for group in groups)
        for name in ("graph_sizes", "device_uuids"):
            kwargs[name] = tuple(kwargs.get(name, ()))
        return cls(**kwargs)


@dataclass(frozen=True, slots=True)
class RingEvent:
    """Something that is not a step: sleep, wake, prefix-cache reset, weight or LoRA change, idle spins."""

    sequence: int
    monotonic_s: float
    name: str
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeviceSpan:
    """One forward pass of one worker, timed on its device; all times in seconds.

    ``ordinal`` counts the worker's forward passes from 1, timed or not, dummy runs apart. ``device_s`` is the time
    on the device's own clock from the beginning of execute_model to the end of sample_tokens in one stream: with the
    head, the sampler and the drafter, and with whatever the device waited for in between, so it bounds the busy time
    from above. ``start_monotonic_s`` and ``end_monotonic_s`` are the host's clock when the first call began and the
    last one returned, which may be before the device was done. ``host_gap_s`` is the host's pause between the two
    calls: 0 where there was only one, None where it was too long to say.
    """

    ordinal: int
    start_monotonic_s: float
    end_monotonic_s: float
    device_s: float
    host_gap_s: float | None
    query_tokens: int
    requests: int


# Every column of a StepTable: name, NumPy kind (i integer, f float), what it counts.
STEP_COLUMNS: tuple[tuple[str, str, str], ...] = (
    ("sequence", "i", "position in the ring, counted from 1; a gap is a lost step"),
    ("kind", "i", "what it did: 0 prefill, 1 decode, 2 mixed, 3 verify, 4 encode, 5 pool, 6 dummy"),
    ("unix_s", "f", "wall time of the output, from the nearest anchor"),
    ("submit_monotonic_s", "f", "end of scheduling: the step was handed to the executor"),
    ("output_monotonic_s", "f", "the step's output reached the scheduler"),
    ("observed_s", "f", "busy time: output - max(previous output, submit)"),
    ("device_s", "f", "device time of the forward pass with head, sampler and drafter: its slowest worker"),
    ("schedule_s", "f", "duration of the scheduler's schedule call"),
    ("update_s", "f", "duration of the scheduler's update call"),
    ("executor_s", "f", "time inside the executor's calls for this step"),
    ("wait_s", "f", "time the engine waited for the output after its last call"),
    ("hook_s", "f", "what capturing this step cost"),
    ("requests", "i", "sequences in the step"),
    ("prefill_requests", "i", "of these, sequences still working on their prompt or recomputing"),
    ("query_tokens", "i", "tokens computed"),
    ("prefill_tokens", "i", "of these, tokens of prefilling sequences"),
    ("sampled_rows", "i", "rows that went through the language-model head"),
    ("generated_tokens", "i", "tokens that reached the requests"),
    ("drafted_tokens", "i", "speculative tokens verified: each is accepted or rejected"),
    ("accepted_tokens", "i", "of these, accepted"),
    ("rejected_tokens", "i", "of these, rejected"),
    ("invalid_draft_tokens", "i", "draft tokens computed although a grammar had ruled them out"),
    ("unjudged_draft_tokens", "i", "draft tokens computed for requests that had ended meanwhile or did not sample"),
    ("discarded_tokens", "i", "tokens computed for requests that had ended meanwhile, or cut off by a stop"),
    ("unprefilled_tokens", "i", "prompt tokens never computed because their request ended first"),
    ("recomputed_tokens", "i", "tokens computed again after a preemption"),
    ("prompt_tokens", "i", "prompt lengths of the requests first scheduled in this step"),
    ("new_requests", "i", "requests first scheduled in this step"),
    ("finished_requests", "i", "requests that ended since the last step, for any reason"),
    ("prefix_hit_local_tokens", "i", "prompt tokens found in this engine's prefix cache"),
    ("prefix_hit_external_tokens", "i", "prompt tokens brought by a KV connector"),
    ("context_tokens", "i", "tokens already in the KV cache before the step, summed over sequences"),
    ("causal_pairs", "i", "query-key pairs under the causal mask, summed over sequences"),
    ("prefill_pairs", "i", "of these, pairs of prefilling sequences"),
    ("context_blocks", "i", "KV blocks that hold context_tokens, each sequence rounded up"),
    ("max_context_tokens", "i", "longest context in the step"),
    ("kv_blocks_used", "i", "KV blocks held by requests after scheduling; shared blocks once"),
    ("kv_blocks_cached", "i", "free blocks that still hold a reusable prefix"),
    ("running", "i", "requests admitted to the batch after scheduling"),
    ("waiting", "i", "requests that wait for capacity"),
    ("deferred", "i", "requests that wait for something else: remote KV, a grammar, more input"),
    ("preempted", "i", "requests preempted while scheduling this step"),
    ("oldest_wait_s", "f", "age of the oldest waiting request"),
    ("summed_wait_s", "f", "ages of all waiting requests, summed"),
    ("padded_tokens", "i", "tokens after padding to a captured graph size"),
    ("graph_mode", "i", "how it was launched: 0 unknown, 1 eager, 2 piecewise, 3 full"),
    ("structured_rows", "i", "sequences under a grammar"),
    ("lora_rows", "i", "sequences with a LoRA adapter"),
    ("prompt_logprob_rows", "i", "sequences that asked for prompt log-probabilities"),
    ("encoder_inputs", "i", "encoder inputs (images, audio) computed"),
    ("distinct_experts", "f", "distinct experts that one layer of a mixture touched in a pass, mean of its layers"),
    ("resolution_steps", "i", "how many steps the row stands for; 1 from a hook"),
)
COLUMN_KINDS: Mapping[str, str] = {name: kind for name, kind, _ in STEP_COLUMNS}
# Columns that a table may also hold over a span (rooflens.spans), as far as the reader was told which to count.
SPANNED_COLUMNS = ("context_tokens", "causal_pairs", "prefill_pairs")


def column_kind(name: str) -> str:
    """The NumPy kind of a step column, over a span or not; KeyError for a name that is no column."""
    base, mark, _ = name.partition("@")
    return COLUMN_KINDS[base if mark and base in SPANNED_COLUMNS else name]


@dataclass(frozen=True, slots=True)
class StepTable:
    """Steps as columns: one NumPy array of equal length for each name in STEP_COLUMNS.

    Those of SPANNED_COLUMNS may stand beside themselves over a span: ``context_tokens@w1024`` counts of each sequence
    what a window of 1024 reaches. ``columns[name]`` is int64 or float64 of shape (steps,). A column that is not known
    at all is absent; one known for some steps has a boolean mask of the same shape in ``known``. Values under a False
    are meaningless and must not be read. No hook delivers ``distinct_experts`` and no ring keeps it: whoever has it
    from elsewhere adds it.
    """

    columns: Mapping[str, NDArray[Any]]
    known: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)

    def __len__(self) -> int:
        for column in self.columns.values():
            return len(column)
        return 0

    def __getitem__(self, name: str) -> NDArray[Any]:
        """The column; KeyError with the names that are there if this table does not know it."""
        try:
            return self.columns[name]
        except KeyError:
            raise KeyError(f"step column {name!r} is not known here; known: {sorted(self.columns)}") from None

    def has(self, name: str) -> bool:
        """Whether the column is known for every step."""
        return name in self.columns and (name not in self.known or bool(self.known[name].all()))

    def where(self, name: str) -> NDArray[np.bool_]:
        """The mask of steps for which ``name`` is known, shape (steps,)."""
        import numpy as np

        if name not in self.columns:
            return np.zeros(len(self), dtype=bool)
        mask = self.known.get(name)
        return np.ones(len(self), dtype=bool) if mask is None else mask

    def take(self, rows: NDArray[Any]) -> StepTable:
        """The rows selected by an index array or a boolean mask."""
        return StepTable(
            {name: column[rows] for name, column in self.columns.items()},
            {name: mask[rows] for name, mask in self.known.items()},
        )
