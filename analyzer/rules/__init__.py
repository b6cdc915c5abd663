"""The rules: one function a code, pure; each answers firing, cleared (nothing is wrong) or cannot_tell."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from rooflens.analyzer.rules.case import Case
from rooflens.analyzer.rules.engine_stalled import engine_stalled
from rooflens.analyzer.rules.host_overhead import host_overhead
from rooflens.analyzer.rules.insufficient_input import insufficient_input
from rooflens.analyzer.rules.kv_pressure import kv_pressure
from rooflens.analyzer.rules.measurement_invalid import measurement_invalid
from rooflens.analyzer.rules.memory_bound_waste import memory_bound_waste
from rooflens.analyzer.rules.missed_batching import missed_batching
from rooflens.analyzer.rules.prefill_interference import prefill_interference
from rooflens.analyzer.rules.rank_imbalance import rank_imbalance
from rooflens.analyzer.rules.throttling import throttling
from rooflens.findings import Code, Finding

Judge = Callable[[Case], Finding]

RULES: Mapping[Code, Judge] = MappingProxyType({
    Code.ENGINE_STALLED: engine_stalled,
    Code.MEMORY_BOUND_WASTE: memory_bound_waste,
    Code.HOST_OVERHEAD: host_overhead,
    Code.KV_PRESSURE: kv_pressure,
    Code.MISSED_BATCHING: missed_batching,
    Code.PREFILL_INTERFERENCE: prefill_interference,
    Code.THROTTLING: throttling,
    Code.RANK_IMBALANCE: rank_imbalance,
    Code.MEASUREMENT_INVALID: measurement_invalid,
    Code.INSUFFICIENT_INPUT: insufficient_input,
})  # fmt: skip

# Judged in every turn of the loop, from Case.progress; the others when a window closes.
EVERY_TURN = frozenset({Code.ENGINE_STALLED})
