"""SGLang (0.5.12 to 0.5.23): loaded by SGLang itself through its plugin entry point ``sglang.srt.plugins``."""

from __future__ import annotations

import logging
import os
import sys

from rooflens.adapters.facts import DISABLE_VARIABLE, disabled

SCHEDULER = "sglang.srt.managers.scheduler"


def register() -> None:
    """The entry point: take hold of the scheduler of this process, or leave it alone with one line in its log.

    SGLang calls it in every process; where no scheduler is imported there is nothing to record, and none is imported.
    """
    log = logging.getLogger("sglang.rooflens")
    try:
        if SCHEDULER not in sys.modules:
            return
        if disabled(os.environ):
            log.info("rooflens does not record this engine: %s is set", DISABLE_VARIABLE)
            return
        from rooflens.adapters.sglang.install import install

        install(sys.modules[SCHEDULER])
    except Exception as error:  # nothing of ours may keep the engine from starting
        log.warning("rooflens does not record this engine: %s: %s", type(error).__name__, error)
