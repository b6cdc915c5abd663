"""What learned state is of: a machine, an engine and its version, and the configuration that decides its speed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from rooflens.collector.calibrate.identity import identity_of_cpu
from rooflens.records import EngineInfo

DIGITS = 16
UNKNOWN = "unknown"
# What of an engine's facts decides how long a step takes. Not the number of KV blocks: an engine finds it anew at each
# start, from what memory is free then, and a step does not depend on it. Never a host, a pod, an instance or a start.
DECISIVE = (
    "model_config",
    "weight_dtype",
    "quantization",
    "kv_dtype",
    "state_dtype",
    "kv_groups",
    "block_tokens",
    "runner",
    "max_sequences",
    "max_batched_tokens",
    "max_context_tokens",
    "graph_mode",
    "graph_sizes",
    "attention_backend",
    "moe_backend",
    "async_scheduling",
    "concurrent_batches",
    "prefix_caching",
    "chunked_prefill",
    "tensor_parallel",
    "pipeline_parallel",
    "data_parallel",
    "expert_parallel",
    "context_parallel",
    "speculative_method",
    "speculative_tokens",
    "device",
    "role",
)


@dataclass(frozen=True, slots=True)
class StateKey:
    """``machine`` and ``configuration`` are digests that name nothing; two engines learn together if all are equal."""

    machine: str
    engine: str
    engine_version: str
    configuration: str

    @property
    def lineage(self) -> str:
        """The same for every version of the engine, so that an upgrade can be compared with what was before."""
        return _digest([self.machine, self.engine, self.configuration])

    @property
    def file_name(self) -> str:
        """Where it is kept; the files of one lineage begin alike."""
        return f"{self.lineage}-{_digest(self.engine_version)[:8]}.json"


def key_of(info: EngineInfo, machine: str, hardware_id: str | None, calibrated_unix_s: float | None) -> StateKey:
    """The key of an engine with these facts on hardware of this id, None for not known.

    ``calibrated_unix_s`` is when the calibration was measured that its reachable times rest on: ratios to others are
    not to be mixed with them. Without a config of the model its name takes that place.
    """
    facts = info.to_json()
    decisive: dict[str, Any] = {name: facts[name] for name in DECISIVE if name in facts}
    if info.model_config is None:
        decisive["model"] = info.base_model_name or info.model_name
    decisive |= {"hardware": hardware_id, "calibrated_unix_s": calibrated_unix_s}
    return StateKey(machine, info.engine, info.engine_version or UNKNOWN, _digest(decisive))


def key_data(key: StateKey) -> Mapping[str, str]:
    """The key as it stands in its file."""
    return asdict(key)


def key_from_data(data: object) -> StateKey:
    """The inverse; ValueError for anything else."""
    names = [field.name for field in fields(StateKey)]
    if not isinstance(data, dict) or set(data) != set(names) or not all(isinstance(data[n], str) for n in names):
        raise ValueError("it names no key")
    return StateKey(**data)


def machine_key(root: Path = Path("/")) -> str:
    """Which machine this is, as calibrations have it; where it has no id, what its processor is."""
    identity = identity_of_cpu(root)
    return identity.machine or _digest(asdict(identity))


def _digest(data: Any) -> str:
    words = json.dumps(data, sort_keys=True, default=str)
    return hashlib.sha256(words.encode()).hexdigest()[:DIGITS]
