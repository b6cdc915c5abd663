"""The recorder: the same records as from a hooked engine, from three lines in anybody's loop.

::

    recorder = Recorder("my-engine", model_config=config, kv_blocks=4096, block_tokens=16)
    while requests:
        with recorder.step(contexts=[r.cached for r in requests]) as step:
            step.generated_tokens = run(requests)

Standard library only. Lengths and counts are recorded, never a token, a name or a path. Once constructed, a
recorder never raises into the engine's loop: what it cannot record it counts, and it warns once.
"""

from __future__ import annotations

import logging
import os
import time
import weakref
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from rooflens.adapters.frames import Payload
from rooflens.adapters.recorder.encode import Encoder, Rows, rows_of
from rooflens.adapters.recorder.step import AGES, COUNTS, DURATIONS, EXTRAS, FACTS, Step
from rooflens.adapters.vllm.info import plain
from rooflens.records import EngineInfo, RooflensError, StepKind
from rooflens.ring import COLD_FIELDS, EVENT, EXTRA_FIELDS, KEY, RECOMPUTE, REPEAT, SLOT_FIELDS, UNKNOWN
from rooflens.ring_folder import SIZES, create_ring, default_folder, host_name
from rooflens.ring_writer import RingWriter, pack_cold

__all__ = ["EVENT", "Recorder", "Step"]

log = logging.getLogger("rooflens")

DISABLE_VARIABLE = "ROOFLENS_DISABLE"
LONGEST_NAME = 64
