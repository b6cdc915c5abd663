"""How much KV an engine holds, where the two lines that tell it do not agree.

vLLM 0.8 to 0.26 divides the blocks of a hybrid model (attention and Mamba, or windows) by the number of groups and
takes the smallest block: its "KV cache size" was 290,864 tokens where "33.04x" of 32,768 tokens fit, 1,082,655
(vllm-project/vllm#40691, #46462). The concurrency is worked out from the groups and is trusted.
"""

from __future__ import annotations

from collections.abc import Mapping

AGREES = 0.1  # concurrency is printed with two digits, blocks are whole: a tenth is more than both
MOST_ENGINES = 256  # whose size is kept until their concurrency comes


class Capacities:
    """The KV sizes that were told and not compared yet, by who told them."""

    def __init__(self) -> None:
        self._said: dict[tuple[str, int | None, int | None], float] = {}

    def check(self, engine: str, ranks: Mapping[str, int], values: dict[str, float], words: dict[str, str]) -> None:
        """Corrects ``values`` of a start-up line in place, and says why in ``words``, where the two disagree."""
        who = (engine, ranks.get("engine"), ranks.get("pid"))
        tokens = values.get("kv_capacity_tokens")
        concurrency, length = values.get("max_concurrency"), values.get("max_context_tokens")
        if tokens is not None and concurrency is None:
            if len(self._said) < MOST_ENGINES:
                self._said[who] = tokens
            return
        if concurrency is None or length is None:
            return
        told = self._said.pop(who, None) if tokens is None else tokens
        implied = concurrency * length
        if told is None or implied <= 0 or abs(told - implied) <= AGREES * implied:
            return
        values["kv_capacity_said_tokens"], values["kv_capacity_tokens"] = told, implied
        words["complaint"] = (
            f"the KV cache size {told:,.0f} tokens does not agree with {concurrency:g} requests of {length:,.0f} tokens"
            f" (a hybrid model): {implied:,.0f} tokens are taken"
        )
