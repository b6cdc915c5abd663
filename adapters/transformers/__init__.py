"""transformers' continuous batching (5.0 and newer): exact lengths from its scheduler, one record a forward pass.

transformers has no plugins: take hold of it before the first batch, in one of three ways::

    import rooflens.adapters.transformers as rooflens_hook
    rooflens_hook.install()

    with rooflens_hook.recording():
        model.generate_batch(...)

    python -m rooflens.adapters.transformers -- serve MODEL --continuous-batching

Standard library only. Nothing of it raises into the engine's loop or waits; ROOFLENS_DISABLE=1 keeps it off, and a
release whose signatures it does not know is left alone with one warning.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from rooflens.adapters.facts import DISABLE_VARIABLE, disabled

__all__ = ["install", "recording", "uninstall"]


def install() -> bool:
    """Record every step of continuous batching in this process from now on; whether it does. Idempotent."""
    from rooflens.adapters.transformers import patch

    try:
        if disabled(os.environ):
            patch.log.info("rooflens does not record this engine: %s is set", DISABLE_VARIABLE)
            return False
        return patch.install()
    except Exception as error:  # nothing of ours may keep the engine from starting
        patch.warn_once(f"{type(error).__name__}: {error}")
        return False


def uninstall() -> None:
    """Give the engine its own methods back and end the recordings in order."""
    from rooflens.adapters.transformers import patch

    patch.uninstall()


@contextmanager
def recording() -> Iterator[None]:
    """Record what runs inside; what was recorded before goes on being so."""
    from rooflens.adapters.transformers import patch

    before = patch.installed()
    install()
    try:
        yield
    finally:
        if not before:
            uninstall()
