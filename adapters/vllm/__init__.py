"""vLLM (V1, 0.9.2 and newer): loaded by vLLM itself through its plugin entry point."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping

from rooflens.adapters.facts import DISABLE_VARIABLE, disabled

PLUGIN_NAME = "rooflens"


def excluded(environment: Mapping[str, str]) -> bool:
    """Whether VLLM_PLUGINS names plugins but not this one, so that vLLM will not load the hook."""
    named = environment.get("VLLM_PLUGINS")
    return named is not None and PLUGIN_NAME not in [name.strip() for name in named.split(",")]


def register() -> None:
    """Entry point ``vllm.general_plugins``: take hold of the engine, or leave it alone with one line in its log."""
    log = logging.getLogger("vllm.rooflens")  # under vllm, so that its handlers and format apply
    try:
        if disabled(os.environ):
            log.info("rooflens does not record this engine: %s is set", DISABLE_VARIABLE)
            return
        from rooflens.adapters.vllm.install import install

        install()
    except Exception as error:  # nothing of ours may keep the engine from starting
        log.warning("rooflens does not record this engine: %s: %s", type(error).__name__, error)
