"""The operators of a forward pass: one operator, one row, one place; one file for each kind of layer part."""

from rooflens.analyzer.operators.links import strict_link_bytes, strict_link_share
from rooflens.analyzer.operators.lora import Lora
from rooflens.analyzer.operators.notes import (
    CACHE_NOTE_RATIO,
    USUAL_LINK_DOMAIN,
    cache_note,
    check_link,
    kv_bytes_per_token,
    link_notes,
    rate_flops_per_s,
    unknown_rate,
)
from rooflens.analyzer.operators.works import ONE_DEVICE, distinct_stages, mtp_works, stage_works, works

__all__ = [
    "CACHE_NOTE_RATIO", "ONE_DEVICE", "USUAL_LINK_DOMAIN", "Lora", "cache_note", "check_link", "distinct_stages",
    "kv_bytes_per_token", "link_notes", "mtp_works", "rate_flops_per_s", "stage_works", "strict_link_bytes",
    "strict_link_share", "unknown_rate", "works",
]  # fmt: skip
