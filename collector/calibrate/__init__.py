"""What this machine reaches, measured, and kept in a file that is found again by the machine's identity."""

from __future__ import annotations

from rooflens.collector.calibrate.better import why_better
from rooflens.collector.calibrate.identity import identities_here, identity_of_cpu, identity_of_torch
from rooflens.collector.calibrate.run import calibrate, without_torch
from rooflens.collector.calibrate.store import (
    Found,
    check_folder,
    find,
    is_stale,
    lacking,
    load,
    save,
    state_folder,
    why_foreign,
    words_of,
)
from rooflens.collector.calibrate.versions import versions_here

__all__ = [
    "Found",
    "calibrate",
    "check_folder",
    "find",
    "identities_here",
    "identity_of_cpu",
    "identity_of_torch",
    "is_stale",
    "lacking",
    "load",
    "save",
    "state_folder",
    "versions_here",
    "why_better",
    "why_foreign",
    "without_torch",
    "words_of",
]
