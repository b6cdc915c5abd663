"""Every name that a line's record may hold: one word for one quantity, whatever the engine calls it.

A name that ends in ``_ratio`` is 0 to 1, ``_s`` seconds, ``_bytes`` bytes, ``_per_s`` a rate; one without an ending
is a count. Names with ``_N`` stand for ``_1``, ``_2`` and so on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

LONGEST_LIST = 64  # names of a ``_N`` series that are kept

VALUES: Mapping[str, str] = {
    # the moment
    "running": "requests in the engine's batch",
    "waiting": "requests that wait to be scheduled",
    "swapped": "requests whose KV blocks were moved to the host",
    "deferred": "requests that wait for something other than capacity",
    "kv_used_ratio": "part of the KV pool in use",
    # rates of an interval
    "prompt_tokens_per_s": "prompt tokens computed",
    "generated_tokens_per_s": "tokens generated",
    "prefix_hit_ratio": "part of the prompt tokens found in the engine's prefix cache",
}


def declared(name: str) -> bool:
    """Whether a record may hold a value of this name."""
    return name in VALUES or re.sub(r"_\d+$", "_N", name) in VALUES
